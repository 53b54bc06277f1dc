"""Show an audit as one self-contained HTML page that also works without scripts: what the figures mean, a table of
tasks, and a card per task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import NamedTuple

from harness.audit.card import Card, ChangeStatus, ForgeryResult, Sealing, Sharpness, SolutionChange, Soundness
from harness.audit.figures import (
    CAUSE_TEXTS,
    LEAK_TEXTS,
    STATUS_TEXTS,
    TOKEN_TEXTS,
    UNKNOWN,
    UNSOUND_TEXTS,
    UNTRIED,
    is_clean,
    mib,
    narrow_text,
    sealed_text,
    seconds,
    share_text,
    sharp_text,
    sound_text,
)
from harness.audit.totals import Totals
from harness.leaderboard.document import document
from harness.leaderboard.escaping import for_html
from pytest_ssr.progress import counted
from pytest_ssr.records.reasons import Reason

_TAB = 4


def page(cards: Iterable[Card], *, title: str = "Audit") -> str:
    """Return the page as HTML. Text of tasks is escaped, and its content security policy allows no other script."""
    cards = list(cards)
    body = [*_opening(cards), *_table(cards), *_cards(cards)]
    return document(title, body, styles=_texts("css"), scripts=_texts("js"))


def _texts(kind: str) -> list[str]:
    """Return the styles, or the scripts: those of a leaderboard, which sort and filter tables, and our own."""
    packages = ("harness.leaderboard", "harness.audit")
    return [resources.files(package).joinpath(f"page.{kind}").read_text() for package in packages]


class _Figure(NamedTuple):
    """One of the figures of an audit, as the top of the page explains it."""

    name: str
    question: str
    value: str
    more: str
    meaning: str
    state: str
    """`good`, `bad`, or empty if neither is certain."""


def _opening(cards: Sequence[Card]) -> Iterator[str]:
    totals = Totals.of(cards)
    yield (
        f'<p class="lead">How good are the tests of this benchmark? {totals.audited} of '
        f"{counted(totals.tasks, 'task')} could be audited. Nothing that is unknown counts as good.</p>"
    )
    if missing := totals.tasks - totals.audited:
        yield (
            f'<ul class="notes"><li>{counted(missing, "task")} without an audit; the reason is in the table, and on '
            "its card</li></ul>"
        )
    yield '<section id="figures" aria-label="What the figures mean"><dl class="figures">'
    for figure in _figures(totals):
        yield (
            f'<div class="figure {figure.state}"><dt>{figure.name} <span class="question">{figure.question}</span></dt>'
            f'<dd class="value">{for_html(figure.value)}</dd><dd class="after">{for_html(figure.more)}</dd>'
            f'<dd class="meaning">{figure.meaning}</dd></div>'
        )
    yield "</dl></section>"


def _figures(totals: Totals) -> Iterator[_Figure]:
    yield _Figure(
        "Sound",
        "Can it be graded at all?",
        f"{totals.sound} of {totals.audited}" if totals.audited else UNKNOWN,
        f"tasks are sound; {counted(totals.tasks - totals.audited, 'task')} unknown",
        "The reference solution resolves the task, and doing nothing does not: each time, also in another order of the "
        "tests and on another date. A task that is not sound gives no meaningful grades.",
        _state(totals.sound == totals.tasks, totals.sound < totals.audited),
    )
    survivors = totals.survived + totals.not_reached
    yield _Figure(
        "Sharp",
        "Do the tests notice wrong solutions?",
        share_text(totals.noticed, totals.counted),
        f"wrong variants of solutions noticed; {survivors} not, {totals.proven} of them proven wrong by a new test",
        "The reference solution is broken in many small ways, one at a time. Sharpness is the share of these variants "
        "that the task’s tests notice: 100 % is best. A <b>survivor</b> is a variant that they accept, so they would "
        "accept other wrong solutions, too. The range is the 95 % interval: wide if few variants were tried.",
        _state(0 < totals.counted == totals.noticed and totals.measured == totals.tasks, False),
    )
    yield _Figure(
        "Narrow",
        "Do they demand what nobody could know?",
        f"{totals.narrow} of {totals.read}" if totals.read else UNKNOWN,
        f"tasks do; names and texts in total: {totals.names}",
        "Names and messages that the tests require and the solution happens to have, but that neither the statement "
        "nor the repository mentions. 0 is best. It is a warning: a right solution may fail for its choice of words.",
        _state(totals.read == totals.tasks and not totals.narrow, False),
    )
    yield _Figure(
        "Sealed",
        "Can a grade be forged?",
        f"{totals.accepted} of {totals.tried}" if totals.tried else UNKNOWN,
        f"forgeries accepted, by the verifiers of {counted(totals.forgeable, 'task')}"
        + (f"; by ours {totals.ours_accepted} of {totals.ours_tried}" if totals.ours_tried else ""),
        "Submissions that repair nothing and only pretend: they end the tests early, patch the runner or write the "
        "report themselves. The count is that of the task’s own verifier: 0 is best.",
        _state(totals.attacked == totals.tasks and not totals.accepted, bool(totals.accepted)),
    )
    yield _Figure(
        "Cost",
        "What does a grade take?",
        seconds(totals.grade_s),
        f"{mib(totals.memory_mib)} of memory; {seconds(totals.audit_cpu_s)} of CPU for an audit",
        "The time and the memory of one run of the tests that decide, in the median of the tasks.",
        "",
    )


def _state(is_good: bool, is_bad: bool) -> str:
    return "bad" if is_bad else "good" if is_good else ""


_KINDS = (
    ("", "all tasks"),
    ("clean", "nothing found"),
    ("unsound", "not sound"),
    ("survivors", "with survivors"),
    ("narrow", "with names nobody could know"),
    ("forgeable", "with accepted forgeries"),
    ("leaks", "that show their answer"),
    ("unaudited", "without an audit"),
)
_COLUMNS = (
    ("name", "task", "The id of the task; it leads to the card."),
    ("name", "repository", "The project."),
    ("name", "sound", "Whether the reference solution resolves it, and doing nothing does not, each time."),
    ("n", "sharp %", "The share of wrong variants of the solution that the tests notice, with the 95 % interval."),
    ("n", "narrow", "Names and texts that the tests demand and nobody could know."),
    ("n", "sealed", "Forgeries that the task's own verifier accepts, of those it graded."),
    ("n", "s", "Seconds of one run of the tests that decide."),
    ("n", "MiB", "The most memory of that run."),
)


def _table(cards: Sequence[Card]) -> Iterator[str]:
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in _KINDS)
    yield (
        '<section id="tasks"><h2>Tasks</h2><p class="tools" hidden>'
        '<label>filter <input type="search" class="filter" aria-controls="tasks"></label>'
        f'<label>show <select class="kind">{options}</select></label><output class="count"></output></p>'
    )
    yield (
        '<p class="legend">Sharp: percent (95 % interval) noticed/tried; of few variants, the interval comes first. '
        "<b>+</b>: not all were tried within the time. Sealed: accepted/tried.</p>"
    )
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Tasks"><table><thead><tr>'
    yield "".join(f'<th scope="col" class="{kind}" title="{for_html(about)}">{t}</th>' for kind, t, about in _COLUMNS)
    yield "</tr></thead><tbody>"
    for number, card in enumerate(cards):
        yield f'<tr data-is="{" ".join(_is(card))}" data-card="{number}">{"".join(_row(card, number))}</tr>'
    yield "</tbody></table></div></section>"


def _is(card: Card) -> Iterator[str]:
    if is_clean(card):
        yield "clean"
    if not card.is_audited:
        yield "unaudited"
    elif not card.is_sound:
        yield "unsound"
    if card.sharp is not None and card.sharp.survivors:
        yield "survivors"
    if card.narrow is not None and card.narrow.tokens:
        yield "narrow"
    if card.sealed is not None and card.sealed.accepted:
        yield "forgeable"
    if card.sealed is not None and card.sealed.leaks:
        yield "leaks"


def _row(card: Card, number: int) -> Iterator[str]:
    sound, sealed = sound_text(card), card.sealed
    yield f'<td class="name"><a href="#card-{number}">{for_html(card.task)}</a></td>'
    yield f'<td class="name">{for_html(card.repo)}</td>'
    yield f'<td class="name {_grade(card)}">{for_html(_why_unknown(card) or sound)}</td>'
    yield _cell(sharp_text(card.sharp), card.sharpness, _bar(card.sharp))
    yield _cell(narrow_text(card), len(card.narrow.tokens) if card.narrow is not None else None)
    yield _cell(sealed_text(card), len(sealed.accepted) if sealed is not None else None)
    yield _cell(seconds(card.cost.grade_s).removesuffix(" s"), card.cost.grade_s or None)
    yield _cell(mib(card.cost.memory_mib).removesuffix(" MiB"), card.cost.memory_mib)


def _grade(card: Card) -> str:
    return "r" if card.is_sound else "bad" if card.is_audited else "u"


def _why_unknown(card: Card) -> str:
    """Return why it is unknown whether a task is sound; empty if it is known."""
    if card.is_audited:
        return ""
    return f"{UNKNOWN}: {card.problem.code}" if card.problem is not None else UNKNOWN


def _cell(text: str, value: float | None, more: str = "") -> str:
    if text in (UNKNOWN, UNTRIED) or value is None:
        return f'<td class="n u">{text}</td>'
    return f'<td class="n" data-v="{value:.9g}">{for_html(text)}{more}</td>'


def _bar(sharp: Sharpness | None) -> str:
    """Return a bar from 0 to 100 % with the interval as a range and the rate as a mark."""
    if sharp is None or sharp.rate is None:
        return ""
    low, high = sharp.interval
    # The mark is 3 px wide, and stays inside the bar.
    at = f"calc({100 * sharp.rate:.1f}% - {3 * sharp.rate:.1f}px)"
    return (
        '<span class="bar" aria-hidden="true">'
        f'<i class="range" style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
        f'<i class="mark" style="left:{at}"></i></span>'
    )


def _cards(cards: Sequence[Card]) -> Iterator[str]:
    yield '<div id="cards"><h2>Cards</h2>'
    for number, card in enumerate(cards):
        chips = (
            ("sound", _why_unknown(card) or sound_text(card)),
            ("sharp", _percent(card.sharp)),
            ("narrow", narrow_text(card)),
            ("sealed", sealed_text(card)),
        )
        marks = "".join(f'<span class="chip"><b>{name}</b> {for_html(text)}</span>' for name, text in chips)
        yield f'<details class="card" data-card="{number}"><summary><span class="task">{for_html(card.task)}</span> '
        yield f'<span class="chips">{marks}</span></summary><div class="inside" id="card-{number}">'
        yield from _inside(card)
        yield "</div></details>"
    yield "</div>"


def _percent(sharp: Sharpness | None) -> str:
    if sharp is None:
        return UNTRIED
    return share_text(sharp.noticed, sharp.counted)


def _inside(card: Card) -> Iterator[str]:
    about = ", ".join(text for text in (card.repo, card.family) if text)
    if about:
        yield f'<p class="legend">{for_html(about)}</p>'
    if card.problem is not None:
        yield f'<p class="notes">No audit: {for_html(card.problem.text)}</p>'
    yield from _sound_part(card.sound)
    yield from _sharp_part(card.sharp)
    yield from _narrow_part(card)
    yield from _sealed_part(card.sealed)
    cost = card.cost
    rows = (
        ("one grade", seconds(cost.grade_s)),
        ("its memory", mib(cost.memory_mib)),
        ("files of the task", mib(cost.tree_mib)),
        ("CPU of the audit, beyond two reference runs", seconds(cost.audit_cpu_s)),
        ("the whole audit", seconds(cost.audit_s)),
    )
    yield f"<h3>Cost</h3><dl>{''.join(f'<dt>{name}</dt><dd>{for_html(text)}</dd>' for name, text in rows)}</dl>"


def _list(items: Iterable[str]) -> str:
    """Return a list. items: as HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _code(text: str) -> str:
    return f"<code>{for_html(text)}</code>"


def _unknown(problem: Reason | None, otherwise: str) -> str:
    return f'<p class="legend">Unknown: {for_html(problem.text if problem is not None else otherwise)}.</p>'


def _sound_part(sound: Soundness | None) -> Iterator[str]:
    yield "<h3>Sound</h3>"
    if sound is None:
        yield _unknown(None, "the reference solution was not run")
        return
    if sound.problems:
        yield _list(f'<span class="bad">Not sound</span>: {UNSOUND_TEXTS[problem]}' for problem in sound.problems)
    else:
        yield "<p>Yes: the reference solution resolves it, and doing nothing does not.</p>"
    if sound.unsteady:
        yield "<p>Tests that do not give the same outcome each time:</p>"
        yield _list(f"{_code(test.test)} {CAUSE_TEXTS[test.cause]}" for test in sound.unsteady)
    if sound.conditions:
        yield f'<p class="legend">Tried with: {", ".join(map(str, sound.conditions))}.</p>'
    if sound.set_aside:
        tests = _list(map(_code, sound.set_aside))
        count = counted(len(sound.set_aside), "test")
        yield f"<details><summary>{count} set aside: it fails with the reference solution</summary>{tests}</details>"


def _sharp_part(sharp: Sharpness | None) -> Iterator[str]:
    yield "<h3>Sharp</h3>"
    if sharp is None or not sharp.changes:
        problem = sharp.problem if sharp is not None else None
        yield _unknown(problem, "no variant of the solution was tried")
        return
    yield f"<p>{for_html(share_text(sharp.noticed, sharp.counted))} variants of the solution noticed{_bar(sharp)}</p>"
    if sharp.problem is not None:
        yield f'<p class="notes">{for_html(sharp.problem.text)}</p>'
    if sharp.is_cut:
        yield f'<p class="notes">{len(sharp.changes)} of {sharp.planned} were tried within the time.</p>'
    for change in sharp.survivors:
        yield _survivor(change)
    for status in (ChangeStatus.EQUIVALENT, ChangeStatus.UNDECIDED):
        found = [change for change in sharp.changes if change.status is status]
        if found:
            listed = _list(f"{_place(change)}{f': {for_html(change.sign)}' if change.sign else ''}" for change in found)
            yield f"<details><summary>{len(found)} {STATUS_TEXTS[status]}: not counted</summary>{listed}</details>"


def _place(change: SolutionChange) -> str:
    place = f"{change.path}:{change.line}" + (f" {change.scope}" if change.scope else "")
    return f"{_code(place)} {for_html(change.operator)}: {for_html(change.detail)}"


def _survivor(change: SolutionChange) -> str:
    proof = '<span class="chip bad">proven wrong</span>' if change.is_proven else '<span class="chip">no proof</span>'
    parts = [f'<details class="survivor"><summary>{proof} {_place(change)}</summary>']
    parts.append(f"<p>Survivor: {STATUS_TEXTS[change.status]}.</p>{_diff(change.diff)}")
    if change.is_proven:
        shown = f": {for_html(change.shown_by)}" if change.shown_by else ""
        beside = f" It stands beside {_code(change.test_file)}." if change.test_file else ""
        parts.append(f"<p>This test passes on the solution, and fails with the change{shown}.{beside}</p>")
        parts.append(f"<pre>{_lines(change.test.splitlines())}</pre>")
    return "".join(parts) + "</details>"


def _diff(text: str) -> str:
    return f'<pre class="diff">{_lines(text.splitlines(), is_diff=True)}</pre>' if text else ""


def _lines(lines: Iterable[str], *, is_diff: bool = False) -> str:
    return "\n".join(_line(line.expandtabs(_TAB), is_diff=is_diff) for line in lines)


def _line(line: str, *, is_diff: bool) -> str:
    kind = {"+": "added", "-": "removed", "@": "place"}.get(line[:1]) if is_diff else None
    return f'<span class="{kind}">{for_html(line)}</span>' if kind else for_html(line)


def _narrow_part(card: Card) -> Iterator[str]:
    yield "<h3>Narrow</h3>"
    narrow = card.narrow
    if narrow is None or not narrow.is_known:
        yield _unknown(None, "it has no statement, or no tests and solution as text")
        return
    if not narrow.tokens:
        yield "<p>The tests demand no name and no text that the statement and the repository do not have.</p>"
        return
    yield "<p>Demanded by tests, and neither in the statement nor in the repository:</p>"
    yield _list(
        f"{TOKEN_TEXTS[token.kind]} {_code(token.text)} in {', '.join(map(_code, token.tests)) or 'the tests'}"
        for token in narrow.tokens
    )


def _sealed_part(sealed: Sealing | None) -> Iterator[str]:
    yield "<h3>Sealed</h3>"
    if sealed is None:
        yield _unknown(None, "no forgery was tried")
        return
    if sealed.problem is not None or not sealed.forgeries:
        yield _unknown(sealed.problem, "no forgery was tried")
    if sealed.verifier:
        yield f'<p class="legend">Its own verifier: {for_html(sealed.verifier)}.</p>'
    if sealed.forgeries:
        order = sorted(sealed.forgeries, key=lambda result: not result.own)
        yield '<div class="scroll"><table class="plain"><thead><tr><th scope="col">forgery</th>'
        yield '<th scope="col">its own verifier</th><th scope="col">ours</th></tr></thead><tbody>'
        yield "".join(map(_forgery, order))
        yield "</tbody></table></div>"
    if sealed.leaks:
        yield _list(f'<span class="bad">Leak</span>: {LEAK_TEXTS[leak]}' for leak in sealed.leaks)


def _forgery(result: ForgeryResult) -> str:
    cells = "".join(f"<td{' class=bad' if is_taken else ''}>{_VERDICTS[is_taken]}</td>" for is_taken in _both(result))
    return f"<tr><td>{for_html(result.forgery)}</td>{cells}</tr>"


def _both(result: ForgeryResult) -> tuple[bool | None, bool | None]:
    return result.own, result.ours


_VERDICTS = {True: "accepts it", False: "refuses it", None: "gave no grade"}
