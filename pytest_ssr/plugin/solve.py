"""`pytest --ssr-solve PATH`: each attempt at an artifact is an item, `.../bug_inject.diff::attempt-3`.

An item passes when its attempt resolves the bug, fails when it does not, and is an error when it has no grade. Under
xdist the attempts are shared out; each is kept in the store and never made twice. What solves is the harness: it offers
itself by an entry point, for the plugin does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from pytest_ssr.artifact import find_artifacts
from pytest_ssr.errors import SettingsError, SsrError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.plugin import options
from pytest_ssr.plugin.items import OfArtifact, collected
from pytest_ssr.stopping import end_at_signals

GROUP = "pytest_ssr.attempts"
_ATTEMPTS = 8


class Told(NamedTuple):
    """What came of an attempt."""

    resolved: bool | None
    """None: no grade."""
    reason: str
    rollout: str
    """Its id in the store."""


class Attempts(Protocol):
    """What the entry point gives: called with the project, the store, the artifacts, and what solves and how."""

    def made(self, directory: Path, number: int) -> Told:
        """Make an attempt (counted from 0) at the artifact in a folder, unless the store holds it."""

    def summary(self, grades: Sequence[bool | None]) -> str:
        """Return a line about all of them."""

    def close(self) -> None:
        """End what it has started."""


class SolvedNode(OfArtifact):
    """One artifact; its children are the attempts at it."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each attempt."""
        return [AttemptItem.from_parent(self, name=f"attempt-{n + 1}", number=n) for n in range(self.plugin.count)]


class AttemptItem(pytest.Item):
    """One attempt."""

    def __init__(self, *, number: int, **known: Any) -> None:
        super().__init__(**known)
        self._number = number
        self._told: Told | None = None

    def setup(self) -> None:
        """Make the attempt: where it has no grade, it is an error and not a failure."""
        node = self.parent
        assert isinstance(node, SolvedNode)
        try:
            self._told = node.plugin.attempts.made(node.directory, self._number)
        except SsrError as error:
            pytest.fail(f"ssr: {escaped(str(error))}", pytrace=False)
        self.user_properties.append(("ssr_rollout", self._told.rollout))
        if self._told.resolved is None:
            pytest.fail(escaped(self._told.reason), pytrace=False)
        self.user_properties.append(("ssr_resolved", self._told.resolved))

    def runtest(self) -> None:
        """Fail where the bug is not resolved."""
        assert self._told is not None
        if not self._told.resolved:
            pytest.fail(escaped(self._told.reason), pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the bug's diff and the item's id, for reports."""
        return escaped_line(str(self.path)), None, self.name


class SolvePlugin:
    """Collects attempts instead of tests."""

    attempts: Attempts

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._grades: list[bool | None] = []
        with options.user_errors():
            self.count = options.number(config, "attempts", _ATTEMPTS)
            if self.count < 1:
                raise SettingsError(f"--ssr-attempts must be at least 1, not {self.count}")
            store = options.store_path(config)
            self.directories: list[Path] = []
            for name in config.option.ssr_solve:
                place = config.invocation_params.dir / name
                known = store / "artifacts" / name
                self.directories += find_artifacts(known if not place.exists() and known.is_dir() else place)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Copy the project and choose the sandbox before xdist starts its workers."""
        end_at_signals()
        with options.user_errors():
            offered = list(entry_points(group=GROUP))
            if not offered:
                raise SettingsError("nothing is installed that solves; install pytest-ssr anew")
            self.attempts = offered[0].load()(
                options.project_path(self.config),
                options.open_store(self.config),
                self.directories,
                solver=options.option(self.config, "solver") or "search",
                seed=options.number(self.config, "seed", 0),
                opening=options.opening_arguments(self.config),
                limits=options.limits_of_models(self.config),
                workers=_workers(self.config),
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Fill the session with the attempts."""
        return collected(session, SolvedNode, self.directories, self)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep the attempts at an artifact on one worker where there are enough: what they share is measured once."""
        from xdist.scheduler import LoadScopeScheduling, WorkStealingScheduling

        enough = len(self.directories) >= (config.option.numprocesses or 1)
        return (LoadScopeScheduling if enough else WorkStealingScheduling)(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the grades."""
        if report.when == "setup" and report.failed:
            self._grades.append(None)
        elif report.when == "call":
            self._grades.append(dict(report.user_properties).get("ssr_resolved") is True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many were resolved."""
        if self._grades:
            terminalreporter.write_line(self.attempts.summary(self._grades))

    def pytest_sessionfinish(self) -> None:
        """End what solves."""
        if hasattr(self, "attempts"):
            self.attempts.close()


def _workers(config: pytest.Config) -> int:
    """Return how many processes make the attempts, asked in any of them."""
    own: dict[str, int] = getattr(config, "workerinput", {})
    return own.get("workercount") or config.getoption("numprocesses", None) or 1
