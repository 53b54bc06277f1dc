"""Prepare an instance as a task: a source tree, a bug artifact, and the tests that decide.

The original of such an artifact is the commit with its tests and the reference solution; the bug is the reversed
solution, and the weakening is the reversed test patch. So solvers, grades and rewards work as for any other artifact.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.datasets.environments import Environments
from harness.datasets.instance import DoesNotHoldError, Instance, InstanceError
from harness.datasets.repositories import Repositories
from harness.datasets.row_tests import RowTests, find_tests
from harness.datasets.test_runners import choose_runner, files_of_tests
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, script_of
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.grading import MIN_DURATION_S
from pytest_ssr.grading.evidence import contradiction
from pytest_ssr.project.pytest_config import root_options
from pytest_ssr.project.shared_files import FOLDER, SharedFiles
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.decoding import decode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

_GRADED = "graded"
"""The folder of the trees that evaluations remove."""
_LEAST_BYTES = 64 << 20
"""Bytes of the files of removed trees that are kept for later rows, besides those of the last tree."""
_CLOCK_S = 1.0
"""How far the times of a file system may be behind the clock."""


@dataclass(slots=True)
class InstanceTask:
    """One instance, ready to run."""

    instance: Instance
    runner: Runner
    artifact: BugArtifact
    tests: RowTests
    """The tests that decide."""
    original_s: float = MIN_DURATION_S
    """Seconds that the tests take with the reference solution, at least `MIN_DURATION_S`."""
    files: tuple[str, ...] = ()
    """The files that hold its tests; `test_files` of the artifact are also those that tests only read."""

    @property
    def id(self) -> str:
        """The artifact's content id."""
        return self.artifact.content_id(self.runner.snapshot.tree_hash)


def instance_folder(instance: Instance, store: Store, *, keep: bool = True) -> Path:
    """Return the folder of an instance's solved tree, named after its repository; it may not exist yet.

    keep: whether the store keeps it; else it is the one of an evaluation, which removes it.
    """
    root = store.root / ("instances" if keep else _GRADED)
    return root / instance.key / instance.repo.replace("/", "__")


def shown_at(instance: Instance, store: Store) -> Path:
    """Return the path at which sandboxes show a tree: the same for all instances of a repository.

    Compiled files contain it, and are shared by instances only if they are equal.
    """
    return store.root / "instances" / instance.repo.replace("/", "__")


def trees_of(instance: Instance, store: Store, *, keep: bool = True) -> Path:
    """Return the folder of the copies of an instance's solved tree; see `instance_folder`."""
    return store.trees if keep else instance_folder(instance, store, keep=False).with_name("trees")


def tree_of(instance: Instance, repositories: Repositories, store: Store, *, keep: bool = True) -> Path:
    """Return the folder of an instance's solved tree, written if it is missing; see `instance_folder`."""
    folder = instance_folder(instance, store, keep=keep)
    with store.alone(f"instance-{instance.key}"):
        if not folder.is_dir():
            if not keep:
                _use_common_files(instance, store)
            staging = folder.with_name(".writing")
            shutil.rmtree(staging, ignore_errors=True)
            repositories.write(instance, staging, SharedFiles(trees_of(instance, store, keep=keep)))
            staging.rename(folder)
    return folder


def using_trees(instance: Instance, store: Store) -> AbstractContextManager[None]:
    """Return a context in which nothing else removes the trees of an instance that the store does not keep."""
    return store.in_use(f"trees-{instance.key}")


def discard_trees(instance: Instance, store: Store) -> None:
    """Remove the trees of an instance that the store does not keep, unless another process uses them.

    Their files stay for the next row, which shares most of them if it is of the same repository.
    """
    begin_s = time.time() - _CLOCK_S
    with store.unused(f"trees-{instance.key}") as free:
        if free:
            shutil.rmtree(instance_folder(instance, store, keep=False).parent, ignore_errors=True)
    SharedFiles(store.root / _GRADED).remove_unused(begin_s, _LEAST_BYTES)


def _use_common_files(instance: Instance, store: Store) -> None:
    """Make the trees of an instance that the store does not keep share files with those of other instances."""
    trees = trees_of(instance, store, keep=False)
    for folder in (trees, store.root / _GRADED / FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (trees / FOLDER).symlink_to(Path("..", "..", FOLDER))


def open_task(
    instance: Instance,
    repositories: Repositories,
    environments: Environments | None,
    store: Store,
    *,
    settings: RuleSettings,
    sandbox: str = "auto",
    keep: bool = True,
) -> InstanceTask:
    """Write an instance's tree, open a runner on it in its environment, and find its tests by its reference solution.

    environments: None if the sandbox's image has the environment. keep: whether the store keeps the trees, so that
    exports find them; else `discard_trees` removes them.

    Raises InstanceError for a row that cannot be used or does not hold on this machine, and the errors of
    `open_runner`.
    """
    if not instance.fail_to_pass:
        raise InstanceError(f"{instance.id} has no FAIL_TO_PASS test, so no grade is possible")
    folder = tree_of(instance, repositories, store, keep=keep)
    test_runner = choose_runner(instance, folder)
    files = files_of_tests(instance, test_runner, folder)
    with store.alone(f"instance-{instance.key}"):
        python = environments.python_of(instance, folder) if environments is not None else None
        runner = open_runner(
            folder,
            store,
            settings=settings,
            sandbox=sandbox,
            python=python,
            test_runner=test_runner,
            # Kept trees are those of other commands too, which run all tests of pytest.
            targets=() if keep and isinstance(test_runner, PytestRunner) else files,
            model_written=True,
            shown_at=shown_at(instance, store),
            trees=trees_of(instance, store, keep=keep),
        )
    options = root_options(runner.snapshot, files) if isinstance(test_runner, PytestRunner) else ()
    runner = replace(runner, pytest_options=options)
    artifact = BugArtifact(
        script=script_of(test_runner, files, options=options),
        test_files=tuple(sorted({*files, *instance.test_patch.paths} & runner.snapshot.files.keys())),
        parser=default_parser(),
        bug=instance.patch.reverse(),
        weaken=instance.test_patch.reverse(),
    )
    try:
        addopts, original_s, tests = _reference_runs(instance, runner, files, runner.original.apply(artifact.bug))
    except DoesNotHoldError as error:
        error.task = InstanceTask(instance, runner, artifact, RowTests({}, {}), files=tuple(files))
        raise
    artifact = replace(artifact, script=script_of(test_runner, files, options=(*options, *addopts)))
    return InstanceTask(instance, runner, artifact, tests, max(MIN_DURATION_S, original_s), tuple(files))


def _reference_runs(
    instance: Instance, runner: Runner, files: Sequence[str], buggy: CodebaseState
) -> tuple[Sequence[str], float, RowTests]:
    """Run the tests with and without the reference solution.

    Returns the options that the project's configuration adds, the seconds with the solution, and the tests that
    decide. A row that does not hold is not stored but run again each time: the machine may be the cause.
    """
    key = ("row", instance.key, *files)
    stored = runner.reference_store.get(*key)
    if stored is not None:
        with contextlib.suppress(KeyError, TypeError, ValueError, StoreError):
            return tuple(stored["addopts"]), float(stored["seconds"]), decode(RowTests, stored["tests"])
    solved, _ = runner.suite(runner.original, files, fresh=True)
    if reason := contradiction(solved):
        raise InstanceError(f"{instance.id}: with the reference solution, {reason}")
    unsolved, _ = runner.suite(buggy, files, like_s=max(MIN_DURATION_S, solved.seconds), fresh=True)
    tests = find_tests(instance, solved, unsolved)
    runner.reference_store.put({"addopts": solved.addopts, "seconds": solved.seconds, "tests": tests.to_json()}, *key)
    return solved.addopts, solved.seconds, tests
