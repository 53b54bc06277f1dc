"""Declare the settings of the commands for coding agents; a class's docstring is the command's description."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.settings.plan import CommandSettings, section
from harness.settings.sections import ExecutionSettings
from pytest_ssr.options import AT_LEAST_1, option, shared


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings(CommandSettings):
    """Serve the reviews of one project to a coding agent by the Model Context Protocol, over standard streams."""

    example: ClassVar[str] = "ssr mcp ."
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
    source: tuple[str, ...] = shared("source", help="review only below this file or folder; can be repeated")
    tests: tuple[str, ...] = option((), "PATH", "run only these tests (default: all); can be repeated")
    changes: int = shared("changes", help="changes to try in a review")
    jobs: int = option(1, "N", "parallel changes", bound=AT_LEAST_1)
    seed: int = shared("seed")
    store: Path | None = shared("store", help="store for results (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSettings(CommandSettings):
    """Print the skill that tells a coding agent how to use ssr, or copy its folder."""

    example: ClassVar[str] = "ssr skill --out .claude/skills"
    out: Path | None = option(None, "DIR", "copy the skill's folder, pytest-ssr, into this folder", is_own=True)
