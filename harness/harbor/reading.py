"""Read a task directory of Harbor, without an engine and without running anything of it.

Fields that Harbor 0.26 does not know are ignored, as it ignores them.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from harness.harbor.schema import CONFIGURATION, Artifact, Configuration, StepTable, VerifierTable
from harness.harbor.task import COMPOSE, DOCKERFILE, HarborTask, Place, Refusal, Step, TaskError, Verification
from pytest_ssr.records.decoding import of_shape

_SCRIPT, _SOLVE = "test.sh", "solve.sh"
_ENVIRONMENT = "environment"
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*/[a-zA-Z0-9][\w.-]*", re.ASCII)
_STEP = re.compile(r"(?!\.{1,2}$)[^<>:\"/\\|?*\x00-\x1f\x7f]*[^<>:\"/\\|?*\x00-\x1f\x7f. ]")
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_MAX_FILES, _MAX_BYTES = 20_000, 1 << 30
_MAX_NUMBER = 1_000_000_000
PUBLISHED = "/logs/artifacts"
"""The folder of a container that is always handed to a separate verifier."""


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
        configuration = of_shape(Configuration, data)
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
    try:
        for count, path in enumerate(_files(folder)):
            if path.is_symlink():
                _require_inside(path, folder)
                kind, content = "link", os.readlink(path)
            elif path.is_file():
                total += path.stat().st_size
                kind = f"{bool(path.stat().st_mode & 0o100):d}"
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                message = f"{folder}: {path.relative_to(folder)} is not a regular file"
                raise TaskError(Refusal.UNREADABLE, message)
            if count >= _MAX_FILES or total > _MAX_BYTES:
                message = f"{folder} holds more than {_MAX_FILES} files or {_MAX_BYTES >> 30} GiB"
                raise TaskError(Refusal.TOO_LARGE, message)
            entry = f"{kind} {content} {path.relative_to(folder).as_posix()}\0"
            digest.update(entry.encode("utf-8", "surrogateescape"))
    except OSError as error:
        message = f"{error.filename or folder} cannot be read: {error.strerror}"
        raise TaskError(Refusal.UNREADABLE, message) from None
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files and all links, in a fixed order."""
    for top, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        yield from (Path(top, name) for name in sorted([*names, *links]))


def _raise(error: OSError) -> None:
    raise error


def _require_inside(link: Path, folder: Path) -> None:
    """Raise TaskError for a link that leaves the task's directory; those of the agent's image may, which keeps them."""
    relative = link.relative_to(folder)
    is_of_image = relative.parts[0] == _ENVIRONMENT and relative.parts[1:] not in ((), (DOCKERFILE,), (COMPOSE,))
    if not is_of_image and not Path(os.path.realpath(link)).is_relative_to(folder):
        message = f"{folder}: the link {relative} leads out of the task's directory"
        raise TaskError(Refusal.LEAVES_DIRECTORY, message)


def _without_canary(text: str) -> str:
    """Return an instruction without the lines at its beginning that mark a benchmark, which agents do not see."""
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if not _CANARY.fullmatch(line.strip())), len(lines))
    return "\n".join(lines[first:]).lstrip("\n") if first else text


@dataclass(frozen=True)
class _Reader:
    """Reads the parts of a task from its directory and its configuration."""

    folder: Path
    configuration: Configuration

    def task(self, digest: str) -> HarborTask:
        configuration = self.configuration
        environment = configuration.environment
        place = Place(environment, self.folder / _ENVIRONMENT)
        self._require_place(place, "environment")
        if environment.mcp_servers:
            raise self._refused(Refusal.MCP_SERVERS, "it hands tools to the agent by MCP servers")
        package = configuration.task
        if package is not None and (not _NAME.fullmatch(package.name) or ".." in package.name):
            raise self._refused(Refusal.UNREADABLE, f"[task] name is {package.name!r}, not of the form org/name")
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
        names = [unicodedata.normalize("NFC", step.name).casefold() for step in self.configuration.steps]
        for step, name in zip(self.configuration.steps, names, strict=True):
            if not _STEP.fullmatch(step.name):
                raise self._refused(Refusal.UNREADABLE, f"the step's name {step.name!r} is no name of a folder")
            if names.count(name) > 1:
                raise self._refused(Refusal.UNREADABLE, f"two steps are called {step.name!r}")
        for step in self.configuration.steps:
            yield self._step(step)

    def _step(self, step: StepTable | None) -> Step:
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
            instruction=_without_canary(text),
            user="" if user is None else str(user),
            files=files,
            solution=solutions[0] if solutions else None,
            verification=self._verification(step, folder),
            least_reward=least if isinstance(least, Mapping) else {"reward": least},
            healthcheck=step.healthcheck if step is not None else None,
            timeout_s=timeout_s,
        )

    def _verification(self, step: StepTable | None, folder: Path) -> Verification:
        """Return how a step is graded, by Harbor's order of precedence."""
        general, own = self.configuration.verifier, step.verifier if step is not None else VerifierTable()
        if any(v.environment_mode == "shared" and v.environment is not None for v in (general, own)):
            message = "[verifier] environment_mode is 'shared', and there is a [verifier.environment]"
            raise self._refused(Refusal.UNREADABLE, message)
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
        self, step: StepTable | None, own: VerifierTable, general: VerifierTable, folders: list[Path]
    ) -> tuple[Place, bool]:
        """Return what the container of a separate verifier is made of, and whether its image holds the tests."""
        environment = own.environment or general.environment or self.configuration.environment
        environments = [own.environment] if step is not None else []
        for candidate, folder in zip([*environments, general.environment], folders, strict=True):
            is_named = candidate is not None and bool(candidate.docker_image)
            if is_named or any((folder / name).is_file() for name in (DOCKERFILE, COMPOSE)):
                image = candidate.docker_image if candidate is not None and is_named else None
                place = Place(replace(environment, docker_image=image), folder)
                self._require_place(place, "verifier.environment")
                return with_variables(place, self._resolved(environment.env, "[verifier.environment]")), True
        image = self.configuration.environment.docker_image
        place = Place(replace(environment, docker_image=image), self.folder / _ENVIRONMENT)
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
        numbers = (environment.cpus, environment.memory_mb, environment.build_timeout_sec)
        if any(not 0 <= (number or 0) < _MAX_NUMBER for number in numbers) or (
            environment.memory and environment.memory_bytes is None
        ):
            raise self._refused(Refusal.UNREADABLE, f"[{section}] has a limit that is no positive number")
        if environment.network not in ("public", "no-network", "allowlist"):
            raise self._refused(Refusal.UNREADABLE, f"[{section}] network_mode is {environment.network!r}")
        has_definition = any((place.folder / name).is_file() for name in (DOCKERFILE, COMPOSE))
        if not place.image and not has_definition:
            raise self._refused(Refusal.INCOMPLETE, f"[{section}] has no docker_image, no Dockerfile and no {COMPOSE}")

    def _resolved(self, env: Mapping[str, str], section: str) -> Mapping[str, str]:
        """Return variables with the defaults of their templates; this machine's environment is not handed on."""
        resolved = {}
        for name, value in env.items():
            template = _TEMPLATE.fullmatch(value)
            if template is not None and template[2] is None:
                message = f"{section} needs the variable {template[1]} of this machine, which is not handed on"
                raise self._refused(Refusal.HOST_VARIABLE, message)
            resolved[name] = value if template is None else template[2]
        return resolved

    def _refused(self, refusal: Refusal, reason: str) -> TaskError:
        return TaskError(refusal, f"{self.folder}: {reason}")


def with_variables(place: Place, env: Mapping[str, str]) -> Place:
    """Return a place with other variables."""
    return Place(replace(place.environment, env=env), place.folder)
