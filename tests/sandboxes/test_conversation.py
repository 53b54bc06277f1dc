"""A command that stays: it is asked and answers, keeps its limits, and leaves nothing when it is over."""

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
from pytest_ssr.sandbox.conversation import Conversation, Conversing, PassedError
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits

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
    question = json.loads(os.read(0, size))
    exec(question["do"])
"""
Started = Callable[..., Conversation]


@pytest.fixture(
    params=[
        "process",
        *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "docker", "apptainer")),
    ]
)
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Started]:
    (tmp_path / "tree").mkdir()
    readable = [Path(sys.prefix), Path(sys.base_prefix)]
    with load_provider(request.param).open(tmp_path / "tree", mount_at="/tmp/ssr-talk", readable=readable) as sandbox:
        assert isinstance(sandbox, Conversing)
        opened: list[Conversation] = []

        def start(*argv: str, **limits: int) -> Conversation:
            command = argv or (sys.executable, "-c", SERVER)
            opened.append(sandbox.converse(command, limits=Limits(**limits), env={"SEEN": "yes"}))
            return opened[-1]

        yield start
        for each in opened:
            each.close()


def test_questions_are_answered_one_after_the_other(started: Started) -> None:
    with started() as talk:
        for text in ("answer({'a': 1})", "answer({'a': os.environ['SEEN'], 'at': os.getcwd()}, b'x' * 3_000_000)"):
            talk.tell({"do": text})
        assert talk.answer(wall_s=20) == ({"a": 1}, b"")
        record, raw = talk.answer(wall_s=20)
        assert (record["a"], len(raw)) == ("yes", 3_000_000)
        assert talk.is_open
    assert not talk.is_open


@pytest.mark.parametrize(
    ("do", "limit", "limits"),
    [
        ("time.sleep(60)", Limit.WALL_TIME, {}),
        ("x = [bytearray(150 << 20)]; [os.fork() for _ in range(2)]; x.append(bytearray(150 << 20)); time.sleep(60)", Limit.MEMORY, {"memory_bytes": 600 * MIB}),
        ("[subprocess.Popen(['sleep', '60']) for _ in range(30)]; time.sleep(60)", Limit.PROCESSES, {"processes": 16}),
        ("open('big', 'wb').write(bytes(40 << 20)); time.sleep(60)", Limit.DISK, {"disk_bytes": 20 * MIB}),
    ],
)  # fmt: skip
def test_a_limit_that_is_passed_ends_it(started: Started, do: str, limit: Limit, limits: dict[str, int]) -> None:
    talk = started(**limits)
    talk.tell({"do": do})
    with pytest.raises(PassedError) as caught:
        talk.answer(wall_s=3 if limit is Limit.WALL_TIME else 30)
    assert caught.value.limit is limit
    assert not talk.is_open


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("sys.exit('it is late')", "exit status 1.*: it is late"),
        ("os.kill(os.getpid(), 9)", "is gone"),
        ("os.write(out, b'12345678' + b'x' * 100); time.sleep(60)", "too much"),
        ("os.write(out, struct.pack('!II', 3, 0) + b'{a}'); time.sleep(60)", "is gone"),
        ("os.write(out, struct.pack('!II', 3, 0) + b'123'); time.sleep(60)", "no record"),
    ],
)
def test_one_that_ends_or_babbles_is_lost(started: Started, do: str, message: str) -> None:
    talk = started()
    talk.tell({"do": do})
    with pytest.raises(SandboxError, match=message):
        talk.answer(wall_s=20)
    assert not talk.is_open


def test_a_program_that_is_not_there_is_lost(started: Started) -> None:
    talk = started("no-such-program")
    with pytest.raises(SandboxError, match="no-such-program"):
        talk.answer(wall_s=20)


def test_what_it_started_ends_with_it(started: Started) -> None:
    talk = started()
    talk.tell({"do": "subprocess.Popen(['setsid', 'sleep', '8765.4']); answer({})"})
    talk.answer(wall_s=20)
    talk.close()
    talk.close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not any(b"8765.4" in c for c in command_lines()):
            return
        time.sleep(0.05)
    pytest.fail("it still runs")


def test_there_is_one_at_a_time_in_a_sandbox(started: Started) -> None:
    for _ in range(2):
        talk = started()
        talk.tell({"do": "answer({})"})
        assert talk.answer(wall_s=20) == ({}, b"")
        talk.close()


def test_it_outlives_the_thread_that_asked_for_it(started: Started) -> None:
    with ThreadPoolExecutor(1) as pool:
        talk = pool.submit(started).result()
    talk.tell({"do": "answer({'still': 'here'})"})
    assert talk.answer(wall_s=20) == ({"still": "here"}, b"")
