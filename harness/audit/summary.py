"""Sum up the cards of an audit."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.audit.card import Card, ChangeStatus


def summary_of(cards: Sequence[Card]) -> dict[str, Any]:
    """Return what the cards of an audit amount to, as plain data."""
    audited = [card for card in cards if card.is_audited]
    sharp = [card.sharp for card in audited if card.sharp is not None]
    known = [sharpness for card in audited if (sharpness := card.sharpness) is not None]
    problems = Counter(str(problem) for card in cards if card.sound is not None for problem in card.sound.problems)
    forgeries = [card.sealed for card in audited if card.sealed is not None and card.sealed.forgeries]
    return {
        "total": len(cards),
        "audited": len(audited),
        "sound": sum(card.is_sound for card in audited),
        "unsound_by_reason": dict(sorted(problems.items())),
        "not_audited_by_reason": dict(
            sorted(Counter(str(card.problem.code) for card in cards if card.problem is not None).items())
        ),
        "sharpness_median": statistics.median(known) if known else None,
        "sharpness_known": len(known),
        "changes": {str(status): sum(each.count(status) for each in sharp) for status in ChangeStatus},
        "survivors_proven": sum(each.proven for each in sharp),
        "narrow": sum(bool(card.narrow is not None and card.narrow.tokens) for card in audited),
        "forgeable": sum(bool(sealed.accepted) for sealed in forgeries),
        "forgeries_tried": len(forgeries),
        "leaking": sum(bool(card.sealed is not None and card.sealed.leaks) for card in audited),
        "audit_cpu_s_median": statistics.median(card.cost.audit_cpu_s for card in audited) if audited else None,
    }
