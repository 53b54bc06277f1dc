"""Runs of real pytest in a sandbox: exact ids, every outcome, and every kind of end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError
from pytest_ssr.execution.baseline import Baseline, Verification, measure_baseline, verify
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import MARK, default_script
from pytest_ssr.execution.suite import read_channel
from pytest_ssr.records.test_run import Outcome, RunStatus
from pytest_ssr.sandbox.protocol import ExecResult
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def runner_on(folder: Path, files: dict[str, str], *, time_limit_s: float = 60.0) -> Runner:
    project = folder / "p"
    for name, text in {"m.py": "X = 1\n", "pytest.ini": "[pytest]\n", **files}.items():
        target = project / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return open_runner(
        project,
        Store(folder / "store"),
        settings=RuleSettings(time_limit_s=time_limit_s),
        sandbox="process",
        python=plain_python(),
    )


ODD = """\
import pytest
import m


@pytest.mark.parametrize("x", ["a b", "[x]", "a - b", "ünï", "a\\nb", "", "::", "x::y[z]"])
def test_odd(x):
    assert m.X


@pytest.mark.parametrize("x", [1, 2], ids=["FAILED t.py::a - b", "same"])
def test_named(x):
    pass


@pytest.mark.parametrize("x", [True, False])
@pytest.mark.parametrize("y", [True, False])
def test_stacked(x, y):
    pass


class TestIn:
    class TestInner:
        def test_deep(self):
            pass


@pytest.mark.xfail
def test_xfails():
    assert False


@pytest.mark.xfail
def test_xpasses():
    pass


def test_skips():
    pytest.skip("no")


@pytest.fixture
def broken():
    yield
    raise ValueError


def test_teardown_breaks(broken):
    pass


def test_fails():
    assert m.X == 2
"""


def test_ids_are_those_that_pytest_collects_and_every_outcome_is_reported(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, {"tests/test_odd names.py": ODD})
    run, fresh = runner.suite(runner.original)
    assert fresh
    assert run.status is RunStatus.COMPLETED
    listing = (
        "import json, pytest\n"
        "class P:\n"
        "    def pytest_collection_finish(self, session):\n"
        "        open('ids.json', 'w').write(json.dumps([i.nodeid for i in session.items]))\n"
        "pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider'], plugins=[P()])\n"
    )
    subprocess.run([sys.executable, "-c", listing], cwd=tmp_path / "p", check=True, capture_output=True)
    assert list(run.collected) == json.loads((tmp_path / "p" / "ids.json").read_text())
    assert set(run.results) == set(run.collected)
    ends = {i.rpartition("::")[2]: r.outcome for i, r in run.results.items()}
    assert ends["test_xfails"] is Outcome.XFAILED
    assert ends["test_xpasses"] is Outcome.XPASSED
    assert ends["test_skips"] is Outcome.SKIPPED
    assert ends["test_teardown_breaks"] is Outcome.ERROR
    assert ends["test_fails"] is Outcome.FAILED
    assert ends["test_deep"] is Outcome.PASSED
    assert dict(run.parameters["tests/test_odd names.py::test_named[same]"]) == {"x": 1}
    assert dict(run.parameters["tests/test_odd names.py::test_stacked[False-True]"]) == {"x": 0, "y": 1}
    assert run.sources == ("m.py", "tests/test_odd names.py")
    assert runner.suite(runner.original) == (run, False)


SUBTESTS = """\
import unittest
import m


class Each(unittest.TestCase):
    def test_some_are_skipped(self):
        for i in range(3):
            with self.subTest(i=i):
                if i == 1:
                    self.skipTest("not this one")

    def test_one_fails(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)

    def test_is_skipped(self):
        with self.subTest(i=1):
            pass
        self.skipTest("none")
"""


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="older pytest skips a test with its subtests")
def test_a_test_with_skipped_subtests_is_not_skipped(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, {"test_each.py": SUBTESTS})
    run, _ = runner.suite(runner.original)
    assert {i.rpartition("::")[2]: r.outcome for i, r in run.results.items()} == {
        "test_some_are_skipped": Outcome.PASSED,
        "test_one_fails": Outcome.FAILED,
        "test_is_skipped": Outcome.SKIPPED,
    }
    script = default_script(["test_each.py"], options=()).decode()
    output = subprocess.run(["bash", "-c", script], cwd=tmp_path / "p", env=ENVIRONMENT, capture_output=True, text=True)
    lines = [json.loads(x.removeprefix(MARK)) for x in output.stdout.splitlines() if x.startswith(MARK)]
    assert {x["id"]: x["status"] for x in lines} == {i: str(r.outcome) for i, r in run.results.items()}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("import os\n\ndef test_a():\n    os._exit(0)\n", RunStatus.CRASHED, "exit status 0 during t/test_a.py::test_a"),
        ("import os\n\ndef test_a():\n    os._exit(7)\n", RunStatus.CRASHED, "exit status 7 during t/test_a.py::test_a"),
        ("import os, signal\n\ndef test_a():\n    os.kill(os.getpid(), signal.SIGSEGV)\n", RunStatus.CRASHED, "signal 11 during"),
        ("import time\n\ndef test_a():\n    time.sleep(60)\n", RunStatus.TIMED_OUT, "no end after 3 s during t/test_a.py::test_a"),
        ("import nothing_like_it\n", RunStatus.COLLECTION_ERROR, "No module named 'nothing_like_it'"),
        ("def test_a(:\n", RunStatus.COLLECTION_ERROR, "SyntaxError"),
        ("X = 1\n", RunStatus.NO_TESTS, "pytest collected no test"),
        ("def test_a():\n    while True:\n        print('x' * 100000)\n        import sys; sys.__stdout__.write('y' * 10**6)\n",
         RunStatus.LIMIT_EXCEEDED, "limit was exceeded during"),
    ],
)  # fmt: skip
def test_every_kind_of_end_is_distinguished(tmp_path: Path, body: str, status: RunStatus, reason: str) -> None:
    runner = runner_on(tmp_path, {"t/test_a.py": body, "pytest.ini": "[pytest]\naddopts = -s\n"}, time_limit_s=3)
    run, _ = runner.suite(runner.original)
    assert run.status is status, run.reason
    assert reason in run.reason
    if status is not RunStatus.COLLECTION_ERROR and status is not RunStatus.NO_TESTS:
        assert run.fault


def test_the_whole_error_of_a_conftest_is_the_reason(tmp_path: Path) -> None:
    error = 'raise RuntimeError("no database:\\n\\n  set its address\\n  or start it")\n'
    runner = runner_on(tmp_path, {"conftest.py": error, "test_a.py": "def test_a():\n    pass\n"})
    run, _ = runner.suite(runner.original)
    assert run.status is RunStatus.USAGE_ERROR
    assert run.reason.endswith("RuntimeError: no database: set its address or start it")


def test_the_projects_own_options_are_kept_but_for_those_that_change_the_run(tmp_path: Path) -> None:
    ini = "[pytest]\nmarkers = slow\naddopts = -xvs -m 'not slow' --maxfail=1 --durations 3 -n 2 --ff\n"
    tests = (
        "import pytest, m\n\ndef test_a():\n    assert 0\n\ndef test_b():\n    pass\n\n"
        "@pytest.mark.slow\ndef test_c():\n    pass\n"
    )
    runner = runner_on(tmp_path, {"pytest.ini": ini, "test_a.py": tests})
    run, _ = runner.suite(runner.original)
    assert run.addopts == ("-v", "-s", "-m", "not slow")
    assert set(run.results) == {"test_a.py::test_a", "test_a.py::test_b"}


def test_another_order_and_hash_seed_reach_the_tests(tmp_path: Path) -> None:
    names = "".join(f"def test_{n}():\n    pass\n\n" for n in range(12))
    seed = "import os\n\ndef test_seed():\n    assert os.environ['PYTHONHASHSEED'] == '5'\n"
    runner = runner_on(tmp_path, {"test_a.py": names, "test_b.py": seed})
    plain, _ = runner.suite(runner.original, hash_seed=5)
    other, _ = runner.suite(runner.original, hash_seed=5, order_seed=1)
    assert sorted(plain.collected) == sorted(other.collected)
    assert plain.collected != other.collected
    assert plain.passing == other.passing == set(plain.collected)


def test_flickering_and_failing_tests_are_set_aside_by_name(tmp_path: Path) -> None:
    tests = (
        "import m, os\nSEEN = []\n\ndef test_first():\n    SEEN.append(1)\n\ndef test_needs_first():\n    assert SEEN\n\n"
        "def test_hash():\n    assert os.environ['PYTHONHASHSEED'] != '1'\n\ndef test_never():\n    assert 0\n\n"
        "def test_missing(fixture):\n    pass\n\n" + "".join(f"def test_{n}():\n    pass\n\n" for n in range(6))
    )
    runner = runner_on(tmp_path, {"test_a.py": tests})
    baseline = measure_baseline(runner)
    assert baseline.set_aside == {"test_a.py::test_never": "failed", "test_a.py::test_missing": "error"}
    assert baseline.messages["test_a.py::test_never"] == "assert 0"
    assert "fixture 'fixture' not found" in baseline.messages["test_a.py::test_missing"]
    verification = verify(runner, baseline)
    assert set(verification.set_aside) == {"test_a.py::test_needs_first", "test_a.py::test_hash"}
    assert "test_a.py::test_0" in baseline.stable
    assert Verification.from_json(json.loads(json.dumps(verification.to_json()))) == verification
    assert Baseline.from_json(json.loads(json.dumps(baseline.to_json()))) == baseline


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test_a.py": "def test_a():\n    assert 0\n"}, "none of the 1 tests passes in the sandbox"),
        (
            {"test_a.py": "import time\n\ndef test_a():\n    time.sleep(60)\n"},
            "the test suite hangs: no end after \\d+ s",
        ),
        ({"test_a.py": "import absent_thing\n"}, "pytest finds no test in"),
        ({"other.py": ""}, "pytest finds no test in"),
        ({"pytest.ini": "[pytest]\naddopts = --no-such\n"}, "the test suite does not run to its end: usage-error"),
        ({"test_a.py": "import os\n\ndef test_a():\n    os._exit(1)\n"}, "does not run to its end: crashed"),
    ],
)
def test_an_unusable_suite_is_one_clear_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        measure_baseline(runner_on(tmp_path, files, time_limit_s=3))


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "end"}',
        '{"kind": "end", "exit": 0, "sources": 3, "foreign": []}',
        '{"kind": "begin", "addopts": 7}',
        '{"kind": "collected", "ids": [[1]], "parameters": {"a": 3}}',
        '{"kind": "done", "id": [1], "outcome": "passed", "duration": 1}',
        '{"kind": "start", "id": {}}',
        "[" * 200_000,
        "7",
    ],
)
def test_lines_that_the_reporter_never_writes_are_ignored(line: str) -> None:
    run = read_channel(line.encode() + b"\n", ExecResult(0, b"", b"", 1.0))
    assert run.status in (RunStatus.SILENT, RunStatus.CRASHED)
    assert dict(run.results) == {}
    assert run.collected == ()


@pytest.mark.parametrize("stopped", ["1.3e9", "-5.0"])
def test_a_clock_that_tests_stop_gives_no_durations(tmp_path: Path, stopped: str) -> None:
    """Libraries that freeze time also freeze pytest's clock, from which every limit of a fork would follow."""
    body = (
        "import pytest\nfrom _pytest import timing\n\n\n@pytest.fixture(autouse=True)\ndef frozen():\n"
        f"    kept, timing.perf_counter = timing.perf_counter, lambda: {stopped}\n    yield\n"
        "    timing.perf_counter = kept\n\n\ndef test_a():\n    pass\n"
    )
    runner = runner_on(tmp_path, {"t/test_a.py": body})
    run, _ = runner.suite(runner.original)
    (result,) = run.results.values()
    assert result.outcome is Outcome.PASSED
    assert 0 <= result.duration_s <= run.seconds
    assert 0 <= result.setup_s <= run.seconds


@pytest.mark.parametrize("statement", ["os.truncate(p, 300 << 20)", "os.truncate(p, 0); os._exit(127)"])
def test_tests_that_damage_the_channel_are_not_a_fault_of_the_sandbox(tmp_path: Path, statement: str) -> None:
    body = (
        "import glob, os\n\ndef test_a():\n"
        "    for fd in glob.glob('/proc/self/fd/*'):\n        p = os.path.realpath(fd)\n"
        f"        if p.endswith('/channel'):\n            {statement}\n"
    )
    runner = runner_on(tmp_path, {"t/test_a.py": body})
    run, _ = runner.suite(runner.original)
    assert run.status in (RunStatus.CRASHED, RunStatus.SILENT)


def test_doctests_count_and_files_of_code_that_hold_them_stay_code(tmp_path: Path) -> None:
    module = 'def two():\n    """Two.\n\n    >>> two()\n    2\n    """\n    return 2\n'
    files = {
        "m.py": module,
        "pytest.ini": "[pytest]\naddopts = --doctest-modules\n",
        "t/test_m.py": "import m\n\ndef test_two():\n    assert m.two() == 2\n",
    }
    baseline = measure_baseline(runner_on(tmp_path, files))
    assert baseline.stable == {"t/test_m.py::test_two", "m.py::m.two"}
    assert baseline.doctests == baseline.doctests_in_code == {"m.py::m.two"}
    assert baseline.files == ("t/test_m.py",)
