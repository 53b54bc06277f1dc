"""What goes wrong between a client and a server: lost connections, expired leases, ended servers, hostile requests."""

from __future__ import annotations

import contextlib
import hashlib
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, fields, replace
from pathlib import Path

import httpx
import pytest
from clocks import DAY_S, shifted_clock
from remote_hosts import TOKEN, folders_in, served_host, server_process

from harness.remote_sandboxes.calls import (
    AddTree,
    Answer,
    Arguments,
    Cancel,
    Close,
    Converse,
    Describe,
    ErrorCode,
    Exec,
    ExecInImage,
    Heartbeat,
    Open,
    Opened,
    PutFiles,
    Read,
    RemoteError,
    TreeEntry,
    Write,
)
from harness.remote_sandboxes.host import HostSettings, SandboxHost
from harness.remote_sandboxes.http_transport import HttpTransport
from harness.remote_sandboxes.messages import Reply, Request
from harness.remote_sandboxes.provider import RemoteProvider
from harness.remote_sandboxes.sandbox import RemoteSandbox
from harness.remote_sandboxes.trees import TreeReader
from harness.settings.service import SandboxServerSettings
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.interrupts import background, workers
from pytest_ssr.progress import waits
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import Limit, Limits
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError, SupportsRpcSessions

LIMITS = Limits(wall_s=30)
HEADERS = {"content-type": "application/octet-stream"}


class Proxy:
    """Passes bytes between clients and a server, and drops all connections on demand."""

    def __init__(self, target: int) -> None:
        self._target, self._open = target, list[socket.socket]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.dropped = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self) -> None:
        """Reset all connections."""
        while self._open:
            self.dropped += 1
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open.append(client)
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes in both directions until one side ends."""
    with client, server, contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
        for source, target in ((client, server), (server, client)):
            selector.register(source, selectors.EVENT_READ, target)
        while True:
            for key, _ in selector.select():
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "module.py").write_text("a = 1\nb = 2\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SandboxHost]:
    host = SandboxHost(ProcessProvider(), HostSettings(slots=4))
    yield host
    host.close()


@pytest.fixture
def served() -> Iterator[tuple[str, SandboxHost]]:
    with served_host(ProcessProvider(), HostSettings(slots=4)) as served:
        yield served


@pytest.fixture
def provider(served: tuple[str, SandboxHost]) -> Iterator[RemoteProvider]:
    provider = RemoteProvider([HttpTransport(served[0])])
    yield provider
    provider.close()


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def made(host: SandboxHost, arguments: Arguments, *blobs: bytes, sandbox: str = "") -> ErrorCode | None:
    """Make a call, and return the code of its error."""
    call = host.start(Request(arguments, sandbox, blobs))
    assert soon(lambda: call.reply is not None)
    assert call.reply is not None
    return call.reply.code


def opened(host: SandboxHost, tree: Path) -> str:
    """Open a sandbox without a client, and return its id."""
    described = TreeReader().read(tree)
    made(host, AddTree(described.entries))
    for entry in described.entries:
        if entry.digest:
            assert made(host, PutFiles((entry.digest,)), (tree / entry.path).read_bytes()) is None
    assert made(host, AddTree(described.entries)) is None
    call = host.start(Request(Open(described.id, "/w")))
    assert soon(lambda: call.reply is not None)
    return call.reply.read(Opened).id  # type: ignore[union-attr]


def test_a_call_acts_once_although_its_connection_is_lost_again_and_again(
    served: tuple[str, SandboxHost], tree: Path, tmp_path: Path
) -> None:
    proxy, counter = Proxy(int(served[0].rpartition(":")[2])), tmp_path / "counter"
    provider = RemoteProvider([HttpTransport(proxy.url)])
    parts: list[bytes] = []
    script = f"echo x >> {counter}; for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done"
    with provider.open(tree, mount_at="/w") as sandbox, background(lambda: _drop_until(proxy, parts)):
        done = sandbox.exec(["sh", "-c", script], limits=LIMITS, on_output=parts.append)
    provider.close()
    proxy.close()
    assert (done.exit_code, done.stdout) == (0, b"1\n2\n3\n4\n5\n6\n")
    assert b"".join(parts) == done.stdout
    assert counter.read_text() == "x\n"
    assert proxy.dropped > 2


def _drop_until(proxy: Proxy, parts: list[bytes]) -> None:
    from pytest_ssr.interrupts import pause

    while True:
        pause(0.15)
        if parts:
            proxy.drop()


def test_a_call_that_arrives_twice_waits_for_the_first(host: SandboxHost, tree: Path, tmp_path: Path) -> None:
    sandbox, counter = opened(host, tree), tmp_path / "counter"
    request = Request(Exec(("sh", "-c", f"sleep 0.3; echo x >> {counter}"), LIMITS), sandbox, [b""])
    calls = [host.start(Request.decode(request.encode())) for _ in range(3)]
    assert soon(lambda: all(call.reply is not None for call in calls))
    assert len(set(map(id, calls))) == 1
    assert counter.read_text() == "x\n"
    other = Request(Read("run.sh", 99), sandbox, key=request.key)
    with pytest.raises(RemoteError) as caught:
        host.start(other)
    assert caught.value.code is ErrorCode.KEY_REUSED


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_key_belongs_to_one_call(
    host: SandboxHost, tree: Path, is_forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = opened(host, tree)
    # As it arrives: the time limit is a float then.
    request = Request.decode(Request(Exec(("cat",), LIMITS), sandbox, [b"first"]).encode())
    call = host.start(request)
    assert soon(lambda: call.reply is not None)
    if is_forgotten:
        monkeypatch.setattr("harness.remote_sandboxes.running_calls._KEPT_BYTES", 1)
        host._calls.tidy()
    assert host.start(Request.decode(request.encode())) is call
    for other in (
        replace(request, blobs=[b"other"]),
        replace(request, arguments=Exec(("cat", "-n"), LIMITS)),
        replace(request, arguments=Exec(("cat",), Limits(wall_s=29))),
        replace(request, arguments=Write("cat")),
        replace(request, sandbox=opened(host, tree)),
    ):
        with pytest.raises(RemoteError) as caught:
            host.start(other)
        assert caught.value.code is ErrorCode.KEY_REUSED


def test_a_reused_key_has_a_code_of_its_own_over_http(served: tuple[str, SandboxHost]) -> None:
    transport, request = HttpTransport(served[0]), Request(Describe())
    assert transport.call(request).code is None
    with pytest.raises(RemoteError) as caught:
        transport.call(replace(request, arguments=Heartbeat(())))
    assert caught.value.code is ErrorCode.KEY_REUSED
    transport.close()


def test_everything_that_opens_a_sandbox_needs_a_slot(tree: Path) -> None:
    host = SandboxHost(ProcessProvider(), HostSettings(slots=2))
    try:
        assert made(host, Describe()) is None
        opened(host, tree)
        running = host.start(Request(ExecInImage(("sleep", "60"), LIMITS), blobs=[b""]))
        assert soon(lambda: host.counts.sandboxes == 2)
        assert made(host, ExecInImage(("true",), LIMITS), b"") is ErrorCode.BUSY
        assert made(host, Open(TreeReader().read(tree).id, "/w")) is ErrorCode.BUSY
        # Without another trial.
        assert made(host, Describe()) is None
        running.stop()
        assert host.counts.sandboxes == 1
        assert made(host, ExecInImage(("true",), LIMITS), b"") is None
        assert host.counts.sandboxes == 1
    finally:
        host.close()
    assert host.counts.sandboxes == 0


def test_a_host_whose_slots_are_taken_is_described_later(tree: Path) -> None:
    host = SandboxHost(ProcessProvider(), HostSettings(slots=1))
    try:
        sandbox = opened(host, tree)
        assert made(host, Describe()) is ErrorCode.BUSY
        assert made(host, Close(), sandbox=sandbox) is None
        assert made(host, Describe()) is None
    finally:
        host.close()


def test_a_command_without_a_tree_waits_for_a_slot(tree: Path) -> None:
    with served_host(ProcessProvider(), HostSettings(slots=1)) as (url, host):
        provider = RemoteProvider([HttpTransport(url)])
        sandbox = provider.open(tree, mount_at="/w")
        running = background(lambda: provider.exec_in_image(["echo", "x"], limits=LIMITS))
        assert soon(lambda: any(call.reply for call in host._calls._calls.values() if _is_busy(call.reply)))
        sandbox.close()
        assert running.result().stdout == b"x\n"
        provider.close()


class Keeper:
    """Keeps one sandbox that nothing uses."""

    def __init__(self, sandbox: RemoteSandbox) -> None:
        self.sandbox: RemoteSandbox | None = sandbox

    def close_idle(self) -> bool:
        kept, self.sandbox = self.sandbox, None
        if kept is not None:
            kept.close()
        return kept is not None


def test_idle_sandboxes_of_the_client_give_way(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.remote_sandboxes.provider._WAIT_S", 0.0)
    with served_host(ProcessProvider(), HostSettings(slots=1)) as (url, _):
        provider = RemoteProvider([HttpTransport(url)])
        keeper = Keeper(provider.open(tree, mount_at="/w"))
        provider.add_keeper(keeper)
        with provider.open(tree, mount_at="/w"):
            assert keeper.sandbox is None
            with pytest.raises(RemoteError) as caught:
                provider.open(tree, mount_at="/w")
            assert caught.value.code is ErrorCode.BUSY
        keeper.sandbox = provider.open(tree, mount_at="/w")
        assert provider.exec_in_image(["echo", "x"], limits=LIMITS).stdout == b"x\n"
        provider.close()


def test_progress_lines_show_the_wait_for_a_slot(tree: Path) -> None:
    class Line:
        def __init__(self) -> None:
            self.shown: list[str] = []
            self.waits = threading.Event()

        def show(self) -> None:
            self.shown.append(waits.text)
            self.waits.set()

    line = Line()
    waits.watch(line.show)
    with served_host(ProcessProvider(), HostSettings(slots=1)) as (url, _):
        provider = RemoteProvider([HttpTransport(url)])
        sandbox = provider.open(tree, mount_at="/w")
        opening = background(lambda: provider.open(tree, mount_at="/w"))
        assert line.waits.wait(30)
        sandbox.close()
        opening.result().close()
        provider.close()
    assert [bool(text) for text in line.shown] == [True, False]


def _is_busy(reply: Reply | None) -> bool:
    return reply is not None and reply.code is ErrorCode.BUSY


CEILINGS = Limits(
    wall_s=60, memory_bytes=8 << 30, processes=300, output_bytes=32 << 20, file_bytes=1 << 30, disk_bytes=2 << 30
)


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_a_limit_above_the_ceiling_is_refused(name: str, tree: Path) -> None:
    host = SandboxHost(ProcessProvider(), HostSettings(ceilings=CEILINGS))
    try:
        sandbox = opened(host, tree)
        above = replace(CEILINGS, **{name: getattr(CEILINGS, name) + 1})
        assert made(host, Exec(("true",), CEILINGS), b"", sandbox=sandbox) is None
        assert made(host, Exec(("true",), above), b"", sandbox=sandbox) is ErrorCode.CEILING
        assert made(host, Converse(("true",), above), sandbox=sandbox) is ErrorCode.CEILING
        assert made(host, ExecInImage(("true",), above), b"") is ErrorCode.CEILING
    finally:
        host.close()


def test_an_answer_may_take_no_longer_than_a_command(host: SandboxHost, tree: Path) -> None:
    sandbox = opened(host, tree)
    assert made(host, Answer(host.settings.ceilings.wall_s + 1), b"{}", sandbox=sandbox) is ErrorCode.CEILING


def test_the_ceilings_of_the_server_are_options() -> None:
    settings = SandboxServerSettings()
    options = (settings.max_seconds, settings.max_memory, settings.max_processes)
    written = (settings.max_output, settings.max_file, settings.max_disk)
    assert (*options, *written) == astuple(HostSettings().ceilings)
    flags = ("--max-seconds", 5, "--max-memory", 5 << 30, "--max-processes", 300, "--max-output", 1 << 25)
    with server_process("--sandbox", "process", *flags, "--max-file", 1 << 30, "--max-disk", 1 << 31) as (url, _):
        provider = RemoteProvider([HttpTransport(url)])
        for limits in (Limits(wall_s=6), Limits(wall_s=5, memory_bytes=6 << 30), Limits(wall_s=5, processes=301)):
            with pytest.raises(RemoteError) as caught:
                provider.exec_in_image(["true"], limits=limits)
            assert caught.value.code is ErrorCode.CEILING
        assert provider.exec_in_image(["true"], limits=Limits(wall_s=5)).exit_code == 0
        provider.close()


def test_an_expired_lease_ends_the_sandbox_and_its_command(tmp_path: Path, tree: Path) -> None:
    host = SandboxHost(ProcessProvider(), HostSettings(lease_s=2))
    try:
        sandbox = opened(host, tree)
        call = host.start(Request(Exec(("sh", "-c", "touch started; sleep 60"), LIMITS), sandbox, [b""]))
        assert soon(lambda: call.reply is not None)
        assert call.reply is not None
        assert call.reply.code is ErrorCode.CANCELLED
        assert soon(lambda: host.counts.leases == 0)
        assert made(host, Read("run.sh", 99), sandbox=sandbox) is ErrorCode.UNKNOWN_SANDBOX
    finally:
        host.close()


@pytest.mark.bubblewrap
def test_commands_that_wait_for_each_other_end_with_their_sandbox(tree: Path) -> None:
    host = SandboxHost(load_provider("bubblewrap"))
    try:
        sandbox = opened(host, tree)
        sleeping = Exec(("sleep", "60"), Limits(wall_s=90))
        calls = [host.start(Request(sleeping, sandbox, [b""])) for _ in range(3)]
        time.sleep(0.3)
        assert made(host, Close(), sandbox=sandbox) is None
        assert [call.reply and call.reply.code for call in calls] == [ErrorCode.CANCELLED] * 3
        sandbox = opened(host, tree)
        assert made(host, Converse(("sleep", "60"), Limits(wall_s=90)), sandbox=sandbox) is None
        assert made(host, sleeping, b"", sandbox=sandbox) is ErrorCode.SANDBOX
        answer = host.start(Request(Answer(60.0), sandbox, [b"{}"]))
        time.sleep(0.3)
        assert made(host, Close(), sandbox=sandbox) is None
        assert answer.reply is not None
        assert host.counts.sandboxes == 0
    finally:
        host.close()


def test_heartbeats_keep_an_idle_sandbox(tree: Path) -> None:
    with served_host(ProcessProvider(), HostSettings(lease_s=6)) as (url, host):
        provider = RemoteProvider([HttpTransport(url)])
        with provider.open(tree, mount_at="/w") as sandbox:
            (held,) = host._open.values()
            expires_at = held.expires_at
            assert soon(lambda: held.expires_at > expires_at)
            assert sandbox.read("run.sh") == b"#!/bin/sh\n"
        assert host.counts.sandboxes == 0
        provider.close()


def test_an_interrupt_cancels_the_call(provider: RemoteProvider, served: tuple[str, SandboxHost], tree: Path) -> None:
    with provider.open(tree, mount_at="/w") as sandbox:
        with background(lambda: sandbox.exec(["sh", "-c", "touch started; sleep 60"], limits=LIMITS)):
            assert soon(lambda: _exists(sandbox, "started"))
        assert soon(lambda: served[1].counts.running_calls == 0)
        assert sandbox.exec(["true"], limits=LIMITS).exit_code == 0


def _exists(sandbox: RemoteSandbox, path: str) -> bool:
    try:
        sandbox.read(path)
    except FileNotFoundError:
        return False
    return True


def test_a_cancelled_opening_leaves_nothing(host: SandboxHost, tree: Path) -> None:
    described = TreeReader().read(tree)
    opened(host, tree)
    request = Request(Open(described.id, "/w"))
    call = host.start(request)
    assert soon(lambda: call.reply is not None)
    assert host.counts.sandboxes == 2
    assert made(host, Cancel(request.key)) is None
    assert host.counts.sandboxes == 1
    for _ in range(10):
        request = Request(Open(described.id, "/w"))
        call = host.start(request)
        assert made(host, Cancel(request.key)) is None
        assert soon(lambda call=call: call.reply is not None)  # type: ignore[misc]
    assert soon(lambda: host.counts.sandboxes == 1)


def test_clients_wait_for_a_slot(served: tuple[str, SandboxHost], tree: Path) -> None:
    providers = [RemoteProvider([HttpTransport(served[0])]) for _ in range(2)]
    most = 0

    def work(number: int) -> None:
        nonlocal most
        with providers[number % 2].open(tree, mount_at="/w") as sandbox:
            sandbox.exec(["sleep", "0.1"], limits=LIMITS)
            most = max(most, served[1].counts.sandboxes)

    with workers(10) as pool:
        for future in [pool.submit(work, number) for number in range(10)]:
            future.result()
    assert most == 4
    assert served[1].counts.sandboxes == 0
    for provider in providers:
        provider.close()


def test_a_host_without_a_free_slot_is_passed_over(tree: Path) -> None:
    with (
        served_host(ProcessProvider(), HostSettings(slots=1)) as (first, _),
        served_host(ProcessProvider(), HostSettings(slots=1)) as (second, host),
    ):
        provider = RemoteProvider([HttpTransport(first), HttpTransport(second)])
        assert provider.probe().works
        with provider.open(tree, mount_at="/w"), provider.open(tree, mount_at="/w"):
            assert host.counts.sandboxes == 1
        provider.close()


def test_the_difference_from_the_tree(provider: RemoteProvider, tree: Path) -> None:
    script = (
        "sed -i 's/b = 2/b = 3/' package/module.py; rm run.sh; echo x > 'new file'; chmod 755 'new file'; "
        "ln -s package other; mkdir -p package/__pycache__; echo x > package/__pycache__/x.pyc"
    )
    with provider.open(tree, mount_at="/w") as sandbox:
        assert sandbox.diff().files == ()
        sandbox.exec(["sh", "-c", script], limits=LIMITS)
        patch = sandbox.diff()
    assert patch.paths == ("new file", "other", "package/module.py", "run.sh")
    assert b"-b = 2\n+b = 3\n" in patch.data
    assert b"new file mode 100755" in patch.data


def test_a_script_reports_its_output_while_it_runs(provider: RemoteProvider, tree: Path) -> None:
    times: list[float] = []
    with provider.open(tree, mount_at="/w") as sandbox:
        done = sandbox.evaluate(
            b"#!/bin/sh\necho one; sleep 0.5; echo two >&2\n",
            limits=LIMITS,
            on_output=lambda _: times.append(time.monotonic()),
        )
    assert (done.stdout, done.stderr) == (b"one\n", b"two\n")
    assert times[1] - times[0] > 0.3


def test_a_killed_server_is_an_error_and_leaves_nothing_after_its_restart(tmp_path: Path, tree: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    with server_process("--sandbox", "process", TMPDIR=str(folder)) as (url, process):
        provider = RemoteProvider([HttpTransport(url, retry_s=0.5)])
        sandbox = provider.open(tree, mount_at="/w")
        running = background(lambda: sandbox.exec(["sh", "-c", "touch started; sleep 98761"], limits=LIMITS))
        assert soon(lambda: _exists(sandbox, "started"))
        process.kill()
        process.wait()
        assert len(folders_in(folder)) == 2
        with pytest.raises(SandboxUnavailableError):
            running.result()
        provider.close()
    with server_process("--sandbox", "process", TMPDIR=str(folder)):
        # That of its trees.
        assert len(folders_in(folder)) == 1
        assert soon(lambda: not _is_running(b"98761"))
    assert folders_in(folder) == []


def _is_running(word: bytes) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("shift_s", [DAY_S, -DAY_S])
def test_a_server_whose_clock_is_wrong_keeps_leases(tmp_path: Path, tree: Path, shift_s: int) -> None:
    clock = shifted_clock(tmp_path / "clock", shift_s)
    with server_process("--sandbox", "process", "--lease", 1, **clock) as (url, _):
        provider = RemoteProvider([HttpTransport(url)])
        sandbox = provider.open(tree, mount_at="/w")
        time.sleep(1.5)
        done = sandbox.exec(["sleep", "0.5"], limits=LIMITS)
        assert done.exit_code == 0
        assert 0.5 <= done.seconds < 30
        provider.close()
        assert httpx.get(f"{url}/health").json()["sandboxes"] == 0


def test_sigterm_removes_all_sandboxes(tmp_path: Path, tree: Path) -> None:
    with server_process("--sandbox", "process", TMPDIR=str(tmp_path)) as (url, process):
        provider = RemoteProvider([HttpTransport(url)])
        sandbox = provider.open(tree, mount_at="/w")
        running = background(lambda: sandbox.exec(["sh", "-c", "touch started; sleep 98762"], limits=LIMITS))
        assert soon(lambda: _exists(sandbox, "started"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert not _is_running(b"98762")
        with pytest.raises(SandboxError):
            running.result()
        provider.close()
    assert folders_in(tmp_path) == []


def test_a_server_for_other_machines_needs_a_token(tmp_path: Path, tree: Path) -> None:
    with server_process("--sandbox", "process", "--host", "0.0.0.0", SSR_SANDBOX_TOKEN=TOKEN) as (url, _):
        for token in ("", "another-token-of-that-length", TOKEN[:-1]):
            provider = RemoteProvider([HttpTransport(url, token=token)])
            availability = provider.probe()
            assert (availability.works, availability.remedy) == (False, "set SSR_SANDBOX_TOKEN")
            provider.close()
        assert httpx.get(f"{url}/health").json() == {"status": "up"}
        provider = RemoteProvider([HttpTransport(url, token=TOKEN)])
        with provider.open(tree, mount_at="/w") as sandbox:
            assert sandbox.read("run.sh") == b"#!/bin/sh\n"
        provider.close()


def post(url: str, content: bytes = b"", **headers: str) -> int:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{url}/v1/calls", content=content, headers={**HEADERS, **names}).status_code


def test_requests_that_are_no_calls_are_refused(served: tuple[str, SandboxHost]) -> None:
    url, host = served
    valid = Request(Read("a", 1), "x").encode()
    assert post(url, valid) == 200
    assert post(url, valid, host="attacker.example") == 403
    assert post(url, valid, origin="http://attacker.example") == 403
    assert post(url, valid, sec_fetch_site="same-site") == 403
    assert post(url, valid, content_type="text/plain") == 415
    for content in (b"", b"\0\0\0\x02{}", b"\xff" * 99, valid[:-1], valid + b"x", valid.replace(b'"read"', b'"eval"')):
        assert post(url, content) == 400
    assert post(url, Request(Read("a", 1), "x", key="short").encode()) == 400
    assert post(url, Request(Read("a", 1), "x", [b"unexpected"]).encode()) == 400
    assert httpx.get(f"{url}/v1/calls").status_code == 405
    assert host.counts.sandboxes == 0


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_large_body_is_refused(is_announced: bool) -> None:
    with served_host(ProcessProvider(), HostSettings(max_bytes=1 << 16)) as (url, _):
        body = bytes(1 << 20)
        content = body if is_announced else iter([body[: 1 << 18]] * 4)
        try:
            status = httpx.post(f"{url}/v1/calls", content=content, headers=HEADERS).status_code
        except httpx.TransportError:
            # The server closes the connection while the client still sends.
            status = 413
        assert status == 413
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a//b", "a\0b", "."])
def test_paths_that_leave_the_sandbox_are_refused(host: SandboxHost, tree: Path, path: str) -> None:
    sandbox = opened(host, tree)
    assert made(host, Read(path, 99), sandbox=sandbox) is ErrorCode.SANDBOX
    assert made(host, Write(path), b"x", sandbox=sandbox) is ErrorCode.SANDBOX


DIGEST = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [TreeEntry("../x", 0o644, 0, DIGEST)],
        [TreeEntry("/x", 0o644, 0, DIGEST)],
        [TreeEntry("a/b", 0o644, 0, DIGEST)],
        [TreeEntry("a", 0o777, 0, target="/etc"), TreeEntry("a/b", 0o644, 0, DIGEST)],
        [TreeEntry("a", 0o644, 0, DIGEST), TreeEntry("a", 0o644, 0, DIGEST)],
        [TreeEntry("a", 0o4755, 0, DIGEST)],
        [TreeEntry("a", 0o644, 0, "../../etc/passwd")],
        [TreeEntry("a\0", 0o644, 0, DIGEST)],
    ],
)
def test_a_tree_that_leaves_its_folder_is_refused(host: SandboxHost, entries: list[TreeEntry]) -> None:
    assert made(host, PutFiles((DIGEST,)), b"x") is None
    assert made(host, AddTree(tuple(entries))) is ErrorCode.MALFORMED
    assert host.counts.trees == 0


def test_a_file_that_differs_from_its_hash_is_refused(host: SandboxHost) -> None:
    assert made(host, PutFiles((DIGEST,)), b"y") is ErrorCode.MALFORMED
    assert host.counts.tree_bytes == 0


def test_trees_that_are_not_in_use_make_room(tmp_path: Path) -> None:
    host = SandboxHost(ProcessProvider(), HostSettings(cache_bytes=2_500))
    try:
        used = opened(host, _tree_of(tmp_path / "used", b"u"))
        for number in range(5):
            identity = opened(host, _tree_of(tmp_path / str(number), b"%d" % number))
            host._end(identity)
            assert host.counts.tree_bytes == 2_000
        assert made(host, Read("file", 2_000), sandbox=used) is None
        opened(host, _tree_of(tmp_path / "second", b"s"))
        assert made(host, PutFiles((hashlib.sha256(bytes(1_000)).hexdigest(),)), bytes(1_000)) is ErrorCode.CACHE_FULL
    finally:
        host.close()


def _tree_of(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "file").write_bytes(content * 1_000)
    return folder


def test_only_offered_folders_are_shown(tmp_path: Path, tree: Path) -> None:
    (tmp_path / "offered").mkdir()
    with served_host(ProcessProvider(), HostSettings(readable=[tmp_path / "offered"])) as (url, _):
        provider = RemoteProvider([HttpTransport(url)])
        provider.open(tree, mount_at="/w", readable=[tmp_path / "offered" / "below"]).close()
        (tmp_path / "offered" / "link").symlink_to("/etc")
        for path in ("/etc", f"{tmp_path}/offered/../other", f"{tmp_path}/offered/link"):
            with pytest.raises(RemoteError):
                provider.open(tree, mount_at="/w", readable=[Path(path)])
        provider.close()


def test_a_replys_memory_is_bounded_and_the_call_is_not_made_again(
    host: SandboxHost, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = opened(host, tree)
    request = Request(Exec(("sh", "-c", "echo x >> counter; cat counter"), LIMITS, streams=True), sandbox, [b""])
    call = host.start(request)
    assert soon(lambda: call.reply is not None)
    # Once in the reply, and once for those that follow the output.
    assert call.kept_bytes == 2 * len("x\n")
    monkeypatch.setattr("harness.remote_sandboxes.running_calls._KEPT_BYTES", 1)
    host._calls.tidy()
    again = host.start(request)
    assert again.reply is not None
    assert again.reply.code is ErrorCode.FORGOTTEN
    assert call.kept_bytes == 0
    assert made(host, Read("counter", 9), sandbox=sandbox) is None


ECHO = """
import json, socket, struct, time
stream = socket.socket(fileno=0)
while head := stream.recv(8):
    text = stream.recv(struct.unpack("!II", head)[0])
    time.sleep(json.loads(text)["sleep"])
    stream.sendall(struct.pack("!II", len(text), 3) + text + b"raw")
"""


def test_a_conversation_with_a_command(provider: RemoteProvider, tree: Path) -> None:
    with provider.open(tree, mount_at="/w") as sandbox:
        assert isinstance(sandbox, SupportsRpcSessions)
        command = [sys.executable, "-c", ECHO]
        session = sandbox.converse(command, limits=LIMITS)
        for number in range(3):
            session.send({"sleep": 0, "number": number})
            assert session.answer(wall_s=10) == ({"sleep": 0, "number": number}, b"raw")
        session.send({"sleep": 60})
        with pytest.raises(LimitExceededError) as caught:
            session.answer(wall_s=0.3)
        assert caught.value.limit is Limit.WALL_TIME
        assert not session.is_open
        with sandbox.converse(command, limits=LIMITS) as again:  # type: ignore[attr-defined]
            again.send({"sleep": 0})
            assert again.answer(wall_s=10)[1] == b"raw"
        assert sandbox.exec(["true"], limits=LIMITS).exit_code == 0
