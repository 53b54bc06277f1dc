"""Runs in forks of warm processes: the servers, who may use which, and what stands against it.

Two modes, each used only where it is exact. `swap`: a session is collected already, and the code objects of the
changed functions are exchanged. `import`: pytest and what the tests import from elsewhere are loaded, the project is
imported in the fork. Where neither can be had, UnfitError says why, and the caller makes the run in a fresh process.
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

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.change import ChangedFunction
from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite import (
    FOLDER,
    provide_guest,
    provide_interpreter,
    pytest_arguments,
    read_channel,
    run_environment,
)
from pytest_ssr.outcomes import RunStatus, SuiteRun
from pytest_ssr.sandbox.conversation import Conversation, Conversing, PassedError
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits, Sandbox, SandboxProvider
from pytest_ssr.snapshot import Snapshot

_ROOM_SHARE = 4
_GRACE_S = 15.0
_MOST_STRETCH = 5.0
_GUEST = (
    *("system_calls", "reporter", "evidence", "selection"),
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


class UnfitError(Exception):
    """Says why a run cannot be made in a fork of a warm process."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Time limits for the parts of a run, each in seconds: a test that hangs ends the run long before `wall_s`."""

    start_s: float = math.inf
    """Until the first test starts, and from the end of the last test to the end of the process."""
    test_s: float = math.inf
    """For a test that `limits` does not name."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Node id to the limit of a test."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run to be made in a fork."""

    state: CodebaseState
    """What is run."""
    selection: Selection = field(default_factory=Selection)
    """The tests of those that are collected."""
    targets: Sequence[str] = ()
    """Mode `import`: what pytest is given to collect, relative to the root; none: what the configuration says."""
    functions: Mapping[str, Sequence[ChangedFunction]] | None = None
    """Mode `swap`: by path the functions that differ from the original, which must be all that differs."""
    hash_seed: int = 0
    """PYTHONHASHSEED of the process."""
    order_seed: int | None = None
    """Another order of the tests."""
    wall_s: float = 60.0
    """Seconds it may take, not counting those in which it waits for a core."""
    pace: Pace = field(default_factory=Pace)
    """Seconds that its parts may take, counted in the same way."""

    @property
    def most_s(self) -> float:
        """Seconds it may take in all."""
        return self.wall_s * _MOST_STRETCH

    @property
    def mode(self) -> Mode:
        """Which kind of server makes it."""
        return Mode.IMPORT if self.functions is None else Mode.SWAP


class _Server:
    def __init__(self, sandbox: Sandbox, conversation: Conversation, collected: Sequence[str]) -> None:
        self.sandbox, self.conversation, self.collected = sandbox, conversation, frozenset(collected)

    def close(self) -> None:
        self.conversation.close()
        self.sandbox.close()


class Warm:
    """Servers on one tree, started when they are needed; a run has one for itself while it lasts."""

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
        """modules: what may be imported before the project. targets: what a session for `swap` collects.

        start_s: seconds a server may take to be ready. options: further ones for pytest.
        """
        self._start_s, self._options = start_s, tuple(options)
        self.snapshot, self._provider, self._interpreter, self._limits = snapshot, provider, interpreter, limits
        self._modules, self._targets = tuple(modules), tuple(targets)
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[_Server]] = {}
        self._refusals: dict[str, str] = {}
        self._skipped: set[str] = set()
        self._losses: Counter[str] = Counter()
        self.made: Counter[str] = Counter()
        self.unfit: Counter[str] = Counter()

    def run(self, wanted: Wanted) -> SuiteRun:
        """Make a run; raises UnfitError where it has to be made in a fresh process, and counts why."""
        try:
            run = self._run(wanted)
        except UnfitError as error:
            with self._lock:
                self.unfit[str(error)] += 1
            raise
        with self._lock:
            self.made[wanted.mode] += 1
        return run

    def refuse(self, mode: str, reason: str) -> None:
        """Make no more runs in this mode."""
        with self._lock:
            self._refusals.setdefault(mode, reason)
        self._close(mode)

    @property
    def refusals(self) -> Mapping[str, str]:
        """By mode in which no run is made, why."""
        with self._lock:
            return dict(self._refusals)

    def close(self) -> None:
        """End all servers that make no run just now."""
        self._close(None)

    def _close(self, mode: str | None) -> None:
        with self._lock:
            keys = [key for key in self._idle if mode in (None, key[0])]
            servers = [server for key in keys for server in self._idle.pop(key)]
        for server in servers:
            server.close()

    def _run(self, wanted: Wanted) -> SuiteRun:
        with self._server(wanted.mode, wanted.hash_seed) as server:
            tests = wanted.selection.tests
            if tests is not None and wanted.mode is Mode.SWAP:
                unknown = frozenset(tests) - server.collected
                if unknown:
                    raise UnfitError("a test is not among those that are collected")
            try:
                server.conversation.tell(_request(wanted))
                answer, raw = server.conversation.answer(wall_s=wanted.most_s + _GRACE_S)
            except PassedError as error:
                return SuiteRun(RunStatus.LIMIT_EXCEEDED, reason=str(error), limit=error.limit)
            except SandboxError as error:
                with self._lock:
                    self._losses[wanted.mode] += 1
                    if self._losses[wanted.mode] >= _MOST_LOSSES:
                        self._refusals.setdefault(wanted.mode, f"servers are lost: {error}")
                raise UnfitError(f"the server is lost: {error}") from None
        limit = Limit.WALL_TIME if answer.get("timed_out") else None
        code = None if limit else int(answer["exit"])
        _require_fit(raw)
        return read_channel(raw, ExecResult(code, b"", b"", float(answer["seconds"]), limit))

    @contextlib.contextmanager
    def _server(self, mode: str, hash_seed: int) -> Iterator[_Server]:
        key = (mode, hash_seed)
        with self._lock:
            if mode in self._refusals:
                raise UnfitError(self._refusals[mode])
            idle = self._idle.setdefault(key, [])
            server = idle.pop() if idle else None
        if server is None:
            server = self._started(mode, hash_seed)
        try:
            yield server
        except BaseException as error:
            if not isinstance(error, UnfitError):
                server.close()
            raise
        finally:
            if server.conversation.is_open:
                with self._lock:
                    self._idle.setdefault(key, []).append(server)
            else:
                server.close()

    def _started(self, mode: str, hash_seed: int) -> _Server:
        reason = ""
        for _ in range(_MOST_CULPRITS):
            given = frozenset(self._skipped)
            try:
                found = self._start(mode, hash_seed, given)
            except (SandboxError, PassedError) as error:
                reason = f"the server does not start: {error}"
                break
            if isinstance(found, _Server):
                return found
            reason, culprit = str(found.get("reason")), found.get("culprit")
            if not isinstance(culprit, str) or culprit in given:
                break
            self._skipped.add(culprit)
        self.refuse(mode, reason)
        raise UnfitError(reason)

    def _start(self, mode: str, hash_seed: int, skipped: frozenset[str]) -> _Server | dict[str, Any]:
        shown, hidden = self._interpreter.readable, self._interpreter.hidden
        sandbox = CodebaseState(self.snapshot).open(self._provider, readable=shown, hidden=hidden)
        conversation: Conversation | None = None
        try:
            if not isinstance(sandbox, Conversing):
                raise UnfitError(f"the sandbox {self._provider.name} holds no process between runs")
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
            argv = [str(self._interpreter.executable), "-c", _START, folder, *pytest_arguments(sandbox)]
            argv += self._options
            conversation = sandbox.converse(argv, limits=self._limits, env=env)
            ready, _ = conversation.answer(wall_s=self._start_s)
            if not ready.get("ready"):
                conversation.close()
                sandbox.close()
                return ready
            return _Server(sandbox, conversation, ready.get("collected", ()))
        except BaseException:
            if conversation is not None:
                conversation.close()
            sandbox.close()
            raise


def _request(wanted: Wanted) -> dict[str, Any]:
    changes = {
        path: None if entry is None else [entry.mode, base64.b64encode(entry.data).decode()]
        for path, entry in wanted.state.changes.items()
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
            for f in found
        ]
        for path, found in (wanted.functions or {}).items()
    }
    return {
        "changes": changes,
        "swap": functions,
        **wanted.selection.to_json(),
        "targets": list(wanted.targets),
        "order_seed": wanted.order_seed,
        "wall_s": wanted.wall_s,
        "most_s": wanted.most_s,
        "start_s": min(wanted.pace.start_s, wanted.wall_s),
        "test_s": min(wanted.pace.test_s, wanted.wall_s),
        "limits": dict(wanted.pace.limits),
    }


def _require_fit(raw: bytes) -> None:
    for line in raw.splitlines():
        if b'"unfit"' in line:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                record = json.loads(line)
                if record.get("kind") == "unfit":
                    raise UnfitError(str(record.get("reason")))
