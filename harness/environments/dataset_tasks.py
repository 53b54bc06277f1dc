"""Tasks from the rows of a dataset of the SWE-bench family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.datasets.environments import Environments
from harness.datasets.loading import Selection, read_instances
from harness.datasets.repositories import Repositories
from harness.environments.solving import ExternalSolver, SolveTask
from harness.evaluation.grading import Grader
from harness.evaluation.work import rollout_runner
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@dataclass(frozen=True, slots=True)
class DatasetTasks:
    """The rows of a dataset."""

    dataset: str
    """A file, a folder, or `owner/name` on the hub."""
    store: Path | str
    """The store for trees, environments and results."""
    repos: Path | None = None
    """A folder of local clones by `owner__name`."""
    selection: Selection = Selection()
    split: str = ""
    sandbox: str = "auto"
    """The name of the sandbox; `auto` chooses one with isolation."""
    images: str = ""
    """`docker` or `apptainer`: run each row in its own image, instead of `sandbox` and a local environment."""
    python: Path | None = None
    """The interpreter of all rows; by default an environment is built for each."""
    show_tests: bool = False
    """Describe a task by its tests, even if its row has a statement."""
    rule: Rule = Rule.STRICT
    """The verdict of a grade that decides the reward."""
    settings: RuleSettings = RuleSettings()
    grade_unsubmitted: bool = True
    """Also grade the changes of an episode that a limit ended."""
    full_grades: bool = False
    """Run all tests of each grade, even after a failure; the score `tests` needs it."""
    role: ClassVar[str] = "solver"

    def open(self) -> OpenDatasetTasks:
        """Read the dataset; raises RowError for an invalid row, and SettingsError if nothing is selected."""
        if self.images and (self.python is not None or self.sandbox != "auto"):
            raise SettingsError("images have their own sandboxes and interpreters; omit sandbox and python")
        return OpenDatasetTasks(self)


class OpenDatasetTasks:
    """The selected rows, of which one at a time is open."""

    def __init__(self, source: DatasetTasks) -> None:
        self._source = source
        instances = source.selection.select(read_instances(source.dataset, split=source.split))
        self._instances = {instance.id: instance for instance in instances}
        store = Store(Path(source.store))
        self._grader = Grader(
            store,
            Repositories(store, source.repos, images=source.images),
            Environments(store, source.python),
            source.settings,
            source.sandbox,
            images=source.images,
            logs=False,
            full=source.full_grades,
            rule=source.rule,
        )
        self._open: SolveTask | None = None

    @property
    def ids(self) -> Sequence[str]:
        """The instances' ids."""
        return list(self._instances)

    def task(self, task_id: str) -> SolveTask:
        """Return an instance as a task; raises InstanceError if it does not hold on this machine."""
        if self._open is not None and self._open.id == task_id:
            return self._open
        if task_id not in self._instances:
            raise SettingsError(f"there is no task {task_id!r}; the dataset has {len(self._instances)} others")
        self._close_task()
        instance = self._instances[task_id]
        rollouts = rollout_runner(
            self._grader,
            instance,
            ExternalSolver(),
            seed=0,
            grade_unsubmitted=self._source.grade_unsubmitted,
            statement="" if self._source.show_tests else instance.statement,
        )
        self._open = SolveTask(task_id, rollouts)
        return self._open

    def close(self) -> None:
        """Close the open instance and its containers."""
        self._close_task()
        self._grader.close()

    def _close_task(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None
