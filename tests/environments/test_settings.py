"""What sources of tasks and settings accept, before anything is opened."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import write_project, written

from harness.agents.limits import RolloutLimits
from harness.datasets.instance import InstanceError
from harness.environments import DatasetTasks, EnvironmentSettings, JoinedTasks, ProjectTasks, StoreTasks
from harness.environments.episodes import Episodes
from harness.environments.solve_tasks import SolveWork
from harness.environments.task import TaskSource
from harness.rollouts.grades import Grades
from harness.rollouts.runner import RolloutRunner
from pytest_ssr.errors import GradingError, ProjectError, SettingsError
from pytest_ssr.grading import Grade
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import Verdict


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_may_be_strings(kind: Any) -> None:
    store = StoreTasks(kind("shop"), kind("store"), python=kind("bin/python"))
    rows = DatasetTasks(kind("rows.jsonl"), kind("store"), repos=kind("clones"), python=kind("python3"))
    injected = ProjectTasks([kind("shop")], kind("store"), python=kind("python3"))
    assert (store.project, store.store, store.python) == (Path("shop"), Path("store"), Path.cwd() / "bin/python")
    assert (rows.dataset, rows.repos, rows.python) == ("rows.jsonl", Path("clones"), Path("python3"))
    assert (injected.projects, injected.store, injected.python) == (("shop",), Path("store"), Path("python3"))
    assert pickle.loads(pickle.dumps(rows)) == rows


@pytest.mark.parametrize(
    "make",
    [
        lambda: StoreTasks(3),
        lambda: StoreTasks(""),
        lambda: StoreTasks("shop", python=3),
        lambda: StoreTasks("shop", artifacts="3f2a"),
        lambda: StoreTasks("shop", artifacts=[3]),
        lambda: DatasetTasks("rows.jsonl", None),
        lambda: DatasetTasks("rows.jsonl", "store", repos=["clones"]),
        lambda: DatasetTasks("rows.jsonl", "store", images="podman"),
        lambda: DatasetTasks("rows.jsonl", "store", images="docker", python="python3"),
        lambda: ProjectTasks("shop"),
        lambda: ProjectTasks([]),
        lambda: ProjectTasks(["shop"], strategy="none"),
        lambda: ProjectTasks(["shop"], reward="none"),
        lambda: ProjectTasks(["shop"], attempts=0),
        lambda: EnvironmentSettings(order="best"),
        lambda: EnvironmentSettings(limits=10),
        lambda: EnvironmentSettings(scores="tests"),
        lambda: EnvironmentSettings(tools="find"),
        lambda: EnvironmentSettings(bundles="folder"),
        lambda: EnvironmentSettings(record=3),
    ],
)
def test_a_wrong_value_is_an_error_of_the_constructor(make: Any) -> None:
    with pytest.raises(SettingsError):
        make()


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        (StoreTasks("nowhere"), ProjectError),
        (ProjectTasks(["nowhere"]), ProjectError),
        (JoinedTasks([StoreTasks(".", sandbox="process"), StoreTasks("nowhere")]), ProjectError),
        (StoreTasks(".", sandbox="singularity"), SettingsError),
        (StoreTasks(".", sandbox="process:image"), SettingsError),
        (DatasetTasks("rows.jsonl", "store", sandbox="singularity"), SettingsError),
        (ProjectTasks(["."], sandbox="singularity"), SettingsError),
    ],
)
def test_tasks_that_cannot_be_opened_are_an_error_when_the_environment_is_made(
    tasks: TaskSource, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Episodes(tasks, EnvironmentSettings())


def test_a_bundle_is_read_when_the_environment_is_made() -> None:
    with pytest.raises(SettingsError):
        Episodes(StoreTasks("shop"), EnvironmentSettings(bundles=["missing"]))


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        (StoreTasks("shop"), "StoreTasks(..., full_grades=True)"),
        (DatasetTasks("rows.jsonl", "store"), "DatasetTasks(..., full_grades=True)"),
        (JoinedTasks([StoreTasks(".", full_grades=True), StoreTasks("b")]), "StoreTasks(..., full_grades=True)"),
        (ProjectTasks(["shop"]), "'tests'"),
    ],
)
def test_the_score_of_tests_needs_full_grades(tasks: TaskSource, named: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Episodes(tasks, EnvironmentSettings(scores={"tests": 1.0}))
    assert named in str(raised.value)


def test_tasks_with_full_grades_have_the_score_of_tests(tmp_path: Path) -> None:
    tasks = JoinedTasks([StoreTasks(tmp_path, full_grades=True), DatasetTasks("rows.jsonl", "store", full_grades=True)])
    Episodes(tasks, EnvironmentSettings(scores={"tests": 1.0})).close()


def dataset(folder: Path, *bad: int) -> DatasetTasks:
    """Return the tasks of two rows; those with these indices have a commit that does not exist."""
    clones, rows = write_project(folder)
    for index in bad:
        rows[index]["base_commit"] = "0" * 40
    path = written(folder / "rows.jsonl", rows)
    return DatasetTasks(path, folder / "store", repos=clones, sandbox="process", python=sys.executable)


@pytest.mark.long
def test_rows_that_cannot_be_played_are_skipped(tmp_path: Path) -> None:
    tasks = dataset(tmp_path, 0)
    strict = Episodes(tasks, EnvironmentSettings(order="in-order"))
    with pytest.raises(InstanceError) as raised:
        strict.begin(seed=1)
    assert "\n" not in str(raised.value)
    assert "acme__shop-1" in str(raised.value)
    strict.close()
    for order in ("in-order", "random", "curriculum"):
        episodes = Episodes(tasks, EnvironmentSettings(order=order, skip_unusable=True))
        # The random orders meet the row at some time; the first seeds do.
        begun = [episodes.begin(seed=seed) for seed in range(4)]
        assert {episode.task_id for episode in begun} == {"acme__shop-2"}
        assert set(begun[-1].skipped) == {"acme__shop-1"}
        with pytest.raises(InstanceError):
            episodes.begin(task="acme__shop-1")
        episodes.close()


def test_a_dataset_without_a_playable_row_is_an_error(tmp_path: Path) -> None:
    episodes = Episodes(dataset(tmp_path, 0, 1), EnvironmentSettings(skip_unusable=True))
    with pytest.raises(SettingsError):
        episodes.begin(seed=1)
    episodes.close()


def work(grade: Grade) -> SolveWork:
    """Return the work of an episode whose patches all have this grade."""
    rollouts: Any = RolloutRunner.__new__(RolloutRunner)
    rollouts.runner = SimpleNamespace(interpreter=SimpleNamespace(environment_hash=""))
    rollouts.verdict, rollouts.grades = Verdict("bug", ""), Grades()
    rollouts.grader = lambda patch: grade
    made = SolveWork.__new__(SolveWork)
    made._rollouts = rollouts
    return made


def test_a_defect_of_the_grading_raises_and_a_fault_of_the_sandbox_does_not() -> None:
    for code, raises in ((ReasonCode.INTERNAL_ERROR, True), (ReasonCode.SANDBOX_FAILED, False)):
        grade = Grade("bug", None, Reason(code, "it failed"))
        if raises:
            with pytest.raises(GradingError):
                work(grade).tests_passing(Patch.parse(b""))
        else:
            assert work(grade).tests_passing(Patch.parse(b"")) is None


def test_limits_can_be_imported_from_the_package() -> None:
    from harness import environments

    assert environments.RolloutLimits is RolloutLimits
    assert replace(EnvironmentSettings(), limits=environments.RolloutLimits(steps=3)).limits.steps == 3
