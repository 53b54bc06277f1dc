"""Hold the open sandboxes of one machine: leases, slots, and calls that are made once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import platform
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness.remote_sandboxes.calls import (
    AddTree,
    Answer,
    Arguments,
    Cancel,
    Close,
    Converse,
    ErrorCode,
    Exec,
    ExecInImage,
    Heartbeat,
    HostDescription,
    Images,
    Missing,
    Open,
    Opened,
    Operation,
    PullImage,
    PutFiles,
    RemoteError,
)
from harness.remote_sandboxes.messages import Reply, Request, reply_of, reply_to_exec
from harness.remote_sandboxes.open_sandbox import OpenSandbox, search_path
from harness.remote_sandboxes.running_calls import CallTable, RunningCall
from harness.remote_sandboxes.tree_cache import TreeCache
from harness.remote_sandboxes.trees import tree_id
from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.escaping import escaped_line
from pytest_ssr.interrupts import background, is_stopped, pause, raise_if_stopped
from pytest_ssr.project.interpreter import Interpreter, find_interpreter
from pytest_ssr.sandbox.host import checked_readable
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, HoldsImages, Limits, SandboxProvider, WithImage
from pytest_ssr.sandbox.supervision.rpc_session import SupportsRpcSessions

_MOST_REAPS_PER_LEASE = 4
_LONGEST_REAP_S = 5.0
_PARALLEL_CLOSINGS = 8
_MIN_KEPT_S = 120.0
_IMAGE = re.compile(r"\w[\w.-]*(?:[/:@]\w[\w.-]*)*", re.ASCII)
"""No part of it is `..`: it becomes part of an address of the engine."""
_OS_RELEASE = Path("/etc/os-release")
CEILINGS = Limits(
    wall_s=6 * 3600.0,
    memory_bytes=8192 * MIB,
    processes=1024,
    output_bytes=64 * MIB,
    file_bytes=2048 * MIB,
    disk_bytes=4096 * MIB,
)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What a host offers."""

    slots: int = 64
    """Maximum number of open sandboxes."""
    lease_s: float = 60.0
    """How long a sandbox stays open without a call or a heartbeat."""
    cache_bytes: int = 2048 * MIB
    """Maximum size of the trees that are kept."""
    max_bytes: int = 80 * MIB
    """Maximum size of a call."""
    ceilings: Limits = CEILINGS
    """The highest limits that a client may choose for a command."""
    python: Path | None = None
    """The interpreter that sandboxes without an image show first on PATH; None for the host's own."""
    readable: Sequence[Path] = ()
    """More folders that sandboxes without an image show; clients may request only what lies below."""
    images: Sequence[str] = ()
    """Patterns of the names of images that clients may have pulled; without any, those of Docker Hub."""


@dataclass(frozen=True, slots=True)
class HostCounts:
    """What a host holds now."""

    sandboxes: int
    """Including those that are being opened or closed, and those that exist for one call only."""
    leases: int
    running_calls: int
    trees: int
    tree_bytes: int


class SandboxHost:
    """The open sandboxes of one machine; any number of threads may start calls."""

    def __init__(self, provider: SandboxProvider, settings: HostSettings | None = None) -> None:
        """Take over the provider; raises ProjectError if the interpreter cannot be used."""
        self.settings = settings or HostSettings()
        self._provider = provider
        self._readable: tuple[Path, ...] = ()
        self._search_path = ""
        if not self._has_image:
            interpreter = _interpreter(self.settings.python)
            self._readable = (*interpreter.readable, *checked_readable(self.settings.readable))
            self._search_path = search_path(str(interpreter.executable.parent))
        self._cache = TreeCache(self.settings.cache_bytes)
        # Longer than a lease: a call that comes even later finds no sandbox.
        self._calls = CallTable(kept_s=max(_MIN_KEPT_S, 2 * self.settings.lease_s))
        self._lock = threading.Lock()
        self._open: dict[str, OpenSandbox] = {}
        self._held = 0
        self._is_closing = False
        self._identity = ""
        self._availability: Availability | None = None
        self._reaper = background(self._reap_regularly, name="reaper")

    @property
    def _has_image(self) -> bool:
        return isinstance(self._provider, WithImage) and bool(self._provider.image)

    @property
    def counts(self) -> HostCounts:
        """What the host holds now."""
        with self._lock:
            sandboxes, leases = self._held, len(self._open)
        running = len(self._calls.running())
        return HostCounts(sandboxes, leases, running, self._cache.tree_count, self._cache.bytes)

    def start(self, request: Request) -> RunningCall:
        """Start a call, or return it if it was started before. Raises RemoteError if it cannot be a call."""
        arguments = request.arguments
        count = len(arguments.digests) if isinstance(arguments, PutFiles) else len(arguments.blobs)
        if len(request.blobs) != count:
            raise RemoteError(ErrorCode.MALFORMED, "the call has a wrong number of blobs")
        with self._lock:
            # Also for a call that runs: its client still waits for it.
            if (held := self._open.get(request.sandbox)) is not None:
                held.renew()
        return self._calls.begin(request, lambda call: lambda: self._make(request, call))

    def close(self) -> None:
        """Stop all calls and remove all sandboxes; idempotent."""
        with self._lock:
            self._is_closing = True
        self._reaper.stop()
        # Those that open a sandbox: they close it when they find that they were stopped.
        opening = [call for call in self._calls.running() if call.operation is Operation.OPEN]
        for call in opening:
            call.stop()
        with self._lock:
            held = list(self._open)
        self._end_all(held)
        for call in self._calls.running():
            call.stop()
        self._cache.close()

    def reap(self) -> int:
        """Close the sandboxes whose lease has expired, and return their number."""
        now = time.monotonic()
        with self._lock:
            expired = [held.id for held in self._open.values() if held.expires_at < now]
        self._end_all(expired)
        return len(expired)

    def _reap_regularly(self) -> None:
        while True:
            pause(min(_LONGEST_REAP_S, self.settings.lease_s / _MOST_REAPS_PER_LEASE))
            self.reap()
            self._calls.tidy()
            # A file that cannot be removed must not end the reaper.
            with suppress(OSError):
                self._cache.forget_staged()

    def _make(self, request: Request, call: RunningCall) -> Reply:
        if self._is_closing:
            raise RemoteError(ErrorCode.CLOSING, "the sandbox server is being stopped")
        _require_within(request.arguments, self.settings.ceilings)
        act = {
            Operation.DESCRIBE: self._describe,
            Operation.ADD_TREE: self._add_tree,
            Operation.PUT_FILES: self._put_files,
            Operation.OPEN: self._open_sandbox,
            Operation.EXEC_IN_IMAGE: self._exec_in_image,
            Operation.HEARTBEAT: self._renew,
            Operation.CANCEL: self._cancel,
            Operation.CLOSE: self._close,
            Operation.LIST_IMAGES: self._list_images,
            Operation.PULL_IMAGE: self._pull_image,
        }.get(request.arguments.operation)
        return act(request) if act is not None else self._call_sandbox(request, call.add_output)

    def _call_sandbox(self, request: Request, add_output: Callable[[bytes], None]) -> Reply:
        with self._lock:
            held = self._open.get(request.sandbox)
        if held is None:
            raise RemoteError(ErrorCode.UNKNOWN_SANDBOX, "the sandbox is closed, or its lease has expired")
        try:
            return held.make_call(request, add_output)
        finally:
            held.renew()

    def _describe(self, _: Request) -> Reply:
        availability = self._probe()
        if availability.works and not self._identity:
            self._identity = self._hash_identity()
        settings = self.settings
        return reply_of(
            HostDescription(
                availability.works,
                f"{self._provider.name}: {availability.detail}",
                availability.remedy,
                self._identity,
                settings.lease_s,
                settings.max_bytes,
                settings.slots,
            )
        )

    def _probe(self) -> Availability:
        """Try the sandbox; while all slots are taken, return what the last trial has found."""
        try:
            with self._slot():
                self._availability = self._provider.probe()
        except RemoteError:
            if self._availability is None:
                raise
        return self._availability

    def _hash_identity(self) -> str:
        parts = [self._provider.name, platform.machine(), self._search_path]
        if isinstance(self._provider, WithImage) and self._provider.image:
            parts.append(self._provider.image_digest())
        else:
            with suppress(OSError):
                parts.append(_OS_RELEASE.read_text())
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _add_tree(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, AddTree)
        missing = self._cache.add(call.entries)
        return reply_of(Missing(tuple(missing), "" if missing else tree_id(call.entries)))

    def _put_files(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, PutFiles)
        for digest, data in zip(call.digests, request.blobs, strict=True):
            raise_if_stopped()
            self._cache.put(digest, data)
        return Reply()

    def _open_sandbox(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, Open)
        self._take_slot()
        try:
            held = self._opened(call)
        except BaseException:
            self._free_slot()
            raise
        with self._lock:
            self._open[held.id] = held
        if is_stopped():
            self._end(held.id)
            raise_if_stopped()
        sandbox = held.sandbox
        opened = Opened(held.id, sandbox.root, sandbox.scratch, tuple(getattr(sandbox, "built", ())))
        if isinstance(sandbox, SupportsRpcSessions):
            return reply_of(_with_sessions(opened, sandbox))
        return reply_of(opened)

    def _opened(self, call: Open) -> OpenSandbox:
        readable = self._shown(call.readable)
        with self._cache.using(call.tree) as folder:
            sandbox = self._provider.open(folder, mount_at=call.mount_at, readable=readable, hidden=call.hidden)
            path = "" if self._has_image else self._search_path
            held = OpenSandbox(secrets.token_hex(16), sandbox, call.tree, self._cache, self.settings.lease_s, path)
            held.renew()
            return held

    def _shown(self, requested: Sequence[str]) -> list[Path]:
        """Return what a sandbox shows; raises SandboxError for a request outside of what the host offers."""
        paths = checked_readable([Path(path) for path in requested])
        for path in paths:
            if not any(path.resolve().is_relative_to(offered.resolve()) for offered in self._readable):
                raise RemoteError(ErrorCode.SANDBOX, f"the sandbox server does not show {path}; see its --readable")
        return sorted({*self._readable, *paths})

    def _exec_in_image(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, ExecInImage)
        limits, stdin = call.limits, request.blobs[0]
        with self._slot():
            if isinstance(self._provider, WithImage) and self._provider.image:
                return reply_to_exec(self._provider.exec_in_image(call.argv, limits=limits, stdin=stdin))
            return reply_to_exec(self._exec_without_tree(call.argv, limits, stdin))

    def _exec_without_tree(self, argv: Sequence[str], limits: Limits, stdin: bytes) -> ExecResult:
        env = {"PATH": self._search_path} if self._search_path else None
        with (
            tempfile.TemporaryDirectory() as empty,
            self._provider.open(Path(empty), mount_at="/tmp/ssr-look", readable=self._readable) as sandbox,
        ):
            return sandbox.exec(argv, limits=limits, stdin=stdin, cwd="/", env=env)

    def _renew(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, Heartbeat)
        with self._lock:
            for identity in self._open.keys() & set(call.sandboxes):
                self._open[identity].renew()
        return Reply()

    def _cancel(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, Cancel)
        cancelled = self._calls.get(call.call)
        if cancelled is not None:
            cancelled.request_stop()
            if cancelled.operation is Operation.OPEN and cancelled.reply is not None:
                self._end(str(cancelled.reply.result.get("id", "")))
        return Reply()

    def _close(self, request: Request) -> Reply:
        assert isinstance(request.arguments, Close)
        self._end(request.sandbox, besides=request.key)
        return Reply()

    def _list_images(self, _: Request) -> Reply:
        return reply_of(Images(tuple(self._images().local_images())))

    def _pull_image(self, request: Request) -> Reply:
        call = request.arguments
        assert isinstance(call, PullImage)
        provider = self._images()
        if not _IMAGE.fullmatch(call.image):
            raise RemoteError(ErrorCode.MALFORMED, "this cannot be the name of an image")
        if not self._may_pull(call.image):
            raise RemoteError(ErrorCode.IMAGE_NOT_ALLOWED, "the server does not pull this image; see its --images")
        # An engine that is away is no secret.
        provider.local_images()
        try:
            return reply_of(provider.pull(call.image))
        except SandboxError as error:
            # Whether a registry is there, has no such image or refuses it is for the operator.
            print(f"ssr sandbox-server: {call.image}: {escaped_line(str(error))}", file=sys.stderr, flush=True)
            message = "the image cannot be pulled; the server's log has the cause"
            raise RemoteError(ErrorCode.IMAGE_UNAVAILABLE, message) from None

    def _may_pull(self, image: str) -> bool:
        if self.settings.images:
            return any(fnmatchcase(image, pattern) for pattern in self.settings.images)
        registry, slash, _ = image.partition("/")
        return not slash or not ("." in registry or ":" in registry or registry == "localhost")

    def _images(self) -> HoldsImages:
        if not isinstance(self._provider, HoldsImages):
            raise RemoteError(
                ErrorCode.NO_IMAGES,
                f"the sandbox {self._provider.name} has no images; start the server with --sandbox docker",
            )
        return self._provider

    def _take_slot(self) -> None:
        """Admit one more sandbox, or raise RemoteError; everything that opens one comes here first."""
        with self._lock:
            if self._held >= self.settings.slots:
                raise RemoteError(ErrorCode.BUSY, f"all {self.settings.slots} slots of the sandbox server are taken")
            self._held += 1

    def _free_slot(self) -> None:
        with self._lock:
            self._held -= 1

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold a slot for a sandbox that exists for one call only."""
        self._take_slot()
        try:
            yield
        finally:
            self._free_slot()

    def _end_all(self, identities: Sequence[str]) -> None:
        """Close several sandboxes at a time; one that cannot be closed does not keep the others open."""
        if not identities:
            return
        # Threads of no scope: what stops the reaper must not stop a clean-up half-way.
        with ThreadPoolExecutor(_PARALLEL_CLOSINGS, thread_name_prefix="ssr-close") as pool:
            for future in [pool.submit(self._end, identity) for identity in identities]:
                with suppress(SsrError, OSError):
                    future.result()

    def _end(self, identity: str, besides: str = "") -> None:
        """Close a sandbox, if it is open, after its calls. besides: the key of the call that closes it."""
        with self._lock:
            held = self._open.pop(identity, None)
        if held is None:
            return
        try:
            closing = self._calls.get(besides)
            calls = [call for call in self._calls.running(identity) if call is not closing]
            for call in calls:
                call.request_stop()
            for call in calls:
                if call.operation is Operation.ANSWER:
                    call.stop()
            # The sandbox may let other calls wait until the long-running command has ended.
            held.end_session()
            for call in calls:
                call.stop()
            held.close()
        finally:
            self._free_slot()


def _require_within(arguments: Arguments, ceilings: Limits) -> None:
    """Raise RemoteError for a limit above its ceiling.

    A lower limit than the client's could end a command that the client's own would not, and thus change a grade.
    """
    chosen: dict[str, float] = {}
    if isinstance(arguments, Exec | ExecInImage | Converse):
        chosen = asdict(arguments.limits)
    elif isinstance(arguments, Answer):
        chosen = {"wall_s": arguments.wall_s}
    for name, value in chosen.items():
        if value > (ceiling := getattr(ceilings, name)):
            raise RemoteError(
                ErrorCode.CEILING, f"the limit {name} is {value:g}, and the sandbox server allows at most {ceiling:g}"
            )


@functools.cache
def _interpreter(python: Path | None) -> Interpreter:
    """Return an interpreter of this machine, or that of this process, for the tests of any project."""
    with tempfile.TemporaryDirectory() as empty:
        return find_interpreter(Path(empty), python or Path(sys.executable), needs_pytest=False)


def _with_sessions(opened: Opened, sandbox: SupportsRpcSessions) -> Opened:
    return Opened(opened.id, opened.root, opened.scratch, opened.built, sandbox.lower, tuple(sandbox.private))
