"""Run tests in forks of warm processes: start the servers, hand them out, and refuse runs that would not be exact.

There are two modes, each used only if it is exact. `swap`: the server holds a collected session, and the fork exchanges
the code objects of the changed functions. `import`: the server has loaded pytest and what the tests import from
elsewhere, and the fork imports the project. If neither works, UnfitError has the reason, and the caller runs the
tests in a fresh process.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite import (
    FOLDER,
    provide_guest,
    provide_interpreter,
    read_channel,
    run_environment,
)
from pytest_ssr.execution.test_runners import pytest_arguments
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.test_run import RunStatus, SuiteRun
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits, Sandbox, SandboxProvider, Slotted
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError, Session, SupportsRpcSessions
from pytest_ssr.source.function_diff import ChangedFunction

_ROOM_SHARE = 4
_GRACE_S = 15.0
_MOST_STRETCH = 5.0
_GUEST = (
    *("system_calls", "channel", "reporter", "evidence", "identities", "selection"),
    *("warm_filter", "warm_preload", "warm_view", "warm_swap", "warm_shared", "warm_server"),
)
_MOST_CULPRITS, _MOST_LOSSES = 16, 3
_START = (
    "import sys, os; d = sys.argv.pop(1); sys.path[0] = os.getcwd(); sys.path.insert(0, d); "
    "import ssr_warm_server as s; sys.path.remove(d); s.serve(os.path.join(d, 'warm.json'), sys.argv[1:])"
)


class Mode(StrEnum):
    """What a warm process holds."""

    SWAP = "swap"
    IMPORT = "import"


class UnfitError(SsrError):
    """A run cannot be made in a fork of a warm process."""

    def __init__(self, code: FallbackCode, detail: str = "") -> None:
        """code: the reason. detail: for people."""
        self.fallback = Fallback(code, detail)
        super().__init__(self.fallback.text)


@dataclass(frozen=True, slots=True)
class Pace:
    """Time limits for the parts of a run, in seconds: a test that hangs ends the run long before `wall_s`."""

    start_s: float = math.inf
    """Until the first test starts, and from the end of the last test to the end of the process."""
    test_s: float = math.inf
    """For a test that `limits` does not name."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Node id to the limit of a test."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """One run to make in a fork."""

    state: CodebaseState
    """The tree to run on."""
    selection: Selection = field(default_factory=Selection)
    """Which of the collected tests to run."""
    targets: Sequence[str] = ()
    """Mode `import`: what pytest collects, relative to the root; none: what the configuration names."""
    functions: Mapping[str, Sequence[ChangedFunction]] | None = None
    """Mode `swap`: by path the functions that differ from the original; nothing else may differ."""
    hash_seed: int = 0
    """PYTHONHASHSEED of the process."""
    order_seed: int | None = None
    """Seed for another order of the tests; None: the order of collection."""
    wall_s: float = 60.0
    """Seconds it may take, without those in which it waits for a core."""
    pace: Pace = field(default_factory=Pace)
    """Limits of its parts, counted in the same way."""

    @property
    def most_s(self) -> float:
        """Seconds it may take in all."""
        return self.wall_s * _MOST_STRETCH

    @property
    def mode(self) -> Mode:
        """The kind of server that makes it."""
        return Mode.IMPORT if self.functions is None else Mode.SWAP


class _Server:
    def __init__(self, sandbox: Sandbox, session: Session, collected: Sequence[str]) -> None:
        self.sandbox, self.session, self.collected = sandbox, session, frozenset(collected)

    def close(self) -> None:
        self.session.close()
        self.sandbox.close()


class ForkServer:
    """Servers for one tree, started on demand; each run has exclusive use of one."""

    def __init__(
        self,
        snapshot: Snapshot,
        provider: SandboxProvider,
        interpreter: Interpreter,
        limits: Limits,
        modules: Sequence[str] = (),
        targets: Sequence[str] = (),
        start_s: float = 60.0,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare to start servers.

        modules: what may be imported before the project. targets: what a session for `swap` collects. start_s: seconds
        a server may take to be ready. options: more options for pytest.
        """
        self._start_s, self._options = start_s, tuple(options)
        self.snapshot, self._provider, self._interpreter, self._limits = snapshot, provider, interpreter, limits
        self._modules, self._targets = tuple(modules), tuple(targets)
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[_Server]] = {}
        self._refusals: dict[str, Fallback] = {}
        self._skipped: set[str] = set()
        self._losses: Counter[str] = Counter()
        self.run_counts: Counter[str] = Counter()
        self.unfit: Counter[FallbackCode] = Counter()
        if isinstance(provider, Slotted):
            provider.add_keeper(self)

    def run(self, request: ForkRequest) -> SuiteRun:
        """Make a run; raise UnfitError, and count its reason, if it needs a fresh process."""
        try:
            run = self._run(request)
        except UnfitError as error:
            with self._lock:
                self.unfit[error.fallback.code] += 1
            raise
        with self._lock:
            self.run_counts[request.mode] += 1
        return run

    def refuse(self, mode: str, reason: Fallback) -> None:
        """Stop making runs in a mode."""
        with self._lock:
            self._refusals.setdefault(mode, reason)
        self._close(mode)

    @property
    def refusals(self) -> Mapping[str, Fallback]:
        """The refused modes, with the reason for each."""
        with self._lock:
            return dict(self._refusals)

    def close_idle(self) -> bool:
        """Stop one idle server, whose sandbox takes the place of another; return whether there was one."""
        with self._lock:
            server = next((servers.pop() for servers in self._idle.values() if servers), None)
        if server is not None:
            server.close()
        return server is not None

    def close(self) -> None:
        """Stop all idle servers."""
        self._close(None)

    def _close(self, mode: str | None) -> None:
        with self._lock:
            keys = [key for key in self._idle if mode in (None, key[0])]
            servers = [server for key in keys for server in self._idle.pop(key)]
        for server in servers:
            server.close()

    def _run(self, request: ForkRequest) -> SuiteRun:
        with self._borrow_server(request.mode, request.hash_seed) as server:
            tests = request.selection.tests
            if tests is not None and request.mode is Mode.SWAP:
                unknown = frozenset(tests) - server.collected
                if unknown:
                    raise UnfitError(FallbackCode.NOT_COLLECTED)
            try:
                server.session.send(_to_message(request))
                answer, raw = server.session.answer(wall_s=request.most_s + _GRACE_S)
            except LimitExceededError as error:
                return SuiteRun(RunStatus.LIMIT_EXCEEDED, reason=str(error), limit=error.limit)
            except SandboxError as error:
                with self._lock:
                    self._losses[request.mode] += 1
                    if self._losses[request.mode] >= _MOST_LOSSES:
                        self._refusals.setdefault(request.mode, Fallback(FallbackCode.SERVER_LOST, str(error)))
                raise UnfitError(FallbackCode.SERVER_LOST, str(error)) from None
        limit = Limit.WALL_TIME if answer.get("timed_out") else None
        code = None if limit else int(answer["exit"])
        _require_fit(raw)
        return read_channel(raw, ExecResult(code, b"", b"", float(answer["seconds"]), limit))

    @contextlib.contextmanager
    def _borrow_server(self, mode: str, hash_seed: int) -> Iterator[_Server]:
        key = (mode, hash_seed)
        with self._lock:
            if mode in self._refusals:
                refusal = self._refusals[mode]
                raise UnfitError(refusal.code, refusal.detail)
            idle = self._idle.setdefault(key, [])
            server = idle.pop() if idle else None
        if server is None:
            server = self._start_server(mode, hash_seed)
        try:
            yield server
        except BaseException as error:
            if not isinstance(error, UnfitError):
                server.close()
            raise
        finally:
            if server.session.is_open:
                with self._lock:
                    self._idle.setdefault(key, []).append(server)
            else:
                server.close()

    def _start_server(self, mode: str, hash_seed: int) -> _Server:
        reason = Fallback(FallbackCode.SERVER_NOT_STARTED)
        for _ in range(_MOST_CULPRITS):
            skipped = frozenset(self._skipped)
            try:
                started = self._start(mode, hash_seed, skipped)
            except (SandboxError, LimitExceededError) as error:
                reason = Fallback(FallbackCode.SERVER_NOT_STARTED, str(error))
                break
            if isinstance(started, _Server):
                return started
            reason = Fallback(FallbackCode.SERVER_REFUSED, str(started.get("reason")))
            culprit = started.get("culprit")
            if not isinstance(culprit, str) or culprit in skipped:
                break
            self._skipped.add(culprit)
        self.refuse(mode, reason)
        raise UnfitError(reason.code, reason.detail)

    def _start(self, mode: str, hash_seed: int, skipped: frozenset[str]) -> _Server | dict[str, Any]:
        shown, hidden = self._interpreter.readable, self._interpreter.hidden
        sandbox = CodebaseState(self.snapshot).open(self._provider, readable=shown, hidden=hidden)
        session: Session | None = None
        try:
            if not isinstance(sandbox, SupportsRpcSessions):
                raise UnfitError(FallbackCode.SANDBOX_UNSUITED, self._provider.name)
            folder = f"{sandbox.scratch}/{FOLDER}"
            settings = {
                "mode": mode,
                "scratch": sandbox.scratch,
                "lower": sandbox.lower,
                "private": list(sandbox.private),
                "room": self._limits.disk_bytes // _ROOM_SHARE,
                "modules": self._modules,
                "skipped": sorted(skipped),
                "targets": self._targets,
            }
            provide_guest(sandbox, *_GUEST)
            sandbox.write(f"{folder}/warm.json", json.dumps(settings).encode())
            provide_interpreter(sandbox, self._interpreter)
            env = run_environment(sandbox, self._interpreter, hash_seed=hash_seed)
            env["SSR_CHANNEL"] = "/dev/null"
            argv = [str(self._interpreter.executable), "-c", _START, folder, *pytest_arguments(folder)]
            argv += self._options
            session = sandbox.converse(argv, limits=self._limits, env=env)
            ready, _ = session.answer(wall_s=self._start_s)
            if not ready.get("ready"):
                session.close()
                sandbox.close()
                return ready
            return _Server(sandbox, session, ready.get("collected", ()))
        except BaseException:
            if session is not None:
                session.close()
            sandbox.close()
            raise


def _to_message(request: ForkRequest) -> dict[str, Any]:
    changes = {
        path: None if entry is None else [entry.mode, base64.b64encode(entry.data).decode()]
        for path, entry in request.state.changes.items()
    }
    functions = {
        path: [
            {
                "name": f.name,
                "classes": f.classes,
                "old_line": f.old_line,
                "new_line": f.new_line,
                "old_source": f.old_source,
                "new_source": f.new_source,
                "imports": f.imports,
            }
            for f in changed
        ]
        for path, changed in (request.functions or {}).items()
    }
    return {
        "changes": changes,
        "swap": functions,
        **request.selection.to_json(),
        "targets": list(request.targets),
        "order_seed": request.order_seed,
        "wall_s": request.wall_s,
        "most_s": request.most_s,
        "start_s": min(request.pace.start_s, request.wall_s),
        "test_s": min(request.pace.test_s, request.wall_s),
        "limits": dict(request.pace.limits),
    }


def _require_fit(raw: bytes) -> None:
    for line in raw.splitlines():
        if b'"unfit"' in line:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                record = json.loads(line)
                if record.get("kind") == "unfit":
                    raise UnfitError(FallbackCode.FORK_REFUSED, str(record.get("reason")))
