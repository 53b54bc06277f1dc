"""Inject bugs into one project: validated artifacts, and a map of the changes that its tests miss.

The order of the candidates depends only on the tree, the injectors and the seed. Each candidate is tried separately
and its result is written to the store, so a campaign can be interrupted, resumed, and spread over processes. Its
outcome is the first `count` valid results in that order, whichever process produced them and when.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import filterfalse

from pytest_ssr.campaign.acceptances import Acceptances
from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.candidate_order import LOOKAHEAD, held_back, spread, without_repeats
from pytest_ssr.campaign.dismissed import is_dismissed
from pytest_ssr.campaign.measured_snapshot import MeasuredSnapshot
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.checks import NamedCheck, names_of
from pytest_ssr.errors import NothingToDoError, ProjectError, SettingsError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.screening import Screening
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.injectors.protocol import Candidate, Injector, ahead_of, identities
from pytest_ssr.injectors.revision_filter import ProjectDiff, restrict_to_diff
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.interrupts import TimeBudgetError, raise_if_stopped
from pytest_ssr.progress import Progress
from pytest_ssr.project.file_roles import can_hold_tests
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.test_run import SetAside, abbreviate
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.equivalence import common_sign
from pytest_ssr.source.function_diff import Spot
from pytest_ssr.source.skip_comments import skipped_lines
from pytest_ssr.storage.baseline_store import open_baseline
from pytest_ssr.storage.store import Store, code_hash, key_of
from pytest_ssr.storage.verdict_store import Verdicts
from pytest_ssr.weakening.weaken import without_definition

# A change that acts at import, or that many tests reach, takes up to thirty times as long to try as another one in a
# large suite. With less than that as its cost, modules that have only such changes still have their turn.
_MANY_TESTS = 100
_SLOW_COST = 4


class Campaign:
    """The state shared by all trials on one tree: the baseline, the candidates, the results so far."""

    def __init__(
        self,
        runner: Runner,
        store: Store,
        injectors: Sequence[Injector],
        *,
        seed: int,
        sources: Sequence[str] = (),
        tests: Sequence[str] = (),
        extra_checks: Sequence[NamedCheck] = (),
        helpers: int = 1,
        diff: ProjectDiff | None = None,
        judges_only: bool = False,
        progress: Progress | None = None,
        acceptances: Acceptances | None = None,
        deciding: Collection[str] | None = None,
    ) -> None:
        """Measure the baseline, or read it from the store; raises ProjectError if the project cannot be used.

        helpers: how many runs one candidate may use at a time. judges_only: find out whether tests notice a change, and
        make no artifacts. diff: the changes that candidates are restricted to;
        raises NothingToDoError if the tests import none of the changed files. progress: called while the baseline is
        measured. acceptances: what the team has decided about survivors. deciding: the tests that count; None: all.
        """
        self.acceptances = acceptances or Acceptances()
        self.helpers, self.judges_only = helpers, judges_only
        self.store = store
        self.seed = seed
        self.injectors, self.sources, self.diff = tuple(injectors), tuple(sources), diff
        self.extra_checks = tuple(extra_checks)
        self.verdicts = Verdicts(store, runner, extra_checks=names_of(self.extra_checks))
        self.tests = tuple(tests)
        _require_known(runner.snapshot, self.tests)
        self.baseline, runner, self.verifying = open_baseline(replace(runner, progress=progress), store, self.tests)
        if deciding is not None:
            self.baseline = replace(self.baseline, stable=self.baseline.stable & frozenset(deciding))
        base, code = self.baseline, runner.snapshot
        functions = base.stable - base.doctests - base.by_collectors
        defining = [path for path in base.defining_files if path in code.files]
        self.generated = without_definition(code.read, defining, functions)
        """Tests whose functions were made at run time."""
        self.evidence_only = base.by_collectors | base.doctests_in_code | self.generated
        """Tests that can reveal bugs, but that no weakening can remove from their file: artifacts need others."""
        runner = replace(runner, progress=None)
        self.screening = Screening(runner, self.baseline, self.verifying.result, tests=self.tests)
        self.runner = replace(runner, selection=self.screening.on_files)
        snapshot = runner.snapshot
        allowed = _allowed(snapshot, self.baseline, sources)
        if diff is not None:
            allowed = _changed(allowed, diff)
            injectors = [restrict_to_diff(injector, diff) for injector in injectors]
        if not judges_only:
            _require_reachable(runner.settings, self.baseline, allowed)
        self.snapshot = Snapshot(snapshot.directory, snapshot.files, snapshot.tree_hash, snapshot.origin, allowed)
        conditions = {
            "version": code_hash(),
            "files": snapshot.tree_hash,
            "environment": runner.interpreter.environment_hash,
            "sandbox": runner.provider.name,
            "limits": runner.settings.key(),
            "injectors": identities(injectors, snapshot),
            "seed": seed,
            "sources": sorted(sources),
            "tests": self.tests,
            "checks": names_of(self.extra_checks),
            **({"diff": diff.key} if diff is not None else {}),
            **({"test runner": runner.test_runner} if runner.test_runner != PYTEST else {}),
            **({"gate": "judges only"} if judges_only else {}),
            **({"deciding": sorted(deciding)} if deciding is not None else {}),
        }
        self.conditions = {name: str(value) for name, value in conditions.items()}
        """What the results depend on."""
        self.key = key_of(*self.conditions.values())
        self.folder = f"attempts/{self.key}"
        self.ending = threading.Event()
        self._drawing = threading.Lock()
        self._drawn: list[Candidate] = []
        self._is_cut_off = False
        self.skipped = {path: skipped_lines(path, self.snapshot.read(path)) for path in sorted(allowed)}
        shown = snapshot.directory, snapshot.files, snapshot.tree_hash, snapshot.origin, allowed
        tree = MeasuredSnapshot(*shown, self.baseline.reach, diff, self.skipped)
        drawn = without_repeats(interleave([i.candidates(tree, seed=seed) for i in injectors]))
        drawn = filterfalse(self._is_skipped, drawn)
        if judges_only and diff is not None and deciding is None:
            drawn = filterfalse(self._is_dismissed, drawn)
        ahead = ahead_of(self.injectors, LOOKAHEAD)
        if runner.test_runner.scope:
            drawn = filter(self._is_reached, drawn)
        self._source = spread(held_back(map(self._with_sign, drawn), self._is_of_little_use), self._cost, ahead)

    @property
    def set_aside(self) -> frozenset[str]:
        """Tests that passed in the first run but do not count; waits for the second run."""
        return frozenset(self.verifying.result().set_aside) | frozenset(self.screening.unsteady)

    def set_aside_since(self) -> dict[str, SetAside]:
        """Return the tests set aside since the baseline, as far as is known yet, with the reasons."""
        second = self.verifying.result_so_far
        set_aside = second.set_aside if second is not None else {}
        return {**set_aside, **self.screening.unsteady}

    def skipped_counts(self) -> dict[str, int]:
        """Return how many functions, classes and lines outside of them `# ssr: skip` excludes."""
        files = self.skipped.values()
        return {
            "function": sum(len(f.functions) for f in files),
            "class": sum(len(f.classes) for f in files),
            "line": sum(end - first for f in files for first, end in f.statements),
        }

    def candidate(self, index: int) -> Candidate | None:
        """Return the candidate at an index of the order, or None past the last one."""
        with self._drawing:
            while len(self._drawn) <= index:
                raise_if_stopped()
                try:
                    following = next(self._source, None)
                except BaseException:
                    # An iterator that has raised seems to be at its end.
                    self._is_cut_off = True
                    raise
                if following is None:
                    return None
                self._drawn.append(following)
            return self._drawn[index]

    def count(self, most: int) -> int:
        """Return how many candidates there are, at most `most`."""
        return most if self.candidate(most - 1) is not None else len(self._drawn)

    def is_complete(self, results: Sequence[CandidateResult]) -> bool:
        """Return whether results, in order, are those of all candidates."""
        is_unbroken = [r.index for r in results] == list(range(len(results)))
        return is_unbroken and not self._is_cut_off and self.candidate(len(results)) is None

    def _is_reached(self, candidate: Candidate) -> bool:
        """Return whether a test may reach a candidate; tests outside of the scope may detect one that none reaches."""
        reach = self.baseline.reach
        return reach is None or reach.touched_by(candidate_state(self.snapshot, candidate)).tests != frozenset()

    def require_artifacts(self) -> None:
        """Raise ProjectError if no test can give an artifact, whatever is tried."""
        stable = self.baseline.stable
        if stable <= self.evidence_only:
            raise ProjectError(
                f"none of the {len(stable)} passing tests can give an artifact, because they cannot be removed from "
                f"their files: {self.evidence_reasons()}; they do give a score (--ssr-fail-under; ssr: --fail-under)"
            )

    def evidence_reasons(self) -> str:
        """Return how many of the passing tests can give no artifact, by the reason."""
        base = self.baseline
        kinds = (
            (base.by_collectors, "made by collectors"),
            (base.doctests_in_code, "doctests in code"),
            (self.generated, "made at run time"),
        )
        counts = [(len(tests & base.stable), kind) for tests, kind in kinds]
        return ", ".join(f"{count} {kind}" for count, kind in counts if count)

    def _is_of_little_use(self, candidate: Candidate) -> bool:
        """Return whether a candidate is probably equivalent, or only tests reach it that can give no artifact."""
        reach = self.baseline.reach
        if candidate.sign or not self.evidence_only or reach is None:
            return bool(candidate.sign)
        tests = reach.touched_by(candidate_state(self.snapshot, candidate)).tests
        return tests is not None and bool(tests) and tests <= self.evidence_only

    def _is_skipped(self, candidate: Candidate) -> bool:
        """Return whether a comment `# ssr: skip` excludes a part of a candidate."""
        return any(
            path in self.skipped and self.skipped[path].touched_by(self.snapshot.read(path), data)
            for path, data in candidate.changes.items()
        )

    def _is_dismissed(self, candidate: Candidate) -> bool:
        """Return whether the reviewers of a change would dismiss a remark about a candidate."""
        return is_dismissed(
            candidate, self.snapshot.read(candidate.path), lambda spot: self._is_run(candidate.path, spot)
        )

    def _is_run(self, path: str, spot: Spot) -> bool:
        """Return whether an import or a test reaches the statement at a spot; True if that is not known."""
        reach = self.baseline.reach
        # What other processes reach is not observed.
        is_known = reach is not None and not reach.always and not reach.collected_by_processes
        return reach is None or not is_known or reach.comes_to(path, spot)

    def _with_sign(self, candidate: Candidate) -> Candidate:
        return replace(candidate, sign=str(common_sign(self.changes_of(candidate)) or ""))

    def changes_of(self, candidate: Candidate) -> list[tuple[str, bytes, bytes | None]]:
        """Return the path, the original and the new content of each file that a candidate changes."""

        def before(path: str) -> bytes:
            return self.snapshot.read(path) if path in self.snapshot.files else b""

        return [(path, before(path), data) for path, data in candidate.changes.items()]

    def _cost(self, candidate: Candidate) -> int:
        """Return how long a candidate takes to try, compared with one that acts in a function and few tests reach."""
        reach = self.baseline.reach
        is_slow = reach is not None and reach.is_dear(candidate_state(self.snapshot, candidate), _MANY_TESTS)
        return _SLOW_COST if is_slow else 1

    def stored(self, index: int) -> CandidateResult | None:
        """Return the stored result of a candidate; None if it does not exist or its artifact has been deleted."""
        data = self.store.record(self.folder, f"{index:05d}")
        result = CandidateResult.from_json(data) if data is not None else None
        if result is None or result.status is not CandidateStatus.VALID:
            return result
        return result if self.store.has_artifact(result.artifact_id) else None

    def take(self, result: CandidateResult) -> None:
        """Publish the artifact of a result for now: a run that is killed leaves the bugs that it has shown."""
        if result.status is CandidateStatus.VALID:
            self.store.publish(result.artifact_id, provisional=True)

    def settle(self, wanted: Sequence[CandidateResult], results: Sequence[CandidateResult]) -> None:
        """Publish the artifacts of the wanted results; the artifacts of the other valid ones become spare.

        results: all results of this run, including those that workers produced beyond the wanted number.
        """
        ids = {a.artifact_id for a in wanted if a.status is CandidateStatus.VALID}
        for artifact_id in sorted(ids):
            self.store.publish(artifact_id)
        for result in results:
            if result.status is CandidateStatus.VALID and result.artifact_id not in ids:
                self.store.make_spare(result.artifact_id)

    def end(self) -> None:
        """Start no more trials; running trials stop at the next step."""
        self.ending.set()

    def close(self) -> None:
        """Stop the fork server and the background work."""
        self.verifying.close()
        if self.runner.fork_server is not None:
            self.runner.fork_server.close()

    def attempt(self, index: int) -> CandidateResult | None:
        """Return the result of the candidate at an index, running its trial unless the store has the result.

        Returns None past the last candidate, when the campaign is `ending`, or when the time budget has ended.
        """
        stored = self.stored(index)
        if stored is not None:
            return stored
        try:
            candidate = self.candidate(index)
            return Trial(self, index, candidate).finish() if candidate is not None else None
        except TimeBudgetError:
            return None


def _allowed(snapshot: Snapshot, baseline: Baseline, sources: Sequence[str]) -> frozenset[str]:
    """Return the code files that the tests import, limited to `sources` if given; raises ProjectError if none."""
    imported = set(baseline.sources) - set(baseline.files) - set(baseline.surface)
    code = replace(snapshot, allowed=frozenset(imported)).code_paths()
    if not code and (loaded := sorted(p for p in baseline.surface if can_hold_tests(p))):
        raise ProjectError(
            f"all code of {snapshot.origin} that the tests import is loaded by pytest for them, as plugins or with "
            f"rewritten assertions: {abbreviate(loaded)}; an entry point pytest11 makes a plugin code of the project"
        )
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
        tests = (*baseline.files, *baseline.surface)
        if any(f == w or f.startswith(f"{w}/") for f in tests for w in wanted):
            raise ProjectError(f"{abbreviate(sources)}: these are tests; bugs go into code: {abbreviate(code)}")
        raise ProjectError(
            f"{abbreviate(sources)}: the tests import no code file there; they import {abbreviate(code)}"
        )
    return chosen


def _changed(allowed: frozenset[str], diff: ProjectDiff) -> frozenset[str]:
    """Return the files of `allowed` that have changed; raises NothingToDoError if none have."""
    changed = allowed & diff.lines.keys()
    if not changed:
        raise NothingToDoError(
            f"none of the changes since {diff.commit[:12]} ({abbreviate(sorted(diff.lines))}) are in code that "
            "bugs may go into: the tests do not import it, or it was not selected"
        )
    return changed


def _require_known(snapshot: Snapshot, tests: Sequence[str]) -> None:
    for test in tests:
        path = test.partition("::")[0].strip("/").removeprefix("./") or "."
        if path not in (".", *snapshot.files) and not any(p.startswith(f"{path}/") for p in snapshot.files):
            raise SettingsError(f"{test}: {snapshot.origin} has no such file or folder of tests")


def _require_reachable(settings: RuleSettings, baseline: Baseline, allowed: Collection[str]) -> None:
    """Raise SettingsError, before any trial, if no candidate can reach a threshold."""
    tests, most = len(baseline.stable), settings.max_broken_fraction
    for name, threshold, available, limit in (
        ("min_passing_tests", settings.min_passing_tests, tests, f"{tests} tests pass"),
        (
            "min_failing_tests",
            settings.min_failing_tests,
            int(most * tests),
            f"at most {most:.0%} of {tests} may break",
        ),
        ("min_changed_files", settings.min_changed_files, len(allowed), f"bugs may go into {len(allowed)} files"),
    ):
        if threshold > available:
            raise SettingsError(f"{name} is {threshold}, but {limit}; nothing could be valid")
