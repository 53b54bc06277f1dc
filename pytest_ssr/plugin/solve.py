"""Implement `pytest --ssr-solve PATH`: each attempt at an artifact is an item, `.../bug_inject.diff::attempt-3`.

An item passes if its attempt resolves the bug, fails if it does not, and is an error if it has no grade. Under xdist
the attempts are distributed; each is stored and never repeated. The harness runs the solver: it registers itself by an
entry point, because the plugin does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from pytest_ssr.errors import SettingsError, SsrError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.interrupts import install_signal_handlers
from pytest_ssr.plugin import options, sources
from pytest_ssr.plugin.items import ArtifactCollector, collect_artifacts
from pytest_ssr.plugin.session_without_tests import extensions_of_config
from pytest_ssr.records.artifact import find_artifacts
from pytest_ssr.storage.store import resolve_artifact

GROUP = "pytest_ssr.attempts"


class AttemptResult(NamedTuple):
    """The result of one attempt."""

    resolved: bool | None
    """None if the attempt has no grade."""
    reason: str
    rollout: str
    """The rollout's id in the store."""


class Attempts(Protocol):
    """The object that the entry point returns for a project, a store, artifacts, a solver and its settings."""

    def attempt(self, directory: Path, number: int) -> AttemptResult:
        """Return an attempt (counted from 0) at the artifact in a directory; run it unless the store has it."""

    def remarks(self) -> Sequence[str]:
        """Return a line for each model whose server lacks something: what, and what is done without it."""

    def summary(self, grades: Sequence[bool | None]) -> str:
        """Return a line about all attempts."""

    def close(self) -> None:
        """Stop what it has started."""


class SolvedNode(ArtifactCollector):
    """One artifact; its children are the attempts at it."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each attempt."""
        return [AttemptItem.from_parent(self, name=f"attempt-{n + 1}", number=n) for n in range(self.plugin.count)]


class AttemptItem(pytest.Item):
    """One attempt."""

    def __init__(self, *, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._number = number
        self._result: AttemptResult | None = None

    def setup(self) -> None:
        """Run the attempt: without a grade it is an error, not a failure."""
        node = self.parent
        assert isinstance(node, SolvedNode)
        try:
            self._result = node.plugin.attempts.attempt(node.directory, self._number)
        except SsrError as error:
            pytest.fail(f"ssr: {escaped(str(error))}", pytrace=False)
        self.user_properties.append(("ssr_rollout", self._result.rollout))
        if self._result.resolved is None:
            pytest.fail(escaped(self._result.reason), pytrace=False)
        self.user_properties.append(("ssr_resolved", self._result.resolved))

    def runtest(self) -> None:
        """Fail if the bug is not resolved."""
        assert self._result is not None
        if not self._result.resolved:
            pytest.fail(escaped(self._result.reason), pytrace=False)

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
            options.require_no_shard(config)
            self.count: int = sources.number(config, "attempts")
            self.directories: list[Path] = []
            for name in config.option.ssr_solve:
                path = config.invocation_params.dir / name
                if not path.exists() and any(i.startswith(name) for i in options.stored_artifact_ids(config)):
                    path = resolve_artifact(name, options.open_store(config))
                self.directories += find_artifacts(path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Copy the project and choose the sandbox before xdist starts its workers."""
        install_signal_handlers()
        with options.user_errors():
            backends = list(entry_points(group=GROUP))
            if not backends:
                raise SettingsError(f"no entry point of the group {GROUP} is installed; reinstall pytest-ssr")
            self.attempts = backends[0].load()(
                sources.project_path(self.config),
                options.open_store(self.config),
                self.directories,
                solver=sources.text_or_default(self.config, "solver"),
                seed=sources.number(self.config, "seed"),
                runner_arguments=options.runner_arguments(self.config),
                limits=options.model_limits(self.config),
                workers=_workers(self.config),
                extensions=extensions_of_config(self.config),
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Collect the attempts."""
        return collect_artifacts(session, SolvedNode, dict(enumerate(self.directories)), self)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep the attempts at an artifact on one worker if there are enough artifacts, so that they share runs."""
        from xdist.scheduler import LoadScopeScheduling, WorkStealingScheduling

        enough = len(self.directories) >= (config.option.numprocesses or 1)
        return (LoadScopeScheduling if enough else WorkStealingScheduling)(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the grades."""
        if report.when == "setup" and report.failed:
            self._grades.append(None)
        elif report.when == "call":
            self._grades.append(dict(report.user_properties).get("ssr_resolved") is True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show how many attempts resolved their bug."""
        for line in self.attempts.remarks() if hasattr(self, "attempts") else ():
            terminalreporter.write_line(f"ssr: {escaped_line(line)}", yellow=True)
        if self._grades:
            terminalreporter.write_line(self.attempts.summary(self._grades))

    def pytest_sessionfinish(self) -> None:
        """Close the backend."""
        if hasattr(self, "attempts"):
            self.attempts.close()


def _workers(config: pytest.Config) -> int:
    """Return the number of processes that run attempts; the same in the controller and in each worker."""
    workerinput: dict[str, int] = getattr(config, "workerinput", {})
    return workerinput.get("workercount") or config.getoption("numprocesses", None) or 1
