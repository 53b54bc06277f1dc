"""What a run over instances has to do, in units that any worker can do: predictions to grade, attempts to make."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harness.episode import Rollout
from harness.evaluation.grading import Grading, fault_of
from harness.evaluation.outcome import Outcome, Status, status_of
from harness.evaluation.predictions import Prediction
from harness.evaluation.recorded import as_recorded, told
from harness.instances import Instance
from harness.solvers.mini.reading import read_recorded
from harness.solvers.mini.solver import NATIVE
from harness.solvers.protocol import Solver
from harness.solving import PATCH, ROLLOUTS, TRAJECTORY, Solving
from harness.trajectory import read_trajectory
from pytest_ssr.errors import SandboxUnavailableError, SettingsError, StoreError
from pytest_ssr.reasons import Reason, ReasonCode
from pytest_ssr.store import key_of
from pytest_ssr.verdict import Verdict

ATTEMPTS = "attempts"


@dataclass(frozen=True, slots=True)
class Unit:
    """One outcome that is wanted."""

    instance: Instance
    model: str
    attempt: int = 0
    patch: str = ""
    """What is graded, where it is known before."""
    recorded: Path | None = None
    """The trajectory of mini-swe-agent that tells how that came about."""

    @property
    def name(self) -> str:
        """A name of its own among the units of a run."""
        return f"{self.instance.id}::{self.attempt + 1}"


class Work(Protocol):
    """Units, and how they are done; each worker has its own."""

    units: Sequence[Unit]

    @property
    def chosen(self) -> Sequence[str]:
        """The instances of the dataset that are wanted, by id; of some there may be no unit."""

    def known(self, unit: Unit) -> Outcome | None:
        """Return what an earlier run has made of a unit."""

    def make(self, unit: Unit) -> Outcome:
        """Do a unit; raises what ends a whole run."""

    def patch(self, outcome: Outcome) -> str:
        """Return what was handed in."""

    def trajectory(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return how it came about, where that is known."""

    def native(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return that in the form of mini-swe-agent, where it was at work."""

    def log(self, outcome: Outcome) -> str:
        """Return what the tests have printed, empty where they were not run."""

    def expected_s(self, unit: Unit) -> float:
        """Return how long a unit may take, by what earlier runs took."""

    def close(self) -> None:
        """End what was started."""


@dataclass(slots=True)
class Predicted:
    """Grades of a file of predictions."""

    grading: Grading
    units: Sequence[Unit]
    chosen: Sequence[str]
    _by_id: dict[str, Unit] = field(default_factory=dict)

    @classmethod
    def of(cls, grading: Grading, predictions: Sequence[Prediction], instances: Sequence[Instance]) -> Predicted:
        """Make a unit of each prediction."""
        by_id = {i.id: i for i in instances}
        units = [Unit(by_id[p.instance_id], p.model, 0, p.patch, p.recorded) for p in predictions]
        return cls(grading, units, list(by_id))

    def known(self, unit: Unit) -> Outcome | None:
        """Return the grade that the store holds."""
        found = self.grading.known(unit.instance, unit.patch)
        return as_recorded(found, unit.recorded, unit.model) if found is not None else None

    def make(self, unit: Unit) -> Outcome:
        """Grade a prediction."""
        return as_recorded(self.grading.outcome(unit.instance, unit.patch), unit.recorded, unit.model)

    def patch(self, outcome: Outcome) -> str:
        """Return what was predicted."""
        return self._unit(outcome).patch

    def trajectory(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return what mini-swe-agent has recorded; how other predictions came about is not known."""
        unit = self._unit(outcome)
        return told(outcome, read_recorded(unit.recorded, unit.model).rollout) if unit.recorded is not None else None

    def native(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return its file."""
        unit = self._unit(outcome)
        return read_recorded(unit.recorded, unit.model).data if unit.recorded is not None else None

    def log(self, outcome: Outcome) -> str:
        """Return the log of a plain run."""
        return self.grading.log(self._unit(outcome).instance, self.patch(outcome))

    def expected_s(self, unit: Unit) -> float:
        """Return how long grades of its instance took."""
        return self.grading.expected_s(unit.instance)

    def _unit(self, outcome: Outcome) -> Unit:
        if not self._by_id:
            self._by_id.update((u.instance.id, u) for u in self.units)
        return self._by_id[outcome.instance_id]

    def close(self) -> None:
        """Let go of the instance at hand."""
        self.grading.close()


@dataclass(slots=True)
class Attempted:
    """Attempts of a solver at instances."""

    grading: Grading
    units: Sequence[Unit]
    solver: Solver
    seed: int = 0
    grade_unsubmitted: bool = False
    by_statement: bool = True
    """Say what is to be done in the row's words, where it has some, and not by the tests."""
    closing: Callable[[], None] = lambda: None
    """Ends what the solver stands on."""
    _solving: tuple[str, Solving] | None = None
    _by_id: dict[str, Instance] = field(default_factory=dict)

    @property
    def chosen(self) -> Sequence[str]:
        """The instances, by id."""
        return list(dict.fromkeys(u.instance.id for u in self.units))

    def known(self, unit: Unit) -> Outcome | None:
        """Return an attempt that the store holds, if it has a grade."""
        found = Outcome.from_json(self.grading.store.record(ATTEMPTS, self._key(unit)))
        found = found.by(self.grading.rule) if found is not None else None
        return replace(found, model=unit.model) if found is not None and found.verdict is not None else None

    def make(self, unit: Unit) -> Outcome:
        """Make an attempt and grade it."""
        instance, rule = unit.instance, self.grading.rule
        lost = Reason(ReasonCode.NOT_GRADED)
        begun = Outcome(
            instance.id, instance.repo, unit.model, Status.INFRA, lost, attempt=unit.attempt, rule=str(rule)
        )
        try:
            solving = self._at(unit.instance)
            rollout = solving.known(unit.attempt) or solving.attempt(unit.attempt)
        except (SandboxUnavailableError, SettingsError) as error:
            if not self.grading.images:
                raise
            return replace(begun, reason=fault_of(error, instance))
        except Exception as error:
            return replace(begun, reason=fault_of(error, instance))
        found = self._outcome(begun, unit, rollout)
        self.grading.store.put_record(ATTEMPTS, self._key(unit), found.to_json())
        self.grading.took(unit.instance, found.solver_s + found.grading_s, self.solver.name)
        return found

    def _outcome(self, begun: Outcome, unit: Unit, rollout: Rollout) -> Outcome:
        graded = None
        verdict = rollout.verdict
        if rollout.patch_sha256 and verdict is not None:
            graded = self.grading.known(unit.instance, self._file(rollout.id, PATCH).decode("utf-8", "surrogateescape"))
        if graded is not None:
            status = graded.status
        elif verdict is False and not rollout.patch_sha256:
            status = Status.EMPTY
        else:
            status = status_of(verdict, rollout.reason.code)
        return replace(
            begun,
            status=status,
            reason=rollout.reason,
            resolved=rollout.resolved,
            tests=rollout.tests,
            patch_sha256=rollout.patch_sha256,
            rollout=rollout.id,
            fail_to_pass=graded.fail_to_pass if graded is not None else {},
            pass_to_pass=graded.pass_to_pass if graded is not None else {},
            flags=rollout.flags,
            grading_s=rollout.grading_s,
            exit_reason=rollout.exit_reason,
            solver_s=rollout.seconds,
            steps=rollout.steps,
            tokens=rollout.tokens,
            cost_usd=rollout.cost_usd,
            unpriced=rollout.unpriced,
            estimated=rollout.estimated,
        )

    def patch(self, outcome: Outcome) -> str:
        """Return what was handed in; nothing where that is not kept."""
        data = self._file(outcome.rollout, PATCH) if outcome.patch_sha256 else b""
        return data.decode("utf-8", "surrogateescape")

    def trajectory(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return what was said in an attempt and how it ended."""
        if not outcome.rollout:
            return None
        try:
            found = read_trajectory(self.grading.store.root / ROLLOUTS / outcome.rollout / TRAJECTORY)
        except StoreError:
            return None
        return told(outcome, found)

    def native(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return what mini-swe-agent would have written of it."""
        data = self._file(outcome.rollout, NATIVE)
        return {**json.loads(data), "instance_id": outcome.instance_id} if data else None

    def log(self, outcome: Outcome) -> str:
        """Return the log of a plain run."""
        patch = self.patch(outcome)
        return self.grading.log(self._instance(outcome), patch) if patch else ""

    def expected_s(self, unit: Unit) -> float:
        """Return how long attempts at its instance took."""
        return self.grading.expected_s(unit.instance, self.solver.name)

    def _instance(self, outcome: Outcome) -> Instance:
        if not self._by_id:
            self._by_id.update((u.instance.id, u.instance) for u in self.units)
        return self._by_id[outcome.instance_id]

    def close(self) -> None:
        """Let go of the instance at hand, and of what solves."""
        try:
            self._leave()
            self.grading.close()
        finally:
            self.closing()

    def _leave(self) -> None:
        if self._solving is not None:
            self._solving[1].close()
        self._solving = None

    def _key(self, unit: Unit) -> str:
        own = getattr(self.solver, "key", self.solver.name)
        statement = unit.instance.statement if self.by_statement else ""
        how = (own, self.seed, self.grade_unsubmitted, self.by_statement, statement, unit.attempt)
        return key_of(self.grading.key(unit.instance, ""), *how)

    def _file(self, rollout: str, name: str) -> bytes:
        try:
            return (self.grading.store.root / ROLLOUTS / rollout / name).read_bytes() if rollout else b""
        except OSError:
            return b""

    def _at(self, instance: Instance) -> Solving:
        if self._solving is not None and self._solving[0] == instance.id:
            return self._solving[1]
        self._leave()
        case = self.grading.case(instance)
        solving = Solving(
            case.bench.scoped(),
            case.artifact,
            Verdict(
                case.id,
                case.bench.snapshot.tree_hash,
                fail_to_pass=instance.fail_to_pass,
                pass_to_pass=instance.pass_to_pass,
            ),
            self.solver,
            self.grading.store,
            seed=self.seed,
            grade_unsubmitted=self.grade_unsubmitted,
            statement=instance.statement if self.by_statement else "",
            rule=self.grading.rule,
            grader=lambda patch: self.grading.grade(instance, patch),
        )
        self._solving = (instance.id, solving)
        return solving
