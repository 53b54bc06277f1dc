"""Sum up the cards of an audit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from harness.audit.card import SEPARATE, SHARED, Card, ChangeStatus, Sealing, Sharpness
from harness.audit.forgery_kit import kit_size


@dataclass(frozen=True, slots=True)
class Totals:
    """What the cards of an audit add up to; what is unknown about a task is not counted."""

    tasks: int
    audited: int
    """Tasks of which it is known whether they are sound."""
    sound: int
    fully_sound: int
    """Sound tasks that were tried in all surroundings."""
    sound_cut: int
    """Tasks of which not all surroundings were tried because the time was over, or a limit ended the runs."""
    measured: int
    """Tasks with a known sharpness."""
    cut: int
    """Tasks of which not all changes were tried."""
    noticed: int
    survived: int
    not_reached: int
    equivalent: int
    undecided: int
    proven: int
    read: int
    """Tasks of which it is known what their tests demand."""
    narrow: int
    """Tasks that demand a name or text that nobody could know."""
    names: int
    attacked: int
    """Tasks whose own verifier has graded a forgery."""
    forgeable: int
    """Tasks whose own verifier accepts a forgery."""
    tried: int
    accepted: int
    ours_tried: int
    ours_accepted: int
    partly_attacked: int
    """Tasks on which not all forgeries of the kit were tried: the time was over, or some cannot be made for them."""
    searched: int
    """Tasks of which it is known what leaks."""
    leaking: int
    """Tasks that show their tests or their solution."""
    timed: int
    """Tasks of which the time of a grade is known."""
    grade_s: float | None
    """The median of what was measured; None without any, as are the next three."""
    memory_mib: float | None
    audit_cpu_s: float | None
    audit_s: float | None

    @property
    def counted(self) -> int:
        """How many changes count."""
        return self.noticed + self.survived + self.not_reached

    @classmethod
    def of(cls, cards: Iterable[Card]) -> Totals:
        """Return the sums of these cards."""
        cards = list(cards)
        sharp = [card.sharp for card in cards if card.sharp is not None]
        narrow = [card.narrow for card in cards if card.narrow is not None and card.narrow.is_known]
        sealed = [card.sealed for card in cards if card.sealed is not None]
        ours = [result.ours for sealing in sealed for result in sealing.forgeries if result.ours is not None]
        audited = [card for card in cards if card.is_audited]
        return cls(
            tasks=len(cards),
            audited=len(audited),
            sound=sum(card.is_sound for card in audited),
            fully_sound=sum(card.is_sound and not card.sound.untried for card in audited if card.sound is not None),
            sound_cut=sum(card.sound.is_cut for card in audited if card.sound is not None),
            measured=sum(card.sharpness is not None for card in cards),
            cut=sum(sharpness.is_cut for sharpness in sharp),
            noticed=_count(sharp, ChangeStatus.NOTICED),
            survived=_count(sharp, ChangeStatus.SURVIVED),
            not_reached=_count(sharp, ChangeStatus.NOT_REACHED),
            equivalent=_count(sharp, ChangeStatus.EQUIVALENT),
            undecided=_count(sharp, ChangeStatus.UNDECIDED),
            proven=sum(sharpness.proven for sharpness in sharp),
            read=len(narrow),
            narrow=sum(bool(found.tokens) for found in narrow),
            names=sum(len(found.tokens) for found in narrow),
            attacked=sum(bool(sealing.tried) for sealing in sealed),
            forgeable=sum(bool(sealing.accepted) for sealing in sealed),
            tried=sum(sealing.tried for sealing in sealed),
            accepted=sum(len(sealing.accepted) for sealing in sealed),
            ours_tried=len(ours),
            ours_accepted=sum(ours),
            partly_attacked=sum(0 < len(sealing.forgeries) < planned_forgeries(sealing) for sealing in sealed),
            searched=sum(sealing.is_searched for sealing in sealed),
            leaking=sum(bool(sealing.leaks) for sealing in sealed),
            timed=sum(bool(card.cost.grade_s) for card in audited),
            grade_s=_median(card.cost.grade_s for card in audited),
            memory_mib=_median(card.cost.memory_mib for card in audited),
            audit_cpu_s=_median(card.cost.audit_cpu_s for card in audited),
            audit_s=_median(card.cost.audit_s for card in audited),
        )


def planned_forgeries(sealing: Sealing) -> int:
    """Return how many forgeries the kit has for a task."""
    return kit_size(is_row=sealing.verifier not in (SHARED, SEPARATE))


def _count(sharp: Iterable[Sharpness], status: ChangeStatus) -> int:
    return sum(sharpness.count(status) for sharpness in sharp)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return median(known) if known else None
