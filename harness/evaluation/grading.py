"""Evaluate a patch on an instance, and cache the result by everything that it depends on."""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.datasets import Instance, InstanceError
from harness.datasets.environments import Environments
from harness.datasets.instance_task import InstanceTask, discard_trees, open_task, using_trees
from harness.datasets.repositories import Repositories
from harness.datasets.row_tests import Names, statuses_by_row
from harness.diffs import DiffError, apply_diff, require_diff
from harness.evaluation.harbor_grading import OpenTask, open_harbor_task
from harness.evaluation.logs import resolved_by, test_log
from harness.harbor.containers import Engine
from harness.records.attempt import Attempt
from harness.records.rewards import solver_reward
from harness.storage.code_version import code_hash
from pytest_ssr.errors import (
    SandboxError,
    SandboxUnavailableError,
    SettingsError,
    SsrError,
    describe_unexpected,
)
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.grading import Grade, grade_patch, unsolved_state
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import find_in_image
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode, Rule
from pytest_ssr.sandbox import SandboxName, choose
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, key_of

OUTCOMES, SECONDS = "outcomes", "seconds"


@dataclass(slots=True)
class Grader:
    """Grades patches on instances, with settings and a store that all of them share."""

    store: Store
    repositories: Repositories
    environments: Environments
    settings: RuleSettings
    sandbox: str = "auto"
    images: str = ""
    """`docker` or `apptainer`: run each instance in its own image, instead of `sandbox` and a local environment."""
    logs: bool = True
    """Keep the output of the tests, so that the report names every test."""
    full: bool = False
    """Run all tests even without logs and after a recorded test has failed."""
    rule: Rule = Rule.STRICT
    """Which verdict decides the status; a stored result holds both."""
    report: Callable[[str], None] = lambda _: None
    """Called before a slow step, with a line that describes it."""
    blocked: Mapping[str, SsrError] = field(default_factory=dict)
    """The instances that are known not to run, by id, with the error to raise for each."""
    keep_trees: bool = True
    """Keep the trees of the instances in the store, so that exports find them; else only those of the open one."""
    _shown: dict[str, str] = field(default_factory=dict)
    _task: InstanceTask | None = None
    _opened: Instance | None = None
    _engine: Engine | None = None
    _harbor_task: OpenTask | None = None
    _using: ExitStack = field(default_factory=ExitStack)

    def key(self, instance: Instance, patch: str) -> str:
        """Return the key of a result: a hash of everything that it depends on."""
        if instance.harbor is not None:
            return key_of(code_hash(), instance.key, patch)
        sandbox = self.sandbox_of(instance)
        # Another system has its own interpreter, even if this machine has one at the same path.
        parts = SandboxName.parse(sandbox)
        python = (
            str(self.environments.python or "") if parts.has_own_system else self.environments.environment_key(instance)
        )
        if parts.address:
            # What its servers show decides, not which of them a run uses.
            sandbox, python = parts.kind, self._environment_of(sandbox)
        report_options = (self.logs, self._full)
        return key_of(code_hash(), instance.key, patch, sandbox, python, self.settings.time_limit_s, *report_options)

    def _environment_of(self, sandbox: str) -> str:
        """Return a hash of the environment that sandboxes of other machines show; their servers are asked once."""
        if sandbox not in self._shown:
            python = self.environments.python
            with ExitStack() as stack:
                if self._task is not None:
                    # It gives up its idle sandboxes if there is only one slot.
                    provider = self._task.runner.provider
                else:
                    provider = choose(sandbox, model_written=True)
                    stack.callback(getattr(provider, "close", lambda: None))
                nothing = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                shown = find_in_image(provider, nothing, python, needs_pytest=False)
            self._shown[sandbox] = shown.environment_hash if shown is not None else f"{sandbox} {python}"
        return self._shown[sandbox]

    @property
    def _full(self) -> bool:
        return self.full or self.logs

    def stored_result(self, instance: Instance, patch: str) -> Attempt | None:
        """Return the stored result if it has a verdict, else None."""
        result = Attempt.from_json(self.store.record(OUTCOMES, self.key(instance, patch)))
        if result is None:
            return None
        result = result.by(self.rule)
        return result if result.verdict is not None else None

    def evaluate(self, instance: Instance, patch: str) -> Attempt:
        """Return the result of a patch, after any other run that grades it; raises errors that end the whole run."""
        key = self.key(instance, patch)
        with self.store.alone(key):
            stored = self.stored_result(instance, patch)
            if stored is not None:
                return stored
            start = time.monotonic()
            result = replace(self._evaluate(instance, patch), grading_s=round(time.monotonic() - start, 3))
            self.store.put_record(OUTCOMES, key, result.to_json())
            if result.verdict is not None:
                self.record_seconds(instance, result.grading_s)
        return result

    def evaluate_reference(self, instance: Instance) -> Attempt | None:
        """Return the result of the reference solution of a task directory; None if the task has none.

        A task that does not hold here gives a result without a verdict.
        """
        try:
            patch = self.harbor_task(instance).reference
        except Exception as error:
            failed = Attempt(instance.id, "", fault_of(error, instance), repo=instance.repo, rule=str(self.rule))
            return replace(failed, artifact_id=instance.artifact_id, created_at=instance.created_at)
        return self.evaluate(instance, patch) if patch else None

    def record_seconds(self, instance: Instance, seconds: float, solver: str = "") -> None:
        """Store how long an instance took, for the order of later runs."""
        self.store.put_record(SECONDS, key_of(instance.id, solver), {"seconds": seconds})

    def expected_s(self, instance: Instance, solver: str = "") -> float:
        """Return the seconds of the last time; infinity if unknown, because it may take long."""
        seconds = (self.store.record(SECONDS, key_of(instance.id, solver)) or {}).get("seconds")
        return float(seconds) if isinstance(seconds, int | float) else math.inf

    def grade(self, instance: Instance, patch: Patch) -> Grade:
        """Evaluate a patch, and return the result as the grade of a rollout."""
        result = self.evaluate(instance, patch.data.decode("utf-8", "surrogateescape"))
        return Grade(
            instance.id,
            result.resolved,
            result.reason,
            tests=result.tests,
            fail_to_pass=result.fail_to_pass,
            pass_to_pass=result.pass_to_pass,
            flags=result.flags,
        )

    def _evaluate(self, instance: Instance, text: str) -> Attempt:
        data = text.encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(data).hexdigest() if data.strip() else ""
        result = Attempt(
            instance.id,
            "",
            _unusable(""),
            repo=instance.repo,
            artifact_id=instance.artifact_id,
            created_at=instance.created_at,
            patch_sha256=digest,
            rule=str(self.rule),
        )
        if instance.invalid:
            return replace(result, reason=invalid_reason(instance))
        ungraded = replace(result, resolved=False, tests=False, reward=solver_reward(False))
        if instance.harbor is not None:
            return self._by_verifier(instance, text, result, ungraded)
        if not digest:
            return replace(ungraded, reason=Reason(ReasonCode.NO_PATCH))
        try:
            require_diff(data)
            task = self.task(instance)
            applied = apply_diff(data, unsolved_state(task.runner, task.artifact).entry)
            grade = grade_patch(
                task.runner.scoped(),
                task.artifact,
                applied.patch,
                fail_to_pass=task.tests.failing,
                pass_to_pass=task.tests.passing,
                like_s=task.original_s,
                full=self.full,
                verbose=self.logs,
            )
        except DiffError as error:
            return replace(ungraded, reason=Reason(error.code, str(error)))
        except (SandboxUnavailableError, SettingsError) as error:
            if not self.images:
                raise
            return replace(result, reason=fault_of(error, instance))
        except Exception as error:
            return replace(result, reason=fault_of(error, instance))
        tests = task.tests
        set_aside = (Flag(FlagCode.TESTS_SET_ASIDE, tests.set_aside),) if tests.set_aside else ()
        flags = (*applied.flags, *grade.flags, *set_aside)
        statuses = {**grade.fail_to_pass, **grade.pass_to_pass}
        return replace(
            result,
            reward=solver_reward(grade.verdict(self.rule)),
            reason=grade.reason,
            resolved=grade.resolved,
            tests=grade.tests,
            fail_to_pass=_as_given(instance, task.tests.fail_to_pass, statuses),
            pass_to_pass=_as_given(instance, task.tests.pass_to_pass, statuses),
            **{"flags": flags, **self._logged(task, text, replace(grade, flags=flags))},
        )

    def _by_verifier(self, instance: Instance, text: str, result: Attempt, ungraded: Attempt) -> Attempt:
        """Return the result of a patch by the verifier of a task directory."""
        try:
            if text.strip():
                require_diff(text.encode("utf-8", "surrogateescape"))
            grade = self.harbor_task(instance).grade(text)
        except DiffError as error:
            return replace(ungraded, reason=Reason(error.code, str(error)))
        except Exception as error:
            return replace(result, reason=fault_of(error, instance))
        if self.logs:
            log = grade.log.encode("utf-8", "surrogateescape")
            self.store.put_file(OUTCOMES, f"{self.key(instance, text)}.txt", log)
        return replace(
            result,
            resolved=grade.resolved,
            tests=grade.resolved,
            reward=solver_reward(grade.resolved),
            rewards=grade.rewards,
            reason=grade.reason if text.strip() else Reason(ReasonCode.NO_PATCH),
            flags=grade.flags,
        )

    def harbor_task(self, instance: Instance) -> OpenTask:
        """Open a task directory, and verify its reference solution; the last one stays open. See `open_harbor_task`."""
        if instance.id in self.blocked:
            raise self.blocked[instance.id]
        if self._harbor_task is None or self._harbor_task.instance is not instance:
            self.report(f"{instance.id}: running its reference solution and its verifier")
            self.close()
            self._engine = Engine()
            self._harbor_task = open_harbor_task(instance, self._engine, self.store)
        return self._harbor_task

    def log(self, instance: Instance, patch: str) -> str:
        """Return the log of the tests with a patch, empty if there is none."""
        data = self.store.file(OUTCOMES, f"{self.key(instance, patch)}.txt")
        return (data or b"").decode("utf-8", "surrogateescape")

    def _logged(self, task: InstanceTask, text: str, grade: Grade) -> dict[str, Any]:
        """Store the log of the tests, and return a flag if SWE-bench's rule disagrees with the grade.

        The rule is applied to logs of pytest only: other runners' logs are parsed by rules of their own.
        """
        instance = task.instance
        if grade.run is None or grade.resolved is None:
            return {}
        log = test_log(grade.run)
        self.store.put_file(OUTCOMES, f"{self.key(instance, text)}.txt", log.encode("utf-8", "surrogateescape"))
        if not isinstance(task.runner.test_runner, PytestRunner):
            return {}
        pass_to_pass = [i for i in instance.pass_to_pass if i not in task.tests.set_aside]
        log_resolved = resolved_by(log, instance.fail_to_pass, pass_to_pass)
        word = "resolved" if log_resolved else "unresolved"
        flags = (Flag(FlagCode.LOG_DIFFERS, (word,)),) if log_resolved is not grade.resolved else ()
        return {"log_resolved": log_resolved, "flags": (*grade.flags, *flags)}

    def task(self, instance: Instance) -> InstanceTask:
        """Open an instance and verify its reference solution against its row; the last one stays open.

        Raises InstanceError if the row does not hold on this machine, and the error of a blocked one.
        """
        if instance.id in self.blocked:
            raise self.blocked[instance.id]
        if self.images:
            instance.sandbox(self.images)  # Raises the error of a row without an image.
        if self._task is None or self._task.instance is not instance:
            self.report(f"{instance.id}: writing its tree and running the reference solution")
            self.close()
            self._using.enter_context(using_trees(instance, self.store))
            self._opened = instance
            self._task = open_task(
                instance,
                self.repositories,
                self._environments(instance),
                self.store,
                settings=self.settings,
                sandbox=self.sandbox_of(instance),
                keep=self.keep_trees,
            )
        return self._task

    def close(self) -> None:
        """Close the open instance and its containers."""
        close_provider = getattr(self._task.runner.provider, "close", None) if self._task is not None else None
        opened, self._task, self._opened = self._opened, None, None
        engine, self._engine, self._harbor_task = self._engine, None, None
        try:
            if engine is not None:
                engine.close()
            if close_provider is not None:
                close_provider()
        finally:
            self._using.close()
            self.environments.release()
            self.repositories.release()
            if opened is not None and not self.keep_trees:
                discard_trees(opened, self.store)

    def _environments(self, instance: Instance) -> Environments | None:
        """Return what provides the interpreter; None if one of the sandbox's own system is to be found."""
        has_own_system = SandboxName.parse(self.sandbox_of(instance)).has_own_system
        return self.environments if self.environments.python is not None or not has_own_system else None

    def engine_of(self, instance: Instance) -> str:
        """Return what runs the image that an instance names; empty if it has to name none."""
        return "" if instance.invalid or instance.harbor is not None else self.images

    def sandbox_of(self, instance: Instance) -> str:
        """Return the name of the sandbox of an instance's tests."""
        if instance.harbor is not None:
            return "docker"
        if not self.images:
            return self.sandbox
        return instance.sandbox(self.images) if instance.image else self.images


def invalid_reason(instance: Instance) -> Reason:
    """Return the reason that a row without a grade cannot be used."""
    return Reason(instance.invalid_code, instance.invalid)


def fault_of(error: Exception, instance: Instance) -> Reason:
    """Return the reason that an instance has no grade."""
    if isinstance(error, InstanceError):
        return _unusable(str(error))
    if isinstance(error, SandboxError):
        return Reason(ReasonCode.SANDBOX_FAILED, str(error))
    if isinstance(error, SsrError):
        return _unusable(f"{instance.id}: {error}")
    return Reason(ReasonCode.INTERNAL_ERROR, describe_unexpected(error))


def _as_given(instance: Instance, names: Names, statuses: Mapping[str, str]) -> dict[str, str]:
    """Return the statuses of a row's tests by the ids that the row gives; empty if no test has run."""
    by_row = statuses_by_row(names, statuses) if statuses else {}
    return {instance.given_ids.get(name, name): status for name, status in by_row.items()}


def _unusable(message: str) -> Reason:
    return Reason(ReasonCode.INSTANCE_UNUSABLE, message)
