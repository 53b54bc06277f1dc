"""A project in, validated bug artifacts and a map of what its tests miss out.

Candidates have a fixed order that depends on the tree, the injectors and the seed only. Each is tried on its own and
its attempt is written to the store, so that a campaign can be cut off anywhere, spread over processes, and go on. The
result is the first `count` valid attempts in that order, whoever made them and when.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.baselines import baseline_of
from pytest_ssr.checks import Check
from pytest_ssr.errors import NothingToDoError, ProjectError, SettingsError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.screening import Screening
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.injectors.protocol import Candidate, Injector, identities
from pytest_ssr.injectors.turns import in_turn
from pytest_ssr.making import candidate_state
from pytest_ssr.outcomes import some
from pytest_ssr.progress import Progress
from pytest_ssr.project_diff import ProjectDiff, narrowed
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.stopping import TimeIsUpError, require_going_on
from pytest_ssr.store import Store, code_hash, key_of
from pytest_ssr.trial import Trial
from pytest_ssr.verdicts import Verdicts

# A change that acts at import or is reached by many tests takes about thirty times as long to try as another: of both
# kinds as many are tried as take the same time.
_MANY_TESTS = 100
_CHEAP_FOR_ONE = 31
_MOST_WAITING = 100


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
