"""Play rounds of self-play: inject and validate bugs, run several attempts at each, grade and reward them.

A finished round is stored under a hash of everything it depends on. A round with ungraded attempts is not finished, nor
are the rounds after it: grades decide what is drawn later. Its attempts and grades are stored, so that a run resumes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

from harness.agents.process_reward import ProcessReward
from harness.executors.local import LocalExecutor
from harness.executors.protocol import Executor, Work
from harness.injectors.campaign import ArtifactInjector, ModelCampaign
from harness.injectors.campaign_work import CampaignWork
from harness.injectors.external import ExternalInjector
from harness.injectors.model_work import InjectorRecipe, ModelWork
from harness.records.attempt import Attempt
from harness.records.episode import Episode, Refusal, RefusalCode, count_ungraded
from harness.records.usage import RunUsage
from harness.rollouts.attempts_work import AttemptsWork, PlayersRecipe
from harness.rollouts.runner import RolloutRunner, count_resolved, validated_verdict
from harness.selfplay.curriculum import Curriculum, Functions, Table, Traits
from harness.selfplay.higher_order import (
    PARENT_FORM,
    FailedRepair,
    HigherOrderArtifacts,
    HigherOrderInjector,
    failed_repairs,
    parent_rules,
)
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project, unique_names
from harness.selfplay.round_store import EPISODES, read_round, round_name
from harness.solvers.protocol import Solver
from harness.storage.code_version import code_hash
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.campaign.parallel import GIVE_UP_AFTER, run_candidates
from pytest_ssr.checks import names_of
from pytest_ssr.errors import ArtifactError, LeakError, ModelError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.protocol import Injector, identities
from pytest_ssr.interrupts import raise_if_stopped, workers
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.storage.store import Store, key_of

_MOST_TOGETHER = 64
"""How many projects, and how many bugs of each, are worked on at the same time if there are other machines."""
_T = TypeVar("_T")


@dataclass(slots=True)
class Watch:
    """Callbacks for events of a run."""

    status: Callable[[str], None] = lambda _: None
    attempt: Callable[[int, str, CandidateResult], None] = lambda *_: None
    rollout: Callable[[Episode, Attempt], None] = lambda *_: None
    episode: Callable[[Episode], None] = lambda _: None
    round: Callable[[int, Sequence[Episode]], None] = lambda *_: None
    """The results of one round, counted from 1."""


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
        self.store, self.solver, self.settings = store, solver, settings
        self._injectors, self._model, self._judge, self.watch = injectors, model, judge, watch or Watch()
        self._executor = executor or LocalExecutor(settings.jobs)
        self._players, self._model_recipe = players, model_recipe
        self._extensions = extensions or Extensions()
        self._extra_checks, sandboxes = self._extensions.checks(), self._extensions.sandboxes()
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
            )
            for project in projects
        ]
        self._names = unique_names([b.snapshot for b in self.runners])
        self._functions = [Functions(b.snapshot) for b in self.runners]
        self._tables = [Table(settings.attempts, settings.alpha, settings.reward) for _ in projects]
        self._seen: list[set[str]] = [set() for _ in projects]
        self._measuring = threading.Lock()
        self.key = self._key()

    def _key(self) -> str:
        """Return the run's name in the store: a hash of everything a round depends on, except the number of rounds."""
        settings = self.settings
        return key_of(
            code_hash(),
            [(b.snapshot.tree_hash, b.interpreter.environment_hash, b.provider.name) for b in self.runners],
            [identities(self._injectors, b.snapshot) for b in self.runners],
            self._model and (self._model.key, [self._model.history(b.snapshot) for b in self.runners]),
            getattr(self.solver, "key", self.solver.name),
            self._judge and (self._judge.key, self._judge.coefficient),
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
            *filter(None, [names_of(self._extra_checks)]),
        )

    def originals(self) -> dict[str, CodebaseState]:
        """Return the code of each project, by the name that its episodes have."""
        return {self._names[r.snapshot.origin]: r.original for r in self.runners}

    def play(self) -> list[Episode]:
        """Play all rounds and return the episodes in order.

        Raises ModelError if a model gives no reply; finished results are stored, and the same run can be resumed.
        """
        rounds: list[Episode] = []
        for number in range(self.settings.rounds):
            final = not count_ungraded(rounds)
            play_project = partial(self._round, number, final=final)
            results = list(self._together(play_project, range(len(self.runners))))
            for project_index, episodes in enumerate(results):
                self._learn(project_index, episodes)
                rounds += episodes
            self.watch.round(number + 1, [e for episodes in results for e in episodes])
        return rounds

    def _round(self, number: int, project_index: int, *, final: bool) -> list[Episode]:
        """Return the episodes of one project in one round, from the store if it is finished.

        final: the round may be stored as finished, because no earlier round lacks a grade.
        """
        episodes = read_round(self.store, self.key, number, project_index, attempts=self.settings.attempts)
        if episodes is None:
            episodes = list(self._play_round(number, project_index))
            # A thread is not interrupted, and must not take a part of a round for all of it.
            raise_if_stopped()
            if final and not count_ungraded(episodes):
                data = [e.to_json(alpha=self.settings.alpha, kind=self.settings.reward) for e in episodes]
                self.store.put_record(f"{EPISODES}/{self.key}", round_name(number, project_index), {"episodes": data})
        self._seen[project_index] |= {e.change for e in episodes}
        for episode in episodes:
            self.watch.episode(episode)
        return episodes

    def _learn(self, project_index: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            if episode.order > 1 or not episode.counts:
                continue
            solved, graded = count_resolved(episode.rollouts)
            length = self._functions[project_index].statements(episode.path, episode.scope)
            # Rewards of an operator carry over to other projects; those of a file's name do not.
            for other, table in enumerate(self._tables):
                path = episode.path if other == project_index else ""
                traits = Traits(episode.strategy, episode.operator, path, episode.lines, length)
                table.update(traits, valid=episode.valid, solved=solved, graded=graded)

    def _play_round(self, number: int, project_index: int) -> Iterator[Episode]:
        settings = self.settings
        campaign, most = self._campaign(number, project_index)
        try:
            episodes = list(self._episodes(number, project_index, campaign, settings.count, most))
        finally:
            campaign.close()
        yield from episodes
        most = settings.higher_order
        failed = [f for e in episodes if e.order == 1 for f in failed_repairs(self.store, e, most)]
        if failed:
            second = self._second_order(number, project_index, failed)
            try:
                yield from self._episodes(number, project_index, second, len(failed), len(failed))
            finally:
                second.close()

    def _campaign(self, number: int, project_index: int) -> tuple[Campaign | ModelCampaign, int]:
        """Return the campaign of a round and the maximum of candidates; for a model, the number of wanted bugs."""
        settings = self.settings
        if self._model is not None:
            seed = int(key_of(settings.seed, number)[:6], 16)
            runner, model, most = self.runners[project_index].scoped(), self._model, settings.count
            if isinstance(model, ExternalInjector):
                model = model.part(runner.snapshot, number, most)
                most = len(model.directories)
            return self._of_model(runner, model, seed), most
        injectors = [Curriculum(self._injectors, self._tables[project_index])] if settings.adaptive else self._injectors
        return self._without_model(number, project_index, injectors), GIVE_UP_AFTER * settings.count

    def _second_order(
        self, number: int, project_index: int, failed: Sequence[FailedRepair]
    ) -> Campaign | ModelCampaign:
        if self.settings.higher_order_form != PARENT_FORM:
            return self._without_model(number, project_index, [HigherOrderInjector(failed)])
        runner = self.runners[project_index].scoped()
        runner = replace(runner, settings=parent_rules(runner.settings))
        return self._of_model(runner, HigherOrderArtifacts(failed), self.settings.seed + number)

    def _of_model(self, runner: Runner, injector: ArtifactInjector, seed: int) -> ModelCampaign:
        return ModelCampaign(runner, self.store, injector, seed=seed, extra_checks=self._extra_checks)

    def _without_model(self, number: int, project_index: int, injectors: Sequence[Injector]) -> Campaign:
        # Suites that run beside each other take longer, and limits follow from how long they take.
        with self._measuring:
            return Campaign(
                self.runners[project_index].scoped(),
                self.store,
                injectors,
                seed=self.settings.seed + number,
                extra_checks=self._extra_checks,
            )

    def _episodes(
        self, number: int, project_index: int, campaign: Campaign | ModelCampaign, count: int, most: int
    ) -> Iterator[Episode]:
        """Make `count` bugs and run the solver on each; changes that no test notices are not episodes.

        A repeated bug of a model is an episode, because it was paid for, but no solver runs on it.
        """
        by_model = isinstance(campaign, ModelCampaign)
        project = self._names[campaign.snapshot.origin]

        def report(result: CandidateResult) -> None:
            if self._fresh(project_index, [result]):
                self.watch.attempt(number, project, result)

        results = run_candidates(
            campaign,
            Goal(count),
            units=self._executor.units(self._candidates(campaign)),
            most=most,
            report=report,
            progress=lambda done: self.watch.status(_progress(number, project, done, count)),
            only=list if by_model else lambda done: self._fresh(project_index, done),
        )
        raise_if_stopped()
        fresh = {a.index for a in self._fresh(project_index, results)}
        valid = [a for a in results if a.status is CandidateStatus.VALID and a.index in fresh]
        for result in results:
            if result.status is CandidateStatus.REJECTED or result.index not in fresh:
                yield self._episode(number, campaign, result, repeated=result.index not in fresh)

        def solve(nth: int) -> Episode:
            return self._solve(number, campaign, valid[nth], f"bug {nth + 1} of {len(valid)}")

        yield from self._together(solve, range(len(valid)))

    def _together(self, work: Callable[[int], _T], numbers: Sequence[int]) -> Iterator[_T]:
        """Yield the results in order; if there are other machines, all at the same time, as one does not fill them."""
        if not self._executor.is_remote or len(numbers) < 2:
            yield from map(work, numbers)
            return
        with workers(min(len(numbers), _MOST_TOGETHER)) as pool:
            yield from pool.map(work, numbers)

    def _candidates(self, campaign: Campaign | ModelCampaign) -> Work[int, CandidateResult | None]:
        if isinstance(campaign, ModelCampaign):
            return ModelWork(campaign, self._model_recipe if campaign.injector is self._model else None)
        return CampaignWork(campaign)

    def _fresh(self, project_index: int, results: Sequence[CandidateResult]) -> list[CandidateResult]:
        """Drop changes that occurred before, in an earlier round or in this one."""
        seen, fresh = set(self._seen[project_index]), []
        for result in results:
            change = _hash(result.diff)
            if not change or change not in seen:
                fresh.append(result)
            seen.add(change)
        return fresh

    def _solve(self, number: int, campaign: Campaign | ModelCampaign, result: CandidateResult, which: str) -> Episode:
        """Run the solver on a bug, several attempts at a time."""
        settings, draft = self.settings, self._episode(number, campaign, result)
        artifact, runner = self.store.artifact(result.artifact_id), campaign.runner.scoped()
        verdict = validated_verdict(artifact, runner, self.store, extra_checks=self._extra_checks)
        self._extensions.observe(verdict)
        solving = RolloutRunner(
            runner,
            artifact,
            verdict,
            self.solver,
            self.store,
            seed=settings.seed,
            grade_unsubmitted=settings.grade_unsubmitted,
            rule=settings.grade_by,
            judge=self._judge,
            baseline=lambda: campaign.baseline,
        )

        def report(rollout: Attempt) -> None:
            attempts = f"attempt {rollout.attempt + 1} of {settings.attempts}"
            self.watch.status(f"round {number + 1}, {draft.project}: {which}, {attempts}")
            self.watch.rollout(draft, rollout)

        try:
            units = self._executor.units(AttemptsWork(solving, self._players))
            rollouts = solving.attempts(settings.attempts, units=units, progress=report)
        except ProjectError as error:
            code = RefusalCode.FIX_READABLE if isinstance(error, LeakError) else RefusalCode.PROJECT_UNUSABLE
            return self._episode(number, campaign, result, refused=Refusal(code, str(error)))
        if all(r.exit_reason == "model" for r in rollouts):
            raise ModelError(f"no attempt at {draft.artifact_id} has a grade: {rollouts[0].reason}")
        return self._episode(number, campaign, result, rollouts)

    def _episode(
        self,
        number: int,
        campaign: Campaign | ModelCampaign,
        result: CandidateResult,
        rollouts: Sequence[Attempt] = (),
        *,
        refused: Refusal | None = None,
        repeated: bool = False,
    ) -> Episode:
        valid = result.status is CandidateStatus.VALID
        info = self.store.artifact(result.artifact_id).info if valid else {}
        spent = campaign.spent(result.index) if isinstance(campaign, ModelCampaign) else RunUsage()
        return Episode(
            project=self._names[campaign.snapshot.origin],
            artifact_id=result.artifact_id,
            round=number + 1,
            order=2 if result.strategy == "higher-order" else 1,
            parent=str(info.get("parent") or ""),
            strategy=result.strategy,
            operator=result.operator,
            path=result.path,
            scope=result.scope,
            lines=_lines(result.diff),
            fail_to_pass=result.fail_to_pass,
            valid=valid,
            check=result.check,
            reason=result.reason,
            refused=refused,
            repeated=repeated,
            change=_hash(result.diff),
            seconds=result.seconds,
            rollouts=tuple(rollouts),
            **asdict(spent),
        )


def _lines(diff: str) -> int:
    try:
        return Patch.parse(diff.encode("utf-8", "surrogatepass")).stats.lines
    except ArtifactError:
        return 0


def _hash(diff: str) -> str:
    return hashlib.sha256(diff.encode("utf-8", "surrogatepass")).hexdigest()[:24] if diff else ""


def _progress(number: int, project: str, done: Sequence[CandidateResult], count: int) -> str:
    valid = sum(a.status is CandidateStatus.VALID for a in done)
    return f"round {number + 1}, {project}: {len(done)} candidates, {valid} of {count} bugs"
