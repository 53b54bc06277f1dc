"""Audit the tasks of a run: one unit for each task, whose result is its card."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.audit.card import Card, Cause, Cost, Sealing, Sharpness, Soundness, Unsound, UnsteadyTest
from harness.audit.harbor import harbor_card
from harness.audit.narrowness import narrowness_of
from harness.audit.resources import cost_of, cpu_s
from harness.audit.sealing import row_sealing
from harness.audit.sharpness import sharpness_of
from harness.audit.soundness import soundness_of, unsteady_failures
from harness.datasets import Instance
from harness.datasets.instance import EmptyResolvesError, ReferenceFailsError
from harness.datasets.instance_task import InstanceTask
from harness.evaluation.grading import Grader, fault_of, invalid_reason
from harness.evaluation.rows_work import ROW_FAULTS, RowUnits, Unit
from harness.rollouts.attempts_work import MACHINE_FAULTS
from pytest_ssr.errors import SandboxError, SandboxUnavailableError, SettingsError
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.sandbox import SandboxName
from pytest_ssr.storage.store import key_of

AUDITS = "audits"
_AUDITOR = "audit"
_FOR_SOUNDNESS, _FOR_SHARPNESS = 0.3, 0.8
"""The shares of a task's time after which these parts begin nothing further; what is left is for forgeries."""


@dataclass(slots=True)
class AuditWork(RowUnits[Card]):
    """Audits tasks with a grader's settings."""

    changes: int
    """How many changes of each solution are tried."""
    time_s: float
    """The time of each task after its reference runs."""

    @classmethod
    def of(cls, grader: Grader, instances: Sequence[Instance], *, changes: int, time_s: float) -> AuditWork:
        """Create one unit for each task."""
        return cls(grader, [Unit(instance, _AUDITOR) for instance in instances], changes, time_s)

    def stored(self, unit: Unit) -> Card | None:
        """Return the stored card, or None. A card that the machine kept incomplete is not stored."""
        return Card.from_json(self.grader.store.record(AUDITS, self._key(unit.instance)))

    def run(self, unit: Unit) -> Card:
        """Audit a task and store its card."""
        instance, begin_s, before_s = unit.instance, time.monotonic(), cpu_s()
        card = self._audited(instance)
        audit_s, audit_cpu_s = time.monotonic() - begin_s, cpu_s() - before_s
        if instance.harbor is not None or SandboxName.parse(self.grader.sandbox_of(instance)).has_own_system:
            # What runs in containers is not known here.
            audit_cpu_s = 0.0
        cost = replace(card.cost, audit_s=round(audit_s, 3), audit_cpu_s=round(audit_cpu_s, 3))
        card = replace(card, repo=instance.repo, family=instance.family, cost=cost)
        if self.fault(card) is None and not _is_broken(card):
            self.grader.store.put_record(AUDITS, self._key(instance), card.to_json())
            self.grader.record_seconds(instance, cost.audit_s, _AUDITOR)
        return card

    def _audited(self, instance: Instance) -> Card:
        if instance.invalid:
            return Card(instance.id, problem=invalid_reason(instance))
        try:
            if instance.harbor is not None:
                opened, begin = self.grader.harbor_task(instance), time.monotonic()
                report = self._reporter(instance)
                return harbor_card(opened, most=self.changes, begin=begin, time_s=self.time_s, report=report)
            task = self.grader.task(instance)
        except ReferenceFailsError as error:
            return Card(instance.id, problem=fault_of(error, instance), sound=self._failing_reference(error))
        except EmptyResolvesError as error:
            return Card(instance.id, problem=fault_of(error, instance), sound=Soundness((Unsound.EMPTY_RESOLVES,)))
        except (SandboxUnavailableError, SettingsError) as error:
            if not self.grader.images:
                raise
            return Card(instance.id, problem=fault_of(error, instance))
        except Exception as error:
            return Card(instance.id, problem=fault_of(error, instance))
        try:
            return self._audited_row(instance, task)
        except Exception as error:
            return Card(instance.id, problem=fault_of(error, instance))

    def _failing_reference(self, error: ReferenceFailsError) -> Soundness:
        """Return the soundness of a task whose reference solution fails, with the tests that pass now and then."""
        unsteady: list[UnsteadyTest] = []
        if error.task is not None:
            # What cannot be found out changes nothing about the failure.
            with contextlib.suppress(Exception):
                unsteady = unsteady_failures(error.task, error.tests, deadline=time.monotonic() + self.time_s)
        problems = [Unsound.REFERENCE_FAILS]
        if any(test.cause is not Cause.NETWORK for test in unsteady):
            problems.append(Unsound.UNSTEADY)
        return Soundness(tuple(problems), tuple(unsteady))

    def _audited_row(self, instance: Instance, task: InstanceTask) -> Card:
        grader, begin = self.grader, time.monotonic()
        report = self._reporter(instance)
        report("repeating its reference runs")
        sound = soundness_of(task, deadline=begin + _FOR_SOUNDNESS * self.time_s)
        if not sound.conditions:
            return Card(instance.id, problem=Reason(ReasonCode.OUT_OF_TIME))
        report("changing its solution")
        try:
            end = begin + _FOR_SHARPNESS * self.time_s
            sharp = sharpness_of(task, grader.store, most=self.changes, deadline=end, report=report)
        except Exception as error:
            sharp = Sharpness(problem=fault_of(error, instance))
        report("trying forgeries")
        try:
            sealed = row_sealing(grader, instance, task, deadline=begin + self.time_s)
        except Exception as error:
            sealed = Sealing(problem=fault_of(error, instance))
        cost = Cost()
        with contextlib.suppress(SandboxError):
            cost = cost_of(task)
        return Card(instance.id, sound=sound, sharp=sharp, narrow=narrowness_of(task), sealed=sealed, cost=cost)

    def _reporter(self, instance: Instance) -> Callable[[str], None]:
        return lambda step: self.grader.report(f"{instance.id}: {step}")

    def expected_s(self, unit: Unit) -> float:
        """Return the seconds of the last audit of a task."""
        return self.grader.expected_s(unit.instance, _AUDITOR)

    def fault(self, result: Card) -> Reason | None:
        """Return why there is no audit, if that may be because of the machine."""
        problem = result.problem
        return problem if problem is not None and result.sound is None and problem.code in ROW_FAULTS else None

    def close(self) -> None:
        """Close the open task."""
        self.grader.close()

    def _key(self, instance: Instance) -> str:
        return key_of(self.grader.key(instance, ""), self.changes, self.time_s)


def _is_broken(card: Card) -> bool:
    """Return whether the machine kept a part of a card from being made."""
    problems = [part.problem for part in (card.sharp, card.sealed) if part is not None]
    return any(problem is not None and problem.code in MACHINE_FAULTS for problem in problems)
