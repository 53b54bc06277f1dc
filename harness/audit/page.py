"""Show an audit as one self-contained HTML page that also works without scripts: what the figures mean, a table of
tasks, and a card per task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import NamedTuple

from harness.audit.card import Card, Condition
from harness.audit.figures import UNKNOWN, mib, rate_text, seconds
from harness.audit.page_cards import bar, card_parts
from harness.audit.page_figures import COLUMNS, KINDS, Column, State, kinds_of, worst_first
from harness.audit.totals import Totals
from harness.leaderboard.document import document
from harness.leaderboard.escaping import for_html
from pytest_ssr.progress import counted, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What an audit was made of, and how."""

    wanted: int
    """Tasks that were to be audited; those without a card are not on the page."""
    dataset: str
    split: str
    changes: int
    """How many changes of each solution are tried."""
    time_s: float
    """The time of each task after its reference runs."""
    seconds: float
    """How long the run took."""
    made: str
    """Date and time, in ISO 8601."""
    version: str
    """Of this package."""


def page(cards: Iterable[Card], *, title: str = "Audit", about: About | None = None) -> str:
    """Return the page as HTML, with the worst tasks first.

    Text of tasks is escaped, and its content security policy allows no other script. about: None if it is not known.
    """
    cards = worst_first(cards)
    body = [*_opening(cards, about), *_table(cards), *_cards(cards)]
    return document(title, body, styles=_texts("page.css"), scripts=_texts("page.js"))


def _texts(name: str) -> list[str]:
    """Return the styles, or the scripts: those of a leaderboard, which sort and filter tables, and our own."""
    return [resources.files(package).joinpath(name).read_text() for package in ("harness.leaderboard", "harness.audit")]


def _part(name: str) -> str:
    return resources.files("harness.audit").joinpath(name).read_text(encoding="utf-8")


def _opening(cards: Sequence[Card], about: About | None) -> Iterator[str]:
    totals = Totals.of(cards)
    if about is not None:
        yield f'<p class="lead">{for_html(_how(about))}</p>'
    yield _part("page_intro.html")
    notes = list(_notes(totals, about))
    if notes:
        yield f'<ul class="notes">{"".join(f"<li>{note}</li>" for note in notes)}</ul>'
    yield '<section id="figures" aria-label="Figures of all tasks"><dl class="figures">'
    for tile in _tiles(totals):
        lines = "".join(f'<dd class="after">{for_html(line)}</dd>' for line in tile.lines)
        yield (
            f'<div class="figure {tile.state}"><dt>{tile.name} <span class="question">{tile.question}</span></dt>'
            f'<dd class="value">{for_html(tile.value)}</dd>{lines}</div>'
        )
    yield f"</dl>{_part('page_guide.html')}</section>"


def _how(about: About) -> str:
    made = datetime.fromisoformat(about.made).astimezone(UTC)
    return (
        f"Made on {made:%Y-%m-%d at %H:%M} UTC with pytest-ssr {about.version}, in {format_duration(about.seconds)}. "
        f"For each task: up to {counted(about.changes, 'change')} of its solution, and "
        f"{format_duration(about.time_s)} after its reference runs."
    )


def _notes(totals: Totals, about: About | None) -> Iterator[str]:
    if about is not None and about.wanted > totals.tasks:
        yield f"{counted(about.wanted - totals.tasks, 'task')} not on this page: the audit ended before"
    if missing := totals.tasks - totals.audited:
        yield f"{counted(missing, 'task')} without an audit; the reason is in the table, and on its card"


class _Tile(NamedTuple):
    """One of the figures of an audit, as the top of the page shows it."""

    name: str
    question: str
    value: str
    state: State
    lines: tuple[str, ...]
    """What the value counts, and how many tasks it covers."""


def _tiles(totals: Totals) -> Iterator[_Tile]:
    yield from (_sound_tile(totals), _sharp_tile(totals), _sealed_tile(totals), _leaks_tile(totals))
    yield from (_narrow_tile(totals), _cost_tile(totals))


def _sound_tile(totals: Totals) -> _Tile:
    partly = totals.sound - totals.fully_sound
    is_good = totals.fully_sound == totals.tasks
    lines = [
        f"tasks are sound: {totals.fully_sound} in all {len(Condition)} conditions, {partly} in some only",
        _coverage(totals.audited, totals, cut=totals.sound_cut),
    ]
    value = f"{totals.sound} of {totals.audited}" if totals.audited else UNKNOWN
    state = _state(is_good, is_bad=totals.sound < totals.audited)
    return _Tile("Sound", "Can it be graded at all?", value, state, tuple(lines))


def _sharp_tile(totals: Totals) -> _Tile:
    survivors = totals.survived + totals.not_reached
    lines = [
        f"{totals.noticed} of {totals.counted} changed solutions noticed",
        f"{survivors} not noticed: {totals.proven} proven wrong by a new test, {survivors - totals.proven} without a "
        "proof",
        _coverage(totals.measured, totals, cut=totals.cut),
    ]
    is_good = 0 < totals.counted == totals.noticed and totals.measured == totals.tasks
    value = rate_text(totals.noticed, totals.counted)
    return _Tile("Sharp", "Do the tests notice a broken solution?", value, _state(is_good), tuple(lines))


def _sealed_tile(totals: Totals) -> _Tile:
    partly = f"; on {totals.partly_attacked} not the whole kit was tried"
    lines = [
        f"tasks forged; {totals.accepted} of {totals.tried} forgeries accepted by their own verifiers",
        *([f"ours: {totals.ours_accepted} of {totals.ours_tried}"] if totals.ours_tried else []),
        _coverage(totals.attacked, totals) + (partly if totals.partly_attacked else ""),
    ]
    value = f"{totals.forgeable} of {totals.attacked}" if totals.attacked else UNKNOWN
    state = _state(totals.attacked == totals.tasks and not totals.accepted, is_bad=bool(totals.accepted))
    return _Tile("Sealed", "Can a grade be forged?", value, state, tuple(lines))


def _leaks_tile(totals: Totals) -> _Tile:
    value = f"{totals.leaking} of {totals.searched}" if totals.searched else UNKNOWN
    lines = ("tasks show an agent the tests or the solution", _coverage(totals.searched, totals))
    state = _state(totals.searched == totals.tasks and not totals.leaking, is_bad=bool(totals.leaking))
    return _Tile("Leaks", "Can an agent read the answer?", value, state, lines)


def _narrow_tile(totals: Totals) -> _Tile:
    value = f"{totals.narrow} of {totals.read}" if totals.read else UNKNOWN
    lines = (f"tasks do; names and texts in total: {totals.names}", _coverage(totals.read, totals))
    state = _state(totals.read == totals.tasks and not totals.narrow)
    return _Tile("Narrow", "Do they demand what nobody could know?", value, state, lines)


def _cost_tile(totals: Totals) -> _Tile:
    lines = (
        f"for one run of the tests that decide, and {mib(totals.memory_mib)} of memory, in the median",
        f"the audit of a task: {seconds(totals.audit_s)}, and {seconds(totals.audit_cpu_s)} of CPU",
        _coverage(totals.timed, totals),
    )
    return _Tile("Cost", "What does a grade take?", seconds(totals.grade_s), State.PLAIN, lines)


def _coverage(known: int, totals: Totals, *, cut: int = 0) -> str:
    """Return of how many tasks a figure is known. cut: those of which not all was tried within the time."""
    return f"known of {known} of {counted(totals.tasks, 'task')}" + (f"; {cut} cut off by time" if cut else "")


def _state(is_good: bool, *, is_bad: bool = False) -> State:
    return State.BAD if is_bad else State.GOOD if is_good else State.PLAIN


def _table(cards: Sequence[Card]) -> Iterator[str]:
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in KINDS)
    yield (
        '<section id="tasks"><h2>Tasks</h2><p class="tools" hidden>'
        '<label>filter <input type="search" class="filter" aria-controls="tasks"></label>'
        f'<label>show <select class="kind">{options}</select></label><output class="count"></output></p>'
    )
    yield (
        '<p class="legend">The worst tasks come first: not sound, then forged or leaking, then the least sharp. A '
        "heading sorts the table and the cards; a task leads to its card.</p>"
    )
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Tasks"><table><thead><tr>'
    yield '<th scope="col" class="name">task</th>'
    yield "".join(map(_heading, COLUMNS))
    yield "</tr></thead><tbody>"
    for number, card in enumerate(cards):
        kinds = " ".join(kinds_of(card))
        yield f'<tr id="row-{number}" data-is="{kinds}" data-card="{number}">{"".join(_row(card, number))}</tr>'
    yield "</tbody></table></div></section>"


def _heading(column: Column) -> str:
    first = ' data-first="ascending"' if column.is_least_first else ""
    return f'<th scope="col" title="{for_html(column.about)}"{first}>{column.name}</th>'


def _row(card: Card, number: int) -> Iterator[str]:
    link = f'<a href="#card-{number}">{for_html(card.task)}</a>'
    yield f'<td class="name">{link} <span class="repository">{for_html(card.repo)}</span></td>'
    for column in COLUMNS:
        text, state, value = column.cell(card)
        sorted_by = "" if value is None else f' data-v="{value:.9g}"'
        more = bar(card.sharp) if column.name == "sharp" else ""
        yield f'<td class="{state}" data-label="{column.name}"{sorted_by}>{for_html(text)}{more}</td>'


def _cards(cards: Sequence[Card]) -> Iterator[str]:
    yield '<div id="cards"><h2>Cards</h2>'
    for number, card in enumerate(cards):
        cells = ((column.name, column.cell(card)) for column in COLUMNS if column.is_chip)
        chips = "".join(
            f'<span class="chip {cell.state}"><b>{name}</b> {for_html(cell.text)}</span>' for name, cell in cells
        )
        yield f'<details class="card" data-card="{number}"><summary><span class="task">{for_html(card.task)}</span> '
        yield f'<span class="chips">{chips}</span></summary><div class="inside" id="card-{number}">'
        yield from card_parts(card)
        yield f'<p><a href="#row-{number}">back to its row in the table</a></p></div></details>'
    yield "</div>"
