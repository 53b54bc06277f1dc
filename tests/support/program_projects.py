"""Small projects whose tests run with unittest, or with programs in the layouts of Django and SymPy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rows import diff, git

from pytest_ssr.execution.test_runners import RUNNERS, ProgramRunner

CALC = """\
def add(a, b):
    return a + b


def double(x):
    return 2 * x


def raises(x):
    if x > 3:
        raise ValueError(x)
    return x


def prepare(x):
    return [x]


def unused():
    return 'unused'
"""
UNIT_TESTS = """\
import unittest

from {package} import add, double, prepare, raises


class CalcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prepared = prepare(7)

    def test_add(self):
        self.assertEqual(add(1, 2), 3)
        self.assertEqual(add(-5, 20), 15)

    def test_double(self):
        self.assertEqual(double(4), 8)
        self.assertEqual(double(5), 10)

    def test_raises(self):
        self.assertEqual(raises(3), 3)
        with self.assertRaises(ValueError):
            raises(4)

    def test_prepared(self):
        self.assertEqual(self.prepared, [7])
"""
FUNCTIONS = """\
from sympy.calc import add, double, prepare, raises


def test_add():
    assert add(1, 2) == 3
    assert add(-5, 20) == 15


def test_double():
    assert double(4) == 8
    assert double(5) == 10


def test_raises():
    assert raises(3) == 3


def test_prepared():
    assert prepare(7) == [7]
"""
# As Django's own program: labels are modules below the folder of tests.
RUNTESTS = """\
import argparse
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
parser = argparse.ArgumentParser()
parser.add_argument("--settings")
parser.add_argument("--verbosity", type=int, default=1)
parser.add_argument("labels", nargs="*")
options = parser.parse_args()
assert options.labels, "all tests of the project take too long"
suite = unittest.defaultTestLoader.loadTestsFromNames(options.labels)
result = unittest.TextTestRunner(verbosity=options.verbosity).run(suite)
sys.exit(bool(result.failures or result.errors))
"""
# The classes and the command of SymPy's runner that the reporter relies on.
SYMPY_RUNTESTS = """\
import os
import sys


class PyTestReporter:
    def entering_filename(self, filename, n):
        print(filename, n)

    def entering_test(self, f):
        print(f.__name__, end=" ")

    def test_pass(self, char="."):
        print("ok")

    def test_skip(self, v=None):
        print("s")

    def test_xfail(self):
        print("f")

    def test_xpass(self, v):
        print("X")

    def test_fail(self, exc_info):
        print("F")

    def test_exception(self, exc_info):
        print("E")

    def import_error(self, filename, exc_info):
        print("?")


class SymPyTests:
    def __init__(self):
        self._reporter = PyTestReporter()

    def matches(self, x):
        return True

    def test_file(self, filename, sort=True):
        reporter, names = self._reporter, {"__file__": filename}
        try:
            with open(filename) as file:
                exec(compile(file.read(), filename, "exec"), names)
        except ImportError:
            reporter.import_error(filename, sys.exc_info())
            return False
        functions = [f for name, f in names.items() if name.startswith("test_") and self.matches(f)]
        if not functions:
            return True
        reporter.entering_filename(filename, len(functions))
        ok = True
        for function in functions:
            reporter.entering_test(function)
            try:
                function()
            except AssertionError:
                reporter.test_fail(sys.exc_info())
                ok = False
            except Exception:
                reporter.test_exception(sys.exc_info())
                ok = False
            else:
                reporter.test_pass()
        return ok
"""
SYMPY_PROGRAM = """\
import os
import sys

sys.path.insert(0, os.getcwd())
from sympy.testing.runtests import SymPyTests

paths = [a for a in sys.argv[1:] if not a.startswith("-")]
sys.exit(int(not all([SymPyTests().test_file(os.path.abspath(p)) for p in paths])))
"""
TREES: Mapping[str, Mapping[str, str]] = {
    "unittest": {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": UNIT_TESTS.format(package="calc")},
    "django": {
        "django/__init__.py": "",
        "django/calc.py": CALC,
        "tests/runtests.py": RUNTESTS,
        "tests/calculation/__init__.py": "",
        "tests/calculation/tests.py": UNIT_TESTS.format(package="django.calc"),
        "tests/calculation/test_slow.py": "raise SystemExit('not in the scope')\n",
    },
    "sympy": {
        "bin/test": SYMPY_PROGRAM,
        "sympy/__init__.py": "",
        "sympy/calc.py": CALC,
        "sympy/testing/__init__.py": "",
        "sympy/testing/runtests.py": SYMPY_RUNTESTS,
        "sympy/tests/test_calc.py": FUNCTIONS,
    },
}
"""Test runner to the files of a project."""
CODE_FILE = {"unittest": "calc.py", "django": "django/calc.py", "sympy": "sympy/calc.py"}
SCOPES = {
    "unittest": ("tests/test_calc.py",),
    "django": ("tests/calculation/tests.py",),
    "sympy": ("sympy/tests/test_calc.py",),
}
"""Test runner to the test files of the project."""


def program_runner(name: str) -> ProgramRunner:
    """Return a test runner for the project of this name."""
    test_runner = RUNNERS[name]
    assert isinstance(test_runner, ProgramRunner)
    return replace(test_runner, scope=SCOPES[name])


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the files, and return the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


IDS = {
    "unittest": "test_{} (tests.test_calc.CalcTest)",
    "django": "test_{} (calculation.tests.CalcTest)",
    "sympy": "test_{}",
}
REPOSITORIES = {"unittest": "acme/calc", "django": "django/django", "sympy": "sympy/sympy"}


def row_of(folder: Path, name: str) -> dict[str, Any]:
    """Create a repository with a bug in its newest commit, and return the row that repairs it."""
    owner, _, repo = REPOSITORIES[name].partition("/")
    repository = write_tree(folder / "clones" / f"{owner}__{repo}", TREES[name])
    code, (tests,) = CODE_FILE[name], SCOPES[name]
    (repository / code).write_text(CALC.replace("2 * x", "x"))
    solved = (repository / tests).read_text()
    (repository / tests).write_text(solved.replace("test_double", "no_test_double"))
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "first")
    return {
        "repo": REPOSITORIES[name],
        "instance_id": f"{owner}__{repo}-1",
        "base_commit": git(repository, "rev-parse", "HEAD").strip(),
        "version": "5.2" if name == "django" else "1.11",
        "patch": diff(repository, {code: CALC}),
        "test_patch": diff(repository, {tests: solved}),
        "FAIL_TO_PASS": json.dumps([IDS[name].format("double")]),
        "PASS_TO_PASS": json.dumps([IDS[name].format(test) for test in ("add", "raises", "prepared")]),
    }
