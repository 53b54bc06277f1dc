"""Tasks from a store of validated bugs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.environments.solving import ExternalSolver, SolveTask
from harness.rollouts.runner import RolloutRunner, validated_verdict
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ArtifactError, ProjectError, SettingsError
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, resolve_artifact


@dataclass(frozen=True, slots=True)
class StoreTasks:
    """The bugs of a store, all in one project."""

    project: Path | str
    """The project's folder."""
    store: Path | str = ""
    """The store; by default `.ssr` in the project."""
    artifacts: Sequence[str] = ()
    """Ids, unique prefixes of ids, or folders of artifacts; by default all of the store."""
    sandbox: str = "auto"
    """The name of the sandbox; `auto` chooses one with isolation."""
    python: Path | None = None
    """The interpreter that runs the project's tests."""
    statement: str = ""
    """A description of the task, which replaces the tests to be improved."""
    rule: Rule = Rule.STRICT
    """The verdict of a grade that decides the reward."""
    settings: RuleSettings = RuleSettings()
    grade_unsubmitted: bool = True
    """Also grade the changes of an episode that a limit ended."""
    full_grades: bool = False
    """Run all tests of each grade, even after a failure; the score `tests` needs it."""
    role: ClassVar[str] = "solver"

    def open(self) -> OpenStoreTasks:
        """Open a runner on the project; raises SettingsError if there is no artifact."""
        project = Path(self.project)
        if not project.is_dir():
            raise ProjectError(f"{project} is not a folder; name the project of the bugs")
        root = Path(self.store) if self.store else project / ".ssr"
        if not root.is_dir():
            raise SettingsError(f"the store {root} does not exist; create bugs in it with ssr inject")
        return OpenStoreTasks(self, project, Store(root))


class OpenStoreTasks:
    """An opened project and its bugs."""

    def __init__(self, source: StoreTasks, project: Path, store: Store) -> None:
        self._source, self._store = source, store
        self._folders = _find(source.artifacts, store)
        self._runner = open_runner(
            project,
            store,
            settings=source.settings,
            sandbox=source.sandbox,
            python=source.python,
            model_written=True,
        )
        self._open: SolveTask | None = None

    @property
    def ids(self) -> Sequence[str]:
        """The artifacts' ids."""
        return list(self._folders)

    def task(self, task_id: str) -> SolveTask:
        """Return a bug as a task; raises ArtifactError if it is not valid."""
        if self._open is not None and self._open.id == task_id:
            return self._open
        if task_id not in self._folders:
            raise SettingsError(f"there is no task {task_id!r}; the tasks are {', '.join(self._folders)}")
        self.close()
        source, runner, store = self._source, self._runner, self._store
        artifact = read_artifact(self._folders[task_id])
        rollouts = RolloutRunner(
            runner.scoped(),
            artifact,
            validated_verdict(artifact, runner.scoped(), store),
            ExternalSolver(),
            store,
            grade_unsubmitted=source.grade_unsubmitted,
            statement=source.statement,
            rule=source.rule,
            full=source.full_grades,
            baseline=lambda: project_baseline(runner, store),
        )
        self._open = SolveTask(task_id, rollouts)
        return self._open

    def close(self) -> None:
        """Remove the open task's tree."""
        if self._open is not None:
            self._open.close()
        self._open = None


def _find(names: Sequence[str], store: Store) -> dict[str, Path]:
    """Return the folders of artifacts by id; raises SettingsError if there are none."""
    if isinstance(names, str):
        raise SettingsError(f"`artifacts` takes a list of ids, not the string {names!r}")
    if names:
        try:
            return {folder.name: folder for folder in (resolve_artifact(name, store) for name in names)}
        except ArtifactError as error:
            raise SettingsError(str(error)) from None
    ids = store.artifact_ids()
    if not ids:
        raise SettingsError(f"the store {store.root} has no artifacts; create some with ssr inject")
    return {name: store.root / "artifacts" / name for name in ids}
