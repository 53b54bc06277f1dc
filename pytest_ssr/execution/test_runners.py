"""Define how the tests of a project are started: by pytest, by unittest, or by the project's own program.

Every runner reports over the same channel, with the same ids: the file, the classes and the function of a test,
separated by `::`. Only what is started differs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

RESERVED_VARIABLES = re.compile(
    r"PATH|HOME|TMPDIR|PYTHON(PATH|HOME|HASHSEED|DONTWRITEBYTECODE|STARTUP)|LD_.*|SSR_.*|BASH_.*"
)
"""Variables that runs set themselves, and those that would change which programs run."""
Environment = tuple[tuple[str, str], ...]
"""Names and values of environment variables, sorted."""
PYTEST_ADDOPTS = "PYTEST_ADDOPTS"
"""Options in this variable count as options of the project: those that change which tests run are dropped."""


class TestRunner(Protocol):
    """Starts the tests of a project inside a sandbox."""

    @property
    def name(self) -> str:
        """Its name in rows, settings and reports."""

    @property
    def reporter(self) -> str:
        """The guest module that reports the tests."""

    @property
    def probes(self) -> Sequence[str]:
        """The guest modules that record which statements each test reaches, in the order of import."""

    @property
    def environment(self) -> Environment:
        """Environment variables of the tests; those of every run take precedence."""

    @property
    def scope(self) -> Sequence[str]:
        """The test files of a run that names none; empty if the project itself names them."""

    def shown_command(self, files: Sequence[str] = (), *, brief: bool = False) -> str:
        """Return the command that runs the tests, for people and models; no files: all tests of the scope.

        brief: the command prints little about tests that pass.
        """

    def argv(self, start: Start) -> list[str]:
        """Return the command that runs the tests."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a run consists of."""

    python: str
    folder: str
    """The folder of the guest modules in the sandbox."""
    plugins: Sequence[str]
    """Guest modules to import first, in this order; the reporter is one of them."""
    targets: Sequence[str] = ()
    """Test files relative to the root of the tree; empty: those of the runner's scope."""
    options: Sequence[str] = ()
    """More options of pytest."""
    collect_only: bool = False
    verbose: bool = False
    """Whether the output names each test."""


def pytest_arguments(folder: str, *, verbose: bool = False) -> list[str]:
    """Return the pytest options of every run; verbose: those that report each test and its failure."""
    options = ["-rPpsxXEf", "-v"] if verbose else ["-q", "--tb=no"]
    return [*options, "--continue-on-collection-errors", "-o", f"cache_dir={folder}/cache", "-p", "no:randomly"]


# As in `python -m pytest`, the tree's root is first on the path; the plugins are passed as objects.
_START_PYTEST = (
    "import sys, os; d, p = sys.argv[1:3]; del sys.argv[1:3]; sys.path[0] = os.getcwd(); sys.path.insert(0, d); "
    "p = [__import__(n) for n in p.split(',')]; sys.path.remove(d); "
    "import pytest; sys.exit(pytest.main(sys.argv[1:], plugins=p))"
)
# Programs decide by themselves what is on the path.
_START_PROGRAM = (
    "import sys; d, p, r = sys.argv[1:4]; del sys.argv[1:4]; sys.path[0] = d; "
    "p = [__import__(n) for n in p.split(',')]; del sys.path[0]; sys.modules[r].main(sys.argv[1], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class PytestRunner:
    """Runs tests with pytest."""

    name: str = "pytest"
    reporter: str = "reporter"
    probes: Sequence[str] = ("reach_probe", "reach_plugin")
    environment: Environment = ()
    scope: Sequence[str] = ()

    def shown_command(self, files: Sequence[str] = (), *, brief: bool = False) -> str:
        """Return the command that runs the tests; see `TestRunner`."""
        return shlex.join(["python", "-m", "pytest", *(["-q"] if brief else []), *files])

    def argv(self, start: Start) -> list[str]:
        """Return the command that runs the tests."""
        argv = [start.python, "-c", _START_PYTEST, start.folder, ",".join(start.plugins)]
        argv += [*pytest_arguments(start.folder, verbose=start.verbose), *start.options]
        argv += ["--collect-only"] if start.collect_only else []
        return [*argv, *start.targets]


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """Runs tests with a program that uses unittest, or with a test runner of a project that has a reporter here."""

    name: str
    program: Sequence[str]
    """A path in the tree, or `-m` and a module, and arguments."""
    reporter: str = "unittest_reporter"
    base: str = ""
    """The folder that labels of tests are relative to."""
    labels: bool = True
    """Whether tests are named by modules (`package.test_module`) in place of files."""
    verbose_option: Sequence[str] = ("-v",)
    environment: Environment = ()
    probes: Sequence[str] = ("reach_probe",)
    scope: tuple[str, ...] = ()
    """These programs cannot name all tests of a project, or need too long for them, so rows name some."""

    def shown_command(self, files: Sequence[str] = (), *, brief: bool = False) -> str:
        """Return the command that runs the tests; see `TestRunner`. These programs are brief by default."""
        return shlex.join(["python", *self.program, *self._labels(files or self.scope)])

    def argv(self, start: Start) -> list[str]:
        """Return the command that runs the tests."""
        argv = [start.python, "-c", _START_PROGRAM, start.folder, ",".join(start.plugins), f"ssr_{self.reporter}"]
        argv += [*self.program, *(self.verbose_option if start.verbose else ())]
        return [*argv, *self._labels(start.targets or self.scope)]

    def _labels(self, targets: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(self.label(target) for target in targets))

    def label(self, target: str) -> str:
        """Return what the program calls a test file, or the file of a test id."""
        path = target.partition("::")[0]
        if not self.labels:
            return path
        posix = PurePosixPath(path)
        if self.base and posix.is_relative_to(self.base):
            posix = posix.relative_to(self.base)
        return ".".join(posix.with_suffix("").parts)


PYTEST = PytestRunner()
DJANGO = ProgramRunner(
    "django",
    ("tests/runtests.py", "--settings=test_sqlite"),
    base="tests",
    verbose_option=("--verbosity=2",),
    # As the option `--parallel=1`, which versions before 1.9 do not have.
    environment=(("DJANGO_TEST_PROCESSES", "1"),),
)
UNITTEST = ProgramRunner("unittest", ("-m", "unittest"))
SYMPY = ProgramRunner(
    "sympy",
    # In this process, and with the same random numbers in every run.
    ("bin/test", "-C", "--no-subprocess", "--seed=1", "--no-colors"),
    reporter="sympy_reporter",
    labels=False,
    verbose_option=("--verbose",),
)
RUNNERS: dict[str, PytestRunner | ProgramRunner] = {
    "pytest": PYTEST,
    "django": DJANGO,
    "unittest": UNITTEST,
    "sympy": SYMPY,
}
