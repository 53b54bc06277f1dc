"""`pytest --ssr-validate PATH`: each artifact is seven items, `.../bug_inject.diff::inverse-mutation`.

An item fails when its check fails; items after it are skipped. The controls and repeats belong to the last item: it
passes only if they pass too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_ssr.artifact import BugArtifact, find_artifacts, read_artifact
from pytest_ssr.errors import ArtifactError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.opening import open_workbench
from pytest_ssr.plugin import options
from pytest_ssr.plugin.items import OfArtifact, collected
from pytest_ssr.stopping import end_at_signals
from pytest_ssr.store import Store
from pytest_ssr.validator import Validation
from pytest_ssr.verdict import CHECK_NAMES, CheckResult
from pytest_ssr.verdicts import Verdicts, trusts


class CheckFailed(Exception):  # noqa: N818 - reads as the outcome it is
    """A check, a control or a repeat failed; the text says why."""


class ArtifactNode(OfArtifact):
    """One artifact; its children are the seven checks."""

    validation: Validation | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each check, then one for each that a plugin adds."""
        extra = [name for name, _ in options.extra_checks(self.config)]
        return [CheckItem.from_parent(self, name=name) for name in (*CHECK_NAMES[:-1], *extra, CHECK_NAMES[-1])]

    def opened(self) -> Validation:
        """Read the artifact and begin its validation; raises ArtifactError."""
        if self.validation is None:
            artifact: BugArtifact = read_artifact(self.directory)
            bench = self.plugin.bench.scoped()
            self.validation = Validation(artifact, bench, extra_checks=options.extra_checks(self.config))
        return self.validation


class CheckItem(pytest.Item):
    """One check of one artifact."""

    def runtest(self) -> None:
        """Make the check; the last one makes the controls and repeats, too, and tells the watchers."""
        node = self.parent
        assert isinstance(node, ArtifactNode)
        try:
            validation = node.opened()
        except ArtifactError as error:
            raise CheckFailed(str(error)) from None
        self._judge(validation.result(self.name))
        if self.name == CHECK_NAMES[-1]:
            verdict = validation.verdict()
            extra = [name for name, _ in options.extra_checks(self.config)]
            Verdicts(node.plugin.store, node.plugin.bench, extra_checks=extra).put(verdict)
            self.config.hook.pytest_ssr_verdict(config=self.config, verdict=verdict)
            if verdict.rejection is not None:
                self._judge(verdict.rejection)

    def _judge(self, result: CheckResult) -> None:
        if result.passed is None:
            pytest.skip(escaped(result.reason))
        if not result.passed:
            raise CheckFailed(f"{result.name}: {result.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a failed check as its sentence, anything else as pytest does."""
        if isinstance(excinfo.value, CheckFailed):
            return escaped(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the bug's diff and the item's id, for reports."""
        return escaped_line(str(self.path)), None, self.name


class ValidatePlugin:
    """Collects artifacts instead of tests."""

    bench: Workbench
    store: Store

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        with options.user_errors():
            self.directories = [
                d for p in config.option.ssr_validate for d in find_artifacts(config.invocation_params.dir / p)
            ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Copy the project and choose the sandbox before xdist starts its workers."""
        end_at_signals()
        with options.user_errors():
            self.store = options.open_store(self.config)
            arguments = options.opening_arguments(self.config)
            trusted = all(trusts(self.store, d) for d in self.directories)
            self.bench = open_workbench(
                options.project_path(self.config), self.store, **arguments, model_written=not trusted
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Fill the session with the checks of each artifact."""
        return collected(session, ArtifactNode, self.directories, self)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep an artifact's checks on one worker."""
        from xdist.scheduler import LoadScopeScheduling

        return LoadScopeScheduling(config, log)
