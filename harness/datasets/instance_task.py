"""Prepare an instance as a task: a source tree, a bug artifact, and the tests that decide.

The original of such an artifact is the commit with its tests and the reference solution; the bug is the reversed
solution, and the weakening is the reversed test patch. So solvers, grades and rewards work as for any other artifact.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.datasets.environments import Environments
from harness.datasets.instance import Instance, InstanceError
from harness.datasets.repositories import Repositories
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import MIN_DURATION_S
from pytest_ssr.project.pytest_config import root_options
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.test_run import abbreviate
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@dataclass(slots=True)
class InstanceTask:
    """One instance, ready to run."""

    instance: Instance
    runner: Runner
    artifact: BugArtifact
    options: tuple[str, ...] = ()
    """Options for pytest: its root, and those that the project's own configuration adds."""
    original_s: float = MIN_DURATION_S
    """Seconds that the tests take with the reference solution, at least LEAST_S."""

    @property
    def id(self) -> str:
        """The artifact's content id."""
        return self.artifact.content_id(self.runner.snapshot.tree_hash)

    def reference_fault(self) -> str:
        """Return how the tests contradict the row on this machine, or an empty string.

        Every grade depends on this: with the reference solution all tests pass, without it no FAIL_TO_PASS test does.
        """
        wanted = {*self.instance.fail_to_pass, *self.instance.pass_to_pass}
        files = [p for p in self.artifact.test_files if p.endswith(".py")]
        solved, _ = self.runner.suite(self.runner.original, files, fresh=True)
        if failing := wanted - solved.passing:
            failures = f"{abbreviate(failing)}{_because(solved.fault)}"
            return f"{self._count(failing, wanted)} with the reference solution: {failures}"
        buggy = self.runner.original.apply(self.artifact.bug)
        unsolved, _ = self.runner.suite(buggy, files, like_s=self.original_s, fresh=True)
        if passing := set(self.instance.fail_to_pass) & unsolved.passing:
            return f"{len(passing)} FAIL_TO_PASS tests pass without the reference solution: {abbreviate(passing)}"
        return ""

    @staticmethod
    def _count(missed: Collection[str], wanted: Collection[str]) -> str:
        return f"{len(missed)} of {len(wanted)} tests do not pass here"


def _because(fault: str) -> str:
    return f" ({fault})" if fault else ""


def instance_folder(instance: Instance, store: Store) -> Path:
    """Return the folder of an instance's solved tree, named after its repository; it may not exist yet."""
    return store.root / "instances" / instance.key / instance.repo.replace("/", "__")


def tree_of(instance: Instance, repositories: Repositories, store: Store) -> Path:
    """Return the folder of an instance's solved tree, named after its repository; write it if it is missing."""
    folder = instance_folder(instance, store)
    with store.alone(f"instance-{instance.key}"):
        if not folder.is_dir():
            staging = folder.with_name(".writing")
            shutil.rmtree(staging, ignore_errors=True)
            repositories.write(instance, staging)
            staging.rename(folder)
    return folder


def open_task(
    instance: Instance,
    repositories: Repositories,
    environments: Environments | None,
    store: Store,
    *,
    settings: RuleSettings,
    sandbox: str = "auto",
) -> InstanceTask:
    """Write an instance's tree, open a runner on it in its environment, and create its artifact.

    environments: None if the sandbox's image has the environment.

    Raises InstanceError for a row that cannot be used, and the errors of `open_runner`.
    """
    if not instance.fail_to_pass:
        raise InstanceError(f"{instance.id} has no FAIL_TO_PASS test, so no grade is possible")
    folder = tree_of(instance, repositories, store)
    with store.alone(f"instance-{instance.key}"):
        python = environments.python_of(instance, folder) if environments is not None else None
        runner = open_runner(folder, store, settings=settings, sandbox=sandbox, python=python, model_written=True)
    files = _test_files(instance, runner)
    runner = replace(runner, pytest_options=root_options(runner.snapshot, files))
    addopts, original_s = _reference_run(runner, files)
    options = (*runner.pytest_options, *addopts)
    artifact = BugArtifact(
        script=default_script(files, options=options),
        test_files=tuple(sorted({*files, *instance.test_patch.paths} & runner.snapshot.files.keys())),
        parser=default_parser(),
        bug=instance.patch.reverse(),
        weaken=instance.test_patch.reverse(),
    )
    return InstanceTask(instance, runner, artifact, options, max(MIN_DURATION_S, original_s))


def _reference_run(runner: Runner, files: Sequence[str]) -> tuple[Sequence[str], float]:
    """Return the options that the project's configuration adds, and the seconds of its tests with the solution."""
    key = ("reference run", *files)
    stored = runner.reference_store.get(*key)
    if stored is None:
        run, _ = runner.suite(runner.original, files, fresh=True)
        stored = {"addopts": run.addopts, "seconds": run.seconds}
        if not run.fault:
            runner.reference_store.put(stored, *key)
    return stored["addopts"], float(stored["seconds"])


def _test_files(instance: Instance, runner: Runner) -> list[str]:
    """Return the files of the row's tests; raises InstanceError for one that the repository does not have."""
    files = {name.split("::", 1)[0] for name in (*instance.fail_to_pass, *instance.pass_to_pass)}
    unknown = sorted(f for f in files if f not in runner.snapshot.files)
    if unknown:
        raise InstanceError(f"{instance.id}: the repository has no such test files: {abbreviate(unknown)}")
    return sorted(files)
