"""One patch for one instance in, its outcome out: made once, kept by all that it depends on."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.evaluation.logs import resolved_by, test_log
from harness.evaluation.outcome import Outcome, Status, status_of
from harness.instances import Instance, InstanceError
from harness.instances.cases import Case, open_case
from harness.instances.checkouts import Checkouts
from harness.instances.diffs import as_git_diff
from harness.instances.environments import Environments
from harness.version import code_hash
from pytest_ssr.errors import ArtifactError, SandboxError, SandboxUnavailableError, SettingsError, SsrError, unforeseen
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import Patch
from pytest_ssr.reasons import Flag, FlagCode, Reason, ReasonCode, Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store, key_of

OUTCOMES, REFERENCES, SECONDS = "outcomes", "references", "seconds"


@dataclass(slots=True)
class Grading:
    """Everything that grades over instances share."""

    store: Store
    checkouts: Checkouts
    environments: Environments
    settings: RuleSettings
    sandbox: str = "auto"
    images: str = ""
    """docker or apptainer: each instance in its own image, in the place of `sandbox` and an environment made here."""
    logs: bool = True
    """Also run the tests plainly, and keep what they print; the report of such a run names every test."""
    full: bool = False
    """Run all tests without logs, too, also after a recorded one has failed."""
    rule: Rule = Rule.STRICT
    """Which verdict decides the status; an outcome in the store holds both."""
    told: Callable[[str], None] = lambda _: None
    _case: Case | None = None

    def key(self, instance: Instance, patch: str) -> str:
        """Return the name of an outcome: a hash of everything that it depends on."""
        sandbox = self._sandbox(instance)
        # An image's interpreter is its own, also where one of that path is here.
        own = ":" in sandbox
        python = str(self.environments.python or "") if own else self.environments.told_apart(instance)
        shown = (self.logs, self._full)
        return key_of(code_hash(), instance.key, patch, sandbox, python, self.settings.time_limit_s, *shown)

    @property
    def _full(self) -> bool:
        return self.full or self.logs

    def known(self, instance: Instance, patch: str) -> Outcome | None:
        """Return an outcome that the store holds, if it is a grade."""
        found = Outcome.from_json(self.store.record(OUTCOMES, self.key(instance, patch)))
        found = found.by(self.rule) if found is not None else None
        return found if found is not None and found.verdict is not None else None

    def outcome(self, instance: Instance, patch: str) -> Outcome:
        """Grade a patch; what another run grades meanwhile is waited for. Raises what ends a whole run."""
        key = self.key(instance, patch)
        with self.store.alone(key):
            known = self.known(instance, patch)
            if known is not None:
                return known
            begin = time.monotonic()
            found = replace(self._made(instance, patch), grading_s=round(time.monotonic() - begin, 3))
            self.store.put_record(OUTCOMES, key, found.to_json())
            self.took(instance, found.grading_s)
        return found

    def took(self, instance: Instance, seconds: float, whom: str = "") -> None:
        """Keep how long something took for an instance, for the order of later runs."""
        self.store.put_record(SECONDS, key_of(instance.id, whom), {"seconds": seconds})

    def expected_s(self, instance: Instance, whom: str = "") -> float:
        """Return how long it took the last time; infinite where that is not known, for it may be long."""
        found = (self.store.record(SECONDS, key_of(instance.id, whom)) or {}).get("seconds")
        return float(found) if isinstance(found, int | float) else math.inf

    def grade(self, instance: Instance, patch: Patch) -> Grade:
        """Grade a patch, likewise, in the form that attempts are graded in."""
        found = self.outcome(instance, patch.data.decode("utf-8", "surrogateescape"))
        return Grade(
            instance.id,
            found.resolved,
            found.reason,
            tests=found.tests,
            fail_to_pass=found.fail_to_pass,
            pass_to_pass=found.pass_to_pass,
            flags=found.flags,
        )

    def _made(self, instance: Instance, text: str) -> Outcome:
        data = text.encode("utf-8", "surrogateescape")
        name = hashlib.sha256(data).hexdigest() if data.strip() else ""
        begun = Outcome(
            instance.id, instance.repo, "", Status.INFRA, _unusable(""), patch_sha256=name, rule=str(self.rule)
        )
        nothing = replace(begun, resolved=False, tests=False)
        if not name:
            return replace(nothing, status=Status.EMPTY, reason=Reason(ReasonCode.NO_PATCH))
        try:
            patch = Patch.parse(as_git_diff(data))
        except ArtifactError as error:
            unreadable = Reason(ReasonCode.PATCH_UNREADABLE, str(error))
            return replace(nothing, status=Status.ERROR, reason=unreadable)
        try:
            case = self.case(instance)
            grade = grade_patch(
                case.bench.scoped(),
                case.artifact,
                patch,
                fail_to_pass=instance.fail_to_pass,
                pass_to_pass=instance.pass_to_pass,
                like_s=case.original_s,
                full=self._full,
            )
        except (SandboxUnavailableError, SettingsError) as error:
            if not self.images:
                raise
            return replace(begun, reason=fault_of(error, instance))
        except Exception as error:
            return replace(begun, reason=fault_of(error, instance))
        return replace(
            begun,
            status=status_of(grade.verdict(self.rule), grade.reason.code),
            reason=grade.reason,
            resolved=grade.resolved,
            tests=grade.tests,
            fail_to_pass=grade.fail_to_pass,
            pass_to_pass=grade.pass_to_pass,
            **{"flags": grade.flags, **self._logged(case, patch, text, grade)},
        )

    def log(self, instance: Instance, patch: str) -> str:
        """Return the log of a plain run with a patch, empty where there was none."""
        try:
            path = self.store.root / OUTCOMES / f"{self.key(instance, patch)}.txt"
            return path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""

    def _logged(self, case: Case, patch: Patch, text: str, grade: Grade) -> dict[str, Any]:
        """Keep the log of a plain run, and tell where SWE-bench's rule makes something else of it."""
        if not self.logs or grade.resolved is None:
            return {}
        log, own = test_log(case, patch), case.instance
        if not log:
            return {}
        self.store.put_file(OUTCOMES, f"{self.key(own, text)}.txt", log.encode("utf-8", "surrogateescape"))
        told = resolved_by(log, own.fail_to_pass, own.pass_to_pass)
        word = "resolved" if told else "unresolved"
        flags = (Flag(FlagCode.LOG_DIFFERS, (word,)),) if told is not grade.resolved else ()
        return {"log_resolved": told, "flags": (*grade.flags, *flags)}

    def case(self, instance: Instance) -> Case:
        """Open an instance and see that its reference solution does here what its row says; the last one is kept.

        Raises InstanceError where it does not.
        """
        if self._case is None or self._case.instance is not instance:
            self.told(f"{instance.id}: writing its tree and running the reference solution")
            self.close()
            self._case = open_case(
                instance,
                self.checkouts,
                None if self.images else self.environments,
                self.store,
                settings=self.settings,
                sandbox=self._sandbox(instance),
            )
        if fault := self._reference_fault(self._case):
            raise InstanceError(f"{instance.id}: {fault}")
        return self._case

    def close(self) -> None:
        """Let go of the instance at hand, and of its containers."""
        end = getattr(self._case.bench.provider, "close", None) if self._case is not None else None
        self._case = None
        if end is not None:
            end()

    def _sandbox(self, instance: Instance) -> str:
        return instance.sandbox(self.images) if self.images else self.sandbox

    def _reference_fault(self, case: Case) -> str:
        key = key_of(code_hash(), case.instance.key, case.bench.interpreter.environment_hash, case.bench.provider.name)
        known = self.store.record(REFERENCES, key)
        if known is None or not isinstance(known.get("fault"), str):
            known = {"fault": case.reference_fault()}
            # What does not hold is looked at anew each time: it may be the machine's fault.
            if not known["fault"]:
                self.store.put_record(REFERENCES, key, known)
        return str(known["fault"])


def fault_of(error: Exception, instance: Instance) -> Reason:
    """Return why an instance has no grade."""
    if isinstance(error, InstanceError):
        return _unusable(str(error))
    if isinstance(error, SandboxError):
        return Reason(ReasonCode.SANDBOX_FAILED, str(error))
    if isinstance(error, SsrError):
        return _unusable(f"{instance.id}: {error}")
    return Reason(ReasonCode.INTERNAL_ERROR, unforeseen(error))


def _unusable(why: str) -> Reason:
    return Reason(ReasonCode.INSTANCE_UNUSABLE, why)
