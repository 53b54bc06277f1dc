"""Limits on the duration, steps and cost of a rollout."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pytest_ssr.errors import SettingsError
from pytest_ssr.options import PluginSettings


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """A rollout that passes one of these limits ends, and its exit reason names the limit."""

    steps: int = PluginSettings.steps
    """Number of model replies."""
    wall_s: float = 1800.0
    """Seconds for the whole rollout."""
    command_s: float = 180.0
    """Seconds for one command."""
    tokens: int = PluginSettings.rollout_tokens
    """Tokens of all prompts and replies together."""
    usd: float = PluginSettings.rollout_usd
    """Cost in USD of the calls whose price is known."""
    format_errors: int = 4
    """Consecutive replies that call no tool."""
    repeats: int = 6
    """Consecutive repetitions of a call, or of a cycle of two or three calls, with the same results."""
    output_chars: int = 10_000
    """Characters of one observation that the model is shown, half from its beginning and half from its end."""

    def __post_init__(self) -> None:
        """Raise SettingsError for a limit that is not positive."""
        for item in fields(self):
            if not getattr(self, item.name) > 0:
                raise SettingsError(f"{item.name} must be more than 0, not {getattr(self, item.name)}")
