"""Run the units of `ssr run` and `ssr eval` on any machine: a unit is a rollout or a prediction of a row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from harness.datasets.instance import Instance
from harness.datasets.instance_task import discard_trees, instance_folder, tree_of, using_trees
from harness.evaluation.work import Unit, Work
from harness.executors.node import Node
from harness.executors.protocol import Cluster
from harness.executors.trees import pack, unpack
from harness.records.attempt import Attempt
from harness.rollouts.attempts_work import MACHINE_FAULTS, machine_fault
from pytest_ssr.errors import SandboxError, StoreWriteError, os_error_advice
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import Limits, WithImage

_MACHINE_FAULTS = (*MACHINE_FAULTS, ReasonCode.INSTANCE_UNUSABLE, ReasonCode.INTERNAL_ERROR)
"""A row may be unusable because of a machine: a full disk, no interpreter, no way to its repository."""
_PULL_S = 600.0
OpenRows = Callable[[Node], Work]
"""Opens the work of a run on another machine, without its units; it is pickled."""


@dataclass(frozen=True, slots=True)
class SentUnit:
    """A unit as it is sent to another machine."""

    unit: Unit
    tree: Callable[[], bytes] | None
    """Fetches the row's tree; None if its repository can be cloned from its origin."""


@dataclass(frozen=True, slots=True)
class RowsWork:
    """The units of a run over rows; see Work of the executors."""

    work: Work
    opened: OpenRows

    def stored(self, unit: Unit) -> Attempt | None:
        """Return the result of a unit if the store has it."""
        return self.work.stored_result(unit)

    def run(self, unit: Unit) -> Attempt:
        """Do a unit here."""
        return self.work.make(unit)

    def fault(self, result: Attempt) -> Reason | None:
        """Return why a unit has no grade, if that may be because of the machine."""
        return fault_in(result)

    def place(self, unit: Unit) -> str:
        """Return the row's image, or its tree."""
        grader, instance = self.work.grader, unit.instance
        return instance.key if instance.invalid or not grader.images else instance.sandbox(grader.images)

    def ahead(self, unit: Unit) -> Callable[[Node], object] | None:
        """Return what pulls the row's image; None if it has none."""
        images = self.work.grader.images
        return partial(pull_image, unit.instance.sandbox(images)) if images and not unit.instance.invalid else None

    def send(self, unit: Unit, cluster: Cluster) -> SentUnit:
        """Return a unit for another machine, with the row's tree if only this machine has its repository."""
        grader, instance = self.work.grader, unit.instance
        # The trajectory of a prediction is a file of this machine.
        unit = replace(unit, recorded=None)
        repositories = grader.repositories
        is_here = repositories.find_local(instance.repo) is not None or repositories.own_clone(instance.repo).is_dir()
        if grader.images or instance.invalid or not is_here:
            return SentUnit(unit, None)
        return SentUnit(unit, cluster.put(f"row-{instance.key}", lambda: self._packed(instance)))

    def _packed(self, instance: Instance) -> bytes:
        """Return a row's tree, which stays in the store only if all trees of the run do."""
        grader = self.work.grader
        with using_trees(instance, grader.store):
            data = pack(tree_of(instance, grader.repositories, grader.store, keep=grader.keep_trees))
        if not grader.keep_trees:
            discard_trees(instance, grader.store)
        return data

    def recipe(self, cluster: Cluster) -> RowsRecipe:
        """Return how other machines open the run."""
        return RowsRecipe(self.opened)

    def close(self) -> None:
        """Leave the run to those who opened it."""


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

    work: Work
    node: Node

    def run(self, sent: SentUnit) -> Attempt:
        """Do a unit; its tree is fetched if it is not here, and removed when no worker of this machine uses it."""
        instance, images = sent.unit.instance, self.work.grader.images
        with ExitStack() as using:
            using.enter_context(using_trees(instance, self.node.store))
            if images and not instance.invalid:
                # If it cannot be pulled, the unit itself reports the cause.
                with contextlib.suppress(SandboxError):
                    using.enter_context(self.node.images.using(instance.sandbox(images)))
            self.node.make_room()
            if sent.tree is not None:
                self._place(instance, sent.tree)
            return self.work.make(sent.unit)

    def _place(self, instance: Instance, fetch: Callable[[], bytes]) -> None:
        store = self.node.store
        with store.alone(f"instance-{instance.key}"):
            folder = instance_folder(instance, store, keep=self.work.grader.keep_trees)
            try:
                if not folder.is_dir():
                    unpack(fetch(), folder)
            except OSError as error:
                raise StoreWriteError(f"cannot write {folder}: {os_error_advice(error)}") from None

    def fault(self, result: Attempt) -> Reason | None:
        """Return why a unit has no grade, if that may be because of the machine."""
        return fault_in(result)

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
    return machine_fault(result, _MACHINE_FAULTS)
