"""Hold the thresholds and limits of validation, shared by the plugin and the command line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

from pytest_ssr.errors import SettingsError
from pytest_ssr.options import PluginSettings

_BUDGET = re.compile(r"(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?:in)?)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


NO_SURVIVOR = 100.0
"""The limit of a gate that fails on any survivor that counts; accepted ones do not."""


def limit_of(fail_under: float | None, fail_on: str | None) -> float | None:
    """Return the least score in percent that two options demand together; None if neither is given."""
    return NO_SURVIVOR if fail_on is not None else fail_under


def budget_seconds(text: str, *, option: str) -> float:
    """Return the seconds of a time budget such as `90`, `90s`, `10m` or `1h30m`; raises SettingsError.

    option: the option's name as the user typed it, for the message.
    """
    match = _BUDGET.fullmatch("".join(text.split()))
    parts = match.groupdict(default="0") if match is not None else {"h": "0", "m": "0", "s": "0"}
    seconds = 3600 * int(parts["h"]) + 60 * int(parts["m"]) + float(parts["s"])
    if not seconds > 0:
        raise SettingsError(
            f"{option} takes a time such as 90, 90s, 10m or 1h30m, more than 0, not {text!r}", option="time"
        )
    return seconds


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The conditions an artifact must meet, and the time limit of a run."""

    min_passing_tests: int = PluginSettings.min_passing_tests
    """Oracle tests that must pass on the original."""
    min_changed_files: int = PluginSettings.min_changed_files
    """Files the bug must change."""
    min_failing_tests: int = PluginSettings.min_failing_tests
    """Tests that must go from pass to fail."""
    max_broken_fraction: float = PluginSettings.max_broken_fraction
    """Largest share of the passing oracle tests that may break."""
    per_hunk: bool = PluginSettings.per_hunk
    """Inverse mutation reverts one hunk at a time instead of one file."""
    max_weakened_failing: float = PluginSettings.max_weakened_failing
    """Largest share of the weakened tests that may fail."""
    script_limit_s: float = PluginSettings.script_limit
    """Largest number of seconds of the script on the original; 0 for no limit besides `time_limit_s`."""
    allow_undefined_names: bool = PluginSettings.allow_undefined_names
    """Whether a bug may read a name that nothing binds."""
    by_script: bool = PluginSettings.by_script
    """Whether an artifact's own script and parser alone say which tests pass."""
    time_limit_s: float = PluginSettings.time_limit
    """Seconds for one run of the whole suite on the original; runs of candidates get less (5 s + 5 x baseline)."""

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for a value out of range."""
        for name in ("min_passing_tests", "min_changed_files", "min_failing_tests"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.max_broken_fraction <= 1:
            raise SettingsError(f"max_broken_fraction must lie in (0, 1], not {self.max_broken_fraction}")
        if not 0 <= self.max_weakened_failing <= 1:
            raise SettingsError(f"max_weakened_failing must lie in [0, 1], not {self.max_weakened_failing}")
        if not 0 <= self.script_limit_s < math.inf:
            raise SettingsError(f"script_limit must be at least 0 seconds, not {self.script_limit_s}")
        if not self.time_limit_s > 0:
            raise SettingsError(f"time_limit must be a positive number of seconds, not {self.time_limit_s}")

    def key(self) -> str:
        """Return a string that is equal exactly for equal settings."""
        return ",".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
