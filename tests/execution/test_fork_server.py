"""Forks of warm processes: the same outcomes as fresh ones, no effect on the next run, and refusals with a reason."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from plain import plain_python
from processes import command_lines

from pytest_ssr.execution.fork_server import ForkRequest, ForkServer, UnfitError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.interpreter import find_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.test_run import Outcome, RunStatus, SuiteRun
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import MIB, Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.function_diff import changed_functions

SHOP = """\
import functools
import random

RATE = 7
LOG = []


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        LOG.append(function.__name__)
        return function(*args)

    return wrapper


@logged
def tax(price, rate=RATE):
    return price * rate // 100


class Basket:
    def __init__(self):
        self.items = []

    @property
    def total(self):
        return sum(self.items)

    def add(self, price):
        def checked(p):
            if p < 0:
                raise ValueError(p)
            return p

        self.items.append(checked(price))
        return self


def luck():
    return random.random()
"""
TESTS = """\
import os
import pathlib
import sys

import pytest

import shop


def test_tax():
    assert shop.tax(100) == 7


def test_basket():
    assert shop.Basket().add(3).add(4).total == 7


def test_negative():
    with pytest.raises(ValueError):
        shop.Basket().add(-1)


def test_place():
    assert pathlib.Path(shop.__file__).parent == pathlib.Path.cwd()


def test_alone(tmp_path):
    here = pathlib.Path("left.txt")
    there = pathlib.Path(os.environ["HOME"], "left.txt")
    assert not here.exists() and not there.exists()
    assert tmp_path.parent.name == "pytest-0"
    here.write_text("x")
    there.write_text("x")
    pathlib.Path("shop.py").unlink()


def test_log():
    assert len(shop.LOG) <= 2
"""


@pytest.fixture(
    params=[
        "process",
        *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "docker", "apptainer")),
    ]
)
def sandbox(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OpenServer = Callable[..., tuple[ForkServer, Runner]]


@pytest.fixture
def open_server(tmp_path: Path, sandbox: str) -> Iterator[OpenServer]:
    """Make a project and warm processes for it."""
    opened: list[ForkServer] = []

    def make(
        files: dict[str, str] | None = None, python: Path | None = None, **limits: int
    ) -> tuple[ForkServer, Runner]:
        project = tmp_path / "project"
        for name, text in (files or {"shop.py": SHOP, "test_shop.py": TESTS}).items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "trees").mkdir()
        interpreter = find_interpreter(project, python or plain_python())
        snapshot, provider = take_snapshot(project, tmp_path / "trees"), load_provider(sandbox)
        runner = Runner(snapshot, provider, interpreter, RuleSettings(), limits=Limits(**limits))
        modules = runner.suite(runner.original)[0].modules
        opened.append(ForkServer(snapshot, provider, interpreter, runner.limits, modules))
        return opened[-1], runner

    yield make
    for warm in opened:
        warm.close()


def changed(runner: Runner, old: str, new: str, path: str = "shop.py") -> CodebaseState:
    entry = runner.snapshot.entry(path)
    text = entry.data.decode()
    assert text.count(old) == 1
    return runner.original.replace({path: FileEntry(text.replace(old, new).encode(), entry.mode)})


def swapped(state: CodebaseState, **more: object) -> ForkRequest:
    functions = {}
    for path, entry in state.changes.items():
        original = state.snapshot.entry(path)
        assert entry is not None
        changed_in_file = changed_functions(original.data, entry.data)
        assert changed_in_file is not None
        functions[path] = changed_in_file
    return ForkRequest(state, functions=functions, **more)  # type: ignore[arg-type]


def outcomes(run: SuiteRun) -> dict[str, Outcome]:
    assert run.status is RunStatus.COMPLETED, run.reason
    return {name.rpartition("::")[2]: result.outcome for name, result in run.results.items()}


def failing(run: SuiteRun) -> set[str]:
    return {name for name, outcome in outcomes(run).items() if outcome is not Outcome.PASSED}


CHANGES = [
    ("price * rate // 100", "price + rate", {"test_tax"}),
    ("LOG.append(function.__name__)", "LOG.extend('abc')", {"test_log"}),
    ("return sum(self.items)", "return 0", {"test_basket"}),
    ("if p < 0:", "if p < -9:", {"test_negative"}),
    ("raise ValueError(p)", "return lambda: [x for x in (p,)]", {"test_negative"}),
    ("self.items.append(checked(price))", "checked = self.items.append\n        checked(price)", {"test_negative"}),
    ("return random.random()", "return 1", set()),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES)
def test_each_mode_gives_the_outcomes_of_a_fresh_process(
    open_server: OpenServer, old: str, new: str, expected: set[str]
) -> None:
    warm, runner = open_server()
    state = changed(runner, old, new)
    assert failing(runner.suite(state)[0]) == expected
    for _ in range(2):
        assert failing(warm.run(swapped(state))) == expected
        assert failing(warm.run(ForkRequest(state))) == expected
        assert failing(warm.run(swapped(runner.original))) == set()
    assert (warm.run_counts, dict(warm.unfit)) == ({"swap": 4, "import": 2}, {})


@pytest.mark.parametrize(
    ("old", "new", "expected"), [("RATE = 7", "RATE = 8", {"test_tax"}), ("    @property\n", "", {"test_basket"})]
)
def test_effects_at_import_are_seen_in_mode_import(
    open_server: OpenServer, old: str, new: str, expected: set[str]
) -> None:
    warm, runner = open_server()
    assert failing(warm.run(ForkRequest(changed(runner, old, new)))) == expected
    assert failing(warm.run(ForkRequest(runner.original))) == set()


def test_tests_order_seed_and_an_early_end_are_as_requested(open_server: OpenServer) -> None:
    warm, runner = open_server()
    names = [f"test_shop.py::{n}" for n in ("test_tax", "test_basket")]
    broken = changed(runner, "self.items.append(checked(price))", "checked(price)")
    for make_request in (ForkRequest, swapped):
        assert set(
            outcomes(warm.run(make_request(runner.original, selection=Selection(names), targets=["test_shop.py"])))
        ) == {
            "test_tax",
            "test_basket",
        }
        assert next(iter(outcomes(warm.run(make_request(runner.original, order_seed=1))))) == "test_log"
        assert (
            next(iter(outcomes(warm.run(make_request(runner.original, selection=Selection(first=names[1:]))))))
            == "test_basket"
        )
        state = runner.original.replace({"shop.py": FileEntry(b"def tax(")}) if make_request is ForkRequest else broken
        run = warm.run(make_request(state, selection=Selection(stop_after=1)))
        assert len([r for r in run.results.values() if r.outcome is not Outcome.PASSED]) <= 1


def test_ids_that_were_not_collected_are_not_run_by_swapping(open_server: OpenServer) -> None:
    warm, runner = open_server()
    with pytest.raises(UnfitError, match="was not collected"):
        warm.run(swapped(runner.original, selection=Selection(["test_shop.py::test_new"])))


HOSTILE = {
    "code_.py": "def act():\n    return 1\n",
    "test_code.py": "import code_\n\n\ndef test_act():\n    assert code_.act() == 1\n",
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os; os._exit(0)", RunStatus.CRASHED),
        ("import os; os.kill(os.getpid(), 11)", RunStatus.CRASHED),
        ("while True: pass", RunStatus.TIMED_OUT),
        ("import os, signal; os.killpg(0, signal.SIGKILL)", RunStatus.CRASHED),
    ],
)
def test_every_kind_of_end_is_distinguished_and_the_next_run_is_unaffected(
    open_server: OpenServer, body: str, status: RunStatus
) -> None:
    warm, runner = open_server(HOSTILE)
    state = changed(runner, "return 1", body, "code_.py")
    for make_request in (ForkRequest, swapped):
        assert warm.run(make_request(state, wall_s=2)).status is status
        assert outcomes(warm.run(make_request(runner.original))) == {"test_act": Outcome.PASSED}


def test_other_work_on_the_machine_makes_no_run_time_out(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    core = min(os.sched_getaffinity(0))
    pin = f"import os, time; os.sched_setaffinity(0, {{{core}}})\n"
    burn = pin + "    while time.process_time() < begin + 0.7: pass\n    return 1"
    state = changed(runner, "return 1", burn.replace("\n", "; begin = time.process_time()\n", 1), "code_.py")
    others: list[subprocess.Popen[bytes]] = []
    try:
        # As much other work as is needed: a run is ended at three times its limit, and the machine may be busy already.
        for _ in range(4):
            program = f"{pin}print(flush=True)\nwhile True: pass"
            others.append(other := subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE))
            assert other.stdout is not None
            # On a busy machine, it may start long after.
            other.stdout.readline()
            run = warm.run(swapped(state, wall_s=1))
            if run.seconds > 1:
                break
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert run.seconds > 1, "it has not exceeded its limit, so this shows nothing"
    assert outcomes(run) == {"test_act": Outcome.PASSED}


def test_memory_is_limited_and_the_next_run_has_a_new_server(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE, memory_bytes=300 * MIB)
    body = "import time; x = [bytearray(120 << 20) for _ in range(2)]; p = __import__('os').fork()\n"
    body += "    y = bytearray(120 << 20); time.sleep(5)"
    run = warm.run(ForkRequest(changed(runner, "return 1", body, "code_.py"), wall_s=20))
    assert run.status in (RunStatus.LIMIT_EXCEEDED, RunStatus.COMPLETED)
    assert not run.passing
    assert outcomes(warm.run(ForkRequest(runner.original))) == {"test_act": Outcome.PASSED}


def test_what_a_run_leaves_running_is_ended(open_server: OpenServer, tmp_path: Path) -> None:
    warm, runner = open_server(HOSTILE)
    body = "import subprocess\n    subprocess.Popen(['setsid', 'sleep', '4321.5'])\n    return 1"
    state = changed(runner, "return 1", body, "code_.py")
    for request in (ForkRequest(state), swapped(state)):
        assert outcomes(warm.run(request)) == {"test_act": Outcome.PASSED}
        warm.run(ForkRequest(runner.original))
        assert not [c for c in command_lines() if b"4321.5" in c]


def test_files_of_others_are_left_alone(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    warm.run(ForkRequest(runner.original))
    with tempfile.NamedTemporaryFile(dir="/tmp") as one, tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
        warm.run(ForkRequest(runner.original))
        assert Path(one.name).exists()
        assert Path(other.name).exists()


@pytest.mark.parametrize(
    ("code", "mode", "reason"),
    [
        (
            "import threading as t, time\nt.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
            "swap",
            "threads",
        ),
        ("FILE = open(__file__)\n", "swap", "is open after"),
        ("import os\nFOLDER = os.open('.', os.O_RDONLY)\n", "swap", "is open after"),
        ("import multiprocessing\nLOCK = multiprocessing.Lock()\n", "swap", "memory that forks would share"),
    ],
)
def test_a_fork_that_would_not_be_exact_is_refused(open_server: OpenServer, code: str, mode: str, reason: str) -> None:
    warm, runner = open_server({**HOSTILE, "code_.py": code + HOSTILE["code_.py"]})
    for _ in range(2):
        with pytest.raises(UnfitError, match=reason):
            warm.run(swapped(runner.original))
    assert warm.refusals[mode].code is FallbackCode.SERVER_REFUSED


def test_a_function_without_a_live_copy_of_its_source_is_not_swapped(open_server: OpenServer) -> None:
    text = "def other(f):\n    return lambda: 1\n\n\n@other\ndef act():\n    return 2\n"
    warm, runner = open_server({**HOSTILE, "code_.py": text})
    with pytest.raises(UnfitError, match="act has no live function"):
        warm.run(swapped(changed(runner, "return 2", "return 3", "code_.py")))
    assert warm.unfit == {FallbackCode.FORK_REFUSED: 1}


def test_a_generator_in_progress_is_not_swapped(open_server: OpenServer) -> None:
    text = "def numbers():\n    yield 1\n\n\nNUMBERS = numbers()\n\n\ndef act():\n    return next(NUMBERS)\n"
    warm, runner = open_server({**HOSTILE, "code_.py": text})
    state = changed(runner, "yield 1", "yield 2", "code_.py")
    with pytest.raises(UnfitError, match="numbers is in progress"):
        warm.run(swapped(state))
    assert failing(warm.run(ForkRequest(state))) == {"test_act"}


def test_a_library_that_imports_the_project_is_imported_in_the_fork(open_server: OpenServer) -> None:
    warm, runner = open_server(
        {**HOSTILE, "test_code.py": "import borrower\n" + HOSTILE["test_code.py"], "lent.py": "x = 1\n"}
    )
    assert "lent" not in runner.suite(runner.original)[0].modules
    assert warm.run(ForkRequest(runner.original)).results


@pytest.mark.parametrize("sandbox", ["process"], indirect=True)
def test_a_plugin_that_tests_import_is_no_error_if_warnings_are(open_server: OpenServer) -> None:
    files = {
        "pytest.ini": "[pytest]\nfilterwarnings = error\n",
        "test_code.py": "import hypothesis\n\n\ndef test_act():\n    assert hypothesis.given\n",
    }
    warm, runner = open_server(files, Path(sys.executable))
    assert failing(runner.suite(runner.original)[0]) == set()
    assert outcomes(warm.run(ForkRequest(runner.original))) == {"test_act": Outcome.PASSED}


def test_random_numbers_differ_from_run_to_run_unless_the_project_seeds_them(open_server: OpenServer) -> None:
    test = "import random\nimport pytest\nimport code_\n\n\ndef test_act(record_property):\n"
    test += "    assert random.random() == -1, random.random()\n"
    probe = {**HOSTILE, "test_code.py": test.replace("== -1, random.random()", "< 0.5")}
    warm, runner = open_server(probe)
    drawn = {str(outcomes(warm.run(swapped(runner.original)))) for _ in range(24)}
    assert len(drawn) == 2
    seeded, other = "import random\nrandom.seed(3)\n", dict(probe)
    other["code_.py"] = seeded + HOSTILE["code_.py"]
    for name, text in other.items():
        (runner.snapshot.origin / name).write_text(text)
    trees = runner.snapshot.directory.parent.parent
    again = ForkServer(take_snapshot(runner.snapshot.origin, trees), runner.provider, runner.interpreter, runner.limits)
    drawn = {str(outcomes(again.run(swapped(CodebaseState(again.snapshot))))) for _ in range(12)}
    again.close()
    assert len(drawn) == 1


def test_hash_seeds_are_those_that_were_requested(open_server: OpenServer) -> None:
    command = [sys.executable, "-c", "print(hash('abc'))"]
    number = subprocess.check_output(command, env={"PYTHONHASHSEED": "2"}, text=True).strip()
    test = f"import code_\n\n\ndef test_act():\n    assert hash('abc') == {number}\n"
    warm, runner = open_server({**HOSTILE, "test_code.py": test})
    assert outcomes(warm.run(ForkRequest(runner.original, hash_seed=2))) == {"test_act": Outcome.PASSED}
    assert outcomes(warm.run(ForkRequest(runner.original, hash_seed=1))) == {"test_act": Outcome.FAILED}


def test_a_mode_that_is_refused_leaves_nothing_running(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    warm.run(ForkRequest(runner.original))
    warm.refuse("import", Fallback(FallbackCode.ENDS_EARLY, "because"))
    for _ in range(2):
        with pytest.raises(UnfitError, match="because"):
            warm.run(ForkRequest(runner.original))
    warm.close()
    path = os.fsencode(runner.snapshot.origin)
    assert not [c for c in command_lines() if b"ssr_warm_server" in c and path in c]


REACHING = """\
import ctypes, os, signal
    refused, server = [], os.getppid()
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ways = [
        lambda: os.kill(server, signal.SIGSTOP),
        lambda: os.kill(server, 0),
        lambda: os.kill(-os.getpgid(server) or -1, signal.SIGSTOP),
        lambda: os.kill(-1, signal.SIGKILL),
        lambda: os.pidfd_open(server),
        lambda: open(f"/proc/{server}/mem", "rb").read(1),
        lambda: os.open(f"/proc/{server}/fd/0", os.O_RDONLY),
        lambda: os.listdir(f"/proc/{server}/root"),
    ]
    for way in ways:
        try:
            way()
        except PermissionError:
            refused.append(way)
    assert len(refused) == len(ways)
    assert ptrace(16, server, None, None) == -1
    child = os.fork()
    if child == 0:
        try:
            os.kill(server, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return 1"""


def test_a_fork_can_signal_neither_its_server_nor_all_processes(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    state = changed(runner, "return 1", REACHING, "code_.py")
    for request in (ForkRequest(state, wall_s=10), swapped(state, wall_s=10)):
        assert outcomes(warm.run(request)) == {"test_act": Outcome.PASSED}
        (server,) = warm._idle[request.mode, 0]
        assert outcomes(warm.run(request)) == {"test_act": Outcome.PASSED}
        assert warm._idle[request.mode, 0] == [server]


def with_variable(variable: str) -> list[int]:
    """Return the processes that have a variable, as `NAME=value`."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids


def test_a_lost_server_is_replaced(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    request = ForkRequest(runner.original, hash_seed=1_000_000 + os.getpid())
    assert outcomes(warm.run(request)) == {"test_act": Outcome.PASSED}
    (server,) = with_variable(f"PYTHONHASHSEED={request.hash_seed}")
    os.kill(server, signal.SIGKILL)
    with pytest.raises(UnfitError, match="lost"):
        warm.run(request)
    assert outcomes(warm.run(request)) == {"test_act": Outcome.PASSED}


NESTED = {
    "code_.py": "def act():\n    return 1\n",
    "data/deep/old.txt": "old",
    "test_code.py": """\
import os
import pathlib

import code_

PLACES = [pathlib.Path(p) for p in ("data/deep", os.environ["HOME"], os.environ["TMPDIR"], "/tmp", "/dev/shm")]


def test_act():
    for place in PLACES:
        assert not (place / "left").exists()
        (place / "left").write_text("x")
        (place / "below").mkdir()
        (place / "below" / "left").write_text("x")
    old = pathlib.Path("data/deep/old.txt")
    assert old.read_text() == "old"
    old.write_text("new")
    assert code_.act() == 1
""",
}


@pytest.mark.parametrize(
    "sandbox", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "docker", "apptainer")]
)
def test_what_one_run_writes_no_other_sees(open_server: OpenServer, sandbox: str) -> None:
    warm, runner = open_server(NESTED)
    for _ in range(3):
        assert outcomes(warm.run(ForkRequest(runner.original))) == {"test_act": Outcome.PASSED}
        assert outcomes(warm.run(swapped(runner.original))) == {"test_act": Outcome.PASSED}


def test_closing_leaves_no_process(open_server: OpenServer) -> None:
    warm, runner = open_server(HOSTILE)
    seed = 2_000_000 + os.getpid()
    assert outcomes(warm.run(ForkRequest(runner.original, hash_seed=seed))) == {"test_act": Outcome.PASSED}
    assert with_variable(f"PYTHONHASHSEED={seed}")
    warm.close()
    assert not with_variable(f"PYTHONHASHSEED={seed}")


def test_two_servers_that_fail_on_one_module_both_start_without_it(
    open_server: OpenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (warm, runner), both = open_server(), threading.Barrier(2)
    start = warm._start

    def stumbling(mode: str, hash_seed: int, skipped: frozenset[str]) -> object:
        if "spoilt" not in skipped:
            both.wait(30)
            return {"reason": "it does not import", "culprit": "spoilt"}
        return start(mode, hash_seed, skipped)

    monkeypatch.setattr(warm, "_start", stumbling)
    state = changed(runner, "return price *", "return 0 *")
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: warm.run(ForkRequest(state, targets=["test_shop.py"])), range(2)))
    assert [run.fault for run in runs] == ["", ""]
    assert not warm.refusals
