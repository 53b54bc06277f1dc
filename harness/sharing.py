"""Work shared out by a pytest of our own, in this process or among xdist's workers (`harness.items`)."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.evaluation.outcome import Outcome
from pytest_ssr import errors
from pytest_ssr.errors import MissingExtraError, SsrError

if TYPE_CHECKING:
    import pytest

OUTCOME, ENDS, WORK = "ssr_outcome", "ssr_ends", "--ssr-work"


def share(
    plan: object,
    take: Callable[[str, Outcome], None],
    lose: Callable[[str, str], None],
    *,
    jobs: int,
    dist: str,
) -> None:
    """Let `harness.items` do a plan.

    plan: what it reads, with pickle. take: is told the name of each unit that is done, and what it came to. lose: is
    told of one whose worker was lost, and why. dist: xdist's way. Raises what a unit has raised that ends a whole run.
    """
    import pytest

    with tempfile.TemporaryDirectory() as place, _alone():
        path = Path(place) / "work"
        path.write_bytes(pickle.dumps(plan))
        # Nothing of the user's pytest: its plugins and options are for tests.
        words = ["-c", os.devnull, "--rootdir", place, "-p", "no:cacheprovider", "-p", "no:terminal", "-s"]
        words += ["-p", "harness.items", WORK, str(path)]
        if jobs > 1:
            words += ["-p", "xdist", "-n", str(jobs), "--dist", dist]
            words += ["--maxschedchunk", "1"] if dist == "load" else []
        told = _Told(take, lose)
        code = pytest.main([*words, place], plugins=[told])
    if told.ended is not None:
        kind, text = told.ended
        raised = getattr(errors, kind, SsrError)
        # Not called: each kind has words of its own, and these are said already.
        raise raised.__new__(raised, text)
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SsrError(f"the workers could not do their work: pytest ended with {code!r}")


def require_xdist() -> None:
    """Raise MissingExtraError where there is no xdist."""
    try:
        import xdist  # noqa: F401
    except ImportError:
        raise MissingExtraError("pytest-xdist", "xdist") from None


class _Told:
    """Takes the units' reports, wherever they were made."""

    def __init__(self, take: Callable[[str, Outcome], None], lose: Callable[[str, str], None]) -> None:
        self.ended: tuple[str, str] | None = None
        self._take, self._lose = take, lose

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one."""
        told = {name: str(text) for name, text in report.user_properties}
        if ENDS in told:
            kind, text = json.loads(told[ENDS])
            self.ended = self.ended or (kind, text)
        elif report.when == "call" and OUTCOME in told:
            outcome = Outcome.from_json(json.loads(told[OUTCOME]))
            assert outcome is not None
            self._take(report.nodeid, outcome)
        elif report.failed:
            lines = str(report.longrepr).strip().splitlines()
            self._lose(report.nodeid, lines[-1] if lines else "its worker has ended")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep pytest from what is meant for other runs of it."""
    wanted = {"PYTEST_ADDOPTS": None, "PYTEST_PLUGINS": None, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set(wanted)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
