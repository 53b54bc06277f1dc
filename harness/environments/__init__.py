"""Environments for reinforcement learning: repair a bug, or inject one, with rewards from tests.

If Gymnasium is installed, importing this package registers `ssr/Solve-v0` and `ssr/Inject-v0`. The adapters for other
trainers do not need it.
"""

import importlib.util

from harness.environments.dataset_tasks import DatasetTasks
from harness.environments.project_tasks import ProjectTasks
from harness.environments.store_tasks import StoreTasks

__all__ = ["DatasetTasks", "ProjectTasks", "StoreTasks"]

if importlib.util.find_spec("gymnasium") is not None:
    from harness.environments.gym import register

    register()
