"""The record of a grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_ssr.records.reasons import Flag, Reason, ReasonCode, Rule, flags_to_json
from pytest_ssr.records.test_run import SuiteRun


class TestStatus(StrEnum):
    """The status of one recorded test."""

    __test__ = False
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"
    """Collected, but the run ended before it."""
    MISSING = "missing"
    """Not collected."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of a predicted patch."""

    id: str
    """The artifact's content id."""
    resolved: bool | None
    """The strict verdict: the recorded tests pass, and the evidence for that holds. None: no grade."""
    reason: Reason
    tests: bool | None = None
    """Whether the recorded tests pass on the restored test files, as in the paper and SWE-bench; None: no grade.

    False as well if FAIL_TO_PASS tests fail with the values that the code computes, unless all tests were asked for.
    """
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Test id to `TestStatus`; empty if no test ran."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    """The same for tests that must stay passing."""
    flags: tuple[Flag, ...] = ()
    """Notable facts about the patch and the certainty of the grade."""
    unchecked: tuple[str, ...] = ()
    """Tests without a value that was compared with the original's, sorted."""
    unspecified: tuple[str, ...] = ()
    """Tests for which a value differs from the original's with another input, sorted."""
    unvaried: tuple[str, ...] = ()
    """FAIL_TO_PASS tests that were compared only with their own input, sorted."""
    unmoved: tuple[str, ...] = ()
    """FAIL_TO_PASS tests that were run only under pytest, not in other surroundings as well, sorted."""
    run: SuiteRun | None = field(default=None, repr=False, compare=False)
    """The run of the recorded tests with pytest's output, if that was asked for; not in JSON."""

    @property
    def checked(self) -> float:
        """The share of FAIL_TO_PASS tests for which values were compared, from 0 to 1."""
        missed = sum(test in self.fail_to_pass for test in self.unchecked)
        return 1.0 - missed / len(self.fail_to_pass) if self.fail_to_pass else 0.0

    @property
    def forged(self) -> bool:
        """Whether the outcomes cannot be true: the patch interferes with the test run."""
        return self.reason.code is ReasonCode.FORGED

    def verdict(self, rule: Rule) -> bool | None:
        """Return the verdict that a rule uses."""
        return rule.verdict(resolved=self.resolved, tests=self.tests)

    def to_json(self) -> dict[str, Any]:
        """Return the grade as plain data for JSON."""
        return {
            "id": self.id,
            "resolved": self.resolved,
            "tests": self.tests,
            "reason": self.reason.to_json(),
            "fail_to_pass": dict(self.fail_to_pass),
            "pass_to_pass": dict(self.pass_to_pass),
            "unchecked": list(self.unchecked),
            "checked": round(self.checked, 3),
            "unspecified": list(self.unspecified),
            "unvaried": list(self.unvaried),
            "unmoved": list(self.unmoved),
            **flags_to_json(self.flags),
        }
