"""Hold the artifact under validation: its codebase states, the runs on them, and what earlier checks established."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script import StatusRun
from pytest_ssr.execution.script_runner import ScriptRunner, for_artifact
from pytest_ssr.execution.test_runners import PYTEST, TestRunner
from pytest_ssr.project.file_roles import can_hold_tests
from pytest_ssr.project.own_plugins import without_own_plugins
from pytest_ssr.project.pytest_config import options_of_script
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import SetAside, SuiteRun
from pytest_ssr.records.verdict import RunRecord
from pytest_ssr.settings import RuleSettings

HASH_SEED, ORDER_SEED = 1, 1


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    passed: bool
    """Whether the artifact satisfies it."""
    reason: CheckReason | str
    """What was found, with the file or the test; checks of other plugins may give a sentence."""


def passed(code: CheckCode, **details: str | int | float | Collection[str]) -> Finding:
    """Return the finding of a check that the artifact satisfies."""
    return Finding(True, CheckReason.of(code, **details))


def failed(code: CheckCode, **details: str | int | float | Collection[str]) -> Finding:
    """Return the finding of a check that the artifact does not satisfy."""
    return Finding(False, CheckReason.of(code, **details))


class ValidationContext:
    """The state that the checks of one artifact share; each check adds what it establishes."""

    def __init__(self, artifact: BugArtifact, runner: Runner) -> None:
        self.artifact = artifact
        self.runner = for_artifact(replace(runner, pytest_options=options_of_script(artifact.script)), artifact)
        self.log: list[RunRecord] = []
        self.original_script: StatusRun | None = None
        self.original_seconds = 0.0
        self.stable: frozenset[str] = frozenset()
        self.set_aside: dict[str, SetAside] = {}
        self.surface: frozenset[str] = frozenset()
        self.fail_to_pass: frozenset[str] = frozenset()
        self.script_failing: frozenset[str] | None = None
        self.files_control: dict[str, tuple[str, ...]] = {}
        self.selected = False

    @property
    def settings(self) -> RuleSettings:
        """The thresholds of the rule."""
        return self.runner.settings

    @property
    def by_script(self) -> bool:
        """Whether the artifact's script and parser alone say which tests pass."""
        return isinstance(self.runner.test_runner, ScriptRunner)

    def unproven(self, run: StatusRun) -> CheckReason | None:
        """Return why a run of the script proves nothing; None if it does."""
        return run.fault or (None if self.by_script else run.contradiction)

    @property
    def runner_detail(self) -> Mapping[str, str]:
        """The detail of a reason that names the test runner; see `runner_detail`."""
        return runner_detail(self.runner.test_runner)

    @property
    def pass_to_pass(self) -> frozenset[str]:
        """Ids that pass on the original and on the buggy state."""
        return self.stable - self.fail_to_pass

    @property
    def original(self) -> CodebaseState:
        """The original state."""
        return self.runner.original

    @property
    def buggy(self) -> CodebaseState:
        """The original with the bug; raises ArtifactError when the bug does not apply."""
        return self.original.apply(self.artifact.bug)

    @property
    def weakened(self) -> CodebaseState:
        """The buggy state with the weakening; raises ArtifactError when that does not apply."""
        return self.buggy.apply(self.artifact.weaken)

    def script(self, state: CodebaseState, name: str) -> StatusRun:
        """Run the artifact's script and parser on a state, or reuse an existing run, and log it."""
        like = self.original_seconds or None
        run, fresh = self.runner.script(state, self.artifact, like_s=like)
        failed = len(run.statuses) - len(run.passing)
        outcome = str(run.fault) if run.fault else f"exit {run.exit_code}, {len(run.passing)} passed, {failed} failed"
        self.log.append(RunRecord("script", name, outcome, round(run.seconds, 3) if fresh else 0.0))
        return run

    def suite(
        self,
        state: CodebaseState,
        name: str,
        *,
        hash_seed: int = 0,
        order_seed: int | None = None,
        whole: bool = False,
        shared: bool = False,
        fresh: bool = False,
    ) -> SuiteRun:
        """Run pytest with our own reporter on the oracle tests, or reuse an existing run, and log it.

        whole, shared, fresh: as for `Runner.suite`.
        """
        like = self.original_seconds or None
        files = self.oracle_files(state)
        run, is_new = self.runner.suite(
            state,
            files,
            hash_seed=hash_seed,
            order_seed=order_seed,
            like_s=like,
            whole=whole,
            shared=shared,
            fresh=fresh,
        )
        self.surface |= frozenset(without_own_plugins(self.runner.snapshot, run.surface))
        passed = len(run.passing)
        outcome = f"{run.status}, {passed} passed, {len(run.results) - passed} not"
        if run.taken:
            outcome += f"; {run.taken} of them, which the change cannot touch, as in the baseline"
            self.selected = True
        seeds = f"{name} (hash seed {hash_seed}{', other order' if order_seed is not None else ''})"
        self.log.append(RunRecord("suite", seeds, outcome, round(run.seconds, 3) if is_new else 0.0))
        return run

    def judged(
        self,
        state: CodebaseState,
        name: str,
        objection: Callable[[SuiteRun], CheckReason | None],
        *,
        hash_seed: int = 0,
        order_seed: int | None = None,
        whole: bool = False,
        shared: bool = False,
    ) -> tuple[SuiteRun, CheckReason | None]:
        """Run the tests as `suite` does; return the run and its objection to the artifact, or None.

        A test may behave differently in a fork of a warm process, and a selection may skip the test that matters: such
        a run is repeated, complete and in a fresh process, before it counts against an artifact.
        """
        run = self.suite(state, name, hash_seed=hash_seed, order_seed=order_seed, whole=whole, shared=shared)
        reason = objection(run)
        if reason and (run.taken or self.runner.fork_server is not None):
            run = self.suite(state, name, hash_seed=hash_seed, order_seed=order_seed, shared=shared, fresh=True)
            reason = objection(run)
        return run, reason

    def oracle_files(self, state: CodebaseState) -> Sequence[str]:
        """Return the listed test files that exist in the state and that pytest can collect.

        These are Python files, and documents if the script names them: a document may also be test data.
        """
        arguments = set(self.artifact.script.decode("utf-8", "surrogateescape").split())
        listed = (p for p in self.artifact.test_files if state.entry(p) is not None)
        return [p for p in listed if can_hold_tests(p) or (shlex.quote(p) in arguments and not p.endswith(".py"))]


def suite_fault(run: SuiteRun, test_runner: TestRunner) -> CheckReason | None:
    """Return why a run of the tests with our own reporter proves nothing; None if the runner ended normally."""
    if not run.fault:
        return None
    details = runner_detail(test_runner)
    return CheckReason.of(CheckCode.SUITE_FAILED, status=str(run.status), cause=run.reason, **details)


def runner_detail(test_runner: TestRunner) -> Mapping[str, str]:
    """Return the detail of a reason that names a test runner; pytest is the one that reasons name by default."""
    return {} if test_runner.name == PYTEST.name else {"runner": test_runner.name}
