"""Define the settings of a run of self-play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.records.rewards import ALPHA, injector_reward
from harness.selfplay.higher_order import FORMS
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """The settings of a run of self-play."""

    rounds: int = 1
    count: int = 4
    """Bugs of each project in each round."""
    attempts: int = 8
    seed: int = 0
    jobs: int = 1
    alpha: float = ALPHA
    reward: str = "solve-rate"
    adaptive: bool = True
    """Draw operators and files by the results of earlier rounds."""
    higher_order: int = 1
    """Failed repairs of each bug that are tried as new bugs."""
    higher_order_form: str = FORMS[0]
    """One of `FORMS`: what a failed repair becomes."""
    grade_unsubmitted: bool = False
    """As in Solving."""
    grade_by: Rule = Rule.STRICT
    """The verdict of a grade that decides rewards and solve rates."""
    model_written: bool = False
    """A model writes code or commands, so `auto` does not choose a sandbox without isolation."""
    sandbox: str = "auto"
    python: Path | None = None
    rule: RuleSettings = RuleSettings()

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for a value out of range."""
        for name in ("rounds", "attempts", "count", "jobs"):
            if getattr(self, name) < 1:
                raise SettingsError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.higher_order < 0:
            raise SettingsError(f"--higher-order must be at least 0, not {self.higher_order}")
        if self.higher_order_form not in FORMS:
            raise SettingsError(f"--higher-order-form must be one of {', '.join(FORMS)}, not {self.higher_order_form}")
        injector_reward(False, alpha=self.alpha, kind=self.reward)
