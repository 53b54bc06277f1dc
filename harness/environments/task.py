"""The interfaces between an episode and its task, and the tasks of a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.agents.tools.protocol import Tool
from harness.agents.workspace import Workspace
from harness.records.messages import ToolCall
from harness.records.trajectory import Trajectory
from pytest_ssr.errors import SettingsError
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import named_interpreter


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an episode, from the grade of its patch or the verdict on its bug."""

    reward: float | None
    """The role's reward; None if an infrastructure failure prevented a grade or a verdict."""
    success: bool | None
    """Whether the patch is resolved, or the bug valid; None without a grade or a verdict."""
    code: str
    """The code of the reason."""
    text: str
    """The reason, for people."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """More about the result: the tests' verdict and flags, the artifact's id, the solve rate."""


class TaskWork(Protocol):
    """The work on a task in one episode."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of the role; one of them submits."""

    @property
    def patch(self) -> Patch | None:
        """The changes that were submitted, or those that a limit has left."""

    def open(self) -> AbstractContextManager[Workspace]:
        """Return the workspace, which opens a new sandbox."""

    def prompt(self, workspace: Workspace) -> str:
        """Return the description of the task."""

    def action(self, text: str) -> ToolCall | None:
        """Return the call that a reply in plain text stands for; None if it may have a call in a fenced block."""

    def diff(self, workspace: Workspace) -> Patch:
        """Return the changes so far; raises ArtifactError for a tree that cannot be submitted."""

    def partial_result(self, workspace: Workspace) -> Mapping[str, object]:
        """Return the result of an episode that a limit ended."""

    def tests_passing(self, patch: Patch) -> float | None:
        """Return the share of the FAIL_TO_PASS tests that pass with a patch; None without a grade."""

    def outcome(self, done: Trajectory) -> Outcome:
        """Return the result of the episode after its end."""


class EpisodeTask(Protocol):
    """A task that any number of episodes can work on, one after the other."""

    @property
    def id(self) -> str:
        """The artifact's content id, the instance's id, or the project's name."""

    @property
    def role(self) -> str:
        """The role of the agent: solver or injector."""

    @property
    def system(self) -> str:
        """The system prompt; empty if there is no such message."""

    def start(self, *, seed: int) -> TaskWork:
        """Return the work of a new episode."""

    def close(self) -> None:
        """Remove what the task has prepared."""


class Tasks:
    """The tasks of a source, of which one at a time is open."""

    def __init__(
        self, ids: Sequence[str], open_task: Callable[[str], EpisodeTask], close: Callable[[], None] = lambda: None
    ) -> None:
        """ids: of all tasks; at least one. close: called after the last task is closed."""
        self.ids = list(ids)
        self._open_task, self._close = open_task, close
        self._open: EpisodeTask | None = None

    def task(self, task_id: str) -> EpisodeTask:
        """Return a task, which stays open until another one is requested; raises SettingsError for an unknown id."""
        if self._open is not None and self._open.id == task_id:
            return self._open
        if task_id not in self.ids:
            raise SettingsError(f"there is no task {task_id!r} among the {len(self.ids)} tasks")
        self._close_task()
        self._open = self.new(task_id)
        return self._open

    def new(self, task_id: str) -> EpisodeTask:
        """Return a task of a known id, which the caller closes."""
        return self._open_task(task_id)

    def close(self) -> None:
        """Close the open task and its source; idempotent."""
        self._close_task()
        self._close()

    def _close_task(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


class TaskSource(Protocol):
    """A description of tasks, which can be sent to another process."""

    @property
    def role(self) -> str:
        """The role of the agent: solver or injector."""

    def check(self, scores: Collection[str]) -> None:
        """Raise SettingsError or ProjectError for what cannot be opened.

        That is a missing folder, an unknown sandbox, or one of these scores that the tasks cannot give.
        """

    def open(self) -> Tasks:
        """Open the tasks; raises SettingsError if there are none, and the errors of `open_runner`."""


def path_of(value: object, name: str) -> Path:
    """Return a parameter as a path; raises SettingsError for anything but a string or a path.

    name: of the parameter.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise SettingsError(f"`{name}` takes a path, not {value!r}")
    return Path(value)


def interpreter_of(value: object) -> Path | None:
    """Return the parameter `python` as a path, from the current folder if it is relative; None if it is not given."""
    return None if value is None else named_interpreter(str(path_of(value, "python")), Path.cwd())


def names_of(value: object, name: str) -> tuple[str, ...]:
    """Return a parameter that lists names or paths as strings; raises SettingsError for anything else.

    A single string would be taken for the list of its characters.
    """
    if isinstance(value, str | Path) or not isinstance(value, Collection):
        raise SettingsError(f"`{name}` takes a list, not {value!r}")
    return tuple(str(path_of(each, name)) for each in value)
