"""The two works of a run over instances: predictions to grade, and rollouts to run and grade."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.datasets import Instance
from harness.evaluation.grading import Grader, fault_of, invalid_reason
from harness.evaluation.harbor_grading import stored_reference
from harness.evaluation.harbor_steps import PatchSeries, StepwiseSolver
from harness.evaluation.predictions import Prediction
from harness.evaluation.rows_work import RowsWork, Unit
from harness.records.attempt import Attempt
from harness.records.trajectory import Trajectory, read_trajectory
from harness.records.usage import RunUsage
from harness.rollouts.runner import PATCH, ROLLOUTS, TRAJECTORY, RolloutRunner
from harness.solvers.mini.solver import NATIVE
from harness.solvers.mini.trajectory_reader import read_mini_trajectory
from harness.solvers.protocol import Solver
from pytest_ssr.errors import SandboxUnavailableError, SettingsError, StoreError
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.store import key_of


def with_recording(evaluated: Attempt, path: Path | None, model: str) -> Attempt:
    """Return a prediction's result for this model, with the data of a trajectory file of mini-swe-agent, if any.

    Raises SettingsError for a damaged file.
    """
    result = replace(evaluated, solver=model)
    if path is None:
        return result
    recording = read_mini_trajectory(path, model)
    usage = RunUsage.of(recording.rollout)
    return replace(
        result,
        exit_reason=str(recording.rollout.exit_reason),
        steps=len(recording.rollout.steps),
        tokens=usage.tokens,
        cost_usd=recording.cost_usd,
        unpriced=usage.unpriced,
        estimated=usage.estimated,
    )


def trajectory_json(result: Attempt, rollout: Trajectory) -> Mapping[str, Any]:
    """Return a rollout in the format of `traj.json`."""
    return {
        "instance_id": result.task,
        "model_name_or_path": result.solver,
        "attempt": result.attempt,
        **rollout.header(),
        **rollout.ending(),
        "messages": [m.to_json() for m in rollout.messages],
    }


ATTEMPTS = "attempts"


@dataclass(slots=True)
class PredictionWork(RowsWork):
    """Grades the predictions of a file."""

    selected: Sequence[str]
    _by_id: dict[str, Unit] = field(default_factory=dict)

    @classmethod
    def of(cls, grader: Grader, predictions: Sequence[Prediction], instances: Sequence[Instance]) -> PredictionWork:
        """Create one unit for each prediction."""
        by_id = {i.id: i for i in instances}
        units = [
            Unit(by_id[p.instance_id], p.model, 0, p.patch, p.recorded, is_reference=p.is_reference)
            for p in predictions
        ]
        return cls(grader, units, list(by_id))

    @property
    def chosen(self) -> Sequence[str]:
        """The ids of the selected instances."""
        return self.selected

    def stored(self, unit: Unit) -> Attempt | None:
        """Return the stored result, or None."""
        patch = stored_reference(unit.instance, self.grader.store) if unit.is_reference else unit.patch
        result = self.grader.stored_result(unit.instance, patch) if patch is not None else None
        return with_recording(result, unit.recorded, unit.model) if result is not None else None

    def run(self, unit: Unit) -> Attempt:
        """Grade a prediction."""
        result = self.grader.evaluate_reference(unit.instance) if unit.is_reference else None
        return with_recording(result or self.grader.evaluate(unit.instance, unit.patch), unit.recorded, unit.model)

    def patch(self, result: Attempt) -> str:
        """Return the predicted patch."""
        unit = self._unit(result)
        return (stored_reference(unit.instance, self.grader.store) or "") if unit.is_reference else unit.patch

    def trajectory(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return the trajectory that mini-swe-agent recorded; None for other predictions."""
        unit = self._unit(result)
        if unit.recorded is None:
            return None
        return trajectory_json(result, read_mini_trajectory(unit.recorded, unit.model).rollout)

    def native(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return the content of its trajectory file."""
        unit = self._unit(result)
        return read_mini_trajectory(unit.recorded, unit.model).data if unit.recorded is not None else None

    def log(self, result: Attempt) -> str:
        """Return the log of a plain run."""
        return self.grader.log(self._unit(result).instance, self.patch(result))

    def expected_s(self, unit: Unit) -> float:
        """Return the seconds of the last grade of its instance."""
        return self.grader.expected_s(unit.instance)

    def _unit(self, result: Attempt) -> Unit:
        if not self._by_id:
            self._by_id.update((u.instance.id, u) for u in self.units)
        return self._by_id[result.task]

    def close(self) -> None:
        """Close the open instance."""
        self.grader.close()


@dataclass(slots=True)
class RolloutWork(RowsWork):
    """Runs a solver on instances and grades its rollouts."""

    solver: Solver
    seed: int = 0
    grade_unsubmitted: bool = False
    by_statement: bool = True
    """Describe the task by the row's statement, if it has one, instead of by the tests."""
    on_close: Callable[[], None] = lambda: None
    """Closes the resources that the solver uses."""
    _solving: tuple[str, RolloutRunner] | None = None
    _by_id: dict[str, Instance] = field(default_factory=dict)

    @property
    def chosen(self) -> Sequence[str]:
        """The ids of the instances."""
        return list(dict.fromkeys(u.instance.id for u in self.units))

    def stored(self, unit: Unit) -> Attempt | None:
        """Return the stored result of a rollout if it has a verdict, else None."""
        result = Attempt.from_json(self.grader.store.record(ATTEMPTS, self._key(unit)))
        if result is None:
            return None
        result = result.by(self.grader.rule)
        return replace(result, solver=unit.model) if result.verdict is not None else None

    def run(self, unit: Unit) -> Attempt:
        """Run a rollout and grade it."""
        instance, rule = unit.instance, self.grader.rule
        failed = unit.without_grade(Reason(ReasonCode.NOT_GRADED), rule=rule)
        if instance.invalid:
            return replace(failed, reason=invalid_reason(instance))
        try:
            solving = self._open_solving(unit.instance)
            rollout = solving.stored_attempt(unit.attempt) or solving.run(unit.attempt)
        except (SandboxUnavailableError, SettingsError) as error:
            if not self.grader.images:
                raise
            return replace(failed, reason=fault_of(error, instance))
        except Exception as error:
            return replace(failed, reason=fault_of(error, instance))
        result = self._result(unit, rollout)
        self.grader.store.put_record(ATTEMPTS, self._key(unit), result.to_json())
        self.grader.record_seconds(unit.instance, result.seconds + result.grading_s, self.solver.name)
        return result

    def _result(self, unit: Unit, rollout: Attempt) -> Attempt:
        """Return a rollout as an attempt at the instance, with the outcomes of its tests."""
        graded = None
        if rollout.patch_sha256 and rollout.verdict is not None:
            patch = self._file(rollout.id, PATCH).decode("utf-8", "surrogateescape")
            graded = self.grader.stored_result(unit.instance, patch)
        outcomes = (graded.fail_to_pass, graded.pass_to_pass) if graded is not None else ({}, {})
        rewards = graded.rewards if graded is not None else {}
        return replace(
            rollout,
            task=unit.instance.id,
            repo=unit.instance.repo,
            artifact_id=unit.instance.artifact_id,
            created_at=unit.instance.created_at,
            solver=unit.model,
            fail_to_pass=outcomes[0],
            pass_to_pass=outcomes[1],
            rewards=rewards,
        )

    def patch(self, result: Attempt) -> str:
        """Return the submitted patch, empty if it is not stored."""
        data = self._file(result.id, PATCH) if result.patch_sha256 else b""
        return data.decode("utf-8", "surrogateescape")

    def trajectory(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return the messages of a rollout and how it ended."""
        if not result.id:
            return None
        try:
            self.grader.store.fetch(f"{ROLLOUTS}/{result.id}")
            rollout = read_trajectory(self.grader.store.root / ROLLOUTS / result.id / TRAJECTORY)
        except StoreError:
            return None
        return trajectory_json(result, rollout)

    def native(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return the trajectory in the format that mini-swe-agent writes."""
        data = self._file(result.id, NATIVE)
        return {**json.loads(data), "instance_id": result.task} if data else None

    def log(self, result: Attempt) -> str:
        """Return the log of a plain run."""
        patch = self.patch(result)
        return self.grader.log(self._instance(result), patch) if patch else ""

    def expected_s(self, unit: Unit) -> float:
        """Return the seconds of the last rollout on its instance."""
        return self.grader.expected_s(unit.instance, self.solver.name)

    def _instance(self, result: Attempt) -> Instance:
        if not self._by_id:
            self._by_id.update((u.instance.id, u.instance) for u in self.units)
        return self._by_id[result.task]

    def close(self) -> None:
        """Close the open instance and the solver's resources."""
        try:
            self._close_solving()
            self.grader.close()
        finally:
            self.on_close()

    def _close_solving(self) -> None:
        if self._solving is not None:
            self._solving[1].close()
        self._solving = None

    def _key(self, unit: Unit) -> str:
        solver = getattr(self.solver, "key", self.solver.name)
        statement = unit.instance.statement if self.by_statement else ""
        options = (solver, self.seed, self.grade_unsubmitted, self.by_statement, statement, unit.attempt)
        return key_of(self.grader.key(unit.instance, ""), *options)

    def _file(self, rollout: str, name: str) -> bytes:
        data = self.grader.store.file(f"{ROLLOUTS}/{rollout}", name) if rollout else None
        return data or b""

    def _open_solving(self, instance: Instance) -> RolloutRunner:
        if self._solving is not None and self._solving[0] == instance.id:
            return self._solving[1]
        self._close_solving()
        solving = rollout_runner(
            self.grader,
            instance,
            self.solver,
            seed=self.seed,
            grade_unsubmitted=self.grade_unsubmitted,
            statement=instance.statement if self.by_statement else "",
        )
        self._solving = (instance.id, solving)
        return solving


def rollout_runner(
    grader: Grader, instance: Instance, solver: Solver, *, seed: int, grade_unsubmitted: bool, statement: str
) -> RolloutRunner:
    """Return a runner of attempts at an instance, whose grades are those of `ssr eval`.

    statement: describes the task; empty to describe it by its tests.
    """
    if instance.harbor is not None:
        opened = grader.harbor_task(instance)
        runner, artifact, statement = opened.runner(grader.settings), opened.artifact, instance.statement
        if len(instance.harbor.steps) > 1:
            solver = StepwiseSolver(solver, opened)
        # Its verifier is no part of the artifact.
        verdict = Verdict(instance.key, runner.snapshot.tree_hash)
    else:
        task = grader.task(instance)
        runner, artifact = task.runner, task.artifact
        verdict = Verdict(
            task.id,
            runner.snapshot.tree_hash,
            fail_to_pass=tuple(sorted(task.tests.failing)),
            pass_to_pass=tuple(sorted(task.tests.passing)),
        )
    return RolloutRunner(
        runner.scoped(),
        artifact,
        verdict,
        solver,
        grader.store,
        seed=seed,
        grade_unsubmitted=grade_unsubmitted,
        statement=statement,
        rule=grader.rule,
        grader=lambda patch: grader.grade(instance, patch),
        read_patch=Patch.parse if instance.harbor is None or len(instance.harbor.steps) == 1 else PatchSeries.parse,
    )
