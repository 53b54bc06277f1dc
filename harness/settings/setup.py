"""Define the settings of the commands that set up a project, or a shell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.settings.plan import CommandSettings, section
from harness.settings.sections import ExecutionSettings
from pytest_ssr.options import option, required, shared, switch

SHELLS = ("bash", "fish", "zsh")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings(CommandSettings):
    """Look at a project, run its tests once, and add a commented [tool.ssr] to its pyproject.toml."""

    example: ClassVar[str] = "ssr init . --dry-run"
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
    dry_run: bool = switch("only print what would be added")
    store: Path | None = shared("store", help="store for the measured tests (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionSettings(CommandSettings):
    """Print a script that completes the commands and options of ssr in a shell."""

    example: ClassVar[str] = "ssr completion bash > ~/.local/share/bash-completion/completions/ssr"
    shell: Literal["bash", "fish", "zsh"] = required("SHELL", f"one of {', '.join(SHELLS)}", is_argument=True)
