"""SIGINT and SIGTERM end every phase immediately: one line, no traceback, no process left running.

The project's tests block in the phase named in a file by starting a `sleep` whose number identifies the test case: when
it is on the process table, the phase has been reached. It would last for a day.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from plain import plain_python

pytestmark = pytest.mark.long

AT_MOST_S = 4.0
"""Seconds from the signal to the end of the process: two are promised, a busy machine may take longer.

Less than the five seconds after which xdist itself interrupts its workers.
"""
INTERRUPTED = "interrupted; what is finished is kept, run the same command to go on"
CONFTEST = """\
import os
import subprocess
import sys

with open(os.path.join(os.path.dirname(__file__), "phase.txt")) as file:
    PHASE, ODD = file.read().split()


def kind():
    if "--collect-only" in sys.argv:
        return "collection"
    for name in ("ssr_warm_server", "ssr_reach_probe", "ssr_reporter"):
        if name in sys.modules:
            return name
    return "script"


def hold(phase):
    if PHASE == phase:
        subprocess.run(["sleep", ODD])


if PHASE == "fresh" and kind() == "ssr_warm_server":
    raise RuntimeError("no warm processes here")
if kind() == "collection":
    hold("compiling")
if kind() == "ssr_warm_server":
    hold("starting")
"""
TESTS = """\
import time

import calc
import pytest
from conftest import PHASE, hold, kind


def test_add():
    sound = calc.add(1, 2) == 3
    if kind() == "ssr_warm_server" and not sound:
        hold("fork")
    elif kind() == "ssr_reach_probe":
        hold("probe")
    elif kind() == "script":
        hold("validation")
    if kind() in ("ssr_reporter", "ssr_reach_probe"):
        hold("baseline" if sound else "fresh")
    if sound and PHASE in ("fork", "fresh", "validation"):
        # The time limits for changed code follow from this, and must be longer than a test waits.
        time.sleep(1.5)
    assert sound


@pytest.mark.parametrize("n", [1, 2, 3])
def test_keep(n):
    assert calc.keep(n) == n
"""
CALC = "def add(a, b):\n    return a + b\n\n\ndef keep(a):\n    return a\n"
_numbers = iter(range(1, 1000))


class Case:
    """A project that blocks in a phase, and a program that runs on it."""

    def __init__(self, folder: Path, phase: str) -> None:
        self.folder, self.project = folder, folder / "project"
        self.odd = f"97{os.getpid()}{next(_numbers):03d}"
        self.project.mkdir(parents=True)
        files = {"calc.py": CALC, "conftest.py": CONFTEST, "test_calc.py": TESTS, "pytest.ini": "[pytest]\n"}
        for name, text in files.items():
            (self.project / name).write_text(text)
        self.hold(phase)

    def hold(self, phase: str) -> None:
        (self.project / "phase.txt").write_text(f"{phase} {self.odd}\n")

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=self.project,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def is_held(self) -> bool:
        return bool(self._processes(f"sleep\0{self.odd}\0".encode()))

    def is_copying(self) -> bool:
        return any(self.project.glob(".ssr/trees/.tmp-*"))

    def processes(self) -> list[int]:
        """Return the pids of its processes: the `sleep`, and those with the case's folder in their arguments or environment."""
        return [*self._processes(f"sleep\0{self.odd}\0".encode()), *self._processes(os.fsencode(self.folder))]

    def _processes(self, text: bytes) -> list[int]:
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                started = (path / "cmdline").read_bytes() + b"\0" + (path / "environ").read_bytes()
                if text in started and int(path.name) != os.getpid():
                    pids.append(int(path.name))
        return pids


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Callable[[str], Case]]:
    """Return a function that creates a case for a phase; kill what a failing test leaves running."""
    cases: list[Case] = []

    def make(phase: str) -> Case:
        cases.append(Case(tmp_path / "case", phase))
        return cases[-1]

    yield make
    for case in cases:
        for pid in case.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], case: Case) -> tuple[str, str]:
    """Wait for the process to end, check that it ended in time and left no processes, and return its output."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert time.monotonic() - begin < AT_MOST_S
    # Killed processes take a moment to disappear.
    deadline = time.monotonic() + AT_MOST_S
    while case.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert case.processes() == []
    assert "Traceback" not in out + err
    return out, err


def plugin(sandbox: str, *arguments: str) -> list[str]:
    options = [f"--ssr-sandbox={sandbox}", f"--ssr-python={plain_python()}"]
    return ["pytest", "-p", "no:anyio", "-p", "no:hypothesispytest", *options, *arguments]


def command(name: str, sandbox: str, *arguments: str) -> list[str]:
    return ["harness.cli", name, *arguments, "--sandbox", sandbox, "--python", str(plain_python())]


PROGRAMS: dict[str, Callable[[str], list[str]]] = {
    "pytest": lambda sandbox: plugin(sandbox, "--ssr-inject", "--ssr-count=2"),
    "pytest -n 2": lambda sandbox: plugin(sandbox, "--ssr-inject", "--ssr-count=2", "-n", "2"),
    "ssr inject": lambda sandbox: command("inject", sandbox, ".", "--count", "2", "--jobs", "1"),
    "ssr inject --jobs 2": lambda sandbox: command("inject", sandbox, ".", "--count", "2", "--jobs", "2"),
}
PHASES = [
    ("compiling", "pytest", "process", signal.SIGTERM),
    ("compiling", "ssr inject --jobs 2", "bubblewrap", signal.SIGINT),
    ("compiling", "ssr inject", "docker", signal.SIGTERM),
    ("baseline", "pytest -n 2", "bubblewrap", signal.SIGINT),
    ("baseline", "ssr inject", "process", signal.SIGTERM),
    ("baseline", "pytest", "docker", signal.SIGINT),
    ("probe", "pytest", "process", signal.SIGTERM),
    ("probe", "ssr inject --jobs 2", "bubblewrap", signal.SIGINT),
    ("starting", "ssr inject", "bubblewrap", signal.SIGTERM),
    ("starting", "pytest", "process", signal.SIGINT),
    ("fork", "pytest -n 2", "bubblewrap", signal.SIGTERM),
    ("fork", "ssr inject --jobs 2", "process", signal.SIGINT),
    ("fork", "pytest", "bubblewrap", signal.SIGINT),
    ("fresh", "pytest -n 2", "process", signal.SIGINT),
    ("fresh", "ssr inject", "docker", signal.SIGTERM),
    ("validation", "pytest", "bubblewrap", signal.SIGINT),
    ("validation", "pytest -n 2", "process", signal.SIGTERM),
    ("validation", "ssr inject --jobs 2", "docker", signal.SIGINT),
]


def _parameters() -> Iterator[ParameterSet]:
    marks = {"bubblewrap": (pytest.mark.bubblewrap,), "docker": (pytest.mark.docker,)}
    for phase, program, sandbox, number in PHASES:
        name = f"{phase}, {program}, {sandbox}, {number.name}"
        yield pytest.param(phase, program, sandbox, number, marks=marks.get(sandbox, ()), id=name)


def check_output(program: str, out: str, err: str, status: int) -> None:
    """Check that one line reports the interrupt, and the exit status."""
    if program.startswith("ssr"):
        assert err.splitlines() == [f"ssr: {INTERRUPTED}"]
        assert status == 3
    else:
        assert err == ""
        assert len([line for line in out.splitlines() if line.startswith("!")]) == 1
        assert INTERRUPTED in out
        assert status == pytest.ExitCode.INTERRUPTED


@pytest.mark.any_pytest
@pytest.mark.parametrize(("phase", "program", "sandbox", "number"), list(_parameters()))
def test_a_signal_ends_every_phase(
    holding: Callable[[str], Case], phase: str, program: str, sandbox: str, number: signal.Signals
) -> None:
    if "-n" in program:
        pytest.importorskip("xdist")
    case = holding(phase)
    process = case.start(PROGRAMS[program](sandbox))
    wait_until(process, case.is_held)
    process.send_signal(number)
    out, err = ended(process, case)
    check_output(program, out, err, process.returncode)


@pytest.mark.any_pytest
@pytest.mark.parametrize("program", ["pytest", "ssr inject"])
def test_a_signal_ends_the_copying(holding: Callable[[str], Case], program: str) -> None:
    case = holding("compiling")
    for number in range(3000):
        (case.project / f"data{number}.txt").write_text("x" * 20_000)
    process = case.start(PROGRAMS[program]("process"))
    wait_until(process, lambda: case.is_copying() or case.is_held())
    process.send_signal(signal.SIGTERM)
    out, err = ended(process, case)
    check_output(program, out, err, process.returncode)
    assert not case.is_copying(), "the incomplete copy is removed"


@pytest.mark.any_pytest
@pytest.mark.parametrize("program", ["pytest -n 2", "ssr inject --jobs 2"])
def test_a_signal_to_the_group_and_a_second_one_have_no_other_effect(
    holding: Callable[[str], Case], program: str
) -> None:
    pytest.importorskip("xdist")
    case = holding("fork")
    process = case.start(PROGRAMS[program]("process"))
    wait_until(process, case.is_held)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = ended(process, case)
    check_output(program, out, err, process.returncode)


@pytest.mark.any_pytest
def test_workers_end_when_their_controller_is_killed(holding: Callable[[str], Case]) -> None:
    pytest.importorskip("xdist")
    case = holding("fork")
    process = case.start(PROGRAMS["pytest -n 2"]("process"))
    wait_until(process, case.is_held)
    process.kill()
    process.wait(60)
    deadline = time.monotonic() + AT_MOST_S
    while case.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert case.processes() == []
    process.communicate()


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the artifacts of a project that does not block."""
    case = Case(tmp_path_factory.mktemp("proven"), "nothing")
    process = case.start(command("inject", "process", ".", "--count", "1"))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return case.project / ".ssr" / "artifacts"


@pytest.mark.any_pytest
@pytest.mark.parametrize(
    ("program", "sandbox", "number"),
    [
        ("ssr validate", "process", signal.SIGTERM),
        pytest.param("ssr validate", "bubblewrap", signal.SIGINT, marks=pytest.mark.bubblewrap),
        ("pytest --ssr-validate", "process", signal.SIGTERM),
    ],
)
def test_a_signal_ends_a_validation(
    holding: Callable[[str], Case], proven: Path, program: str, sandbox: str, number: signal.Signals
) -> None:
    case = holding("validation")
    shutil.copytree(proven, case.folder / "artifacts")
    path = str(case.folder / "artifacts")
    if program == "ssr validate":
        process = case.start(command("validate", sandbox, path, "--repo", "."))
    else:
        process = case.start(plugin(sandbox, f"--ssr-validate={path}"))
    wait_until(process, case.is_held)
    process.send_signal(number)
    out, err = ended(process, case)
    check_output(program, out, err, process.returncode)
