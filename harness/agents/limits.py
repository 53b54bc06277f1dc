"""How long a rollout may go on, and how much of a model it may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pytest_ssr.errors import SettingsError


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Past any of these a rollout ends, and says by which."""

    steps: int = 100
    """Replies of the model."""
    wall_s: float = 1800.0
    """Seconds for all of it."""
    command_s: float = 180.0
    """Seconds for one command."""
    tokens: int = 2_000_000
    """Tokens of all prompts and replies together."""
    usd: float = 5.0
    """Money, where prices are known."""
    format_errors: int = 4
    """Replies in a row that call no tool."""
    repeats: int = 6
    """The same call with the same result in a row; of two or three such calls in turn, each so often."""
    output_chars: int = 10_000
    """Characters of one observation that the model is shown: the first and the last half of them."""

    def __post_init__(self) -> None:
        """Refuse values that make no sense; raises SettingsError."""
        for item in fields(self):
            if not getattr(self, item.name) > 0:
                raise SettingsError(f"{item.name} must be more than 0, not {getattr(self, item.name)}")
