"""Write the inside of a task's card as HTML: everything that its audit has found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from harness.audit.card import (
    SEPARATE,
    SHARED,
    TESTS,
    Card,
    ChangeStatus,
    Condition,
    ForgeryResult,
    Sealing,
    Sharpness,
    SolutionChange,
    Soundness,
)
from harness.audit.figures import (
    CAUSE_TEXTS,
    CONDITION_TEXTS,
    LEAK_TEXTS,
    STATUS_TEXTS,
    TOKEN_TEXTS,
    UNSOUND_TEXTS,
    mib,
    rate_text,
    seconds,
)
from harness.audit.forgery_kit import forgery_texts
from harness.audit.totals import planned_forgeries
from harness.leaderboard.escaping import for_html
from pytest_ssr.progress import counted
from pytest_ssr.records.reasons import Reason

_TAB = 4
_FEW_LINES = 4
"""Changed lines that a heading has room for; more are in the diff below it."""
_VERIFIERS = {
    TESTS: "SWE-bench’s rule on the log of its tests",
    SHARED: "it runs in the container of the agent",
    SEPARATE: "it runs in a container of its own",
}
_VERDICTS = {True: "accepts it", False: "refuses it", None: "gave no grade"}


def card_parts(card: Card) -> Iterator[str]:
    """Yield the inside of a card. Text of tasks is escaped."""
    about = ", ".join(text for text in (card.repo, card.family) if text)
    if about:
        yield f'<p class="legend">{for_html(about)}</p>'
    if card.problem is not None:
        yield f'<p class="notes">No audit: {for_html(card.problem.text)}</p>'
    yield from _sound_part(card.sound)
    yield from _sharp_part(card.sharp)
    yield from _narrow_part(card)
    yield from _sealed_part(card.sealed)
    yield from _leaks_part(card.sealed)
    yield from _cost_part(card)


def bar(sharp: Sharpness | None) -> str:
    """Return a bar from 0 to 100 % with the interval as a range and the rate as a mark; empty if it is not known."""
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
    elif sound.untried:
        yield "<p>Yes, as far as it was tried: the reference solution resolves it, and doing nothing does not.</p>"
    else:
        yield "<p>Yes: the reference solution resolves it, and doing nothing does not.</p>"
    if sound.unsteady:
        yield "<p>Tests that do not give the same outcome each time:</p>"
        yield _list(f"{_code(test.test)} {CAUSE_TEXTS[test.cause]}" for test in sound.unsteady)
    yield from _conditions(sound)
    if sound.set_aside:
        tests = _list(map(_code, sound.set_aside))
        count = counted(len(sound.set_aside), "test")
        yield f"<details><summary>{count} set aside: not passing with the reference solution</summary>{tests}</details>"


def _conditions(sound: Soundness) -> Iterator[str]:
    """Yield the conditions in which a task was tried, and those in which it was not."""
    tried = [condition for condition in Condition if condition in sound.conditions]
    if tried:
        yield f'<p class="legend">Tried: {_named(tried)}.</p>'
    if sound.untried:
        why = " The time was over, or a limit ended the runs." if sound.is_cut else ""
        yield f"<p><b>Not tried</b>: {_named(sound.untried)}.{why}</p>"


def _named(conditions: Iterable[Condition]) -> str:
    return ", ".join(CONDITION_TEXTS[condition] for condition in conditions)


def _sharp_part(sharp: Sharpness | None) -> Iterator[str]:
    yield "<h3>Sharp</h3>"
    if sharp is None or not sharp.changes:
        problem = sharp.problem if sharp is not None else None
        yield _unknown(problem, "no changed solution was tried")
        return
    yield f"<p>{rate_text(sharp.noticed, sharp.counted)}: {sharp.noticed} of {sharp.counted} changed solutions noticed"
    yield f"{bar(sharp)}</p>"
    if sharp.survivors:
        count, proven = len(sharp.survivors), sharp.proven
        yield f"<p>{count} not noticed: {proven} proven wrong by a new test, {count - proven} without a proof</p>"
    if sharp.problem is not None:
        yield f'<p class="notes">{for_html(sharp.problem.text)}</p>'
    if sharp.is_cut:
        yield f'<p class="notes">Cut off by time: {len(sharp.changes)} of {sharp.planned} were tried.</p>'
    if sharp.survivors:
        yield '<p class="legend">Open a change for its whole diff; <a href="#words">what the words mean</a>.</p>'
    for change in sharp.survivors:
        mark = (
            '<span class="chip bad">proven wrong</span>' if change.is_proven else '<span class="chip">no proof</span>'
        )
        yield _change(change, mark)
    for status in (ChangeStatus.EQUIVALENT, ChangeStatus.UNDECIDED):
        found = [change for change in sharp.changes if change.status is status]
        if found:
            listed = "".join(_change(change, for_html(change.sign)) for change in found)
            yield f"<details><summary>{len(found)} {STATUS_TEXTS[status]}: not counted</summary>{listed}</details>"


def _change(change: SolutionChange, mark: str) -> str:
    """Return a change of the solution. mark: what comes first, as HTML."""
    place = f"{change.path}:{change.line}" + (f" {change.scope}" if change.scope else "")
    parts = [
        f'<details class="survivor"><summary>{mark} {_code(place)} {for_html(change.operator)}: {_short(change)}',
        "</summary>",
        f"<p>{STATUS_TEXTS[change.status]}: {for_html(change.detail)}</p>{_diff(change.diff)}",
    ]
    if change.is_proven:
        shown = f": {_code(change.shown_by)}" if change.shown_by else ""
        beside = f" It stands beside {_code(change.test_file)}." if change.test_file else ""
        parts.append(f"<p>This test passes on the solution, and fails with the change{shown}.{beside}</p>")
        parts.append(f"<pre>{_lines(change.test.splitlines())}</pre>")
    return "".join(parts) + "</details>"


def _short(change: SolutionChange) -> str:
    """Return the changed lines of few, in full and without their indentation; else how many there are."""
    changed = _changed_lines(change.diff)
    if not changed:
        return for_html(change.detail)
    if len(changed) > _FEW_LINES:
        return f"{len(changed)} lines changed"
    texts = textwrap.dedent("\n".join(line[1:].expandtabs(_TAB) for line in changed)).split("\n")
    lines = [line[0] + " " + text for line, text in zip(changed, texts, strict=True)]
    return f'<span class="short">{_lines(lines, is_diff=True)}</span>'


def _changed_lines(diff: str) -> list[str]:
    """Return the lines that a diff takes away and adds, without empty ones."""
    changed, is_inside = [], False
    for line in diff.splitlines():
        if line.startswith(("diff --git ", "@@")):
            is_inside = line.startswith("@@")
        elif is_inside and line.startswith(("+", "-")) and line[1:].strip():
            changed.append(line)
    return changed


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
    if sealed is None or not sealed.forgeries:
        yield _unknown(sealed.problem if sealed is not None else None, "no forgery was tried")
        return
    if sealed.problem is not None:
        yield _unknown(sealed.problem, "")
    count, planned = len(sealed.forgeries), planned_forgeries(sealed)
    others = " The others cannot be made for it, or the time was over." if count < planned else ""
    graded = f"its own verifier graded {sealed.tried}, and accepts {len(sealed.accepted)}"
    yield f"<p>{count} of the kit’s {planned} forgeries tried; {graded}.{others}</p>"
    if sealed.verifier:
        yield f'<p class="legend">Its own verifier: {for_html(_VERIFIERS.get(sealed.verifier, sealed.verifier))}.</p>'
    yield '<div class="scroll"><table class="plain"><thead><tr><th scope="col">forgery</th>'
    yield '<th scope="col">its own verifier</th><th scope="col">ours</th></tr></thead><tbody>'
    yield "".join(map(_forgery, sorted(sealed.forgeries, key=lambda result: not result.own)))
    yield "</tbody></table></div>"


def _forgery(result: ForgeryResult) -> str:
    text = forgery_texts().get(result.forgery, "")
    cells = "".join(
        f"<td{' class=bad' if taken else ''}>{_VERDICTS[taken]}</td>" for taken in (result.own, result.ours)
    )
    about = f'<span class="about">{for_html(text)}</span>' if text else ""
    return f"<tr><td><b>{for_html(result.forgery)}</b>{about}</td>{cells}</tr>"


def _leaks_part(sealed: Sealing | None) -> Iterator[str]:
    yield "<h3>Leaks</h3>"
    if sealed is not None and sealed.leaks:
        yield _list(f'<span class="bad">Leak</span>: {LEAK_TEXTS[leak]}' for leak in sealed.leaks)
    elif sealed is not None and sealed.is_searched:
        yield "<p>Neither the tests nor the solution were found in what an agent gets.</p>"
    else:
        yield _unknown(sealed.problem if sealed is not None else None, "it was not searched")


def _cost_part(card: Card) -> Iterator[str]:
    cost = card.cost
    rows = (
        ("one run of the tests that decide", seconds(cost.grade_s)),
        ("the most memory of one of its processes", mib(cost.memory_mib)),
        ("files of the task", mib(cost.tree_mib)),
        ("the whole audit, wall time", seconds(cost.audit_s)),
        ("the whole audit, CPU time", seconds(cost.audit_cpu_s)),
    )
    yield f"<h3>Cost</h3><dl>{''.join(f'<dt>{name}</dt><dd>{for_html(text)}</dd>' for name, text in rows)}</dl>"
