"""Say how a run ended: how many changes it tried of those that were planned, and whether something cut it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytest_ssr.progress import counted
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal, is_tried


class Cut(StrEnum):
    """What ended a run before it had tried what was planned."""

    NOTHING = ""
    TIME = "time"
    """The time budget."""
    INTERRUPT = "interrupt"

    @property
    def text(self) -> str:
        """The cause for people; empty if nothing ended the run."""
        return {Cut.TIME: "cut by the time budget", Cut.INTERRUPT: "interrupted"}.get(self, "")


@dataclass(frozen=True, slots=True)
class Ending:
    """What a run has tried when it ends."""

    tried: int
    """Changes of which it is known how the tests react to them."""
    not_proven: int
    """Changes of which nothing proves that the tests ran them, or that a steady test did."""
    timed_out: int
    planned: int | None
    """Changes that were to be tried; None if a number of proven bugs decides that."""
    proven: int
    wanted: int
    """Proven bugs that were wanted, if no number of changes was planned."""
    cut: Cut = Cut.NOTHING

    @classmethod
    def of(
        cls, goal: Goal, results: Sequence[CandidateResult], cut: Cut = Cut.NOTHING, *, is_complete: bool = False
    ) -> Ending:
        """Return the ending of a run. is_complete: whether the results are those of all candidates of the project."""
        statuses = Counter(result.status for result in results)
        planned = goal.wanted if goal.changes else None
        if planned is not None and is_complete:
            planned = min(planned, len(results))
        return cls(
            tried=sum(map(is_tried, results)),
            not_proven=sum(not result.status.is_judged for result in results),
            timed_out=statuses[CandidateStatus.TIMED_OUT],
            planned=planned,
            proven=statuses[CandidateStatus.VALID],
            wanted=goal.count,
            cut=cut,
        )

    @property
    def line(self) -> str:
        """The ending as one line."""
        others = [f"{self.not_proven} not proven to have run"] if self.not_proven else []
        others += [f"{self.timed_out} timed out"] if self.timed_out else []
        also = f" ({', '.join(others)})" if others else ""
        cause = f"{self.cut.text}: " if self.cut else ""
        if self.planned is None:
            return f"{cause}{counted(self.tried, 'change')} tried{also}, {self.proven} of {self.wanted} bugs proven"
        return f"{cause}{self.tried} of {counted(self.planned, 'planned change')} tried{also}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "tried": self.tried,
            "planned": self.planned,
            "not_proven": self.not_proven,
            "timed_out": self.timed_out,
            "cut": str(self.cut) or None,
        }
