"""Scripts that attack the machine: limits stop them, and they leave nothing behind."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from pytest_ssr.records.check_reasons import CheckCode, CheckReason

pytestmark = pytest.mark.long

# Bounded in itself, so that a broken limit costs seconds and not the machine.
FORKS = """python - <<'E'
import os, time
end = time.monotonic() + 15
for _ in range(8):
    for _ in range(300):
        if time.monotonic() > end:
            break
        if os.fork() == 0:
            os.setsid()
            time.sleep(15)
            os._exit(0)
time.sleep(15)
E"""
TREE_OF_FORKS = """python - <<'E'
import os, time
for _ in range(8):
    os.fork()
time.sleep(15)
E"""
EATER = """python - <<'E'
import os, time
for _ in range(2):
    os.fork()
x = bytearray(b"x") * (400 << 20)
time.sleep(15)
E"""
ENDLESS = {
    "forks daemons": (FORKS, "processes"),
    "forks that fork": (TREE_OF_FORKS, "processes"),
    "threads": (
        "python -c 'import threading, time; threading.stack_size(65536); [threading.Thread(target=time.sleep, args=(15,)).start() for _ in range(300)]'",
        "processes",
    ),
    "eats memory in many": (EATER, "memory"),
    "prints": ("yes hostile", "output"),
    "prints errors": ("yes hostile >&2", "output"),
    "fills the disk": ("for i in 1 2 3 4 5 6; do head -c 15000000 /dev/zero > junk$i; done; sleep 15", "disk"),
    "fills the home": ("for i in 1 2 3 4 5 6; do head -c 15000000 /dev/zero > ~/junk$i; done; sleep 15", "disk"),
}


ASLEEP = {
    "sleeps": "sleep 1000",
    "ignores signals and closes its output": "trap '' TERM INT HUP QUIT; exec >&- 2>&-; while :; do sleep 1; done",
    "stops itself": "kill -STOP $$",
}


@pytest.mark.parametrize("how", ASLEEP)
def test_time_ends_it(arena, how):
    result = arena.step("test-parser", first=ASLEEP[how], time_limit_s=1.5)
    assert result.passed is False
    assert (result.reason.code, result.reason.details["limit"]) == (CheckCode.SCRIPT_LIMIT, "wall time")


@pytest.mark.parametrize("how", ENDLESS)
def test_a_limit_ends_it(arena, how):
    script, limit = ENDLESS[how]
    result = arena.step("test-parser", first=script)
    assert result.passed is False
    assert (result.reason.code, result.reason.details["limit"]) == (CheckCode.SCRIPT_LIMIT, limit)


def test_one_large_file_stops_at_its_limit(arena):
    size = arena.printed("head -c 40000000 /dev/zero > junk; stat -c 'size %s' junk\n")
    assert b"size 16777216\n" in size


def test_a_large_allocation_is_refused(arena):
    assert b"MemoryError" in arena.printed("python -c 'x = bytearray(2 << 30)'\n")


def test_a_script_that_runs_nothing(copied):
    for script in ("exit 0\n", "\n", "exec true\n", ": > tests/test_add.py; kill -9 $$\n"):
        result = copied.step("test-parser", script=script)
        assert result.passed is False
        assert result.reason.code in (CheckCode.NO_TEST_PARSED, CheckCode.SCRIPT_SIGNAL)


RELATIVE = "for f in ../{m} ../beside/{m} outside/{m} pkg/../../{m}; do echo x > $f; done"
LINKS = (
    "ln -s .. up; echo x > up/{m}; ln -s ../store store; echo x > store/{m}; ln -sf ../beside pkg/texts.pyc; rm outside"
)


@pytest.mark.parametrize("attack", [RELATIVE, LINKS])
def test_paths_that_leave_the_tree_reach_nothing_of_the_project(arena, attack, marker):
    """The fixtures compare the project, its neighbour and the store, and find names with the marker."""
    result = arena.step("test-parser", first=f"({attack.format(m=marker)}) 2>/dev/null")
    assert result.passed, result.reason


def test_the_tree_itself_is_a_copy(arena):
    wreck = "cp -r tests /tmp/$HOSTILE-kept 2>/dev/null; rm -rf pkg tests conftest.py; ls -a; rm -rf /tmp/$HOSTILE-kept"
    assert b"pkg" not in arena.printed(f"{wreck}\n")
    assert b"pkg" in arena.printed("ls -a # again\n")


def test_no_path_of_the_machine_can_be_written(isolated, marker, tmp_path):
    paths = [
        f"{folder}/{marker}"
        for folder in ("", "/etc", "/usr", "/tmp", "/root", "/home", "/var/tmp", "/dev/shm", Path.home(), tmp_path)
    ]
    paths += [f"{folder}/{marker}" for folder in (isolated.project, isolated.beside, isolated.folder / "store")]
    attack = f"for f in {' '.join(paths)}; do mkdir -p $(dirname $f); echo x > $f; done 2>/dev/null; rm -f {isolated.project}/{marker}"
    result = isolated.step("test-script", first=attack)
    assert result.passed, result.reason
    assert [p for p in paths if Path(p).exists()] == []


def connecting(port: int) -> str:
    return f"python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 3).send(b'hello')\" 2>/dev/null"


def test_no_listener_of_the_machine_is_reached(isolated):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        result = isolated.step("test-parser", first=connecting(listener.getsockname()[1]))
        with pytest.raises(TimeoutError):
            listener.accept()
    assert result.passed, result.reason


def test_the_process_sandbox_states_what_it_does_not_isolate(copied, tmp_path):
    """Its description states that host files and network stay reachable; both must change together."""
    assert "host files, home and network stay reachable" in copied.runner.provider.probe().detail
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        assert copied.step(
            "test-parser", first=f"echo x > {tmp_path}/x; {connecting(listener.getsockname()[1])}"
        ).passed
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(5) == b"hello"
    assert (tmp_path / "x").exists()


DAEMON = """python - <<'E' > /dev/null 2>&1 &
import os, sys, time
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/"); os.closerange(0, 50)
while True:
    open(LATE, "w").close()
    time.sleep(0.02)
E
while [ ! -e LATE ]; do sleep 0.05; done"""


def test_a_daemon_does_not_outlive_its_run(arena, tmp_path):
    late = tmp_path / "late" if not arena.isolates else Path("/tmp/late")
    script = DAEMON.replace("LATE", f"'{late}'")
    result = arena.step("test-parser", first=script)
    assert result.passed, result.reason
    late.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not late.exists()


KILLS = {
    "its own group": "kill -9 0",
    "its parent's group by exit": "python -c 'import os; os.killpg(os.getpgrp(), 9)'",
    "itself": "kill -9 $$",
}


@pytest.mark.parametrize("how", KILLS)
def test_a_script_that_kills_itself_fails(arena, how):
    result = arena.step("test-parser", first=KILLS[how])
    assert result.passed is False
    assert result.reason == CheckReason(CheckCode.SCRIPT_SIGNAL, {"signal": 9, "state": "original"})


@pytest.mark.parametrize("attack", ["kill -9 -1", "kill -9 $PPID", "kill -9 1; kill -9 $PPID; kill -15 -1"])
def test_a_signal_to_everyone_stays_inside(isolated, attack):
    """The validating process would be the first to be hit."""
    result = isolated.step("test-script", first=attack)
    # If its parent is outside its namespace, $PPID is 0: it kills its own group, and no check can run.
    ended = (CheckCode.NOT_RUN, CheckCode.SCRIPT_SIGNAL, CheckCode.SCRIPT_LIMIT, CheckCode.NO_TEST_PARSED)
    assert result.passed or result.reason.code in ended, result.reason
    assert isolated.step("test-script").passed


def test_environment_and_home_of_the_user_are_not_passed(arena, marker, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_TOKEN", f"secret-{marker}-variable")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "private-key").touch()
    printed = arena.printed("env; ls -a ~ $HOME; cat /proc/self/environ; python -c 'import os; print(os.environ)'\n")
    assert b"HOME=" in printed
    assert b"secret-" not in printed
    assert b"private-key" not in printed


def test_files_of_the_user_are_not_seen(isolated, tmp_path):
    (tmp_path / "private-key").touch()
    printed = isolated.printed(f"ls -a {tmp_path} {Path.home()} {isolated.beside}\n")
    assert b"private-key" not in printed
    assert b"theirs.txt" not in printed
