"""Play one round of self-play over one project: inject and validate bugs, run the solver on each of them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from harness.agents.process_reward import ProcessReward
from harness.executors.local import LocalExecutor
from harness.executors.protocol import Executor, Work
from harness.injectors.campaign import ArtifactInjector, ModelCampaign
from harness.injectors.campaign_work import CampaignWork
from harness.injectors.external import ExternalInjector
from harness.injectors.model_work import InjectorRecipe, ModelWork
from harness.records.attempt import Attempt
from harness.records.episode import Episode, Refusal, RefusalCode
from harness.records.job_reports import Stage
from harness.records.trajectory import ExitReason
from harness.records.usage import RunUsage
from harness.rollouts.attempts_work import AttemptsWork, PlayersRecipe
from harness.rollouts.runner import RolloutRunner, validated_verdict
from harness.selfplay.curriculum import Curriculum, Functions, Table
from harness.selfplay.higher_order import (
    PARENT_FORM,
    FailedRepair,
    HigherOrderArtifacts,
    HigherOrderInjector,
    failed_repairs,
    parent_rules,
)
from harness.selfplay.play_settings import PlaySettings
from harness.solvers.protocol import Solver
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.parallel import GIVE_UP_AFTER, run_candidates
from pytest_ssr.checks import NamedCheck
from pytest_ssr.errors import ArtifactError, LeakError, ModelError, ModelUnavailableError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.interrupts import raise_if_stopped, workers
from pytest_ssr.patch import Patch
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.storage.store import Store, key_of

_MOST_TOGETHER = 64
"""How many projects, and how many bugs of each, are worked on at the same time if there are other machines."""
_T = TypeVar("_T")


@dataclass(slots=True)
class Watch:
    """Callbacks for events of a run."""

    status: Callable[[str], None] = lambda _: None
    stage: Callable[[Stage], None] = lambda _: None
    attempt: Callable[[int, str, CandidateResult], None] = lambda *_: None
    rollout: Callable[[Episode, Attempt], None] = lambda *_: None
    episode: Callable[[Episode], None] = lambda _: None
    round: Callable[[int, Sequence[Episode]], None] = lambda *_: None
    """The results of one round, counted from 1."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The players of a run, and what its projects share."""

    store: Store
    solver: Solver
    settings: PlaySettings
    injectors: Sequence[Injector]
    model: ArtifactInjector | None
    """Injects instead of `injectors`."""
    judge: ProcessReward | None
    watch: Watch
    executor: Executor
    players: PlayersRecipe | None
    """Opens the solver with the judge elsewhere; None to send them there."""
    model_recipe: InjectorRecipe | None
    """Opens `model` elsewhere; None to send it there."""
    extensions: Extensions
    measuring: threading.Lock = field(default_factory=threading.Lock)
    """Suites that run beside each other take longer, and limits follow from how long they take."""
    observing: threading.Lock = field(default_factory=threading.Lock)
    """Plugins are told of one verdict at a time."""

    @property
    def checks(self) -> Sequence[NamedCheck]:
        """The checks of plugins."""
        return self.extensions.checks()

    def together(self, work: Callable[[int], _T], count: int, at_once: int) -> Iterator[_T]:
        """Yield the results for the numbers below `count`, in order; so many are worked on at the same time."""
        if min(count, at_once) < 2:
            yield from map(work, range(count))
            return
        with workers(min(count, at_once, _MOST_TOGETHER)) as pool:
            futures = [pool.submit(work, number) for number in range(count)]
            # An error ends the run now, and not when what comes before it is done.
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            yield from (future.result() for future in futures)

    def solving(self, bugs: int) -> tuple[int, Executor]:
        """Return how many of some bugs are solved at the same time, and what runs the attempts at each of them.

        The jobs of this machine are shared out without a rest, because opening a task and preparing its grade keep but
        one of them busy.
        """
        if not isinstance(self.executor, LocalExecutor):
            return bugs if self.executor.is_remote else 1, self.executor
        jobs = self.executor.jobs
        at_once = max(n for n in range(1, jobs + 1) if n <= bugs and jobs % n == 0)
        return at_once, LocalExecutor(jobs // at_once)


class ProjectPlay:
    """Plays rounds over one project."""

    def __init__(self, cast: Cast, runner: Runner, name: str) -> None:
        """name: of the project in episodes."""
        self._cast, self.runner, self.name = cast, runner, name
        self.functions = Functions(runner.snapshot)
        self.table = Table(cast.settings.attempts, cast.settings.alpha, cast.settings.reward)
        self._seen: set[str] = set()

    def add_seen(self, episodes: Sequence[Episode]) -> None:
        """Note the changes of a finished round, which later rounds do not repeat."""
        self._seen |= {e.change for e in episodes}

    def play(self, number: int) -> Iterator[Episode]:
        """Yield the episodes of a round: its bugs, then those that failed repairs of them became."""
        settings = self._cast.settings
        campaign, most = self._campaign(number)
        try:
            episodes = list(self._episodes(number, campaign, settings.count, most))
        finally:
            campaign.close()
        yield from episodes
        most = settings.higher_order
        failed = [f for e in episodes if e.order == 1 for f in failed_repairs(self._cast.store, e, most)]
        if failed:
            second = self._second_order(number, failed)
            try:
                yield from self._episodes(number, second, len(failed), len(failed))
            finally:
                second.close()

    def _campaign(self, number: int) -> tuple[Campaign | ModelCampaign, int]:
        """Return the campaign of a round and the maximum of candidates; for a model, the number of wanted bugs."""
        settings = self._cast.settings
        if self._cast.model is not None:
            seed = int(key_of(settings.seed, number)[:6], 16)
            runner, model, most = self.runner.scoped(), self._cast.model, settings.count
            if isinstance(model, ExternalInjector):
                model = model.part(runner.snapshot, number, most)
                most = len(model.directories)
            return self._of_model(runner, model, seed), most
        injectors = [Curriculum(self._cast.injectors, self.table)] if settings.adaptive else self._cast.injectors
        return self._without_model(number, injectors), GIVE_UP_AFTER * settings.count

    def _second_order(self, number: int, failed: Sequence[FailedRepair]) -> Campaign | ModelCampaign:
        if self._cast.settings.higher_order_form != PARENT_FORM:
            return self._without_model(number, [HigherOrderInjector(failed)])
        runner = self.runner.scoped()
        runner = replace(runner, settings=parent_rules(runner.settings))
        return self._of_model(runner, HigherOrderArtifacts(failed), self._cast.settings.seed + number)

    def _of_model(self, runner: Runner, injector: ArtifactInjector, seed: int) -> ModelCampaign:
        return ModelCampaign(runner, self._cast.store, injector, seed=seed, extra_checks=self._cast.checks)

    def _without_model(self, number: int, injectors: Sequence[Injector]) -> Campaign:
        # Suites that run beside each other take longer, and limits follow from how long they take.
        with self._cast.measuring:
            return Campaign(
                self.runner.scoped(),
                self._cast.store,
                injectors,
                seed=self._cast.settings.seed + number,
                extra_checks=self._cast.checks,
            )

    def _episodes(self, number: int, campaign: Campaign | ModelCampaign, count: int, most: int) -> Iterator[Episode]:
        """Make `count` bugs and run the solver on each; changes that no test notices are not episodes.

        A repeated bug of a model is an episode, because it was paid for, but no solver runs on it.
        """
        by_model = isinstance(campaign, ModelCampaign)
        self._cast.watch.stage(Stage.INJECT)

        def report(result: CandidateResult) -> None:
            if self._fresh([result]):
                self._cast.watch.attempt(number, self.name, result)

        results = run_candidates(
            campaign,
            Goal(count),
            units=self._cast.executor.units(self._candidates(campaign)),
            most=most,
            report=report,
            progress=lambda done: self._cast.watch.status(_progress(number, self.name, done, count)),
            only=list if by_model else lambda done: self._fresh(done),
        )
        raise_if_stopped()
        fresh = {a.index for a in self._fresh(results)}
        valid = [a for a in results if a.status is CandidateStatus.VALID and a.index in fresh]
        if valid:
            self._cast.watch.stage(Stage.SOLVE)
        for result in results:
            if result.status is CandidateStatus.REJECTED or result.index not in fresh:
                yield self._episode(number, campaign, result, repeated=result.index not in fresh)

        first = 0
        while first < len(valid):
            left = len(valid) - first
            at_once, executor = self._cast.solving(left)

            def solve(nth: int, first: int = first, executor: Executor = executor) -> Episode:
                nth += first
                return self._solve(number, campaign, valid[nth], f"bug {nth + 1} of {len(valid)}", executor)

            # With what is left, fewer are solved at the same time, each with more of the jobs.
            count = left - left % at_once
            yield from self._cast.together(solve, count, at_once)
            first += count

    def _candidates(self, campaign: Campaign | ModelCampaign) -> Work[int, CandidateResult | None]:
        if isinstance(campaign, ModelCampaign):
            return ModelWork(campaign, self._cast.model_recipe if campaign.injector is self._cast.model else None)
        return CampaignWork(campaign)

    def _fresh(self, results: Sequence[CandidateResult]) -> list[CandidateResult]:
        """Drop changes that occurred before, in an earlier round or in this one."""
        seen, fresh = set(self._seen), []
        for result in results:
            change = _hash(result.diff)
            if not change or change not in seen:
                fresh.append(result)
            seen.add(change)
        return fresh

    def _solve(
        self,
        number: int,
        campaign: Campaign | ModelCampaign,
        result: CandidateResult,
        which: str,
        executor: Executor,
    ) -> Episode:
        """Run the solver on a bug, several attempts at a time."""
        settings, draft = self._cast.settings, self._episode(number, campaign, result)
        artifact, runner = self._cast.store.artifact(result.artifact_id), campaign.runner.scoped()
        verdict = validated_verdict(artifact, runner, self._cast.store, extra_checks=self._cast.checks)
        with self._cast.observing:
            self._cast.extensions.observe(verdict)
        solving = RolloutRunner(
            runner,
            artifact,
            verdict,
            self._cast.solver,
            self._cast.store,
            seed=settings.seed,
            grade_unsubmitted=settings.grade_unsubmitted,
            rule=settings.grade_by,
            judge=self._cast.judge,
            baseline=lambda: campaign.baseline,
        )

        place, done = f"round {number + 1}, {draft.project}: {which}", 0
        self._cast.watch.status(f"{place}, 0 of {settings.attempts} attempts")

        def report(rollout: Attempt) -> None:
            nonlocal done
            done += 1
            self._cast.watch.status(f"{place}, {done} of {settings.attempts} attempts")
            self._cast.watch.rollout(draft, rollout)

        try:
            units = executor.units(AttemptsWork(solving, self._cast.players))
            rollouts = solving.attempts(settings.attempts, units=units, progress=report)
        except ProjectError as error:
            code = RefusalCode.FIX_READABLE if isinstance(error, LeakError) else RefusalCode.PROJECT_UNUSABLE
            return self._episode(number, campaign, result, refused=Refusal(code, str(error)))
        ends = {r.exit_reason for r in rollouts}
        if ends <= {ExitReason.MODEL, ExitReason.UNAVAILABLE}:
            kind = ModelUnavailableError if ExitReason.UNAVAILABLE in ends else ModelError
            raise kind(f"no attempt at {draft.artifact_id} has a grade: {rollouts[0].reason}")
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
        info = self._cast.store.artifact(result.artifact_id).info if valid else {}
        spent = campaign.spent(result.index) if isinstance(campaign, ModelCampaign) else RunUsage()
        return Episode(
            project=self.name,
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
            injection=campaign.rollout_of(result.index) if isinstance(campaign, ModelCampaign) else "",
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
