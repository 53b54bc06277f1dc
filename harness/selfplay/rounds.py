"""Play rounds of self-play: inject and validate bugs, run several attempts at each, grade and reward them.

A finished round is stored under a hash of everything it depends on. A round with ungraded attempts is not finished, nor
are the rounds after it: grades decide what is drawn later. Its attempts and grades are stored, so that a run resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.agents.process_reward import ProcessReward
from harness.executors.local import LocalExecutor
from harness.executors.protocol import Executor
from harness.injectors.campaign import ArtifactInjector
from harness.injectors.model_work import InjectorRecipe
from harness.records.episode import Episode, count_ungraded
from harness.rollouts.attempts_work import PlayersRecipe
from harness.rollouts.runner import count_resolved
from harness.selfplay.curriculum import Traits
from harness.selfplay.higher_order import (
    PARENT_FORM,
)
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project, unique_names
from harness.selfplay.project_play import Cast, ProjectPlay, Watch
from harness.selfplay.round_store import EPISODES, read_round, round_name
from harness.solvers.protocol import Solver
from harness.storage.code_version import code_hash
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks import names_of
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.protocol import Injector, identities
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.store import Store, key_of
from pytest_ssr.storage.verdict_store import Verdicts


class SelfPlay:
    """Plays rounds over projects."""

    def __init__(
        self,
        projects: Sequence[Project],
        store: Store,
        solver: Solver,
        settings: PlaySettings,
        *,
        injectors: Sequence[Injector] = (),
        model: ArtifactInjector | None = None,
        judge: ProcessReward | None = None,
        watch: Watch | None = None,
        executor: Executor | None = None,
        players: PlayersRecipe | None = None,
        model_recipe: InjectorRecipe | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        """Copy the projects and open their runners.

        model: injects instead of `injectors`. executor: tries candidates and runs attempts; None for threads here.
        players, model_recipe: open the solver with the judge, and the model, elsewhere; None to send them there.
        extensions: have the sandboxes and checks of plugins, and observe verdicts.

        Raises SsrError if a project, its interpreter or its sandbox cannot be used.
        """
        extensions = extensions or Extensions()
        self.store, self.settings = store, settings
        self._cast = Cast(
            store,
            solver,
            settings,
            injectors,
            model,
            judge,
            watch or Watch(),
            executor or LocalExecutor(settings.jobs),
            players,
            model_recipe,
            extensions,
        )
        sandboxes = extensions.sandboxes()
        self.runners = [
            open_runner(
                project.folder,
                store,
                settings=settings.rule,
                sandbox=project.sandbox or settings.sandbox,
                python=project.python or settings.python,
                test_runner=project.test_runner,
                model_written=settings.model_written,
                extra_sandboxes=sandboxes,
                shown_at=project.shown_at,
            )
            for project in projects
        ]
        names = unique_names([r.snapshot for r in self.runners])
        self._plays = [ProjectPlay(self._cast, r, name) for r, name in zip(self.runners, names, strict=True)]
        self.key = self._key()

    def _key(self) -> str:
        """Return the run's name in the store: a hash of everything a round depends on, except the number of rounds."""
        settings, cast = self.settings, self._cast
        return key_of(
            code_hash(),
            [(b.snapshot.tree_hash, b.interpreter.environment_hash, b.provider.name) for b in self.runners],
            [identities(cast.injectors, b.snapshot) for b in self.runners],
            cast.model and (cast.model.key, [cast.model.history(b.snapshot) for b in self.runners]),
            getattr(cast.solver, "key", cast.solver.name),
            cast.judge and (cast.judge.key, cast.judge.coefficient),
            settings.rule.key(),
            settings.count,
            settings.attempts,
            settings.seed,
            settings.alpha,
            settings.reward,
            settings.adaptive,
            settings.higher_order,
            settings.grade_unsubmitted,
            settings.grade_by,
            *([PARENT_FORM] if settings.higher_order_form == PARENT_FORM else []),
            *(b.test_runner for b in self.runners if b.test_runner != PYTEST),
            *filter(None, [names_of(cast.checks)]),
        )

    def originals(self) -> dict[str, CodebaseState]:
        """Return the code of each project, by the name that its episodes have."""
        return {play.name: play.runner.original for play in self._plays}

    def verdict(self, episode: Episode) -> Verdict | None:
        """Return the verdict on the bug of an episode; None if the store has none."""
        runner = next(play.runner for play in self._plays if play.name == episode.project)
        verdicts = Verdicts(self._cast.store, runner, extra_checks=names_of(self._cast.checks))
        return verdicts.get(episode.artifact_id)

    def play(self) -> list[Episode]:
        """Play all rounds and return the episodes in order.

        Raises ModelError if a model gives no reply; finished results are stored, and the same run can be resumed.
        """
        rounds: list[Episode] = []
        for number in range(self.settings.rounds):
            final = not count_ungraded(rounds)
            play_project = partial(self._round, number, final=final)
            # One project does not fill several machines.
            at_once = len(self._plays) if self._cast.executor.is_remote else 1
            results = list(self._cast.together(play_project, len(self._plays), at_once))
            for play, episodes in zip(self._plays, results, strict=True):
                self._learn(play, episodes)
                rounds += episodes
            self._cast.watch.round(number + 1, [e for episodes in results for e in episodes])
        return rounds

    def _round(self, number: int, project_index: int, *, final: bool) -> list[Episode]:
        """Return the episodes of one project in one round, from the store if it is finished.

        final: the round may be stored as finished, because no earlier round lacks a grade.
        """
        play = self._plays[project_index]
        episodes = read_round(self.store, self.key, number, project_index, attempts=self.settings.attempts)
        if episodes is None:
            episodes = list(play.play(number))
            # A thread is not interrupted, and must not take a part of a round for all of it.
            raise_if_stopped()
            if final and not count_ungraded(episodes):
                data = [e.to_json(alpha=self.settings.alpha, kind=self.settings.reward) for e in episodes]
                self.store.put_record(f"{EPISODES}/{self.key}", round_name(number, project_index), {"episodes": data})
        play.add_seen(episodes)
        for episode in episodes:
            self._cast.watch.episode(episode)
        return episodes

    def _learn(self, play: ProjectPlay, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            if episode.order > 1 or not episode.counts:
                continue
            solved, graded = count_resolved(episode.rollouts)
            length = play.functions.statements(episode.path, episode.scope)
            # Rewards of an operator carry over to other projects; those of a file's name do not.
            for other in self._plays:
                path = episode.path if other is play else ""
                traits = Traits(episode.strategy, episode.operator, path, episode.lines, length)
                other.table.update(traits, valid=episode.valid, solved=solved, graded=graded)
