"""A project in, validated bug artifacts and a map of what its tests miss out.

Candidates have a fixed order that depends on the tree, the injectors and the seed only. Each is tried on its own and
its attempt is written to the store, so that a campaign can be cut off anywhere, spread over processes, and go on. The
result is the first `count` valid attempts in that order, whoever made them and when.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.baselines import baseline_of
from pytest_ssr.checks import Check
from pytest_ssr.checks.case import HASH_SEED, ORDER_SEED
from pytest_ssr.checks.inverse_mutation import without_one
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, NothingToDoError, ProjectError, SettingsError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.screening import FRESH, Screened, Screening
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.injectors.protocol import Candidate, Injector, identities
from pytest_ssr.injectors.turns import in_turn
from pytest_ssr.making import artifact_info, as_attempt_fields, candidate_state, diff_of, make_artifact
from pytest_ssr.outcomes import RunStatus, SuiteRun, some
from pytest_ssr.progress import Progress
from pytest_ssr.project_diff import ProjectDiff, narrowed
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.stopping import Background, TimeIsUpError, background, require_going_on, workers
from pytest_ssr.store import Store, code_hash, key_of
from pytest_ssr.validator import Validation, step_names
from pytest_ssr.verdict import CheckResult, Verdict
from pytest_ssr.verdicts import Verdicts

# A change that acts at import or is reached by many tests takes about thirty times as long to try as another: of both
# kinds as many are tried as take the same time.
_MANY_TESTS = 100
_CHEAP_FOR_ONE = 31
_MOST_WAITING = 100
_STABLE_FROM = "test-script"
"""The step from which on it is known which tests pass every time."""


class Trial:
    """One candidate on its way: the screening run, the making of the artifact, the validation."""

    def __init__(self, campaign: Campaign, index: int, candidate: Candidate) -> None:
        self.index = index
        self.candidate = candidate
        self._campaign = campaign
        self._start = time.perf_counter()
        campaign.verifying.start()
        self._bench = campaign.bench.scoped()
        self._state = candidate_state(campaign.snapshot, candidate)
        self.artifact: BugArtifact | None = None
        self.validation: Validation | None = None
        self.attempt: Attempt | None = None
        self.screened = Screened(SuiteRun(RunStatus.SILENT), frozenset(), FRESH, 0)
        self.disagreement = ""
        self._ahead: Background[None] | None = None

    def screen(self) -> Attempt | None:
        """Run the tests that the change can touch on the buggy state; an Attempt means that it ends here."""
        campaign = self._campaign
        most = int(campaign.bench.settings.max_broken_fraction * len(campaign.baseline.stable))
        return self._judge(campaign.screening.run(self._state, bench=self._bench, stop_after=most + 1))

    def _judge(self, screened: Screened) -> Attempt | None:
        campaign, baseline = self._campaign, self._campaign.baseline
        self.screened, run, failing = screened, screened.run, screened.failing
        if run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED):
            return self._end(AttemptStatus.TIMED_OUT, "screening", run.reason)
        if run.fault:
            return self._end(AttemptStatus.REJECTED, "screening", run.fault)
        if not failing and screened.unexercised:
            why = f"nothing proves that the tests run the changed {some(screened.unexercised)}"
            return self._end(AttemptStatus.NOT_EXERCISED, "screening", why)
        if not failing:
            why = "no test notices it" if screened.selected else "no test reaches it"
            return self._end(AttemptStatus.SURVIVED, "screening", why)
        most = campaign.bench.settings.max_broken_fraction
        if len(failing) > most * len(baseline.stable):
            return self._end(AttemptStatus.REJECTED, "screening", f"more than {most:.0%} of all tests break")
        try:
            self.artifact = make_artifact(self._state, failing, baseline, campaign.bench.settings)
            idle = self._idle_part(self.artifact, failing) if self.candidate.strategy == "combination" else ""
        except ArtifactError as error:
            return self._end(AttemptStatus.REJECTED, "weakening", str(error))
        if idle:
            return self._end(AttemptStatus.REJECTED, "screening", idle)
        self.validation = Validation(self.artifact, self._bench, extra_checks=campaign.extra_checks)
        self._run_ahead(self.artifact)
        return None

    def _run_ahead(self, artifact: BugArtifact) -> None:
        """Start the runs that the validation will want, if there are cores for several at a time."""
        self._stop_running_ahead()
        helpers = self._campaign.helpers
        if helpers < 2:
            return
        case, bench = self.validation.case if self.validation else Validation(artifact, self._bench).case, self._bench
        seconds = self._campaign.baseline.seconds_of_files(artifact.test_files)

        def script(state: CodebaseState) -> None:
            bench.script(state, artifact, like_s=seconds)

        def suite(state: CodebaseState, hash_seed: int, order_seed: int | None, whole: bool) -> None:
            files = case.oracle_files(state)
            bench.suite(state, files, like_s=seconds, hash_seed=hash_seed, order_seed=order_seed, whole=whole)

        def work() -> None:
            with workers(helpers) as pool:
                for state in (case.original, case.buggy, case.weakened):
                    pool.submit(script, state)
                pool.submit(suite, case.weakened, 0, None, False)
                pool.submit(suite, case.buggy, HASH_SEED, ORDER_SEED, True)

        self._ahead = background(work, name="ahead")

    def _stop_running_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None

    def _idle_part(self, artifact: BugArtifact, failing: frozenset[str]) -> str:
        """Say which part of a combination does not matter: with it reverted, every test that failed still fails.

        It must earn its name in the same file as well, where no check looks at parts.
        """
        for name, state in without_one(self._bench.original, artifact.bug, per_hunk=True):
            if failing <= self._campaign.screening.run(state, bench=self._bench).failing:
                return f"reverting {name} alone makes no failing test pass"
        return ""

    def result(self, name: str) -> CheckResult | None:
        """Return the result of one step of the validation; None when the candidate ended before it.

        Where the artifact's own script finds other tests failing than the screening in a warm process did, the
        screening was wrong: that is recorded, and the candidate is screened again in a fresh process.
        """
        assert self.validation is not None
        result = self.validation.result(name)
        if name == _STABLE_FROM and self.screened.failing & self._campaign.set_aside:
            # Tests that flicker do not count: the artifact is made again without them.
            steady = self.screened.failing - self._campaign.set_aside
            if self._judge(replace(self.screened, failing=steady)) is not None:
                return None
            result = self.validation.result(name)
        case = self.validation.case
        if not case.fail_to_pass or self.screened.tier == FRESH:
            return result
        wrong = case.fail_to_pass ^ (self.screened.failing & case.stable)
        if not wrong:
            return result
        self.disagreement = some(wrong)
        self._bench.selection = None
        if self._judge(self._campaign.screening.fresh(self._state, bench=self._bench)) is not None:
            return None
        return self.validation.result(name)

    def finish(self) -> Attempt | None:
        """Make what is left to be made, write the attempt (and the artifact, if valid), and return it.

        None, and nothing is written, where the campaign ends in the middle.
        """
        if self.attempt is None and self.screen() is None:
            for name in step_names(self._campaign.extra_checks):
                if self._campaign.ending.is_set():
                    self._stop_running_ahead()
                    return None
                if self.result(name) is None:
                    break
        if self.attempt is None:
            assert self.validation is not None
            verdict = self.validation.verdict()
            if verdict.valid:
                self._accept(verdict)
            else:
                failed = verdict.rejection
                assert failed is not None
                self._end(AttemptStatus.REJECTED, failed.name, failed.reason)
        assert self.attempt is not None
        return self.attempt

    def _accept(self, verdict: Verdict) -> None:
        campaign = self._campaign
        assert self.artifact is not None
        info = artifact_info(
            self.artifact,
            verdict,
            self.candidate,
            seed=campaign.seed,
            repository=campaign.snapshot.project_name,
        )
        artifact = BugArtifact(
            self.artifact.script,
            self.artifact.test_files,
            self.artifact.parser,
            self.artifact.bug,
            self.artifact.weaken,
            info,
        )
        campaign.verdicts.put(verdict)
        campaign.store.put_artifact(verdict.artifact_id, artifact)
        self._end(AttemptStatus.VALID, "", "", verdict)

    def _end(self, status: AttemptStatus, check: str, reason: str, verdict: Verdict | None = None) -> Attempt:
        self._stop_running_ahead()
        self.attempt = Attempt(
            index=self.index,
            status=status,
            diff=diff_of(self._state),
            check=check,
            reason=reason,
            artifact_id=verdict.artifact_id if verdict else "",
            fail_to_pass=len(verdict.fail_to_pass) if verdict else 0,
            seconds=round(time.perf_counter() - self._start, 3),
            runs=self._bench.runs_made,
            tier=self.screened.tier,
            forks=self._bench.forks_made,
            fallback=self.screened.fallback,
            disagreement=self.disagreement,
            **as_attempt_fields(self.candidate),
        )
        self._campaign.store.put_record(self._campaign.folder, f"{self.index:05d}", self.attempt.to_json())
        return self.attempt


class Campaign:
    """Everything that one injection into one tree shares: the baseline, the candidates, the attempts so far."""

    def __init__(
        self,
        bench: Workbench,
        store: Store,
        injectors: Sequence[Injector],
        *,
        seed: int,
        sources: Sequence[str] = (),
        tests: Sequence[str] = (),
        extra_checks: Sequence[tuple[str, Check]] = (),
        helpers: int = 1,
        diff: ProjectDiff | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Measure the baseline, or read it from the store; raises ProjectError when there is nothing to build on.

        helpers: how many runs may be made at a time for one candidate. diff: what candidates have to keep to;
        NothingToDoError is raised if the tests import nothing of it. progress: is called while the baseline is
        measured.
        """
        self.bench = bench
        self.helpers = helpers
        self.store = store
        self.seed = seed
        self.extra_checks = tuple(extra_checks)
        self.verdicts = Verdicts(store, bench, extra_checks=[name for name, _ in self.extra_checks])
        self.tests = tuple(tests)
        _require_known(bench.snapshot, self.tests)
        bench.progress = progress
        self.baseline, bench.warm, self.verifying = baseline_of(bench, store, self.tests)
        bench.progress = None
        self.screening = Screening(bench, self.baseline, self.verifying.result, tests=self.tests)
        bench.selection = self.screening.on_files
        snapshot = bench.snapshot
        allowed = _allowed(snapshot, self.baseline, sources)
        if diff is not None:
            allowed = _changed(allowed, diff)
            injectors = [narrowed(injector, diff) for injector in injectors]
        _require_reachable(bench.settings, self.baseline, allowed)
        self.snapshot = Snapshot(snapshot.directory, snapshot.files, snapshot.tree_hash, snapshot.origin, allowed)
        self.key = key_of(
            code_hash(),
            snapshot.tree_hash,
            bench.interpreter.environment_hash,
            bench.provider.name,
            bench.settings.key(),
            identities(injectors, snapshot),
            seed,
            sorted(sources),
            self.tests,
            [name for name, _ in self.extra_checks],
            *([diff.key] if diff is not None else ()),
        )
        self.folder = f"attempts/{self.key}"
        self.ending = threading.Event()
        self._drawing = threading.Lock()
        self._drawn: list[Candidate] = []
        drawn = _without_repeats(in_turn([i.candidates(self.snapshot, seed=seed) for i in injectors]))
        self._source = _cheap_first(drawn, self._is_dear)

    @property
    def set_aside(self) -> frozenset[str]:
        """Tests that passed in the first run and do not count; waits for the second."""
        return frozenset(self.verifying.result().set_aside) | frozenset(self.screening.unsteady)

    def set_aside_since(self) -> dict[str, str]:
        """Return the tests that were set aside since the baseline, as far as is known, with the reasons."""
        second = self.verifying.known
        return {**(second.set_aside if second is not None else {}), **self.screening.unsteady}

    def candidate(self, index: int) -> Candidate | None:
        """Return the candidate at a place of the order, or None past the last."""
        with self._drawing:
            while len(self._drawn) <= index:
                require_going_on()
                following = next(self._source, None)
                if following is None:
                    return None
                self._drawn.append(following)
            return self._drawn[index]

    def _is_dear(self, candidate: Candidate) -> bool:
        reach = self.baseline.reach
        return reach is not None and reach.is_dear(candidate_state(self.snapshot, candidate), _MANY_TESTS)

    def known(self, index: int) -> Attempt | None:
        """Return the attempt that the store holds already, or None; one whose artifact is gone does not count."""
        data = self.store.record(self.folder, f"{index:05d}")
        attempt = Attempt.from_json(data) if data is not None else None
        if attempt is None or attempt.status is not AttemptStatus.VALID:
            return attempt
        return attempt if self.store.has_artifact(attempt.artifact_id) else None

    def settle(self, wanted: Sequence[Attempt], made: Sequence[Attempt]) -> None:
        """Keep the wanted ones of the valid attempts among the artifacts; the others become spare.

        made: attempts of this run, those that other workers made beyond the wanted number included.
        """
        ids = {a.artifact_id for a in wanted if a.status is AttemptStatus.VALID}
        for artifact_id in sorted(ids):
            self.store.publish(artifact_id)
        for attempt in made:
            if attempt.status is AttemptStatus.VALID and attempt.artifact_id not in ids:
                self.store.make_spare(attempt.artifact_id)

    def end(self) -> None:
        """Make no more attempts; those that are under way give up."""
        self.ending.set()

    def close(self) -> None:
        """End the warm processes and what goes on in the background."""
        self.verifying.close()
        if self.bench.warm is not None:
            self.bench.warm.close()

    def attempt(self, index: int) -> Attempt | None:
        """Return the attempt at a place of the order, making it unless it is known.

        None: past the last, or the campaign is `ending`, or the budget of time has ended.
        """
        known = self.known(index)
        if known is not None:
            return known
        try:
            candidate = self.candidate(index)
            return Trial(self, index, candidate).finish() if candidate is not None else None
        except TimeIsUpError:
            return None


def _allowed(snapshot: Snapshot, baseline: Baseline, sources: Sequence[str]) -> frozenset[str]:
    """The code files that the tests import, inside `sources` where given; raises ProjectError when none is left."""
    imported = set(baseline.sources) - set(baseline.files)
    code = replace(snapshot, allowed=frozenset(imported)).code_paths()
    if not code:
        raise ProjectError(
            f"the tests import no Python file of {snapshot.origin} outside the tests themselves; "
            "is this the project's top directory?"
        )
    if not sources:
        return frozenset(code)
    wanted = [s.strip("/").removeprefix("./") for s in sources]
    chosen = frozenset(p for p in code if any(w in (".", p) or p.startswith(f"{w}/") for w in wanted))
    if not chosen:
        if any(f == w or f.startswith(f"{w}/") for f in baseline.files for w in wanted):
            raise ProjectError(f"{some(sources)}: these are tests; bugs go into code: {some(code)}")
        raise ProjectError(f"{some(sources)}: no code file there that the tests import; files that are: {some(code)}")
    return chosen


def _changed(allowed: frozenset[str], diff: ProjectDiff) -> frozenset[str]:
    """Return the files of `allowed` that have changed; raises NothingToDoError if none has."""
    found = allowed & diff.lines.keys()
    if not found:
        raise NothingToDoError(
            f"what has changed since {diff.commit[:12]} ({some(sorted(diff.lines))}) is not in code that bugs may go "
            "into here: the tests do not import it, or it was not chosen"
        )
    return found


def _require_known(snapshot: Snapshot, tests: Sequence[str]) -> None:
    for name in tests:
        path = name.partition("::")[0].strip("/").removeprefix("./") or "."
        if path not in (".", *snapshot.files) and not any(p.startswith(f"{path}/") for p in snapshot.files):
            raise SettingsError(f"{name}: {snapshot.origin} has no such file or folder of tests")


def _require_reachable(settings: RuleSettings, baseline: Baseline, allowed: Collection[str]) -> None:
    """Raise SettingsError for a threshold that no candidate can reach, before any is tried."""
    tests, most = len(baseline.stable), settings.max_broken_fraction
    for name, wanted, there, what in (
        ("min_passing_tests", settings.min_passing_tests, tests, f"{tests} tests pass"),
        (
            "min_failing_tests",
            settings.min_failing_tests,
            int(most * tests),
            f"at most {most:.0%} of {tests} may break",
        ),
        ("min_changed_files", settings.min_changed_files, len(allowed), f"bugs may go into {len(allowed)} files"),
    ):
        if wanted > there:
            raise SettingsError(f"{name} is {wanted}, but {what}; nothing could be valid")


def _cheap_first(candidates: Iterator[Candidate], is_dear: Callable[[Candidate], bool]) -> Iterator[Candidate]:
    """Let through one candidate that takes long to try for every so many that do not."""
    waiting: deque[Candidate] = deque()
    cheap = 0
    for candidate in candidates:
        if is_dear(candidate):
            waiting.append(candidate)
        else:
            cheap += 1
            yield candidate
        if waiting and (cheap >= _CHEAP_FOR_ONE or len(waiting) >= _MOST_WAITING):
            cheap = 0
            yield waiting.popleft()
    yield from waiting


def _without_repeats(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    seen: set[str] = set()
    for candidate in candidates:
        name = key_of(sorted(candidate.changes.items(), key=lambda pair: pair[0]))
        if name not in seen:
            seen.add(name)
            yield candidate
