"""Train the search policy by self-play: the curriculum draws bugs, the solver attempts them, and both learn.

After every round the ranker is fitted again, to static bugs and to the bugs of all rounds, so that what the injector no
longer draws is not forgotten. Then it is measured on a fixed set of bugs of held-out projects. Rounds,
held-out bugs and results are in the store: a run that was ended continues.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from harness.executors.local import LocalExecutor
from harness.executors.protocol import Executor
from harness.injectors.campaign_work import CampaignWork
from harness.local_models.sampling import open_sampler
from harness.records.episode import Episode, Refusal, count_graded
from harness.records.rewards import best_solve_rate
from harness.rollouts.runner import PATCH, ROLLOUTS
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project, unique_names
from harness.selfplay.project_play import Watch
from harness.selfplay.rounds import SelfPlay
from harness.solvers.search.policy import Policy
from harness.solvers.search.project_files import files_of
from harness.solvers.search.solver import SearchSolver
from harness.solvers.writer.failing_test import failure_in
from harness.solvers.writer.mixed import MixedSolver
from harness.storage.atomic_write import write_text
from harness.training.search.examples import Bug
from harness.training.search.held_out import HeldOutBug, HeldOutBugs, bug_lines, solved_shares
from harness.training.search.language_lists import ReadList
from harness.training.search.language_training import LanguageTeacher
from harness.training.search.policy_fitting import Lesson, ProvenExamples, StaticData, fit_policy, validation_folders
from harness.training.search.rates import Rate, rate_of
from harness.training.search.stored_bugs import bug_in_one_function
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import load_injectors, open_runner
from pytest_ssr.campaign.parallel import GIVE_UP_AFTER, run_candidates
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateStatus, Goal
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, key_of

BUDGETS = (5, 20, 100)
_HELD_OUT_SEED = 7919
POLICIES = "policies"


@dataclass(slots=True)
class LearningSearch(SearchSolver):
    """The solver `search` with a policy that changes between rounds; its key names the schedule of all policies."""

    schedule: str = ""

    @property
    def key(self) -> str:
        """A hash of everything that a run of self-play with this solver depends on."""
        return key_of("learning", self.schedule, self.tries, self.wall_s)


@dataclass(slots=True, kw_only=True)
class LearningMixture(MixedSolver):
    """The same with what the language model writes among the candidates; the model changes between rounds, too."""

    schedule: str = ""

    @property
    def key(self) -> str:
        """A hash of everything that a run of self-play with this solver depends on."""
        return key_of("learning and writing", self.schedule, self.tries, self.wall_s, self.temperature)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How a policy is measured and fitted."""

    held_out_bugs: int = 20
    """Bugs of each held-out project."""
    budget: int = 100
    """Candidates of one attempt at a held-out bug."""
    seeds: int = 3
    """Attempts at each held-out bug."""
    injectors: str = "mutation,removal"
    lesson: Lesson = Lesson.BOTH


@dataclass(frozen=True, slots=True)
class NotAttempted:
    """Valid bugs of a round that the solver was not run on."""

    project: str
    bugs: int
    reason: Refusal
    """Of the first of them."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a language model learned after a round."""

    model: str
    """The folder of its adapter."""
    rows: int
    proven: int
    """The number of rows from the bugs that the round has proven."""
    loss_first: float | None
    loss_last: float | None


class Learner(Protocol):
    """Trains a language model after each round."""

    def check(self, run: str) -> None:
        """Prepare what can be prepared before the first round, and raise SsrError if it could not learn.

        run: the key of the run, whose rows and models are kept apart from those of other runs.
        """
        ...

    def learn(self, number: int, bugs: Sequence[tuple[str, Bug]]) -> Learned:
        """Train the model of the round before. bugs: those of the round, each with the name of its project.

        The same round gives the same model; one that was trained before is only read.
        """
        ...


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a round gave. Round 0 is before any play, with the policy of static bugs."""

    round: int
    proven: int
    """The number of proven bugs that were learned from until then."""
    solve_rate: float | None
    """The share of resolved attempts at the bugs that the curriculum drew in this round."""
    target: float
    """The solve rate with the highest reward for the injector."""
    held_out: tuple[Rate, ...]
    """The solve rates on held-out bugs by number of candidates."""
    not_attempted: tuple[NotAttempted, ...] = ()
    """By project."""
    language: Learned | None = None
    """None without a language model, or if it does not learn."""


@dataclass(frozen=True, slots=True)
class LoopReport:
    """The results of a run."""

    bugs: int
    """The number of held-out bugs."""
    patterns: tuple[Rate, ...]
    """Their solve rates by the weights of the patterns, without a policy."""
    rounds: tuple[RoundReport, ...]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data."""
        return asdict(self)


@dataclass(slots=True)
class Loop:
    """Plays, fits and measures."""

    projects: Sequence[Project]
    held_out: Sequence[Project]
    store: Store
    collect: Callable[[], StaticData]
    """Returns the examples of static bugs; called after all projects have been opened, because it takes long."""
    play: PlaySettings
    settings: LoopSettings
    solver: LearningSearch | LearningMixture
    folder: Path
    """The folder of the policy."""
    watch: Watch
    finished: Callable[[RoundReport], None]
    """Called after every round."""
    executor: Executor = field(default_factory=LocalExecutor)
    """Tries the candidates and runs the attempts."""
    open_teacher: Callable[[StaticData], LanguageTeacher] | None = None
    """Returns what teaches policies to use a language model; None without one."""
    learner: Learner | None = None
    """Trains the language model; None if it stays as it is."""
    _validating: frozenset[Path] = frozenset()
    """The folders of the projects that decide when to stop; nothing else is learned from them."""
    _static: StaticData = field(init=False)
    _proven: ProvenExamples = field(default_factory=ProvenExamples)
    """The examples of all rounds so far."""
    _teacher: LanguageTeacher | None = None
    _read: list[ReadList] = field(default_factory=list)
    """What a language model read of the proven bugs of all rounds so far."""
    _bugs_learned: int = 0
    _reports: list[RoundReport] = field(default_factory=list)

    def run(self) -> LoopReport:
        """Play all rounds; write the policy of the last one to the folder. Raises SsrError."""
        seed, played = self.play.seed, [project.folder for project in self.projects]
        injectors = load_injectors(self.settings.injectors)
        watch = replace(self.watch)
        run = SelfPlay(
            self.projects,
            self.store,
            self.solver,
            self.play,
            injectors=injectors,
            watch=watch,
            executor=self.executor,
        )
        held_out = self._open_held_out(run)
        self._static = self.collect()
        if self.learner is not None:
            self.learner.check(run.key)
        self._validating = validation_folders(self._static, seed=seed, played=played)
        if self.open_teacher is not None:
            self._teacher = self.open_teacher(self._static)
        policy = self._fit()
        self.solver.policy = policy
        bugs = [bug for name, runner in held_out for bug in self._held_out_bugs(name, runner)]
        with tempfile.TemporaryDirectory(prefix="ssr-held-out-") as scratch:
            measured = HeldOutBugs(
                bugs, self.store, Path(scratch), most=self.settings.budget, seeds=self.settings.seeds
            )
            before, start = measured.places([None, policy], watch=self.watch.status)
            patterns = self._rates(bugs, before)
            self._report(RoundReport(0, 0, None, self._target, self._rates(bugs, start)))

            def after(number: int, episodes: Sequence[Episode]) -> None:
                self.watch.round(number, episodes)
                self._learn(number, episodes, run, bugs, measured)

            watch.round = after
            run.play()
        assert self.solver.policy is not None
        self.solver.policy.save(self.folder)
        return LoopReport(len(bugs), patterns, tuple(self._reports))

    def _fit(self) -> Policy:
        """Return the policy of all rounds so far."""
        policy = fit_policy(self._static, self._proven, seed=self.play.seed, validating=self._validating)
        return self._teacher.teach(policy, self._read)[0] if self._teacher is not None else policy

    @property
    def _target(self) -> float:
        return best_solve_rate(self.play.attempts, alpha=self.play.alpha)

    def _learn(
        self, number: int, episodes: Sequence[Episode], run: SelfPlay, bugs: Sequence[HeldOutBug], measured: HeldOutBugs
    ) -> None:
        """Fit the policy to all rounds so far, and measure it."""
        self.watch.status(f"round {number}: fitting the policy")
        bugs_of_round = list(self._bugs(run, episodes))
        self._bugs_learned += len(bugs_of_round)
        self._proven += ProvenExamples.of(bugs_of_round, self._static, self.settings.lesson)
        if self._teacher is not None:
            # By the model of the round before, which did not learn from these bugs.
            folders = {name: state.snapshot.origin for name, state in run.originals().items()}
            self._read += self._teacher.read_proven((name, folders[name], bug) for name, bug in bugs_of_round)
        learned = self.learner.learn(number, bugs_of_round) if self.learner is not None else None
        if learned is not None and isinstance(self.solver, LearningMixture):
            self.solver.sampler = open_sampler(learned.model, option="lm")
        if self._teacher is not None and learned is not None:
            self._teacher = self._teacher.using(learned.model)
        policy = self._fit()
        policy.save(self.folder / POLICIES / f"round-{number:03d}")
        self.solver.policy = policy
        self.solver.forget()
        solved, graded = count_graded([e for e in episodes if e.valid and e.order == 1])
        (places,) = measured.places([policy], watch=self.watch.status)
        rate = solved / graded if graded else None
        rates, left = self._rates(bugs, places), tuple(not_attempted(episodes))
        self._report(RoundReport(number, self._bugs_learned, rate, self._target, rates, left, learned))

    def _bugs(self, run: SelfPlay, episodes: Sequence[Episode]) -> Iterator[tuple[str, Bug]]:
        """Yield the first-order bugs of episodes with their projects and their resolved repairs."""
        originals = run.originals()
        validating = {folder.resolve() for folder in self._validating}
        names = {name for name, state in originals.items() if state.snapshot.origin.resolve() in validating}
        projects = {name: functools.cache(functools.partial(files_of, state)) for name, state in originals.items()}
        for episode in episodes:
            if not episode.valid or episode.order > 1 or episode.repeated or episode.project in names:
                continue
            original, artifact = originals[episode.project], self.store.artifact(episode.artifact_id)
            weakened = original.apply(artifact.bug).apply(artifact.weaken)
            bug = bug_in_one_function(artifact, episode.operator, original.entry)
            if bug is not None:
                repairs = tuple(repaired_files(bug.path, weakened, self._resolved(episode)))
                verdict = run.verdict(episode)
                failure = failure_in(verdict, original) if verdict is not None and verdict.valid else None
                more = replace(bug, repairs=repairs, project=projects[episode.project], failure=failure)
                yield episode.project, more

    def _resolved(self, episode: Episode) -> Iterator[Patch]:
        """Yield the patches of an episode's resolved attempts."""
        for rollout in episode.rollouts:
            data = self.store.file(f"{ROLLOUTS}/{rollout.id}", PATCH) if rollout.verdict else None
            if data is not None:
                yield Patch.parse(data)

    def _rates(self, bugs: Sequence[HeldOutBug], places: Sequence[Sequence[int]]) -> tuple[Rate, ...]:
        if not bugs:
            return ()
        names = [bug.project for bug in bugs]
        budgets = [b for b in BUDGETS if b <= self.settings.budget] or [self.settings.budget]
        return tuple(rate_of(b, solved_shares(places, b), names, self.play.seed) for b in budgets)

    def _report(self, report: RoundReport) -> None:
        self._reports.append(report)
        self.finished(report)

    def _open_held_out(self, run: SelfPlay) -> list[tuple[str, Runner]]:
        """Open the held-out projects, and measure the tests of all projects; return each one's name and runner.

        A project that cannot be used is reported here, before hours of work. Raises SsrError for it, and for projects
        that hold the same files: their bugs would count twice.
        """
        settings = self.play
        runners = [
            open_runner(
                project.folder,
                self.store,
                settings=settings.rule,
                sandbox=project.sandbox or settings.sandbox,
                python=project.python or settings.python,
                test_runner=project.test_runner,
                model_written=settings.model_written,
                shown_at=project.shown_at,
            )
            for project in self.held_out
        ]
        every = [*run.runners, *runners]
        names = unique_names([runner.snapshot for runner in every])
        for name, runner in zip(names, every, strict=True):
            self.watch.status(f"{name}: measuring the tests")
            project_baseline(runner, self.store)
        return list(zip(names[len(run.runners) :], runners, strict=True))

    def _held_out_bugs(self, name: str, runner: Runner) -> Iterator[HeldOutBug]:
        """Make the bugs of a held-out project with operators in balance, or read them from the store."""
        settings, count = self.play, self.settings.held_out_bugs
        injectors = load_injectors(self.settings.injectors)
        campaign = Campaign(runner, self.store, injectors, seed=settings.seed + _HELD_OUT_SEED)
        try:
            results = run_candidates(
                campaign,
                Goal(count),
                units=self.executor.units(CampaignWork(campaign)),
                most=GIVE_UP_AFTER * count,
                report=lambda _: None,
                progress=lambda done: self.watch.status(f"{name}, held out: {len(done)} candidates"),
            )
        finally:
            campaign.close()
        for result in results:
            if result.status is CandidateStatus.VALID:
                artifact = self.store.artifact(result.artifact_id)
                lines = bug_lines(runner.original, artifact)
                yield HeldOutBug(name, result.artifact_id, result.operator, lines, artifact, runner)


def repaired_files(path: str, weakened: CodebaseState, patches: Iterable[Patch]) -> Iterator[bytes]:
    """Yield the contents of a bug's file after the patches that change no other file.

    A patch of another file, too, may leave the bug, or a part of it, in this one.
    """
    for patch in patches:
        entry = weakened.apply(patch).entry(path) if set(patch.paths) == {path} else None
        if entry is not None:
            yield entry.data


def not_attempted(episodes: Sequence[Episode]) -> Iterator[NotAttempted]:
    """Yield by project what the solver was not run on."""
    reasons: dict[str, list[Refusal]] = {}
    for episode in episodes:
        if episode.refused is not None:
            reasons.setdefault(episode.project, []).append(episode.refused)
    for project, refusals in reasons.items():
        yield NotAttempted(project, len(refusals), refusals[0])


def write_report(report: LoopReport, folder: Path) -> Path:
    """Write the report as `report.json`; return its path."""
    path = folder / "report.json"
    write_text(path, json.dumps(report.to_json(), indent=1) + "\n")
    return path
