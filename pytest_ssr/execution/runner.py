"""Run tests and scripts on codebase states, each run only once: the same tree, tests and seeds give the cached run.

Each run gets a fresh sandbox made from the snapshot, which is closed after it, so that no run sees what another leaves.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pytest_ssr.errors import SandboxError, StoreError
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.copy_bound import CopyBound
from pytest_ssr.execution.coverage_map import CoverageLog
from pytest_ssr.execution.fork_server import ForkRequest, ForkServer, UnfitError
from pytest_ssr.execution.plain_run import Checkpoint, PlainCase, Surroundings, read_lines, run_plain
from pytest_ssr.execution.run_cache import MemoryRecords, RecordStore, RunCache, RunCounts
from pytest_ssr.execution.script import OwnTests, Parsed, StatusRun, run_parser, run_script
from pytest_ssr.execution.script_runner import ScriptRunner, as_suite_run
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite import FOLDER, REACH, require_start, run_suite
from pytest_ssr.execution.test_runners import PYTEST, PytestRunner, TestRunner
from pytest_ssr.interrupts import workers
from pytest_ssr.progress import Progress
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import FallbackCode
from pytest_ssr.records.test_run import Limit, SuiteRun
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox, SandboxProvider
from pytest_ssr.sandbox.supervision.cgroup import oom_kill_count
from pytest_ssr.settings import RuleSettings

_NOT_STARTED = (126, 127)
FLOOR_S = 5.0
FACTOR = 5.0
_MOST_BYTES, _MOST_STORED = 512 * MIB, 4 * MIB
_K = TypeVar("_K")
_V = TypeVar("_V")
Selected = Callable[["Runner", CodebaseState, Sequence[str], int, int | None], SuiteRun | None]


@dataclass(frozen=True, eq=False)
class Runner:
    """Makes runs on states of one snapshot, and caches them.

    A runner never changes: `dataclasses.replace` returns one that differs in a field and shares cache and counts.
    """

    snapshot: Snapshot
    provider: SandboxProvider
    interpreter: Interpreter
    settings: RuleSettings
    limits: Limits = field(default_factory=Limits)
    pytest_options: tuple[str, ...] = ()
    """Root directory and configuration for pytest, as of `root_options`."""
    test_runner: TestRunner = PYTEST
    """Starts the tests."""
    fork_server: ForkServer | None = None
    """Makes runs in forks of warm processes."""
    selection: Selected | None = None
    """Makes a run of fewer tests on a state if the results of the others are known."""
    script_store: RecordStore | None = None
    """Keeps the runs of scripts on the original."""
    reference_store: RecordStore = field(default_factory=MemoryRecords, repr=False)
    """Keeps what grades are compared with."""
    progress: Progress | None = None
    """Called during a whole run."""
    parallel: int = 1
    """How many runs may be made at the same time."""
    cache: RunCache = field(default_factory=RunCache, repr=False)
    counts: RunCounts = field(default_factory=RunCounts, repr=False)

    def scoped(self) -> Runner:
        """Return a runner for one artifact: it shares the runs on the original and counts its own."""
        return replace(self, progress=None, cache=self.cache.scoped(), counts=RunCounts())

    def together(self, runs: Sequence[Callable[[], _V]]) -> list[_V]:
        """Make runs that do not depend on each other, and return their results in order."""
        if min(self.parallel, len(runs)) < 2:
            return [run() for run in runs]
        with workers(min(self.parallel, len(runs))) as pool:
            futures = [pool.submit(run) for run in runs]
        return [future.result() for future in futures]

    @property
    def original(self) -> CodebaseState:
        """The unchanged state."""
        return CodebaseState(self.snapshot)

    def open(self, state: CodebaseState) -> Sandbox:
        """Open a sandbox on a state for the interpreter; raise SandboxError if that fails."""
        shown, hidden = self.interpreter.readable, self.interpreter.hidden
        return state.open(self.provider, readable=shown, hidden=hidden)

    def limits_after(self, seconds: float) -> Limits:
        """Return the limits for a changed tree whose run takes `seconds` on the original."""
        wall = min(self.settings.time_limit_s, FLOOR_S + FACTOR * seconds)
        return replace(self.limits, wall_s=wall)

    def suite(
        self,
        state: CodebaseState,
        files: Sequence[str] = (),
        *,
        hash_seed: int = 0,
        order_seed: int | None = None,
        like_s: float | None = None,
        fresh: bool = False,
        whole: bool = False,
        shared: bool = False,
    ) -> tuple[SuiteRun, bool]:
        """Run the tests with our own reporter; the second item is whether the run was made now rather than cached.

        like_s: seconds the same run takes on the original, from which the time limit follows. fresh: use a fresh
        process even if a fork of a warm one would do. whole: run all tests of the files, even those that the state's
        changes cannot touch. shared: other artifacts will need the same run.
        """
        if isinstance(self.test_runner, ScriptRunner):
            done, is_new = self.script(state, self.test_runner, like_s=like_s, hash_seed=hash_seed)
            return as_suite_run(done), is_new
        key = (
            state.tree_hash,
            tuple(files),
            self.pytest_options,
            hash_seed,
            order_seed,
            whole or self.selection is None,
            fresh,
        )
        cache = self.cache.original_suites if shared or not state.changes else self.cache.suites
        with self.cache.locks.hold(key):
            if key in cache:
                return cache[key], False
            kills = oom_kill_count()
            runs_before = self.counts.runs
            run = None
            if not fresh and self.selection is not None and not whole:
                run = self.selection(self, state, files, hash_seed, order_seed)
            if run is None and not fresh:
                run = self._forked(state, files, hash_seed, order_seed, like_s)
            if run is None:
                run = self.fresh(state, files, hash_seed=hash_seed, order_seed=order_seed, like_s=like_s)
            _cache_run(cache, key, run, kills)
            return run, self.counts.runs > runs_before

    def fresh(
        self,
        state: CodebaseState,
        files: Sequence[str] = (),
        *,
        selection: Selection | None = None,
        hash_seed: int = 0,
        order_seed: int | None = None,
        like_s: float | None = None,
        collect_only: bool = False,
        verbose: bool = False,
    ) -> SuiteRun:
        """Make a run in a fresh process; the other arguments are those of `suite`.

        selection: the tests to run. collect_only: collect the tests and run none. verbose: keep pytest's output.
        """
        if isinstance(self.test_runner, ScriptRunner):
            return as_suite_run(self._run_script(state, self.test_runner, like_s, hash_seed))
        with self.open(state) as sandbox:
            run = run_suite(
                sandbox,
                self.interpreter,
                targets=files,
                options=self.pytest_options,
                limits=self._limits(like_s),
                hash_seed=hash_seed,
                order_seed=order_seed,
                watched=sorted(state.changes),
                selection=selection,
                progress=self.progress,
                collect_only=collect_only,
                verbose=verbose,
                test_runner=self.test_runner,
            )
        self.counts.runs += 1
        self._require_start(run)
        return run

    def modules(self, state: CodebaseState, files: Sequence[str] = ()) -> frozenset[str] | None:
        """Return what collecting the tests of a tree imports from outside of it; None if collection ends early."""
        run = self.fresh(state, files, collect_only=True)
        return None if run.fault else frozenset(run.modules)

    def _require_start(self, run: SuiteRun) -> None:
        """Raise SandboxError if a run is void because the interpreter cannot be started here."""
        if run.exit_code in _NOT_STARTED and not run.collected:
            with self.open(self.original) as sandbox:
                require_start(sandbox, self.interpreter)

    def _forked(
        self,
        state: CodebaseState,
        files: Sequence[str],
        hash_seed: int,
        order_seed: int | None,
        like_s: float | None,
    ) -> SuiteRun | None:
        """Make the run in a fork of a warm process that has not imported the project; None if that is impossible."""
        if self.fork_server is None or not files:
            return None
        request = ForkRequest(
            state,
            targets=files,
            hash_seed=hash_seed,
            order_seed=order_seed,
            wall_s=self._limits(like_s).wall_s,
        )
        try:
            return self.fork(request)
        except UnfitError:
            return None

    def fork(self, request: ForkRequest) -> SuiteRun:
        """Make a run in a fork of a warm process and count it; raise UnfitError if that is impossible."""
        if self.fork_server is None:
            raise UnfitError(FallbackCode.NO_SERVERS)
        run = self.fork_server.run(request)
        self.counts.runs += 1
        self.counts.forks += 1
        return run

    def probe(
        self,
        code: Sequence[str],
        files: Sequence[str],
        hash_seed: int,
        order_seed: int | None,
        *,
        selection: Selection | None = None,
        other_ids: Sequence[str] | None = None,
        parts: Parts | None = None,
    ) -> tuple[SuiteRun, CoverageLog]:
        """Run pytest on the original and record which statements of `code` each test reaches.

        other_ids: as for `run_suite`. parts: saves every few seconds what was measured so far.
        """
        saving = parts.saving_from if parts is not None else contextlib.nullcontext
        with self.open(self.original) as sandbox, saving(sandbox):
            run = run_suite(
                sandbox,
                self.interpreter,
                targets=files,
                options=self.pytest_options,
                limits=self._limits(None),
                hash_seed=hash_seed,
                order_seed=order_seed,
                probed=code,
                selection=selection,
                other_ids=other_ids,
                progress=self.progress,
                test_runner=self.test_runner,
            )
            self.counts.runs += 1
            self._require_start(run)
            try:
                raw = sandbox.read(f"{sandbox.scratch}/{FOLDER}/{REACH}", max_bytes=_MOST_BYTES)
            except (FileNotFoundError, SandboxError):
                raw = b""
        return run, CoverageLog.parse(raw)

    def values(
        self,
        state: CodebaseState,
        files: Sequence[str],
        *,
        hash_seed: int,
        like_s: float,
        bound: CopyBound | None = None,
    ) -> tuple[list[str] | None, SuiteRun]:
        """Run blind tests on a state, and return the lines that our recorder writes there.

        The lines are None if there are more than the recorder can have written. like_s: as for `suite`. bound: which
        tests may not take long.
        """
        with self.open(state) as sandbox:
            path = f"{sandbox.scratch}/{secrets.token_hex(8)}"
            sandbox.write(path, b"")
            run = run_suite(
                sandbox,
                self.interpreter,
                targets=files,
                # Blind tests have no assertions that pytest could rewrite.
                options=(*self.pytest_options, "--assert=plain"),
                test_runner=self.test_runner,
                limits=self._limits(like_s),
                hash_seed=hash_seed,
                selection=self._selection(files),
                env={"SSR_VALUES": path, **(bound.environment() if bound is not None else {})},
                guests=("blind_values", "blind_recorder"),
            )
            self.counts.runs += 1
            return read_lines(sandbox, path), run

    def _selection(self, targets: Sequence[str]) -> Selection | None:
        """Return the selection of the ids among the targets, if the test runner is started with files only."""
        if isinstance(self.test_runner, PytestRunner) or not any("::" in target for target in targets):
            return None
        return Selection([t for t in targets if "::" in t], files=[t for t in targets if "::" not in t])

    def plain_values(
        self,
        state: CodebaseState,
        cases: Sequence[PlainCase],
        surroundings: Surroundings,
        *,
        like_s: float,
        bound: CopyBound | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[list[str], Limit | None]:
        """Run blind tests on a state without pytest in charge; return what our recorder writes, and the limit reached.

        like_s: as for `suite`. bound: as for `values`. checkpoint: when the host decides whether the run goes on.
        """
        with self.open(state) as sandbox:
            self.counts.runs += 1
            limits = self._limits(like_s)
            return run_plain(
                sandbox, self.interpreter, cases, surroundings, limits=limits, bound=bound, checkpoint=checkpoint
            )

    def script(
        self, state: CodebaseState, artifact: OwnTests, *, like_s: float | None = None, hash_seed: int = 0
    ) -> tuple[StatusRun, bool]:
        """Run an artifact's script on a state and its parser on the output; cached as in `suite`."""
        key = (state.tree_hash, artifact.script, artifact.parser, hash_seed)
        cache = self.cache.scripts if state.changes else self.cache.original_scripts
        with self.cache.locks.hold(key):
            if (
                not hash_seed
                and key not in cache
                and not state.changes
                and (stored := self._read_shelf(artifact)) is not None
            ):
                cache[key] = stored
            if key in cache:
                return cache[key], False
            run = self._run_script(state, artifact, like_s, hash_seed)
            return run, True

    def _run_script(self, state: CodebaseState, artifact: OwnTests, like_s: float | None, hash_seed: int) -> StatusRun:
        kills, limits = oom_kill_count(), self._limits(like_s)
        with self.open(state) as sandbox:
            done = run_script(sandbox, self.interpreter, artifact.script, limits=limits, hash_seed=hash_seed)
        self.counts.runs += 1
        run = StatusRun(
            output=done.output, exit_code=done.exit_code, seconds=done.seconds, fault=done.fault, limit=done.limit
        )
        if not done.fault:
            parsed = self.parse(artifact.parser, done.output)
            run = replace(run, statuses=parsed.statuses, parsed=parsed.raw, fault=parsed.fault, limit=parsed.limit)
        cache = self.cache.scripts if state.changes else self.cache.original_scripts
        key = (state.tree_hash, artifact.script, artifact.parser, hash_seed)
        sound = _cache_run(cache, key, run, kills) and not run.fault and len(run.output) <= _MOST_STORED
        if self.script_store is not None and not state.changes and sound and not hash_seed:
            self.script_store.put(run.to_json(), artifact.script, artifact.parser)
        return run

    def _read_shelf(self, artifact: OwnTests) -> StatusRun | None:
        data = self.script_store.get(artifact.script, artifact.parser) if self.script_store is not None else None
        try:
            return StatusRun.from_json(data) if data is not None else None
        except StoreError:
            return None

    def parse_again(self, parser: bytes, output: bytes) -> Parsed:
        """Run a parser over an output, or a part of it; artifacts with the same parser and output share the result."""
        key = (parser, hashlib.sha256(output).digest())
        if key not in self.cache.parsed:
            self.cache.parsed[key] = self.parse(parser, output)
        return self.cache.parsed[key]

    def parse(self, parser: bytes, output: bytes) -> Parsed:
        """Run a parser over an output in an otherwise empty sandbox."""
        digest = hashlib.sha256(self.snapshot.tree_hash.encode()).hexdigest()[:8]
        with tempfile.TemporaryDirectory(prefix=f"ssr-empty-{digest}-") as empty:
            root = f"{tempfile.gettempdir()}/ssr-parser"
            with self.provider.open(Path(empty), mount_at=root, readable=self.interpreter.readable) as sandbox:
                limits = replace(self.limits, wall_s=30.0)
                return run_parser(sandbox, self.interpreter, parser, output, limits=limits)

    def _limits(self, like_s: float | None) -> Limits:
        if like_s is None:
            return replace(self.limits, wall_s=self.settings.time_limit_s)
        return self.limits_after(like_s)


def _cache_run(cache: dict[_K, _V], key: _K, run: _V, kills: int) -> bool:
    """Cache a run, unless the kernel has since killed a process for lack of memory: it may be of that run."""
    sound = oom_kill_count() == kills
    if sound:
        cache[key] = run
    return sound
