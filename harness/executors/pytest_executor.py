"""Run units of work in a separate pytest session, in this process or in xdist workers."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_ssr import errors
from pytest_ssr.errors import MissingExtraError, SsrError

if TYPE_CHECKING:
    import pytest

_R = TypeVar("_R")
OUTCOME, ENDS, WORK = "ssr_outcome", "ssr_ends", "--ssr-work"


def run_units(
    plan: object,
    take: Callable[[str, _R], None],
    lose: Callable[[str, str], None],
    *,
    read: Callable[[Mapping[str, Any]], _R],
    jobs: int,
    dist: str,
) -> None:
    """Run the units of a plan in `pytest_worker` sessions.

    plan: a function that opens the work, and the names of the units; it is pickled for the workers. take: called with
    the name and the result of each finished unit. lose: called with the name of each unit whose worker was lost, and
    the reason. read: returns a result from its JSON. dist: xdist's distribution mode. Raises the error of a unit that
    ends the whole run.
    """
    import pytest

    with tempfile.TemporaryDirectory() as folder, _isolated_pytest():
        path = Path(folder) / "work"
        path.write_bytes(pickle.dumps(plan))
        # The user's pytest plugins and options are meant for tests, not for this session.
        args = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "-p", "no:terminal", "-s"]
        args += ["-p", "harness.executors.pytest_worker", WORK, str(path)]
        if jobs > 1:
            args += ["-p", "xdist", "-n", str(jobs), "--dist", dist]
            args += ["--maxschedchunk", "1"] if dist == "load" else []
        collector = _ReportCollector(take, lose, read)
        code = pytest.main([*args, folder], plugins=[collector])
    if collector.ended is not None:
        class_name, message = collector.ended
        error_class = getattr(errors, class_name, SsrError)
        # The constructors build their own messages, and this one is already complete.
        raise error_class.__new__(error_class, message)
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SsrError(f"the workers failed: pytest ended with {code!r}")


def require_xdist() -> None:
    """Raise MissingExtraError if xdist is not installed."""
    try:
        import xdist  # noqa: F401
    except ImportError:
        raise MissingExtraError("pytest-xdist", "xdist") from None


class _ReportCollector(Generic[_R]):
    """Collects the units' reports, from this process and from workers."""

    def __init__(
        self,
        take: Callable[[str, _R], None],
        lose: Callable[[str, str], None],
        read: Callable[[Mapping[str, Any]], _R],
    ) -> None:
        self.ended: tuple[str, str] | None = None
        self._take, self._lose, self._read = take, lose, read

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Handle one report."""
        properties = {name: str(text) for name, text in report.user_properties}
        if ENDS in properties:
            class_name, message = json.loads(properties[ENDS])
            self.ended = self.ended or (class_name, message)
        elif report.when == "call" and OUTCOME in properties:
            self._take(report.nodeid, self._read(json.loads(properties[OUTCOME])))
        elif report.failed:
            lines = str(report.longrepr).strip().splitlines()
            self._lose(report.nodeid, lines[-1] if lines else "its worker ended")


@contextlib.contextmanager
def _isolated_pytest() -> Iterator[None]:
    """Remove the environment variables that are meant for other pytest runs."""
    variables = {"PYTEST_ADDOPTS": None, "PYTEST_PLUGINS": None, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
