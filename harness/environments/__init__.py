"""Environments for reinforcement learning: repair a bug, or inject one, with rewards from tests.

If Gymnasium is installed, importing this package registers `ssr/Solve-v0` and `ssr/Inject-v0`. The adapters for other
trainers do not need it.
"""

import importlib.util

from harness.agents.limits import RolloutLimits
from harness.environments.episodes import EnvironmentSettings
from harness.environments.inject_tasks import ProjectTasks
from harness.environments.joined_tasks import JoinedTasks
from harness.environments.line_tasks import LineTasks
from harness.environments.solve_tasks import DatasetTasks, StoreTasks

__all__ = [
    "DatasetTasks",
    "EnvironmentSettings",
    "JoinedTasks",
    "LineTasks",
    "ProjectTasks",
    "RolloutLimits",
    "StoreTasks",
]

if importlib.util.find_spec("gymnasium") is not None:
    from harness.environments.gym import register

    register()
