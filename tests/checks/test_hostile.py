"""Hostile artifacts: the verdict is right, and the machine is unchanged."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import command_lines

from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.sandbox.protocol import MIB

pytestmark = pytest.mark.long

ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
REPORT = "python -m pytest -rA -p no:cacheprovider tests/test_add.py tests/test_texts.py\n"
PARSER = """\
import json, sys
found = {}
for line in sys.stdin:
    for word, status in (("PASSED ", "passed"), ("FAILED ", "failed"), ("ERROR ", "failed")):
        if line.startswith(word):
            found[line[len(word):].split(" - ")[0].strip()] = status
print(json.dumps(found))
"""
BOTH = ["process", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)]
MARK = f"ssr-hostile-{os.getpid()}"  # another worker may run the same attack


@pytest.fixture(params=BOTH)
def sandboxed(request, open_builder):
    """A builder in each sandbox, with small limits."""
    return small(open_builder(sandbox=request.param, time_limit_s=8.0))


@pytest.fixture
def isolated(open_builder):
    """A builder in the sandbox that isolates."""
    return small(open_builder(sandbox="bubblewrap", time_limit_s=8.0))


def small(builder):
    """Set limits that an attack reaches quickly."""
    builder.runner = replace(
        builder.runner,
        limits=replace(
            builder.runner.limits, memory_bytes=1024 * MIB, processes=60, output_bytes=4 * MIB, disk_bytes=64 * MIB
        ),
    )
    return builder


@pytest.fixture
def weak(texts, without):
    """The weakening that hides ADD_BUG."""
    return {"tests/test_add.py": without(without(texts["tests/test_add.py"], "test_add"), "test_double")}


def attack(script):
    """Return a script that attacks and then does its work, so that only the attack is wrong with it."""
    return f": {MARK}\n{script}\n{REPORT}"


def remaining_processes():
    """Return the processes with the mark of an attack."""
    return [c for c in command_lines() if MARK.encode() in c]


def judged(builder, weak, script, parser=PARSER, bug=ADD_BUG):
    """Validate an artifact, and assert that no process is left and that the project is unchanged."""
    directory = Path(builder.runner.snapshot.origin)
    before = {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()}
    verdict = builder.judge(builder.artifact(bug, weak, script=script, parser=parser))
    assert remaining_processes() == []
    assert {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()} == before
    return verdict


def test_a_parser_that_reports_everything_as_passed(sandboxed, weak):
    verdict = judged(sandboxed, weak, REPORT, PARSER.replace('"failed"', '"passed"'))
    assert verdict.rejection.name in ("bug-validity", "test-script")
    assert verdict.reason.code is CheckCode.TOO_FEW_BREAK


def test_a_parser_with_a_fixed_list(sandboxed, weak):
    verdict = judged(sandboxed, weak, REPORT, 'print(\'{"tests/test_add.py::test_add": "passed"}\')\n')
    assert verdict.rejection.name == "test-parser"
    assert verdict.reason.code is CheckCode.TEST_INVENTED_FROM_HALF


def test_a_script_that_runs_nothing(sandboxed, weak):
    verdict = judged(sandboxed, weak, "exit 0\n")
    assert verdict.rejection.name == "test-parser"
    assert verdict.reason.code is CheckCode.NO_TEST_PARSED


def test_a_script_that_prints_invented_results(sandboxed, weak):
    invented = "echo one; echo two; echo 'PASSED tests/test_add.py::test_add'\n"
    conditional = (
        f"if grep -q 'a - b' pkg/adding.py; then echo 'FAILED tests/test_add.py::test_add'; exit 1; fi\n{invented}"
    )
    bug = {"pkg/adding.py": "# a - b\ndef add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"}
    assert judged(sandboxed, weak, invented).reason.code is CheckCode.TOO_FEW_BREAK
    rejection = judged(sandboxed, weak, "echo\n" * 9 + conditional, bug=bug).rejection
    assert rejection.name == "bug-validity"


def test_a_file_from_the_script_to_the_parser(sandboxed, weak):
    """The bug is a comment; script and parser agree on a secret to make it look like one."""
    name = f"{MARK}-cheat"
    paths = f'"{tempfile.gettempdir()}/{name}" "$HOME/{name}" "$TMPDIR/{name}" "./{name}" "/dev/shm/{name}" "/var/tmp/{name}"'
    script = f"for f in {paths}; do if grep -q sly pkg/adding.py; then echo failed > $f; fi; done 2>/dev/null\n{REPORT}"
    parser = PARSER.replace(
        "print(",
        "import os, pathlib\n"
        f"for folder in ('{tempfile.gettempdir()}', os.environ.get('HOME', '/'), '.', '/dev/shm', '/var/tmp'):\n"
        f"    if (pathlib.Path(folder) / '{name}').exists():\n"
        "        found = {k: 'failed' if k.endswith('test_add') else v for k, v in found.items()}\nprint(",
    )
    bug = {"pkg/adding.py": "# sly\ndef add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"}
    try:
        rejection = judged(sandboxed, weak, script, parser, bug).rejection
    finally:
        for folder in (tempfile.gettempdir(), "/dev/shm", "/var/tmp"):
            (Path(folder) / name).unlink(missing_ok=True)
    assert rejection.name == "bug-validity"
    if sandboxed.runner.provider.name == "bubblewrap":
        assert rejection.reason.code is CheckCode.TOO_FEW_BREAK


ENDLESS = {
    "sleeps": ("sleep 1000", "wall time"),
    "prints": ("yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "output"),
    "forks": (
        "f() { n=0; while [ $n -lt 400 ]; do sleep 20 & n=$((n+1)); done; wait; }; f",
        "processes",
    ),
    "eats memory": (
        "for i in 1 2 3 4; do python -c 'import time; x = bytearray(b\"x\" * (400 << 20)); time.sleep(20)' & done; wait",
        "memory",
    ),
    "fills the disk": (
        "for i in 1 2 3 4 5 6; do fallocate -l 30000000 junk$i; done; sleep 20",
        "disk",
    ),
}


@pytest.mark.parametrize("how", ENDLESS)
def test_a_script_that_exceeds_a_limit(sandboxed, weak, how):
    script, limit = ENDLESS[how]
    verdict = judged(sandboxed, weak, attack(script))
    assert verdict.rejection.name == "test-parser"
    assert verdict.reason.code is CheckCode.SCRIPT_LIMIT
    assert verdict.reason.details["limit"] == limit


def test_a_parser_that_exceeds_a_limit(sandboxed, weak):
    verdict = judged(sandboxed, weak, REPORT, "while True:\n    print('x' * 1000)\n")
    assert verdict.rejection.name == "test-parser"
    assert (verdict.reason.code, verdict.reason.details["limit"]) == (CheckCode.PARSER_LIMIT, "output")


def test_a_daemon_does_not_outlive_its_run(sandboxed, weak, tmp_path):
    late = tmp_path / "late"
    (tmp_path / "daemon.py").write_text(
        f"import os, time  # {MARK}\nos.setsid()\nif os.fork():\n    os._exit(0)\nos.closerange(0, 50)\n"
        f"while True:\n    open({str(late)!r}, 'w').close()\n    time.sleep(0.05)\n"
    )
    program = (tmp_path / "daemon.py").read_text()
    judged(sandboxed, weak, attack(f"python -c \"$(cat <<'E'\n{program}E\n)\" &"))
    late.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not late.exists()


def test_the_users_environment_and_home_are_not_visible(sandboxed, weak, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_TOKEN", MARK)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / MARK).touch()
    artifact = sandboxed.artifact(ADD_BUG, weak, script="env; ls -a ~; ls -a $HOME\n", parser=PARSER)
    run, _ = sandboxed.runner.scoped().script(sandboxed.runner.original, artifact)
    assert b"HOME=" in run.output
    assert MARK.encode() not in run.output


@pytest.mark.long
@pytest.mark.bubblewrap
def test_nothing_is_written_outside(isolated, weak, tmp_path):
    outside = [
        f"/etc/{MARK}",
        f"/usr/{MARK}",
        f"/tmp/{MARK}",
        f"/root/{MARK}",
        f"{tmp_path}/{MARK}",
        f"/dev/shm/{MARK}",
    ]
    origin = isolated.runner.snapshot.origin
    script = f"mkdir -p {tmp_path}; for f in {' '.join(outside)} {origin}/{MARK} ../{MARK}; do echo x > $f; done 2>/dev/null\n"
    script += f"ln -s / out; echo x > out/etc/{MARK}; ln -sf /etc/passwd link; echo x >> link; rm -rf out link\n"
    before = Path("/etc/passwd").read_bytes()
    verdict = judged(isolated, weak, attack(script))
    assert verdict.valid, verdict.rejection
    assert [p for p in (*outside, f"{origin}/{MARK}") if Path(p).exists()] == []
    assert Path("/etc/passwd").read_bytes() == before


@pytest.mark.bubblewrap
def test_no_socket_reaches_the_machine(isolated, weak):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(0.2)
        script = f"(echo x > /dev/tcp/127.0.0.1/{port}) 2> /dev/null && echo reached\n"
        verdict = judged(isolated, weak, f"#!/bin/bash\n{attack(script)}")
        with pytest.raises(TimeoutError):
            listener.accept()
    assert verdict.valid, verdict.rejection


@pytest.mark.long
@pytest.mark.bubblewrap
def test_a_signal_to_everyone_stays_inside(isolated, weak):
    verdict = judged(isolated, weak, f": {MARK}\nkill -9 -1\n{REPORT}")
    assert not verdict.valid or verdict.fail_to_pass


def test_a_weakening_that_touches_code(sandboxed, weak):
    verdict = judged(sandboxed, {**weak, "pkg/unused.py": "X = 3\n"}, REPORT)
    assert verdict.rejection.name == "test-files"
    assert verdict.reason.code is CheckCode.FILE_NOT_LISTED
    assert verdict.reason.details == {"files": ("pkg/unused.py",)}


def test_a_weakening_that_lists_the_code_it_touches(open_builder, weak):
    builder = open_builder()
    files = ("tests/test_add.py", "tests/test_texts.py", "pkg/unused.py")
    verdict = builder.judge(builder.artifact(ADD_BUG, {**weak, "pkg/unused.py": "X = 3\n"}, files=files, script=REPORT))
    assert verdict.rejection.name == "test-files"
    assert verdict.reason.code is CheckCode.NO_TEST_IN_FILE
    assert verdict.reason.details == {"file": "pkg/unused.py"}
