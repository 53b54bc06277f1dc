"""Show cards as lines for a terminal: a line per task, what was not audited, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from harness.audit.card import Card
from harness.audit.figures import (
    CAUSE_TEXTS,
    LEAK_TEXTS,
    UNKNOWN,
    UNSOUND_TEXTS,
    is_clean,
    is_faulty,
    mib,
    narrow_text,
    sealed_text,
    seconds,
    share_text,
    sharp_text,
    sound_text,
)
from harness.audit.totals import Totals
from pytest_ssr.escaping import escaped_line
from pytest_ssr.progress import counted

Line = tuple[str, str]
"""The kind of a line (heading, plain, valid, bad, missed), and the line."""
_NARROWEST, _WIDEST = 80, 120
_WITH_MEMORY = 100
"""From this width on, a line has room for the memory of a grade."""
_LEAST_NAME = 10
_MOST_TESTS = 20


def card_lines(cards: Iterable[Card], *, width: int = 100) -> Iterator[Line]:
    """Yield the kind and the text of each line about an audit's cards. width: columns, from 80 to 120."""
    cards, width = list(cards), min(max(width, _NARROWEST), _WIDEST)
    audited = [card for card in cards if card.is_audited]
    if audited:
        yield from _table(audited, width)
    yield from _unsteady_lines(audited, width)
    yield from _unaudited_lines(cards, width)
    yield from _total_lines(cards)


def _table(cards: Sequence[Card], width: int) -> Iterator[Line]:
    head = ["sound", "sharp %", "narrow", "sealed", "grade"]
    rows = [_cells(card, with_memory=width >= _WITH_MEMORY) for card in cards]
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    room = max(_LEAST_NAME, width - sum(widths) - 2 * len(widths))
    names = [_fitted(escaped_line(card.task), room) for card in cards]
    longest = max(map(len, ("task", *names)))

    def joined(name: str, cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "  ".join((name.ljust(longest), *padded)).rstrip()

    yield "heading", joined("task", head)
    for card, name, row in zip(cards, names, rows, strict=True):
        yield _kind(card), joined(name, row)


def _cells(card: Card, *, with_memory: bool) -> list[str]:
    cost = seconds(card.cost.grade_s)
    if with_memory and card.cost.memory_mib is not None:
        cost += f", {mib(card.cost.memory_mib)}"
    return [sound_text(card), sharp_text(card.sharp), narrow_text(card), sealed_text(card), cost]


def _kind(card: Card) -> str:
    if is_faulty(card):
        return "bad"
    return "valid" if is_clean(card) else "missed"


def _fitted(text: str, room: int) -> str:
    """Return a text in at most `room` columns; ids differ at their ends, so the middle is left out."""
    if len(text) <= room:
        return text
    kept = room - 1
    return f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"


def _unsteady_lines(cards: Sequence[Card], width: int) -> Iterator[Line]:
    """Yield the tests that do not give the same outcome each time."""
    found = [(card.task, test) for card in cards if card.sound is not None for test in card.sound.unsteady]
    if not found:
        return
    yield "heading", f"unsteady tests: {len(found)}"
    for task, test in islice(found, _MOST_TESTS):
        why = f": {CAUSE_TEXTS[test.cause]}"
        room = width - len(why) - 2
        place = _fitted(escaped_line(task), room // 3)
        yield "missed", f"{place}  {_fitted(escaped_line(test.test), room - len(place))}{why}"
    if len(found) > _MOST_TESTS:
        yield "plain", f"and {len(found) - _MOST_TESTS} more; cards.jsonl and the page name all of them"


def _unaudited_lines(cards: Sequence[Card], width: int) -> Iterator[Line]:
    """Yield the tasks of which nothing, or not everything, could be found out, with their reasons."""
    reasons = [(card, str(card.problem.code), card.problem.text) for card in cards if card.problem is not None]
    reasons += [(card, UNKNOWN, "no reason is recorded") for card in cards if not card.is_audited and not card.problem]
    if not reasons:
        return
    yield "heading", f"without an audit: {len(reasons)}"
    for card, code, text in reasons:
        name = _fitted(escaped_line(card.task), width // 3)
        line = escaped_line(f"{code}: {text}")
        yield "missed", f"{name}  {_cut(line, width - len(name) - 2)}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _total_lines(cards: Sequence[Card]) -> Iterator[Line]:
    totals = Totals.of(cards)
    kind = "plain" if totals.audited == totals.tasks else "missed"
    yield "heading", f"{totals.audited} of {counted(totals.tasks, 'task')} audited"
    if totals.audited < totals.tasks:
        yield kind, f"of {counted(totals.tasks - totals.audited, 'task')} it is unknown whether they are sound"
    yield from _sound_lines(cards, totals)
    yield from _sharp_lines(totals)
    yield from _narrow_lines(totals)
    yield from _sealed_lines(cards, totals)
    if totals.grade_s is None:
        return
    yield (
        "plain",
        f"cost   {seconds(totals.grade_s)} and {mib(totals.memory_mib)} per grade, "
        f"{seconds(totals.audit_cpu_s)} of CPU per audit, in the median",
    )


def _sound_lines(cards: Sequence[Card], totals: Totals) -> Iterator[Line]:
    if not totals.audited:
        yield "missed", f"sound  {UNKNOWN}: no task was audited"
        return
    share = share_text(totals.sound, totals.audited)
    yield ("valid" if totals.sound == totals.tasks else "bad"), f"sound  {share} tasks"
    problems = Counter(problem for card in cards if card.sound is not None for problem in card.sound.problems)
    for problem, count in problems.most_common():
        yield "plain", f"       {counted(count, 'task')}: {UNSOUND_TEXTS[problem]}"


def _sharp_lines(totals: Totals) -> Iterator[Line]:
    if not totals.counted:
        yield "missed", f"sharp  {UNKNOWN}: no change of a solution counts"
        return
    share = share_text(totals.noticed, totals.counted)
    kind = "valid" if totals.noticed == totals.counted and totals.measured == totals.tasks else "missed"
    yield kind, f"sharp  {share} changes of {counted(totals.measured, 'solution')} noticed"
    if survivors := totals.survived + totals.not_reached:
        line = f"{counted(survivors, 'survivor')}: {totals.proven} proven wrong by a test"
        yield "plain", f"       {line}, {totals.not_reached} in code that no test runs"
    if totals.equivalent or totals.undecided:
        yield "plain", f"       apart: {totals.equivalent} equivalent, {totals.undecided} undecided"
    if totals.cut:
        yield "missed", f"       +: not all changes were tried within the time: {counted(totals.cut, 'task')}"


def _narrow_lines(totals: Totals) -> Iterator[Line]:
    if not totals.read:
        yield "missed", f"narrow {UNKNOWN}: no statement could be compared with its tests"
        return
    found = f"{totals.narrow} of {counted(totals.read, 'task')}"
    kind = "missed" if totals.narrow else "valid" if totals.read == totals.tasks else "plain"
    yield kind, f"narrow {found} with names or texts that nobody could know: {totals.names}"


def _sealed_lines(cards: Sequence[Card], totals: Totals) -> Iterator[Line]:
    if not totals.attacked:
        yield "missed", f"sealed {UNKNOWN}: no forgery was graded"
    else:
        kind = "bad" if totals.accepted else "valid" if totals.attacked == totals.tasks else "plain"
        own = f"{totals.accepted} of {totals.tried} forgeries accepted by {counted(totals.forgeable, 'verifier')}"
        ours = f"{totals.ours_accepted} of {totals.ours_tried} by ours" if totals.ours_tried else f"ours {UNKNOWN}"
        yield kind, f"sealed {own} of {totals.attacked}; {ours}"
    leaks = Counter(leak for card in cards if card.sealed is not None for leak in card.sealed.leaks)
    for leak, count in leaks.most_common():
        yield "missed", f"       {counted(count, 'task')}: {LEAK_TEXTS[leak]}"
