"""Compute the share of changes that the tests notice, and judge it as a gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_ssr.campaign.acceptances import NO_ACCEPTANCES, Acceptances
from pytest_ssr.campaign.survivors import equivalence_of
from pytest_ssr.progress import counted
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal, is_tried
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.rate_interval import interval, whole_percent
from pytest_ssr.settings import NO_SURVIVOR
from pytest_ssr.source.equivalence import is_proven

FEWEST_CHANGES = 20
"""With fewer, the interval is wider than 40 points around a score of 70 %, so that it decides nothing."""
# A test failed once, but not reliably, or nobody knows whether because of the change.
_UNCERTAIN = frozenset(
    (
        CheckCode.OUTCOMES_DIFFER,
        CheckCode.REPEAT_FAILED,
        CheckCode.RUNS_DISAGREE,
        CheckCode.TOO_FEW_BREAK,
        CheckCode.IDS_CHANGE,
        CheckCode.SCRIPT_LIMIT,
        CheckCode.PARSER_LIMIT,
    )
)


class LeftOut(StrEnum):
    """Why a result does not count in the score, as messages show it."""

    ACCEPTED = "accepted"
    COMBINATION = "combined"
    PROVEN = "equivalent"
    EQUIVALENT = "probably equivalent"
    NOT_JUDGED = "not judged"
    TIMED_OUT = "timed out"
    UNCERTAIN = "with failures that do not repeat"


_UNKNOWN = (LeftOut.NOT_JUDGED, LeftOut.TIMED_OUT, LeftOut.UNCERTAIN)
"""The outcomes that do not tell whether the tests notice a change."""


class GateCode(StrEnum):
    """The result of a gate."""

    PASSED = "passed"
    UNDER = "under"
    """The score is under the limit."""
    TOO_FEW = "too-few"
    """Too few changes were tried to decide, and there are more of them, or none of them could be tried."""
    CUT = "cut"
    """The run ended before it had tried the changes that it was to try."""


@dataclass(frozen=True, slots=True)
class Score:
    """How many of the tried changes the tests noticed."""

    noticed: int
    tried: int
    """Without changes that timed out, were not exercised or are (probably) equivalent, and without combinations."""
    is_complete: bool
    """Whether the project has no further changes to try."""
    is_planned: bool = False
    """Whether as many changes were tried as the user asked for."""
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    """How many results do not count, by the reason."""
    is_cut: bool = False
    """Whether the time budget or an interrupt ended the run before it had tried what was planned."""

    @property
    def rate(self) -> float | None:
        """The share of noticed changes; None if none was tried."""
        return self.noticed / self.tried if self.tried else None

    @property
    def percent(self) -> int | None:
        """The rate in whole percent, 100 only if every change was noticed; None if no change was tried."""
        return None if self.rate is None else whole_percent(self.rate)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate in all changes of the project, from those that were tried."""
        return interval(self.noticed, self.tried)

    def gate(self, fail_under: float) -> GateCode:
        """Return whether the score reaches a limit in percent.

        Few are enough if the user asked for no more, or if there are no more; without any in a project, it passes. It
        does not pass if changes are left to try, or if it is known of none of them whether the tests notice it.
        """
        if self.is_cut:
            return GateCode.CUT
        enough = self.tried >= FEWEST_CHANGES or (self.is_planned and self.tried > 0)
        is_unproven = not self.tried and any(self.left_out.get(reason, 0) for reason in _UNKNOWN)
        if is_unproven or (not enough and not self.is_complete):
            return GateCode.TOO_FEW
        # Rounding errors of a share must not decide: 7 of 10 reach 70 %.
        if self.rate is None or 100 * self.noticed >= fail_under * self.tried - 1e-9:
            return GateCode.PASSED
        return GateCode.UNDER

    @property
    def line(self) -> str:
        """The score as one line."""
        others = ", ".join(f"{count} {reason}" for reason, count in sorted(self.left_out.items()) if count)
        not_counted = f"; not counted: {others}" if others else ""
        if self.rate is None:
            return f"score: no change to score was tried{not_counted}"
        low, high = self.interval
        between = f"{100 * low:.0f} to {100 * high:.0f} %"
        noticed = f"{self.noticed} of {counted(self.tried, 'change')} noticed"
        if self.tried < FEWEST_CHANGES and not self.is_complete:
            return f"score: {noticed}, too few for a figure ({between}, 95 %){not_counted}"
        return f"score {self.percent} % ({between}, 95 %): {noticed}{not_counted}"

    def to_json(self, fail_under: float | None = None) -> dict[str, Any]:
        """Return plain data for JSON; fail_under: the limit of the gate, if there is one."""
        gate = {"fail_under": fail_under, "gate": str(self.gate(fail_under))} if fail_under is not None else {}
        low, high = self.interval
        return {
            "rate": self.rate,
            "low": low,
            "high": high,
            "noticed": self.noticed,
            "tried": self.tried,
            "complete": self.is_complete,
            **gate,
        }


def score_of(
    results: Sequence[CandidateResult],
    read: Callable[[str], bytes],
    goal: Goal,
    acceptances: Acceptances = NO_ACCEPTANCES,
    *,
    is_complete: bool = False,
    is_cut: bool = False,
) -> Score:
    """Return the score of results.

    Noticed are changes that make tests fail every time: valid bugs, and rejected ones, which break too much or cannot
    be made into an artifact. Missed are the survivors, whether a test reaches them or not. Not counted: timed-out and
    not-exercised changes and those whose failures do not repeat, because nothing is known of them; equivalent and
    probably equivalent ones, noticed or not; survivors that the team has accepted; combinations, because they consist
    of several changes.

    read: returns the original content of a file. is_complete: whether these are all candidates of the project. is_cut:
    whether the run ended before it had tried what was planned.
    """
    reasons = [left_out(result, read, acceptances) for result in results]
    scored = [result for result, reason in zip(results, reasons, strict=True) if reason is None]
    # The goal of a shard is reached whatever becomes of its candidates.
    is_planned = bool(goal.changes) and sum(map(is_tried, results)) >= goal.changes
    others = Counter(reason for reason in reasons if reason is not None)
    return Score(count_noticed(scored), len(scored), is_complete, is_planned, others, is_cut)


def left_out(
    result: CandidateResult, read: Callable[[str], bytes], acceptances: Acceptances = NO_ACCEPTANCES
) -> LeftOut | None:
    """Return why a result does not count in the score, or None if it does; see `score_of`."""
    if result.status is CandidateStatus.TIMED_OUT:
        return LeftOut.TIMED_OUT
    if not is_tried(result):
        return LeftOut.NOT_JUDGED
    if result.strategy == "combination":
        return LeftOut.COMBINATION
    if result.reason is not None and result.reason.code in _UNCERTAIN:
        return LeftOut.UNCERTAIN
    equivalence = equivalence_of(result, read)
    if equivalence is not None:
        return LeftOut.PROVEN if is_proven(equivalence) else LeftOut.EQUIVALENT
    return LeftOut.ACCEPTED if acceptances.of(result) is not None else None


def is_scored(result: CandidateResult, read: Callable[[str], bytes], acceptances: Acceptances = NO_ACCEPTANCES) -> bool:
    """Return whether a result counts in the score; see `score_of`."""
    return left_out(result, read, acceptances) is None


def count_noticed(scored: Sequence[CandidateResult]) -> int:
    """Return how many of the results that count were noticed by tests."""
    return sum(result.status is not CandidateStatus.SURVIVED for result in scored)


def scored_injectors(names: str) -> str:
    """Return a comma-separated list of injectors without combinations, which do not count; the list if it is all."""
    others = [name for name in names.split(",") if name.strip() != "combination"]
    return ",".join(others) or names


def gate_line(score: Score, fail_under: float) -> str:
    """Return the result of a gate as one line."""
    limit = f"{fail_under:g} %"
    match score.gate(fail_under):
        case GateCode.PASSED if score.rate is None:
            return f"there was no change to try, so nothing is compared with {limit}"
        case GateCode.PASSED:
            return f"the score reaches {limit}"
        case GateCode.UNDER if fail_under == NO_SURVIVOR:
            new = score.tried - score.noticed
            return f"{counted(new, 'change')} survived; a test for each, or ssr accept ID --reason TEXT"
        case GateCode.UNDER:
            return f"the score is under {limit}"
        case GateCode.CUT:
            return f"the run was cut, so that the score is not compared with {limit}; raise the time, or go on with it"
        case GateCode.TOO_FEW if score.is_complete:
            return f"of no change is known whether the tests notice it: there is no score to compare with {limit}"
        case GateCode.TOO_FEW:
            return (
                f"too few changes were tried to compare the score with {limit}: {score.tried} of at least "
                f"{FEWEST_CHANGES}; raise the time or the number of changes"
            )
