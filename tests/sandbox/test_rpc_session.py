"""Long-running commands answer requests, keep their limits, and leave nothing behind when they end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import command_lines

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError, RpcSession, SupportsRpcSessions

SERVER = """
import json, os, stat, struct, subprocess, sys, time
out = 0 if stat.S_ISSOCK(os.fstat(0).st_mode) else 3
print("not an answer", flush=True)
def answer(record, raw=b""):
    text = json.dumps(record).encode()
    data = struct.pack("!II", len(text), len(raw)) + text + raw
    while data:
        data = data[os.write(out, data):]
while True:
    head = os.read(0, 8)
    if not head:
        break
    size, _ = struct.unpack("!II", head)
    request = json.loads(os.read(0, size))
    exec(request["do"])
"""
StartSession = Callable[..., RpcSession]


@pytest.fixture(
    params=[
        "process",
        *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "docker", "apptainer")),
    ]
)
def start_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartSession]:
    (tmp_path / "tree").mkdir()
    readable = [Path(sys.prefix), Path(sys.base_prefix)]
    with load_provider(request.param).open(tmp_path / "tree", mount_at="/tmp/ssr-talk", readable=readable) as sandbox:
        assert isinstance(sandbox, SupportsRpcSessions)
        opened: list[RpcSession] = []

        def start(*argv: str, **limits: int) -> RpcSession:
            command = argv or (sys.executable, "-c", SERVER)
            opened.append(sandbox.converse(command, limits=Limits(**limits), env={"SEEN": "yes"}))
            return opened[-1]

        yield start
        for each in opened:
            each.close()


def test_requests_are_answered_in_order(start_session: StartSession) -> None:
    with start_session() as session:
        for text in ("answer({'a': 1})", "answer({'a': os.environ['SEEN'], 'at': os.getcwd()}, b'x' * 3_000_000)"):
            session.send({"do": text})
        assert session.answer(wall_s=20) == ({"a": 1}, b"")
        record, raw = session.answer(wall_s=20)
        assert (record["a"], len(raw)) == ("yes", 3_000_000)
        assert session.is_open
    assert not session.is_open


@pytest.mark.parametrize(
    ("do", "limit", "limits"),
    [
        ("time.sleep(60)", Limit.WALL_TIME, {}),
        ("x = [bytearray(150 << 20)]; [os.fork() for _ in range(2)]; x.append(bytearray(150 << 20)); time.sleep(60)", Limit.MEMORY, {"memory_bytes": 600 * MIB}),
        ("[subprocess.Popen(['sleep', '60']) for _ in range(30)]; time.sleep(60)", Limit.PROCESSES, {"processes": 16}),
        ("open('big', 'wb').write(bytes(40 << 20)); time.sleep(60)", Limit.DISK, {"disk_bytes": 20 * MIB}),
    ],
)  # fmt: skip
def test_exceeding_a_limit_ends_the_command(
    start_session: StartSession, do: str, limit: Limit, limits: dict[str, int]
) -> None:
    session = start_session(**limits)
    session.send({"do": do})
    with pytest.raises(LimitExceededError) as caught:
        session.answer(wall_s=3 if limit is Limit.WALL_TIME else 30)
    assert caught.value.limit is limit
    assert not session.is_open


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("sys.exit('it is late')", "exit status 1.*: it is late"),
        ("os.kill(os.getpid(), 9)", "no valid response"),
        ("os.write(out, b'12345678' + b'x' * 100); time.sleep(60)", "too long"),
        ("os.write(out, struct.pack('!II', 3, 0) + b'{a}'); time.sleep(60)", "no valid response"),
        ("os.write(out, struct.pack('!II', 3, 0) + b'123'); time.sleep(60)", "not a JSON object"),
    ],
)
def test_a_command_that_ends_or_sends_garbage_raises(start_session: StartSession, do: str, message: str) -> None:
    session = start_session()
    session.send({"do": do})
    with pytest.raises(SandboxError, match=message):
        session.answer(wall_s=20)
    assert not session.is_open


def test_a_missing_program_raises(start_session: StartSession) -> None:
    session = start_session("no-such-program")
    with pytest.raises(SandboxError, match="no-such-program"):
        session.answer(wall_s=20)


def test_its_descendants_end_with_it(start_session: StartSession) -> None:
    session = start_session()
    session.send({"do": "subprocess.Popen(['setsid', 'sleep', '8765.4']); answer({})"})
    session.answer(wall_s=20)
    session.close()
    session.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(b"8765.4" in c for c in command_lines()):
            return
        time.sleep(0.05)
    pytest.fail("its descendant still runs")


def test_a_sandbox_runs_one_session_after_the_other(start_session: StartSession) -> None:
    for _ in range(2):
        session = start_session()
        session.send({"do": "answer({})"})
        assert session.answer(wall_s=20) == ({}, b"")
        session.close()


def test_a_session_outlives_the_thread_that_started_it(start_session: StartSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(start_session).result()
    session.send({"do": "answer({'still': 'here'})"})
    assert session.answer(wall_s=20) == ({"still": "here"}, b"")
