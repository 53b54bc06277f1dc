"""Define the units of `ssr run` and `ssr eval`, rollouts or predictions of rows, and how any machine runs them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.datasets.instance import Instance
from harness.datasets.instance_task import discard_trees, instance_folder, tree_of, using_trees
from harness.evaluation.grading import Grader
from harness.executors.node import Node
from harness.executors.protocol import Cluster
from harness.executors.trees import pack, unpack
from harness.harbor.reading import read_task
from harness.records.attempt import Attempt
from harness.records.task_choice import ChoiceCounts
from harness.rollouts.attempts_work import MACHINE_FAULTS, machine_fault
from pytest_ssr.errors import SandboxError, StoreWriteError, os_error_advice
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import Limits, WithImage

ROW_FAULTS = (*MACHINE_FAULTS, ReasonCode.INSTANCE_UNUSABLE, ReasonCode.INTERNAL_ERROR)
"""A row may be unusable because of a machine: a full disk, no interpreter, no way to its repository."""
_PULL_S = 600.0
_R = TypeVar("_R")
OpenRows = Callable[[Node], "RowUnits[Any]"]
"""Opens the work of a run on another machine, without its units; it is pickled."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One result to produce."""

    instance: Instance
    model: str
    attempt: int = 0
    patch: str = ""
    """The patch to grade, if it is a prediction."""
    recorded: Path | None = None
    """The path of the patch's trajectory by mini-swe-agent."""
    is_reference: bool = False
    """Whether the patch is the reference solution of a task directory, which only the task itself holds."""

    @property
    def name(self) -> str:
        """A name that is unique among the units of a run."""
        return f"{self.instance.id}::{self.attempt + 1}"

    def without_grade(self, reason: Reason, *, rule: str = Rule.STRICT) -> Attempt:
        """Return the attempt if it has no grade."""
        return Attempt(
            self.instance.id,
            self.model,
            reason,
            attempt=self.attempt,
            repo=self.instance.repo,
            artifact_id=self.instance.artifact_id,
            created_at=self.instance.created_at,
            rule=str(rule),
        )


@dataclass(frozen=True, slots=True)
class SentUnit:
    """A unit as it is sent to another machine."""

    unit: Unit
    tree: Callable[[], bytes] | None
    """Fetches the row's tree, or the task directory; None if the row's repository can be cloned from its origin."""


@dataclass(slots=True)
class RowUnits(ABC, Generic[_R]):
    """The units of a run over rows; each worker has its own instance.

    It is a Work of the executors: it can be opened on other machines if `opened` says how.
    """

    grader: Grader
    units: Sequence[Unit]
    opened: OpenRows | None = field(default=None, kw_only=True)
    """Opens the same run elsewhere."""
    counts: ChoiceCounts | None = field(default=None, kw_only=True)
    """How many rows an audit leaves out; None without one."""

    @abstractmethod
    def stored(self, unit: Unit) -> _R | None:
        """Return a unit's stored result from an earlier run, or None."""

    @abstractmethod
    def run(self, unit: Unit) -> _R:
        """Do a unit here and return its result; raises errors that end the whole run."""

    @abstractmethod
    def expected_s(self, unit: Unit) -> float:
        """Return the expected seconds of a unit, from earlier runs; infinity if they are unknown."""

    @abstractmethod
    def fault(self, result: _R) -> Reason | None:
        """Return why a unit has no result, if that may be because of the machine."""

    @abstractmethod
    def close(self) -> None:
        """Close everything that was opened."""

    def place(self, unit: Unit) -> str:
        """Return the row's image, or its tree."""
        grader, instance = self.grader, unit.instance
        engine = grader.engine_of(instance)
        return instance.sandbox(engine) if engine else instance.key

    def ahead(self, unit: Unit) -> Callable[[Node], object] | None:
        """Return what pulls the row's image; None if it has none."""
        engine = self.grader.engine_of(unit.instance)
        return partial(pull_image, unit.instance.sandbox(engine)) if engine else None

    def send(self, unit: Unit, cluster: Cluster) -> SentUnit:
        """Return a unit for another machine, with the row's tree if only this machine has its repository."""
        grader, instance = self.grader, unit.instance
        # The trajectory of a prediction is a file of this machine.
        unit = replace(unit, recorded=None)
        task = instance.harbor
        if task is not None:
            return SentUnit(unit, cluster.put(f"task-{instance.key}", lambda: pack(task.folder)))
        repositories = grader.repositories
        is_here = repositories.find_local(instance.repo) is not None or repositories.own_clone(instance.repo).is_dir()
        if grader.images or instance.invalid or not is_here:
            return SentUnit(unit, None)
        return SentUnit(unit, cluster.put(f"row-{instance.key}", lambda: self._packed(instance)))

    def _packed(self, instance: Instance) -> bytes:
        """Return a row's tree, which stays in the store only if all trees of the run do."""
        grader = self.grader
        with using_trees(instance, grader.store):
            data = pack(tree_of(instance, grader.repositories, grader.store, keep=grader.keep_trees))
        if not grader.keep_trees:
            discard_trees(instance, grader.store)
        return data

    def recipe(self, cluster: Cluster) -> RowsRecipe:
        """Return how other machines open the run."""
        assert self.opened is not None
        return RowsRecipe(self.opened)


@dataclass(slots=True)
class RowsWork(RowUnits[Attempt]):
    """The units of a run that grades patches, and what its reports need."""

    @property
    @abstractmethod
    def chosen(self) -> Sequence[str]:
        """The ids of the selected instances; some may have no unit."""

    @abstractmethod
    def patch(self, result: Attempt) -> str:
        """Return the submitted patch."""

    @abstractmethod
    def trajectory(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return its trajectory in the format of `traj.json`, if there is one."""

    @abstractmethod
    def native(self, result: Attempt) -> Mapping[str, Any] | None:
        """Return its trajectory in mini-swe-agent's format, if that was the solver."""

    @abstractmethod
    def log(self, result: Attempt) -> str:
        """Return the test output, empty if no tests ran."""

    def fault(self, result: Attempt) -> Reason | None:
        """Return why a unit has no grade, if that may be because of the machine."""
        return fault_in(result)


@dataclass(frozen=True)
class RowsRecipe:
    """Opens a run over rows on another machine."""

    opened: OpenRows

    def __call__(self, node: Node) -> OpenRowsWork:
        """Return the run."""
        return OpenRowsWork(self.opened(node), node)


@dataclass(frozen=True, slots=True)
class OpenRowsWork:
    """A run over rows that a worker holds open."""

    work: RowUnits[Any]
    node: Node

    def run(self, sent: SentUnit) -> Any:
        """Do a unit; its tree is fetched if it is not here, and removed when no worker of this machine uses it."""
        instance = sent.unit.instance
        engine = self.work.grader.engine_of(instance)
        with ExitStack() as using:
            using.enter_context(using_trees(instance, self.node.store))
            if engine:
                # If it cannot be pulled, the unit itself reports the cause.
                with contextlib.suppress(SandboxError):
                    using.enter_context(self.node.images.using(instance.sandbox(engine)))
            self.node.make_room()
            unit = sent.unit
            if sent.tree is not None and instance.harbor is not None:
                folder = self.node.store.root / "tasks" / instance.key
                self._place(instance, folder, sent.tree)
                unit = replace(unit, instance=replace(instance, harbor=read_task(folder)))
            elif sent.tree is not None:
                folder = instance_folder(instance, self.node.store, keep=self.work.grader.keep_trees)
                self._place(instance, folder, sent.tree)
            return self.work.run(unit)

    def _place(self, instance: Instance, folder: Path, fetch: Callable[[], bytes]) -> None:
        with self.node.store.alone(f"instance-{instance.key}"):
            try:
                if not folder.is_dir():
                    unpack(fetch(), folder)
            except OSError as error:
                raise StoreWriteError(f"cannot write {folder}: {os_error_advice(error)}") from None

    def fault(self, result: Any) -> Reason | None:
        """Return why a unit has no result, if that may be because of the machine."""
        return self.work.fault(result)

    def close(self) -> None:
        """Close the grader and the solver."""
        self.work.close()


def pull_image(sandbox: str, node: Node) -> None:
    """Pull the image of a sandbox, such as `docker:NAME`, unless the machine has it."""
    provider = load_provider(sandbox)
    try:
        with node.images.using(sandbox):
            node.make_room()
            if isinstance(provider, WithImage):
                provider.exec_in_image(["true"], limits=Limits(wall_s=_PULL_S))
    finally:
        getattr(provider, "close", lambda: None)()


def fault_in(result: Attempt) -> Reason | None:
    """Return why a result has no grade, if that may be because of the machine."""
    return machine_fault(result, ROW_FAULTS)
