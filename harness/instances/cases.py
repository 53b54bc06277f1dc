"""An instance as what the rest of the harness works with: a tree, a bug artifact, and the tests that decide.

The original of such an artifact is the commit with its tests and the reference solution; the bug is the solution
reversed, the weakening the tests reversed. So solvers, grades and rewards are those of any other artifact.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harness.instances.checkouts import Checkouts
from harness.instances.environments import Environments
from harness.instances.instance import Instance, InstanceError
from pytest_ssr.artifact import BugArtifact
from pytest_ssr.execution.own_script import own_parser, own_script
from pytest_ssr.execution.root import root_options
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import LEAST_S
from pytest_ssr.opening import open_workbench
from pytest_ssr.outcomes import some
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store


@dataclass(slots=True)
class Case:
    """One instance, opened."""

    instance: Instance
    bench: Workbench
    artifact: BugArtifact
    options: tuple[str, ...] = ()
    """Of pytest: its root, and what the project's own configuration adds."""
    original_s: float = LEAST_S
    """Seconds that the tests take with the reference solution."""

    @property
    def id(self) -> str:
        """The artifact's content id."""
        return self.artifact.content_id(self.bench.snapshot.tree_hash)

    def reference_fault(self) -> str:
        """Return why the tests do not do here what the row says, or an empty text.

        Every grade stands on it: the reference solution passes all of them, and without it no FAIL_TO_PASS test does.
        """
        wanted = {*self.instance.fail_to_pass, *self.instance.pass_to_pass}
        files = [p for p in self.artifact.test_files if p.endswith(".py")]
        solved, _ = self.bench.suite(self.bench.original, files, fresh=True)
        if missed := wanted - solved.passing:
            return f"{self._of(missed, wanted)} with the reference solution: {some(missed)}{_because(solved.fault)}"
        buggy = self.bench.original.apply(self.artifact.bug)
        unsolved, _ = self.bench.suite(buggy, files, like_s=self.original_s, fresh=True)
        if early := set(self.instance.fail_to_pass) & unsolved.passing:
            return f"{len(early)} FAIL_TO_PASS tests pass without the reference solution: {some(early)}"
        return ""

    @staticmethod
    def _of(missed: Collection[str], wanted: Collection[str]) -> str:
        return f"{len(missed)} of {len(wanted)} tests do not pass here"


def _because(fault: str) -> str:
    return f" ({fault})" if fault else ""


def tree_of(instance: Instance, checkouts: Checkouts, store: Store) -> Path:
    """Return the folder of an instance's solved tree, named as its repository; written where it is not there."""
    folder = store.root / "instances" / instance.key / instance.repo.replace("/", "__")
    with store.alone(f"instance-{instance.key}"):
        if not folder.is_dir():
            staging = folder.with_name(".writing")
            shutil.rmtree(staging, ignore_errors=True)
            checkouts.write(instance, staging)
            staging.rename(folder)
    return folder


def open_case(
    instance: Instance,
    checkouts: Checkouts,
    environments: Environments | None,
    store: Store,
    *,
    settings: RuleSettings,
    sandbox: str = "auto",
) -> Case:
    """Write an instance's tree, open a workbench on it in its environment, and make its artifact.

    environments: None: the sandbox's image has one.

    Raises InstanceError for a row that cannot be used, and what `open_workbench` raises.
    """
    if not instance.fail_to_pass:
        raise InstanceError(f"{instance.id} has no FAIL_TO_PASS test: nothing would decide")
    folder = tree_of(instance, checkouts, store)
    with store.alone(f"instance-{instance.key}"):
        python = environments.python_of(instance, folder) if environments is not None else None
        bench = open_workbench(folder, store, settings=settings, sandbox=sandbox, python=python, model_written=True)
    files = _test_files(instance, bench)
    bench.root = root_options(bench.snapshot, files)
    usual, _ = bench.suite(bench.original, files, fresh=True)
    options = (*bench.root, *usual.addopts)
    artifact = BugArtifact(
        script=own_script(files, options=options),
        test_files=tuple(sorted({*files, *instance.test_patch.paths} & bench.snapshot.files.keys())),
        parser=own_parser(),
        bug=instance.patch.reverse(),
        weaken=instance.test_patch.reverse(),
    )
    return Case(instance, bench, artifact, options, max(LEAST_S, usual.seconds))


def _test_files(instance: Instance, bench: Workbench) -> list[str]:
    """Return the files of the tests that decide; raises InstanceError for ids that are none of pytest's."""
    files = {name.split("::", 1)[0] for name in (*instance.fail_to_pass, *instance.pass_to_pass)}
    unknown = sorted(f for f in files if f not in bench.snapshot.files)
    if unknown:
        raise InstanceError(f"{instance.id}: tests are named that lie in no file of the repository: {some(unknown)}")
    return sorted(files)
