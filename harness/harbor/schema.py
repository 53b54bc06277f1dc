"""The tables of `task.toml`, with the fields and defaults of Harbor 0.26 (schema 1.4 and earlier)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CONFIGURATION = "task.toml"


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
    def processors(self) -> float | None:
        """The limit of its processors, of which this machine may have fewer; None without one."""
        return min(self.cpus, os.cpu_count() or 1) if self.cpus else None

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
class VerifierTable:
    """`[verifier]`, of the task or of a step."""

    timeout_sec: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | int | None = None
    environment_mode: str | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()
    network_mode: str | None = None

    @property
    def mode(self) -> str | None:
        """Whether it runs in a container of its own; None if this table does not say so."""
        if self.environment_mode is None and self.environment is not None:
            return "separate"
        return self.environment_mode


@dataclass(frozen=True, slots=True)
class AgentTable:
    """`[agent]`, of the task or of a step."""

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
class StepTable:
    """One of `[[steps]]`."""

    name: str
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | Mapping[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class PackageTable:
    """`[task]`."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SolutionTable:
    """`[solution]`."""

    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of `task.toml`."""

    task: PackageTable | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: Environment = Environment()
    solution: SolutionTable = SolutionTable()
    steps: tuple[StepTable, ...] = ()
    artifacts: tuple[str | Artifact, ...] = ()
    multi_step_reward_strategy: str | None = None
