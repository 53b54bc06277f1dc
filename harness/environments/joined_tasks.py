"""The tasks of several sources in one environment, such as the bugs of several projects and the rows of a dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from harness.environments.task import Tasks, TaskSource
from pytest_ssr.errors import SettingsError


@dataclass(frozen=True, slots=True)
class JoinedTasks:
    """All tasks of some sources, which are of one role."""

    sources: Sequence[TaskSource]

    def __post_init__(self) -> None:
        """Raise SettingsError if there is no source, or if their roles differ."""
        object.__setattr__(self, "sources", tuple(self.sources))
        if len({source.role for source in self.sources}) != 1:
            raise SettingsError("JoinedTasks needs sources of tasks for one role")

    @property
    def role(self) -> str:
        """The role of the agent: solver or injector."""
        return self.sources[0].role

    def check(self, scores: Collection[str]) -> None:
        """Raise the error of the first source that has one."""
        for source in self.sources:
            source.check(scores)

    def open(self) -> Tasks:
        """Open all sources; raises the errors of each, and SettingsError if a task occurs twice."""
        owners: dict[str, Tasks] = {}
        with ExitStack() as stack:
            for source in self.sources:
                tasks = stack.enter_context(closing(source.open()))
                for task_id in tasks.ids:
                    if task_id in owners:
                        raise SettingsError(f"the task {task_id!r} occurs twice; name its source once")
                    owners[task_id] = tasks
            close = stack.pop_all().close
        return Tasks(list(owners), lambda task_id: owners[task_id].new(task_id), close)
