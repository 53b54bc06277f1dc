"""Read a task directory of Harbor (schema 1.4 and earlier), without an engine and without running anything of it.

The fields and their defaults are those of Harbor 0.26; fields that it does not know are ignored, as it ignores them.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_ssr.errors import SsrError
from pytest_ssr.records.decoding import of_shape

CONFIGURATION = "task.toml"
_SCRIPT, _SOLVE = "test.sh", "solve.sh"
_DOCKERFILE, COMPOSE = "Dockerfile", "docker-compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_MAX_FILES, _MAX_BYTES = 20_000, 1 << 30
PUBLISHED = "/logs/artifacts"
"""The folder of a container that is always handed to a separate verifier."""


class Refusal(StrEnum):
    """Why a task directory cannot be used."""

    UNREADABLE = "unreadable"
    """`task.toml` or another file cannot be read, or does not follow the schema."""
    INCOMPLETE = "incomplete"
    """The instruction, the environment or the verifier is missing."""
    LEAVES_DIRECTORY = "leaves-directory"
    """A link or a path leads out of the directory."""
    TOO_LARGE = "too-large"
    ACCELERATOR = "accelerator"
    """It needs a GPU or a TPU."""
    OPERATING_SYSTEM = "operating-system"
    MCP_SERVERS = "mcp-servers"
    """It hands tools to the agent by the Model Context Protocol."""
    ALLOWED_HOSTS = "allowed-hosts"
    """Its verifier may reach some hosts only, which no engine enforces by itself."""
    HOST_VARIABLE = "host-variable"
    """It needs a variable of this machine's environment, which is not handed to its code."""
    NO_COMPOSE = "no-compose"
    """It has several services, and the Docker engine here has no compose plugin."""


class TaskError(SsrError):
    """A task directory cannot be used; the message names it."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        """refusal: the kind of reason."""
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """A command that is run until it succeeds."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Environment:
    """`[environment]` or `[verifier.environment]`."""

    docker_image: str | None = None
    os: str = "linux"
    cpus: float | None = None
    memory_mb: int | None = None
    memory: str | None = None
    gpus: int | None = None
    tpu: Mapping[str, Any] | None = None
    network_mode: str | None = None
    allow_internet: bool | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    build_timeout_sec: float = 600.0
    mcp_servers: tuple[Mapping[str, Any], ...] = ()
    healthcheck: Healthcheck | None = None

    @property
    def network(self) -> str:
        """The mode of its network; by default the public one."""
        if self.network_mode is None and self.allow_internet is not None:
            return "public" if self.allow_internet else "no-network"
        return self.network_mode or "public"

    @property
    def memory_bytes(self) -> int | None:
        """The limit of its memory; None without one."""
        if self.memory_mb is not None:
            return self.memory_mb << 20
        match = re.fullmatch(r"\s*([\d.]+)\s*([GMK])B?\s*", self.memory or "", re.IGNORECASE)
        if match is None:
            return None
        return int(float(match[1]) * {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10}[match[2].upper()])


@dataclass(frozen=True, slots=True)
class Collect:
    """A command that is run before artifacts are collected."""

    command: str
    service: str = "main"
    timeout_sec: float = 60.0
    user: str | int | None = None


@dataclass(frozen=True, slots=True)
class _Verifier:
    timeout_sec: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | int | None = None
    environment_mode: str | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()
    network_mode: str | None = None

    @property
    def mode(self) -> str | None:
        if self.environment_mode is None and self.environment is not None:
            return "separate"
        return self.environment_mode


@dataclass(frozen=True, slots=True)
class _Agent:
    timeout_sec: float | None = None
    user: str | int | None = None
    network_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file or folder of a container that is handed to a separate verifier."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    min_reward: float | Mapping[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class _Package:
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class _Solution:
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Configuration:
    task: _Package | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    environment: Environment = Environment()
    solution: _Solution = _Solution()
    steps: tuple[_Step, ...] = ()
    artifacts: tuple[str | Artifact, ...] = ()
    multi_step_reward_strategy: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a container is made of."""

    environment: Environment
    folder: Path
    """The folder of its Dockerfile or compose file; its other files are uploaded to no container."""

    @property
    def image(self) -> str:
        """The image that is named; empty if one has to be built."""
        return self.environment.docker_image or ""

    @property
    def compose(self) -> Path | None:
        """The compose file; None for a container that stands alone."""
        path = self.folder / COMPOSE
        return path if path.is_file() else None


@dataclass(frozen=True, slots=True)
class Verification:
    """How the work of one step is graded."""

    place: Place | None
    """What its own container is made of; None to run in a copy of the agent's."""
    has_tests: bool
    """Whether its image holds the tests, so that none are uploaded."""
    tests: tuple[Path, ...]
    """Folders whose content is uploaded to /tests, in this order."""
    script: str
    """The path of its script below /tests."""
    env: Mapping[str, str]
    user: str
    """Empty for the image's own."""
    timeout_s: float
    collect: tuple[Collect, ...]
    artifacts: tuple[Artifact, ...]
    network: str
    """The mode of its network."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction, and how the work on it is graded."""

    name: str
    """Empty for the only step of a task without steps."""
    instruction: str
    user: str
    """The user of the agent; empty for the image's own."""
    files: Path | None
    """A folder whose content is copied into the working directory before the agent begins."""
    solution: Path | None
    """The folder of the reference solution, with `solve.sh`; None without one."""
    verification: Verification
    least_reward: Mapping[str, float]
    """The rewards below which the remaining steps are left out."""
    healthcheck: Healthcheck | None
    timeout_s: float | None
    """Of the agent; None without a limit."""


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task directory."""

    folder: Path
    name: str
    """`org/name`, or the name of the directory."""
    place: Place
    """What the agent's container is made of."""
    network: str
    """The mode of the agent's network."""
    steps: tuple[Step, ...]
    strategy: str
    """How the rewards of several steps become one: `mean` or `final`."""
    solution_env: Mapping[str, str]
    metadata: Mapping[str, Any]
    digest: str
    """A hash of all files."""

    @property
    def has_solution(self) -> bool:
        """Whether each step has a reference solution."""
        return all(step.solution is not None for step in self.steps)

    @property
    def statement(self) -> str:
        """The instructions of all steps."""
        if len(self.steps) == 1:
            return self.steps[0].instruction
        return "\n\n".join(f"# Step {n}: {step.name}\n\n{step.instruction}" for n, step in enumerate(self.steps, 1))


def is_task(folder: Path) -> bool:
    """Return whether a folder is a task directory."""
    return (folder / CONFIGURATION).is_file()


def task_folders(path: Path) -> list[Path]:
    """Return the task directories at a path: the path itself, or those in it, or in its folders, such as splits."""
    if is_task(path):
        return [path]
    return next(
        filter(None, (sorted(f.parent for f in path.glob(f"{way}{CONFIGURATION}")) for way in ("*/", "*/*/"))), []
    )


def read_task(folder: Path) -> HarborTask:
    """Read a task directory; raises TaskError, with the reason, for one that cannot be used."""
    folder = folder.resolve()
    digest = _digest(folder)
    data = _table(folder)
    try:
        configuration = of_shape(_Configuration, data)
    except ValueError as error:
        raise TaskError(Refusal.UNREADABLE, f"{folder / CONFIGURATION}: {error}") from None
    return _Reader(folder, configuration).task(digest)


def _table(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIGURATION
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(Refusal.UNREADABLE, f"{path} cannot be read: {error}") from None


def _digest(folder: Path) -> str:
    """Return a hash of all files; raises TaskError for a link that leaves the directory, or for too many bytes."""
    digest, total = hashlib.sha256(), 0
    for count, path in enumerate(_files(folder)):
        relative = path.relative_to(folder)
        if not path.resolve().is_relative_to(folder):
            raise TaskError(
                Refusal.LEAVES_DIRECTORY, f"{folder}: the link {relative} leads out of the task's directory"
            )
        if not path.is_file():
            raise TaskError(Refusal.UNREADABLE, f"{folder}: {relative} is not a regular file")
        total += path.stat().st_size
        if count >= _MAX_FILES or total > _MAX_BYTES:
            raise TaskError(Refusal.TOO_LARGE, f"{folder} holds more than {_MAX_FILES} files or {_MAX_BYTES >> 30} GiB")
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise TaskError(Refusal.UNREADABLE, f"{path} cannot be read: {error.strerror}") from None
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(f"{executable:d} {content} {relative.as_posix()}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files and all links to folders, sorted; links to folders are not followed."""
    for top, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        yield from (Path(top, name) for name in sorted([*names, *links]) if not _is_inner(top, name, folder))


def _is_inner(top: str, name: str, folder: Path) -> bool:
    """Return whether a name is a link to a folder of the same task, whose files are read at their own place."""
    path = Path(top, name)
    return path.is_symlink() and path.is_dir() and path.resolve().is_relative_to(folder)


@dataclass(frozen=True)
class _Reader:
    """Reads the parts of a task from its directory and its configuration."""

    folder: Path
    configuration: _Configuration

    def task(self, digest: str) -> HarborTask:
        configuration = self.configuration
        environment = configuration.environment
        place = Place(environment, self.folder / "environment")
        self._require_place(place, "environment")
        if environment.mcp_servers:
            raise self._refused(Refusal.MCP_SERVERS, "it hands tools to the agent by MCP servers")
        self._resolved(configuration.solution.env, "[solution]")
        package = configuration.task
        return HarborTask(
            folder=self.folder,
            name=package.name if package is not None else self.folder.name,
            place=with_variables(place, self._resolved(environment.env, "[environment]")),
            network=configuration.agent.network_mode or environment.network,
            steps=tuple(self._steps()),
            strategy=configuration.multi_step_reward_strategy or "mean",
            solution_env=self._resolved(configuration.solution.env, "[solution]"),
            metadata=configuration.metadata,
            digest=digest,
        )

    def _steps(self) -> Iterator[Step]:
        if not self.configuration.steps:
            yield self._step(None)
        names = [step.name for step in self.configuration.steps]
        for name in names:
            if not re.fullmatch(r"[\w][\w.-]*", name) or names.count(name) > 1:
                raise self._refused(Refusal.UNREADABLE, f"the step {name!r} has no name of its own")
        for step in self.configuration.steps:
            yield self._step(step)

    def _step(self, step: _Step | None) -> Step:
        agent = self.configuration.agent
        folder = self.folder if step is None else self.folder / "steps" / step.name
        instruction = folder / "instruction.md"
        try:
            text = instruction.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._refused(Refusal.INCOMPLETE, f"it has no {instruction.relative_to(self.folder)}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self._refused(Refusal.UNREADABLE, f"{instruction} cannot be read: {error}") from None
        user = agent.user if step is None or step.agent.user is None else step.agent.user
        solutions = [f for f in (folder / "solution", self.folder / "solution") if (f / _SOLVE).is_file()]
        files = folder / "workdir" if step is not None and (folder / "workdir").is_dir() else None
        timeout_s = agent.timeout_sec if step is None or step.agent.timeout_sec is None else step.agent.timeout_sec
        least = step.min_reward if step is not None and step.min_reward is not None else {}
        return Step(
            name=step.name if step is not None else "",
            instruction=text,
            user="" if user is None else str(user),
            files=files,
            solution=solutions[0] if solutions else None,
            verification=self._verification(step, folder),
            least_reward=least if isinstance(least, Mapping) else {"reward": least},
            healthcheck=step.healthcheck if step is not None else None,
            timeout_s=timeout_s,
        )

    def _verification(self, step: _Step | None, folder: Path) -> Verification:
        """Return how a step is graded, by Harbor's order of precedence."""
        general, own = self.configuration.verifier, step.verifier if step is not None else _Verifier()
        mode = own.mode or general.mode or "shared"
        if mode not in ("shared", "separate"):
            raise self._refused(Refusal.UNREADABLE, f"[verifier] environment_mode is {mode!r}")
        folders = [f for f in (folder / "tests",) if step is not None] + [self.folder / "tests"]
        place, has_tests = None, False
        if mode == "separate":
            place, has_tests = self._verifier_place(step, own, general, folders)
        with_script = [f for f in folders if (f / _SCRIPT).is_file()]
        if not with_script and not has_tests:
            raise self._refused(Refusal.INCOMPLETE, f"it has no tests/{_SCRIPT}")
        user = general.user if own.user is None else own.user
        network = own.network_mode or general.network_mode
        if place is not None:
            network = network or place.environment.network
        network = network or self.configuration.environment.network
        if network == "allowlist":
            raise self._refused(
                Refusal.ALLOWED_HOSTS, "its verifier may reach some hosts only, which is not enforced here"
            )
        artifacts = [*self.configuration.artifacts, *(step.artifacts if step is not None else ())]
        timeout_s = general.timeout_sec if own.timeout_sec is None else own.timeout_sec
        return Verification(
            place=place,
            has_tests=has_tests,
            # The files of a step replace those of the task.
            tests=tuple(f for f in reversed(folders) if f.is_dir()),
            script=_SCRIPT,
            env=self._resolved({**general.env, **own.env}, "[verifier]"),
            user="" if user is None else str(user),
            timeout_s=600.0 if timeout_s is None else timeout_s,
            collect=(*general.collect, *own.collect),
            artifacts=tuple(self._artifacts(artifacts)),
            network=network,
        )

    def _verifier_place(
        self, step: _Step | None, own: _Verifier, general: _Verifier, folders: list[Path]
    ) -> tuple[Place, bool]:
        """Return what the container of a separate verifier is made of, and whether its image holds the tests."""
        environment = own.environment or general.environment or self.configuration.environment
        environments = [own.environment] if step is not None else []
        for candidate, folder in zip([*environments, general.environment], folders, strict=True):
            is_named = candidate is not None and bool(candidate.docker_image)
            if is_named or any((folder / name).is_file() for name in (_DOCKERFILE, COMPOSE)):
                image = candidate.docker_image if candidate is not None and is_named else None
                place = Place(replace(environment, docker_image=image), folder)
                self._require_place(place, "verifier.environment")
                return with_variables(place, self._resolved(environment.env, "[verifier.environment]")), True
        image = self.configuration.environment.docker_image
        place = Place(replace(environment, docker_image=image), self.folder / "environment")
        self._require_place(place, "verifier.environment")
        return with_variables(place, self._resolved(environment.env, "[verifier.environment]")), False

    def _artifacts(self, entries: list[str | Artifact]) -> Iterator[Artifact]:
        """Yield the artifacts, with the folder that is always collected."""
        artifacts = [Artifact(entry) if isinstance(entry, str) else entry for entry in entries]
        if not any(a.source.rstrip("/") == PUBLISHED and a.service in (None, "main") for a in artifacts):
            yield Artifact(PUBLISHED)
        for artifact in artifacts:
            if ".." in PurePosixPath(artifact.source).parts:
                raise self._refused(Refusal.LEAVES_DIRECTORY, f"the artifact {artifact.source!r} leaves its folder")
            yield artifact

    def _require_place(self, place: Place, section: str) -> None:
        environment = place.environment
        if environment.gpus or environment.tpu:
            raise self._refused(Refusal.ACCELERATOR, f"[{section}] needs {'a GPU' if environment.gpus else 'a TPU'}")
        if environment.os.lower() != "linux":
            raise self._refused(Refusal.OPERATING_SYSTEM, f"[{section}] needs {environment.os}")
        if environment.network not in ("public", "no-network", "allowlist"):
            raise self._refused(Refusal.UNREADABLE, f"[{section}] network_mode is {environment.network!r}")
        has_definition = any((place.folder / name).is_file() for name in (_DOCKERFILE, COMPOSE))
        if not place.image and not has_definition:
            raise self._refused(Refusal.INCOMPLETE, f"[{section}] has no docker_image, no Dockerfile and no {COMPOSE}")

    def _resolved(self, env: Mapping[str, str], section: str) -> Mapping[str, str]:
        """Return variables with the defaults of their templates; this machine's environment is not handed on."""
        resolved = {}
        for name, template in env.items():
            for variable, default in _VARIABLE.findall(template):
                if f"${{{variable}:-" not in template:
                    message = f"{section} needs the variable {variable} of this machine, which is not handed on"
                    raise self._refused(Refusal.HOST_VARIABLE, message)
                del default
            resolved[name] = _VARIABLE.sub(lambda match: match[2], template)
        return resolved

    def _refused(self, refusal: Refusal, reason: str) -> TaskError:
        return TaskError(refusal, f"{self.folder.name}: {reason}")


def with_variables(place: Place, env: Mapping[str, str]) -> Place:
    """Return a place with other variables."""
    return Place(replace(place.environment, env=env), place.folder)
