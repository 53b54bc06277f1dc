"""Try forgeries."""

from __future__ import annotations

from harness.audit.card import Sealing
from harness.datasets import Instance
from harness.datasets.instance_task import InstanceTask
from harness.evaluation.grading import Grader
from harness.evaluation.harbor_grading import OpenTask


def row_sealing(grader: Grader, instance: Instance, task: InstanceTask, *, deadline: float) -> Sealing:
    """Return which forgeries are accepted."""
    return Sealing()


def harbor_sealing(opened: OpenTask, *, deadline: float) -> Sealing:
    """Return which forgeries are accepted."""
    return Sealing()
