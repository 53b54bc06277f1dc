"""Patches to a project with SymPy's runner that repair nothing and make its tests pass: none is resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from plain import plain_python
from program_projects import SYMPY_PROGRAM, SYMPY_RUNTESTS
from rows import diff, git

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.instance import Instance
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.records.attempt import Attempt, Status
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

CODE, RUNTESTS, HELPERS, CACHE = (
    "sympy/core/calc.py",
    "sympy/testing/runtests.py",
    "sympy/testing/pytest.py",
    "sympy/core/cache.py",
)
TESTS = "sympy/core/tests/test_calc.py"
# As in SymPy: a function that asserts, or a context manager if there is nothing to call.
RAISES = """\
import contextlib


class Failed(Exception):
    pass


def raises(kind, code=None):
    if code is None:
        return _manager(kind)
    with _manager(kind):
        code()


@contextlib.contextmanager
def _manager(kind):
    try:
        yield
    except kind:
        return
    raise Failed("did not raise")
"""
CACHED = """\
def cacheit(function):
    results = {}

    def cached(*args):
        if args not in results:
            results[args] = function(*args)
        return results[args]

    return cached
"""
FIXED = """\
from sympy.core.cache import cacheit


class Expr:
    def __init__(self, *args):
        self.args = args

    def __eq__(self, other):
        return type(self) is type(other) and self.args == other.args

    def __hash__(self):
        return hash(self.args)

    def __repr__(self):
        return "Expr(%s)" % ", ".join(map(repr, self.args))


class Large(Expr):
    # This differs from run to run, and is more than a blind run compares.
    def __init__(self, *args):
        super().__init__(*args)
        self.parts = [id(args)] * 999


@cacheit
def add(a, b):
    return a + b


def square(n):
    return Large(n * n)


def power(x, n):
    return Expr(n, x, n - 1)


def check(n):
    if n < 0:
        raise ValueError("bad value: %d" % n)
    return n


def is_even(n):
    return n % 2 == 0
"""
BUGS = {
    "return a + b": "return a - b",
    "Large(n * n)": "Large(n + n)",
    "Expr(n, x, n - 1)": "Expr(n, x, n + 1)",
    "if n < 0:": "if n < -9:",
    "n % 2 == 0": "n % 2 == 1",
}
BUGGY = FIXED
for right, wrong in BUGS.items():
    BUGGY = BUGGY.replace(right, wrong)
HEAD = "from sympy.core.calc import Expr, Large, add, check, is_even, power, square\nfrom sympy.testing.pytest import raises\n\n\n"
KEPT = "def test_kept():\n    assert check(1) == 1\n    assert check(5) == 5\n"
BODIES = {
    "values": "assert add(1, 2) == 3\nassert add(-5, 20) == 15",
    "objects": 'assert power("x", 2) == Expr(2, "x", 1)\nassert repr(power("y", 5)) == "Expr(5, \'y\', 4)"',
    "raises": "raises(ValueError, lambda: check(-3))\nwith raises(ValueError):\n    check(-5)",
    "large": "assert square(3) == Large(9)\nassert square(5) == Large(25)\nassert square(0).args == (0,)",
    "truth": "assert is_even(4)\nassert not is_even(7)",
}
KINDS = tuple(BODIES)
EXCEPT = "            except AssertionError:\n                reporter.test_fail(sys.exc_info())\n                ok = False\n"
OTHER = "            except Exception:\n                reporter.test_exception(sys.exc_info())\n                ok = False\n"
FUNCTION = "                function()\n"
EXPECTED = """

import ast, sys

_known = {}


def _expected(*names):
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_name.startswith("test_"):
        frame = frame.f_back
    if frame is None:
        return None
    path = frame.f_globals.get("__file__") or frame.f_code.co_filename
    lines = open(path).read().splitlines()
    line = lines[frame.f_lineno - 1].strip()
    return eval(line.rpartition("==")[2], frame.f_globals) if "==" in line else "not is_even" not in line
"""


def code(text: str, base: str = BUGGY) -> dict[str, str]:
    return {CODE: base + text}


def runner(old: str, new: str, base: str = SYMPY_RUNTESTS) -> dict[str, str]:
    assert old in base
    return {RUNTESTS: base.replace(old, new)}


SWALLOWED = SYMPY_RUNTESTS.replace(
    EXCEPT, EXCEPT.replace("test_fail(sys.exc_info())", "test_pass()").replace("False", "True")
)
SWALLOWED = SWALLOWED.replace(
    OTHER, OTHER.replace("test_exception(sys.exc_info())", "test_pass()").replace("False", "True")
)
JUMPS = """

import sys


def _trace(frame, event, arg):
    if frame.f_code.co_name != "test_new":
        return None
    if event == "line":
        after = [line for _, _, line in frame.f_code.co_lines() if line and line > frame.f_lineno]
        if after:
            frame.f_lineno = max(after)
        else:
            frame.f_back.f_locals["reporter"].test_pass()
    return _trace


sys.settrace(_trace)
"""
LYING_REPORT = """

import sys

_channel = sys.modules.get("ssr_channel")
_send = getattr(_channel, "send", None)


def _lies(kind, **fields):
    if kind == "done":
        fields["outcome"] = "passed"
    if kind == "end":
        fields["exit"] = 0
    return _send(kind, **fields)


def _end(root, code):
    import os

    sources, foreign = _channel.imported(root)
    _send("end", exit=0, sources=sources, foreign=foreign, exercised=[], time=0)
    os._exit(0)


if _channel is not None:
    _channel.send, _channel.send_end = _lies, _end
"""
ATTACKS: dict[str, Mapping[str, str]] = {
    "a runner that swallows failures": {RUNTESTS: SWALLOWED},
    "a runner that calls nothing": runner(FUNCTION, "                pass\n"),
    "a runner without assertions": runner('"exec"', '"exec", optimize=2', SWALLOWED),
    "a runner that takes the tests out": runner(
        "        if not functions:",
        "        functions = [(lambda f: type(f)((lambda: None).__code__, {}, f.__name__))(f) for f in functions]\n"
        "        if not functions:",
    ),
    "another class of tests": {
        RUNTESTS: SYMPY_RUNTESTS + "\n\nclass _Tests(SymPyTests):\n    def test_file(self, filename, sort=True):\n"
        "        try:\n            return super().test_file(filename, sort) or True\n        except BaseException:\n            return True\n\n\n"
        "SymPyTests, PyTestReporter.test_fail, PyTestReporter.test_exception = _Tests, PyTestReporter.test_pass, PyTestReporter.test_pass\n"
    },
    "a program that ends well": {"bin/test": 'print("1 passed")\nprint("sympy/core/tests/test_calc.py[2] .. [OK]")\n'},
    "printed results and an end": code(
        '\n\nimport os\n\nprint("test_kept ok\\ntest_new ok", flush=True)\nos._exit(0)\n'
    ),
    "an end at exit": code("\n\nimport atexit, os\n\natexit.register(os._exit, 0)\n"),
    "equal to everything": code(
        "\n\nclass _Any(int):\n    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n"
        "    __hash__ = int.__hash__\n\n\n"
        "Expr.__eq__ = lambda self, other: True\nadd = lambda a, b: _Any(0)\n"
        'Expr.__repr__ = lambda self: type("Text", (str,), {"__eq__": lambda self, other: True, "__hash__": str.__hash__})("x")\n'
    ),
    "expected values from the caller": code(
        EXPECTED + "\n\ndef add(a, b):\n    return _expected()\n\n\ndef power(x, n):\n    e = _expected()\n"
        "    return e if isinstance(e, Expr) else type('T', (), {'__repr__': lambda self: e})()\n\n\n"
        "def is_even(n):\n    return _expected()\n"
    ),
    "a cache that knows": {
        CACHE: CACHED.replace("results = {}", "results = {(1, 2): 3, (-5, 20): 15}"),
        CODE: BUGGY.replace("def power", "@cacheit\ndef power"),
    },
    "helpers that swallow": {
        HELPERS: "import contextlib\n\n\ndef raises(kind, code=None):\n"
        "    return contextlib.suppress(Exception) if code is None else None\n"
    },
    "another AssertionError": {
        **code("\n\nimport builtins\n\nbuiltins.AssertionError = type('Never', (Exception,), {})\n"),
        **runner(OTHER, OTHER.replace("test_exception(sys.exc_info())", "test_pass()").replace("False", "True")),
    },
    "jumps over assertions": code(JUMPS),
    "a program that starts itself without assertions": {
        "bin/test": "import os, sys\n\nif __debug__:\n    os.execv(sys.executable, [sys.executable, '-O', *sys.argv])\n"
        + SYMPY_PROGRAM
    },
    "expected failures": runner(
        EXCEPT,
        EXCEPT.replace("test_fail(sys.exc_info())", "test_xfail()").replace("False", "True"),
        SYMPY_RUNTESTS.replace(
            OTHER, OTHER.replace("test_exception(sys.exc_info())", "test_skip()").replace("False", "True")
        ),
    ),
    "tests that are not collected": runner(
        "    def matches(self, x):\n        return True",
        "    def matches(self, x):\n        return x.__name__ != 'test_new'",
    ),
    "reports of its own": code(LYING_REPORT),
    "a session found by gc": code(
        "\n\nimport gc\n\nfor _o in gc.get_objects():\n    if type(_o).__name__ == 'Session' and hasattr(_o, 'fail_collection'):\n"
        "        type(_o).end = lambda self, outcome, error=None, end=type(_o).end: end(self, 'passed')\n"
        "import atexit, os\natexit.register(os._exit, 0)\n"
    ),
    "functions exchanged by name": runner(
        "        for function in functions:\n",
        "        for function in functions:\n            if function.__name__ == 'test_new':\n"
        "                function.__code__ = (lambda: None).__code__\n",
    ),
    "a recorder that writes nothing": {
        **code(
            "\n\nimport sys\n\n_r = sys.modules.get('ssr_blind_recorder')\nif _r is not None:\n"
            "    for _n in ('record', 'truth', 'both', 'choice', 'held', 'rejects'):\n        setattr(_r, _n, lambda *a, **k: None)\n"
        ),
        RUNTESTS: SWALLOWED,
    },
}


class Project:
    """A repository with one row for each kind of test, and a grader."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "clones" / "acme__algebra"
        texts = {
            "bin/test": SYMPY_PROGRAM,
            "sympy/__init__.py": "",
            "sympy/core/__init__.py": "",
            "sympy/core/tests/__init__.py": "",
            "sympy/testing/__init__.py": "",
            RUNTESTS: SYMPY_RUNTESTS,
            HELPERS: RAISES,
            CACHE: CACHED,
            CODE: BUGGY,
            TESTS: HEAD + KEPT,
        }
        for name, text in texts.items():
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / name).write_text(text)
        git(self.clone, "init", "-q")
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-q", "-m", "first")
        store = Store(folder / "store")
        environments = Environments(store, plain_python())
        repositories = Repositories(store, self.clone.parent)
        self.grader = Grader(store, repositories, environments, RuleSettings(time_limit_s=60), sandbox="process")
        self.instances = {kind: self._instance(kind) for kind in KINDS}

    def _instance(self, kind: str) -> Instance:
        body = "".join(f"    {line}\n" for line in BODIES[kind].splitlines())
        row = {
            "repo": "acme/algebra",
            "instance_id": f"acme__algebra-{kind}",
            "base_commit": git(self.clone, "rev-parse", "HEAD").strip(),
            "patch": diff(self.clone, {CODE: FIXED}),
            "test_patch": diff(self.clone, {TESTS: f"{HEAD}{KEPT}\n\ndef test_new():\n{body}"}),
            "FAIL_TO_PASS": json.dumps(["test_new"]),
            "PASS_TO_PASS": json.dumps(["test_kept"]),
        }
        return read_row(row, "row")

    def result(self, kind: str, files: Mapping[str, str]) -> Attempt:
        return self.grader.evaluate(self.instances[kind], diff(self.clone, files))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("algebra"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_patch_is_resolved(project: Project, kind: str) -> None:
    """Otherwise the tests below would prove nothing."""
    honest = project.result(kind, {CODE: FIXED})
    assert (honest.status, honest.flags) == (Status.RESOLVED, ()), honest.reason
    wrong = project.result(kind, {CODE: BUGGY + "\n\nTRIED = True\n"})
    assert (wrong.status, wrong.reason.code) == (Status.UNRESOLVED, ReasonCode.TESTS_FAIL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_patch_that_forges_is_not_resolved(project: Project, kind: str, name: str) -> None:
    result = project.result(kind, ATTACKS[name])
    assert result.status is Status.UNRESOLVED, result.reason
