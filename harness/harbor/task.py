"""A task directory of Harbor: what its containers are made of, and how the work on it is graded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.harbor.schema import Artifact, Collect, Environment, Healthcheck
from pytest_ssr.errors import SsrError

DOCKERFILE, COMPOSE = "Dockerfile", "docker-compose.yaml"


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
    HOST_ACCESS = "host-access"
    """A service of its compose file uses files, devices or namespaces of this machine."""
    NO_COMPOSE = "no-compose"
    """It has several services, and the Docker engine here has no compose plugin."""


class TaskError(SsrError):
    """A task directory cannot be used; the message names it."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        """refusal: the kind of reason."""
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Place:
    """What a container is made of."""

    environment: Environment
    folder: Path
    """The folder of its Dockerfile or compose file."""

    @property
    def image(self) -> str:
        """The image that is named; empty if one has to be built."""
        return self.environment.docker_image or ""

    @property
    def files(self) -> Path | None:
        """The folder, if its files are copied into the working directory: the image is named, and nothing is built."""
        is_copied = bool(self.image) and not (self.folder / DOCKERFILE).is_file() and self.compose is None
        return self.folder if is_copied and self.folder.is_dir() else None

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
