"""Find out what each row of a run needs and whether it is here, before anything is copied, built or run."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.datasets import Instance, InstanceError
from harness.datasets.environments import uv_program
from harness.datasets.instance_task import instance_folder
from harness.datasets.repositories import CommitPath, Tree, has_commit, is_reachable, missing_commits, tree_bytes
from harness.datasets.test_runners import choose_runner
from harness.evaluation.grading import Grader
from harness.harbor.compose import require_compose
from harness.harbor.containers import Engine
from harness.harbor.task import TaskError
from pytest_ssr.errors import MissingExtraError, ProjectError, SandboxError, SsrError
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.project.interpreter import find_interpreter
from pytest_ssr.sandbox import SandboxName, choose
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.mirrors import image_source

_ANSWER_S = 1.5
_ENGINE_KINDS = ("docker", "gvisor")
_COPIES = 2
"""A tree is written once for its instance, and once more as a snapshot."""


class Obstacle(StrEnum):
    """What keeps a row from running."""

    INVALID_ROW = "invalid-row"
    OTHER_LANGUAGE = "other-language"
    UNSUPPORTED_TASK = "unsupported-task"
    """A task directory that cannot be used."""
    NO_TESTS = "no-tests"
    NO_RUNNER = "no-runner"
    NO_COMMIT = "no-commit"
    NO_REPOSITORY = "no-repository"
    NO_ENGINE = "no-engine"
    NO_IMAGE = "no-image"
    NO_INTERPRETER = "no-interpreter"
    NO_SANDBOX = "no-sandbox"


class EnvironmentKind(StrEnum):
    """Where the environment of a row's tests comes from."""

    GIVEN = "given"
    """The interpreter that `--python` names."""
    BUILT = "built"
    """uv builds it."""
    IMAGE = "image"
    TASK = "task"
    """Its task directory describes its containers."""
    SYSTEM = "system"
    """It is that of the machine whose sandboxes are used."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a row cannot run."""

    obstacle: Obstacle
    message: str
    """What is missing, and what to do."""

    @property
    def error(self) -> SsrError:
        """The error to raise instead of opening the row."""
        is_sandbox = self.obstacle in (Obstacle.NO_ENGINE, Obstacle.NO_IMAGE, Obstacle.NO_SANDBOX)
        return SandboxError(self.message) if is_sandbox else InstanceError(self.message)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What one row needs."""

    instance_id: str
    runner: str
    """The name of what runs its tests; empty if nothing does, or if its files are not here."""
    environment: EnvironmentKind
    python: str = ""
    """The path of the interpreter, if it is given."""
    image: str = ""
    """The name of the image, if there is one."""
    image_is_here: bool | None = None
    """Whether it need not be pulled; None without an image, or if that is not known."""
    image_bytes: int | None = None
    """The size of an image that is here."""
    image_source: str = ""
    """The name by which the image is pulled, that of its mirror if it has one; empty if it is here, or not pulled."""
    clone_source: str = ""
    """The URL that the repository is cloned from; empty if it is here, or not needed."""
    seconds: float | None = None
    """How long the row took the last time; None if that is not known."""
    disk_bytes: int | None = None
    """What its trees will take in the store, without its environment; None if that is not known."""
    blocked: Blocked | None = None
    """Why it cannot run, if it cannot."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "blocked": asdict(self.blocked) if self.blocked is not None else None}


@dataclass(slots=True)
class Planner:
    """Plans the rows of a run with a grader's settings; nothing of a row runs."""

    grader: Grader
    _image_bytes: dict[str, int | None] = field(default_factory=dict)
    """The sizes of images that were looked up; None for those that must be pulled."""
    _tree_bytes: dict[Path, int] = field(default_factory=dict)
    """The size of one tree of each repository, which stands for all its trees."""
    _runners: dict[str, str] = field(default_factory=dict)
    """The names of the runners of rows, if their files are here."""

    def plan(self, instances: Sequence[Instance]) -> list[RowPlan]:
        """Return the plan of each row; servers of sandboxes are asked. Raises SettingsError for an invalid sandbox."""
        blocked = self.blocked(instances)
        blocked |= self._without_servers([i for i in instances if i.id not in blocked])
        return [self._row(i, blocked.get(i.id)) for i in instances]

    def blocked(self, instances: Sequence[Instance], *, elsewhere: bool = False) -> dict[str, Blocked]:
        """Return the rows that cannot run, by id.

        elsewhere: they will run on other machines, so that what is missing here does not matter.
        This takes two seconds at most, unless git or the engine hangs: what does not answer in time may still work.
        """
        obstacles: dict[str, Blocked] = {}
        checks: list[Callable[[Sequence[Instance]], dict[str, Blocked]]] = [
            _invalid_rows,
            _without_tests,
            self._without_name,
        ]
        if not elsewhere:
            checks += [self._without_image, self._without_repository, self._without_runner, self._without_interpreter]
        for check in checks:
            obstacles |= check([i for i in instances if i.id not in obstacles and i.harbor is None])
        if not elsewhere:
            obstacles |= self._without_containers([i for i in instances if i.harbor is not None])
        return obstacles

    def _row(self, instance: Instance, blocked: Blocked | None) -> RowPlan:
        image, python = self._image(instance), self.grader.environments.python
        is_pulled = bool(image) and self._sandbox(instance).kind in _ENGINE_KINDS
        size = self._image_bytes.get(image)
        seconds = self.grader.expected_s(instance)
        return RowPlan(
            instance.id,
            self._runners.get(instance.id, ""),
            self._environment(instance),
            python=str(python or ""),
            image=image,
            image_is_here=size is not None if image in self._image_bytes else None,
            image_bytes=size,
            image_source=image_source(image) if size is None and is_pulled else "",
            clone_source=self._clone_source(instance),
            seconds=None if math.isinf(seconds) else seconds,
            disk_bytes=self._disk_bytes(instance),
            blocked=blocked,
        )

    def _sandbox(self, instance: Instance) -> SandboxName:
        return SandboxName.parse(self.grader.sandbox_of(instance))

    def _environment(self, instance: Instance) -> EnvironmentKind:
        if instance.harbor is not None:
            return EnvironmentKind.TASK
        if self._image(instance):
            return EnvironmentKind.IMAGE
        if self.grader.environments.python is not None:
            return EnvironmentKind.GIVEN
        return EnvironmentKind.SYSTEM if self._sandbox(instance).address else EnvironmentKind.BUILT

    def _clone_source(self, instance: Instance) -> str:
        if instance.invalid or not self._needs_clone(instance) or self._clone(instance.repo) is not None:
            return ""
        return self.grader.repositories.url(instance.repo)

    def _needs_clone(self, instance: Instance) -> bool:
        """Return whether a row needs a repository: its image has the commit, a tree of an earlier run is used again."""
        if instance.harbor is not None:
            return False
        return not self.grader.images and not instance_folder(instance, self.grader.store).is_dir()

    def _image(self, instance: Instance) -> str:
        return "" if instance.invalid else self._sandbox(instance).image

    def _without_containers(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Check that there is an engine for task directories, and the compose plugin for those of several services."""
        if not instances:
            return {}
        try:
            Engine().close()
        except (SandboxError, MissingExtraError) as error:
            return {i.id: Blocked(Obstacle.NO_ENGINE, str(error)) for i in instances}
        obstacles = {}
        for instance in instances:
            assert instance.harbor is not None
            try:
                require_compose(instance.harbor)
            except TaskError as error:
                obstacles[instance.id] = Blocked(Obstacle.UNSUPPORTED_TASK, str(error))
        return obstacles

    def _without_image(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        obstacles: dict[str, Blocked] = {}
        by_kind = defaultdict(list)
        for instance in instances:
            if self._image(instance):
                by_kind[self._sandbox(instance).kind].append(instance)
        for kind, using in by_kind.items():
            is_engine = kind in _ENGINE_KINDS
            obstacles |= self._without_docker_image(using) if is_engine else self._without_apptainer_image(using)
        return obstacles

    def _without_name(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Find the rows that have to run in their own images and name none."""
        obstacles: dict[str, Blocked] = {}
        for instance in instances if self.grader.images else ():
            try:
                instance.sandbox(self.grader.images)
            except InstanceError as error:
                obstacles[instance.id] = Blocked(Obstacle.NO_IMAGE, str(error))
        return obstacles

    def _without_servers(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Try the sandboxes of other machines; a run does so itself, and ends if they do not work."""
        if self.grader.images or not instances or not SandboxName.parse(self.grader.sandbox).address:
            return {}
        try:
            provider = choose(self.grader.sandbox, model_written=True)
        except SandboxError as error:
            blocked = Blocked(Obstacle.NO_SANDBOX, str(error))
            return {i.id: blocked for i in instances}
        getattr(provider, "close", lambda: None)()
        return {}

    def _without_docker_image(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Look up the images of an engine; those that it does not have are pulled later."""
        with contextlib.closing(DockerProvider()) as provider:
            try:
                for name in {self._image(i) for i in instances}:
                    self._image_bytes[name] = provider.local_size(name)
            except (SandboxError, MissingExtraError) as error:
                blocked = Blocked(Obstacle.NO_ENGINE, str(error))
                return {i.id: blocked for i in instances}
        return {}

    def _without_apptainer_image(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Look up the images that are files; references are left to Apptainer, which has its own cache."""
        if shutil.which("apptainer") is None:
            blocked = Blocked(Obstacle.NO_ENGINE, "apptainer is not installed; install it, or use --images docker")
            return {i.id: blocked for i in instances}
        obstacles = {}
        for instance in instances:
            name = self._image(instance)
            path = Path(name)
            if "://" in name:
                continue
            if path.exists():
                self._image_bytes[name] = path.stat().st_size if path.is_file() else 0
            else:
                message = f"{instance.id}: the image {name} does not exist; name a .sif file, a folder or docker://NAME"
                obstacles[instance.id] = Blocked(Obstacle.NO_IMAGE, message)
        return obstacles

    def _without_interpreter(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Check the interpreter that is named, or that uv can build environments; other systems have their own."""
        obstacles: dict[str, Blocked] = {}
        by_need = defaultdict(list)
        for instance in instances:
            if not self._sandbox(instance).has_own_system:
                by_need[self._runners.get(instance.id, PYTEST.name) == PYTEST.name].append(instance)
        for needs_pytest, using in by_need.items():
            if blocked := self._unusable_interpreter(needs_pytest=needs_pytest):
                obstacles |= {i.id: blocked for i in using}
        return obstacles

    def _unusable_interpreter(self, *, needs_pytest: bool) -> Blocked | None:
        python = self.grader.environments.python
        try:
            if python is None:
                uv_program()
            else:
                find_interpreter(self.grader.store.root, python, needs_pytest=needs_pytest)
        except MissingExtraError as error:
            return Blocked(Obstacle.NO_INTERPRETER, f"{error}; or name an interpreter with --python")
        except ProjectError as error:
            return Blocked(Obstacle.NO_INTERPRETER, str(error))
        return None

    def _without_repository(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Check that clones have the commits, and that other repositories can be cloned."""
        obstacles: dict[str, Blocked] = {}
        by_repository = defaultdict(list)
        for instance in instances:
            if self._needs_clone(instance):
                by_repository[instance.repo].append(instance)
        to_clone = []
        for repo, using in by_repository.items():
            git = self._clone(repo)
            if git is None:
                to_clone.append(repo)
                continue
            missing = missing_commits(git, {i.base_commit for i in using})
            for instance in using:
                if instance.base_commit in missing:
                    commit = instance.base_commit[:12] or "(none)"
                    message = f"{instance.id}: {git} has no commit {commit}; update that clone with git fetch"
                    obstacles[instance.id] = Blocked(Obstacle.NO_COMMIT, message)
        for repo in self._unreachable(to_clone):
            url = self.grader.repositories.url(repo)
            message = f"there is no clone of {repo}, and {url} cannot be reached; name a folder of clones with --repos"
            obstacles |= {i.id: Blocked(Obstacle.NO_REPOSITORY, message) for i in by_repository[repo]}
        return obstacles

    def _without_runner(self, instances: Sequence[Instance]) -> dict[str, Blocked]:
        """Find what runs the tests of each row whose files are here."""
        obstacles = {}
        for instance in instances:
            tree = self._tree(instance)
            try:
                if tree is not None:
                    self._runners[instance.id] = choose_runner(instance, tree).name
            except InstanceError as error:
                obstacles[instance.id] = Blocked(Obstacle.NO_RUNNER, str(error))
        return obstacles

    def _tree(self, instance: Instance) -> Tree | None:
        """Return the files of a row; None if they are only in its image, or in a repository that is not cloned yet."""
        folder = instance_folder(instance, self.grader.store)
        if folder.is_dir():
            return folder
        git = self._clone(instance.repo)
        if git is None or not has_commit(git, instance.base_commit):
            return None
        return CommitPath(git, instance.base_commit, added=frozenset(instance.test_patch.paths))

    def _clone(self, repo: str) -> Path | None:
        """Return the clone that a repository's rows use, or None if it has to be cloned first."""
        repositories = self.grader.repositories
        own = repositories.own_clone(repo)
        return repositories.find_local(repo) or (own if own.is_dir() else None)

    def _unreachable(self, repos: Sequence[str]) -> list[str]:
        """Return the repositories that cannot be cloned, asking for all of them at the same time."""
        urls = [self.grader.repositories.url(repo) for repo in repos]
        with ThreadPoolExecutor(max(1, len(urls))) as pool:
            answers = pool.map(lambda url: is_reachable(url, _ANSWER_S), urls)
        return [repo for repo, answer in zip(repos, answers, strict=True) if answer is False]

    def _disk_bytes(self, instance: Instance) -> int | None:
        """Return what the trees of a row will take in the store; one tree of a repository stands for the others."""
        if instance.invalid:
            return None
        if instance_folder(instance, self.grader.store).is_dir():
            return 0
        git = self._clone(instance.repo)
        if git is None:
            return None
        if git not in self._tree_bytes:
            self._tree_bytes[git] = tree_bytes(git, instance.base_commit)
        return _COPIES * self._tree_bytes[git] or None


def _invalid_rows(instances: Sequence[Instance]) -> dict[str, Blocked]:
    """Find the rows that could not be read."""
    invalid = [i for i in instances if i.invalid]
    return {i.id: Blocked(Obstacle(str(i.invalid_code)), i.invalid) for i in invalid}


def _without_tests(instances: Sequence[Instance]) -> dict[str, Blocked]:
    """Check that each row names tests."""
    obstacles = {}
    for instance in instances:
        if not instance.has_tests:
            message = f"{instance.id} has no FAIL_TO_PASS test, so no grade is possible; leave it out with --only"
            obstacles[instance.id] = Blocked(Obstacle.NO_TESTS, message)
    return obstacles
