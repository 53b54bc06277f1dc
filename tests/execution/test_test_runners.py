"""Runners other than pytest: the same ids and outcomes, over the same channel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python
from program_projects import SYMPY_RUNTESTS

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, is_generated, script_of
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, RUNNERS, SYMPY, UNITTEST, ProgramRunner
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.test_run import Outcome, RunStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CALC = "def add(a, b):\n    return a + b\n"
TESTS = '''\
import unittest
from calc import add


class Base:
    def test_base(self):
        """Adds zeros.

        Twice."""
        self.assertEqual(add(0, 0), 0)


class AddTest(Base, unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_each(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(add(i, 1), 2)

    def test_error(self):
        raise ValueError("no")

    def test_partly(self):
        for i in range(3):
            with self.subTest(i=i):
                if i == 1:
                    self.skipTest("not this one")

    @unittest.skip("not here")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass
'''
BROKEN_SETUP = """\
import unittest


class BrokenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError("no class")

    def test_never(self):
        pass
"""
BIN_TEST = """\
import os, sys
from sympy.testing.runtests import SymPyTests

assert os.environ["SYMPY_USE_CACHE"] == "no"
paths = [a for a in sys.argv[1:] if not a.startswith("-")]
sys.exit(int(not all([SymPyTests().test_file(os.path.abspath(p)) for p in paths])))
"""
SYMPY_TREE = {
    "bin/test": BIN_TEST,
    "sympy/__init__.py": "",
    "sympy/testing/__init__.py": "",
    "sympy/testing/runtests.py": SYMPY_RUNTESTS,
    "sympy/tests/test_core.py": "def test_one():\n    pass\n\n\ndef test_two():\n    assert 1 == 2\n\n\n"
    "def test_three():\n    raise ValueError\n\n\ndef test_four():\n    pass\n",
    "sympy/tests/test_import.py": "import nothing_there\n",
}


def runner_on(folder: Path, files: dict[str, str], test_runner: ProgramRunner = UNITTEST) -> Runner:
    project = folder / "p"
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    store = Store(folder / "store")
    settings = RuleSettings(time_limit_s=60)
    runner = open_runner(project, store, settings=settings, sandbox="process", python=plain_python(), compiled=False)
    return replace(runner, test_runner=test_runner)


def outcomes(runner: Runner, *files: str, selection: Selection | None = None) -> dict[str, Outcome]:
    run = runner.fresh(runner.original, files, selection=selection)
    return {name.rpartition("::")[2]: result.outcome for name, result in run.results.items()}


@pytest.fixture
def unit(tmp_path: Path) -> Runner:
    return runner_on(tmp_path, {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TESTS})


def test_unittest_reports_the_ids_of_pytest_and_every_outcome(unit: Runner) -> None:
    run = unit.fresh(unit.original, ["tests/test_calc.py"])
    assert {name.rpartition("::")[2]: result.outcome for name, result in run.results.items()} == {
        "test_add": Outcome.PASSED,
        "test_base": Outcome.PASSED,
        "test_each": Outcome.FAILED,
        "test_error": Outcome.ERROR,
        "test_expected": Outcome.XFAILED,
        "test_partly": Outcome.PASSED,
        "test_skipped": Outcome.SKIPPED,
        "test_unexpected": Outcome.FAILED,
    }
    assert (run.status, run.exit_code) == (RunStatus.COMPLETED, 1)
    assert run.sources == ("calc.py", "tests/__init__.py", "tests/test_calc.py")
    collected = replace(unit, test_runner=PYTEST).fresh(unit.original, ["tests/test_calc.py"], collect_only=True)
    assert set(run.collected) == set(collected.collected)


def test_names_are_those_of_every_version_s_verbose_output(unit: Runner) -> None:
    run = unit.fresh(unit.original, ["tests/test_calc.py"])
    names = run.names["tests/test_calc.py::AddTest::test_base"]
    assert {
        "test_base (tests.test_calc.AddTest)",
        "test_base (tests.test_calc.AddTest.test_base)",
        "Adds zeros.",
    } <= set(names)


def test_selected_tests_run_alone_and_enough_failures_end_the_run(unit: Runner) -> None:
    path = "tests/test_calc.py"
    one = Selection([f"{path}::AddTest::test_add"], reports_collected=True)
    run = unit.fresh(unit.original, [path], selection=one)
    assert list(run.results) == [f"{path}::AddTest::test_add"]
    assert len(run.before_selection) == 8
    counted = Selection(
        leading=[f"{path}::AddTest::test_error"], stop_after=1, counted=[f"{path}::AddTest::test_error"]
    )
    assert outcomes(unit, path, selection=counted) == {"test_error": Outcome.ERROR}
    assert len(outcomes(unit, path, selection=Selection(stop_after=2))) < 8


def test_collecting_runs_no_test(unit: Runner) -> None:
    run = unit.fresh(unit.original, ["tests/test_calc.py"], collect_only=True)
    assert len(run.collected) == 8
    assert run.results == {}


def test_classes_and_modules_that_cannot_be_set_up_are_collection_errors(tmp_path: Path) -> None:
    files = {"test_setup.py": BROKEN_SETUP, "test_gone.py": "import nothing_there\n"}
    runner = runner_on(tmp_path, files)
    for path in files:
        run = runner.fresh(runner.original, [path])
        assert run.status is RunStatus.COLLECTION_ERROR
        assert run.results == {}
        assert run.exit_code == 1


def test_a_class_that_skips_its_tests_is_no_error(tmp_path: Path) -> None:
    skipping = BROKEN_SETUP.replace('ValueError("no class")', 'unittest.SkipTest("not here")')
    runner = runner_on(tmp_path, {"calc.py": CALC, "test_setup.py": skipping, "test_a.py": TESTS})
    run = runner.fresh(runner.original, ["test_a.py", "test_setup.py"])
    assert run.status is RunStatus.COMPLETED
    assert run.results.keys() == {i for i in run.collected if i.startswith("test_a.py")}


def test_a_program_that_ends_before_its_tests_proves_nothing(tmp_path: Path) -> None:
    files = {"runtests.py": "raise SystemExit('no settings')\n", "test_a.py": TESTS}
    run = (runner := runner_on(tmp_path, files, ProgramRunner("own", ["runtests.py"]))).fresh(
        runner.original, ["test_a.py"]
    )
    assert run.collected == ()
    assert run.exit_code == 1
    assert not run.passing
    killed = runner_on(
        tmp_path / "k", {"runtests.py": "import os\nos._exit(0)\n"}, ProgramRunner("own", ["runtests.py"])
    )
    assert killed.fresh(killed.original, ["test_a.py"]).fault


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("tests/admin_views/tests.py", "admin_views.tests"),
        ("tests/admin_views/tests.py::ATest::test_a", "admin_views.tests"),
        ("django/core/test_x.py", "django.core.test_x"),
    ],
)
def test_django_names_tests_by_modules_below_its_folder_of_tests(path: str, label: str) -> None:
    assert DJANGO.label(path) == label


def test_sympy_reports_functions_by_file(tmp_path: Path) -> None:
    runner = runner_on(tmp_path, SYMPY_TREE, SYMPY)
    path = "sympy/tests/test_core.py"
    run = runner.fresh(runner.original, [path])
    assert {name: result.outcome for name, result in run.results.items()} == {
        f"{path}::test_one": Outcome.PASSED,
        f"{path}::test_two": Outcome.FAILED,
        f"{path}::test_three": Outcome.ERROR,
        f"{path}::test_four": Outcome.PASSED,
    }
    assert run.names[f"{path}::test_one"] == ("test_one",)
    assert (run.status, run.exit_code) == (RunStatus.COMPLETED, 1)
    chosen = Selection([f"{path}::test_four"])
    assert outcomes(runner, path, selection=chosen) == {"test_four": Outcome.PASSED}
    first = Selection(stop_after=1, counted=[f"{path}::test_two"])
    assert list(outcomes(runner, path, selection=first)) == ["test_one", "test_two"]
    assert runner.fresh(runner.original, [path], collect_only=True).results == {}
    assert runner.fresh(runner.original, ["sympy/tests/test_import.py"]).status is RunStatus.COLLECTION_ERROR


@pytest.mark.parametrize("name", ["unittest", "sympy"])
def test_the_generated_script_reports_the_same_results(tmp_path: Path, name: str) -> None:
    files = SYMPY_TREE if name == "sympy" else {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TESTS}
    test_runner = RUNNERS[name]
    assert isinstance(test_runner, ProgramRunner)
    runner = runner_on(tmp_path, files, test_runner)
    paths = ["sympy/tests/test_core.py" if name == "sympy" else "tests/test_calc.py"]
    script = script_of(test_runner, paths, options=())
    assert is_generated(script, default_parser(), test_runner, paths)
    assert not is_generated(script + b"true\n", default_parser(), test_runner, paths)
    empty = Patch.parse(b"")
    run, _ = runner.script(runner.original, BugArtifact(script, tuple(paths), default_parser(), empty, empty))
    assert run.passing == runner.fresh(runner.original, paths).passing
    assert run.exit_code == 1
