"""Open the runner of a project on another machine, with the same tree, environment and sandbox, or refuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.executors.node import Node
from harness.executors.protocol import Cluster
from harness.executors.trees import TreeCopy, pack
from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PytestRunner, TestRunner
from pytest_ssr.project.interpreter import Interpreter, find_in_image, find_interpreter
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.protocol import Limits, WithImage
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import key_of
from pytest_ssr.storage.stored_records import StoredRecords


class EnvironmentsDifferError(SandboxUnavailableError):
    """A machine has another environment than the run: its results would not be those of the run."""


def require_same_environment(here: Interpreter, expected: Interpreter) -> None:
    """Raise EnvironmentsDifferError unless an interpreter has the version and the packages of the run's."""
    if here.environment_hash != expected.environment_hash:
        raise EnvironmentsDifferError(
            f"{expected.executable} has other packages or another version than where the run was started: "
            f"Python {here.version} ({here.environment_hash[:12]}) here, {expected.version} "
            f"({expected.environment_hash[:12]}) there",
            remedy="install the same packages on all machines, or use images",
        )


@dataclass(frozen=True)
class RunnerRecipe:
    """What a runner is made of; everything but the tree is small."""

    tree: TreeCopy
    sandbox: str
    interpreter: Interpreter
    settings: RuleSettings
    limits: Limits
    pytest_options: tuple[str, ...]
    test_runner: TestRunner

    @classmethod
    def of(cls, runner: Runner, cluster: Cluster) -> RunnerRecipe:
        """Return the recipe of a runner; its tree is kept for those who need it."""
        snapshot, provider = runner.snapshot, runner.provider
        name = key_of(snapshot.tree_hash, runner.interpreter.environment_hash, provider.name, snapshot.directory.name)
        image = provider.image if isinstance(provider, WithImage) else ""
        return cls(
            TreeCopy(name, snapshot, cluster.put(name, lambda: pack(snapshot.directory))),
            f"{provider.name}:{image}" if image else provider.name,
            runner.interpreter,
            runner.settings,
            runner.limits,
            runner.pytest_options,
            runner.test_runner,
        )

    @property
    def key(self) -> str:
        """A hash of everything that the runner depends on."""
        return key_of(self.tree.name, self.sandbox, self.settings.key(), self.pytest_options, self.test_runner)

    def open(self, node: Node) -> Runner:
        """Return the runner, opened at the first call on this machine.

        Raises EnvironmentsDifferError if the interpreter has other packages here, SandboxUnavailableError if the
        sandbox does not work, ProjectError if there is no such interpreter, StoreWriteError for a full disk.
        """
        return node.once(("runner", self.key), lambda: self._open(node)).scoped()

    def _open(self, node: Node) -> Runner:
        provider = choose(self.sandbox)
        snapshot = node.use_tree(self.tree)
        python = self.interpreter.executable
        needs_pytest = isinstance(self.test_runner, PytestRunner) and not self.settings.by_script
        here = find_in_image(provider, snapshot.directory, python, needs_pytest=needs_pytest) or find_interpreter(
            snapshot.directory, python, needs_pytest=needs_pytest
        )
        require_same_environment(here, self.interpreter)
        references = StoredRecords(node.store, f"blind/{self.key}")
        return Runner(
            snapshot,
            provider,
            replace(here, note=self.interpreter.note),
            self.settings,
            limits=self.limits,
            pytest_options=self.pytest_options,
            test_runner=self.test_runner,
            reference_store=references,
        )
