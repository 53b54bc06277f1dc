"""Implement `pytest --ssr-validate PATH`: each artifact is seven items, `.../bug_inject.diff::inverse-mutation`.

An item fails if its check fails; the items after it are skipped. The controls and repeats belong to the last item: it
passes only if they pass too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.campaign.ending import Cut
from pytest_ssr.campaign.factory import RunnerSource, runner_source
from pytest_ssr.campaign.validation_shard import ValidationShard, validation_json
from pytest_ssr.checks import names_of
from pytest_ssr.checks.validator import Validation
from pytest_ssr.errors import ArtifactError, SsrError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.execution.script_template import runner_of_artifact, runner_of_script
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.interrupts import install_signal_handlers
from pytest_ssr.plugin import options, sources
from pytest_ssr.plugin.items import ArtifactCollector, collect_artifacts
from pytest_ssr.plugin.session_without_tests import extensions_of_config
from pytest_ssr.progress import counted
from pytest_ssr.records.artifact import BugArtifact, find_artifacts, read_artifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.shard import Shard
from pytest_ssr.records.verdict import CHECK_NAMES, CheckResult, Verdict
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts, is_trusted


class CheckFailed(SsrError):  # noqa: N818 - reads as the outcome it is
    """A check, a control or a repeat failed; the message is the reason."""


class ArtifactNode(ArtifactCollector):
    """One artifact; its children are the seven checks."""

    validation: Validation | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item for each check, then one for each that a plugin adds."""
        extra = names_of(self.plugin.extensions.checks())
        return [CheckItem.from_parent(self, name=name) for name in (*CHECK_NAMES[:-1], *extra, CHECK_NAMES[-1])]

    def open_validation(self) -> Validation:
        """Return the artifact's validation, reading the artifact first; raises ArtifactError if it cannot be read."""
        if self.validation is None:
            artifact: BugArtifact = read_artifact(self.directory)
            runner = self.plugin.runner_for(runner_of_script(artifact.script)).scoped()
            self.validation = Validation(artifact, runner, extra_checks=self.plugin.extensions.checks())
        return self.validation

    def keep(self, verdict: Verdict) -> None:
        """Store the verdict, if this session validates a shard."""
        if self.plugin.shard is not None:
            self.plugin.shard.keep(self.index, validation_json(self.name, verdict))


class CheckItem(pytest.Item):
    """One check of one artifact."""

    def runtest(self) -> None:
        """Run the check; the last one also runs the controls and repeats, and calls the hook with the verdict."""
        node = self.parent
        assert isinstance(node, ArtifactNode)
        try:
            validation = node.open_validation()
        except ArtifactError as error:
            fault = CheckReason.of(CheckCode.UNREADABLE, error=str(error))
            node.keep(Verdict("", node.plugin.runner_for(PYTEST).snapshot.tree_hash, fault=fault))
            raise CheckFailed(str(error)) from None
        result = validation.result(self.name)
        if result.passed is False:
            node.keep(validation.verdict())
        self._judge(result)
        if self.name == CHECK_NAMES[-1]:
            verdict = validation.verdict()
            node.keep(verdict)
            extra = names_of(node.plugin.extensions.checks())
            Verdicts(node.plugin.store, validation.case.runner, extra_checks=extra).put(verdict)
            node.plugin.extensions.observe(verdict)
            if verdict.rejection is not None:
                self._judge(verdict.rejection)

    def _judge(self, result: CheckResult) -> None:
        if result.passed is None:
            pytest.skip(escaped(result.reason.text))
        if not result.passed:
            raise CheckFailed(f"{result.name}: {result.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a failed check as its reason, and other errors as pytest does."""
        if isinstance(excinfo.value, CheckFailed):
            return escaped(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the bug's diff and the item's id, for reports."""
        return escaped_line(str(self.path)), None, self.name


class ValidatePlugin:
    """Collects artifacts instead of tests."""

    store: Store
    runner_for: RunnerSource

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.extensions = extensions_of_config(config)
        self.worker = hasattr(config, "workerinput")
        self.shard: ValidationShard | None = None
        with options.user_errors():
            self.directories = [
                d for p in config.option.ssr_validate for d in find_artifacts(config.invocation_params.dir / p)
            ]
            self.part = options.shard(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Copy the project and choose the sandbox before xdist starts its workers."""
        install_signal_handlers()
        with options.user_errors():
            self.store = options.open_store(self.config)
            arguments = options.runner_arguments(self.config)
            trusted = all(is_trusted(self.store, d) for d in self.directories)
            self.runner_for = runner_source(
                sources.project_path(self.config), self.store, **arguments, model_written=not trusted
            )
            for test_runner in dict.fromkeys(map(runner_of_artifact, self.directories)):
                self.runner_for(test_runner)
            if self.part is not None:
                self._begin_shard(self.part)

    def _begin_shard(self, part: Shard) -> None:
        runner = self.runner_for(runner_of_artifact(self.directories[0]))
        checks = names_of(self.extensions.checks())
        self.shard = ValidationShard(self.store, part, self.directories, runner, checks=checks)
        if not self.worker and not self.config.option.collectonly:
            self.shard.begin()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, object, object]:
        """Record how a shard ended, and write how much of it was validated as the very last line."""
        result = yield
        if self.shard is None or self.worker or self.config.option.collectonly:
            return result
        self.shard.end(Cut.INTERRUPT if exitstatus == pytest.ExitCode.INTERRUPTED else Cut.NOTHING)
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            planned = counted(len(self.shard.directories), "planned artifact")
            terminal.write_line(f"ssr: shard {self.part}: {self.shard.done} of {planned} validated")
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Collect the checks of each artifact."""
        return collect_artifacts(session, ArtifactNode, self._own(), self)

    def _own(self) -> dict[int, Path]:
        """Return the artifacts that this session validates, by their index."""
        return self.shard.directories if self.shard is not None else dict(enumerate(self.directories))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep an artifact's checks on one worker."""
        from xdist.scheduler import LoadScopeScheduling

        return LoadScopeScheduling(config, log)
