"""Attempts in, lines of text for people out; shared by the plugin's summary and the command line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.campaign import Campaign
from pytest_ssr.progress import duration

# What a valid bug took, with the candidates that were rejected or survived before it: 1.6 to 2.8 suite runs on toolz,
# jinja2 and sortedcontainers (suites of 2 to 7 s); 2 workers are 1.4 to 1.7 times as fast as one.
_SUITES_PER_BUG, _SECONDS_PER_BUG, _SPEED_UP = 2.0, 2.0, 0.7


def attempt_line(attempt: Attempt) -> str:
    """Return one line on what became of a candidate."""
    place = f"{attempt.path}:{attempt.line} {attempt.scope}"
    tail = {
        AttemptStatus.VALID: f"{attempt.artifact_id}, breaks {attempt.fail_to_pass}",
        AttemptStatus.SURVIVED: "",
    }.get(attempt.status, f"{attempt.check}: {_short(attempt.reason)}")
    return f"{attempt.status!s:9} {place}  {attempt.operator}" + (f"  ({tail})" if tail else "")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:157] + "..."


def progress_line(attempts: Sequence[Attempt], count: int, elapsed_s: float) -> str:
    """Return counts so far and an estimate of the time left."""
    statuses = Counter(a.status for a in attempts)
    valid, unproven = statuses[AttemptStatus.VALID], statuses[AttemptStatus.NOT_EXERCISED]
    not_exercised = f"{unproven} not exercised, " if unproven else ""
    left = ""
    if 0 < valid < count:
        left = f", about {duration(elapsed_s / valid * (count - valid))} left"
    return (
        f"{min(valid, count)} of {count} valid, {statuses[AttemptStatus.SURVIVED]} survived, "
        f"{len(attempts) - valid - statuses[AttemptStatus.SURVIVED] - unproven} rejected, "
        f"{not_exercised}{duration(elapsed_s)}{left}"
    )


def time_is_up(budget_s: float, valid: int, count: int) -> str:
    """Return the line that says that the budget of time has ended a run."""
    return f"the time budget of {duration(budget_s)} has ended: {valid} of {count} reached; the same command goes on"


def ended_while_measuring(budget_s: float) -> str:
    """Return the line that says that the budget of time has ended before the first candidate."""
    return (
        f"the time budget of {duration(budget_s)} has ended while the tests were measured; "
        "what is measured is kept, give a longer one to go on"
    )


def shown(path: Path) -> str:
    """Return a path as a reader finds it: relative to where they are, if it lies there."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def rejections(attempts: Sequence[Attempt]) -> list[tuple[str, int]]:
    """Return how many candidates each step rejected, most first."""
    steps = Counter(a.check for a in attempts if a.status in (AttemptStatus.REJECTED, AttemptStatus.TIMED_OUT))
    return sorted(steps.items(), key=lambda pair: (-pair[1], pair[0]))


def missed(attempts: Sequence[Attempt]) -> dict[tuple[str, str], list[Attempt]]:
    """Return the surviving changes by (file, function), those with most survivors first."""
    places: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.status is AttemptStatus.SURVIVED:
            places.setdefault((attempt.path, attempt.scope), []).append(attempt)
    return dict(sorted(places.items(), key=lambda pair: (-len(pair[1]), pair[0])))


def tried(attempts: Sequence[Attempt]) -> Counter[tuple[str, str]]:
    """Return how many changes were tried by (file, function)."""
    unknown = (AttemptStatus.TIMED_OUT, AttemptStatus.NOT_EXERCISED)
    return Counter((a.path, a.scope) for a in attempts if a.status not in unknown)


def opening_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) on what a campaign starts from: kinds are plain and missed."""
    base, bench = campaign.baseline, campaign.bench
    yield (
        "plain",
        f"{len(base.stable)} of {len(base.collected)} tests pass, one run takes {base.seconds:.1f} s; "
        f"sandbox {bench.provider.name}, Python {base.python}; store {shown(campaign.store.root)}",
    )
    if bench.interpreter.note:
        yield "missed", bench.interpreter.note
    if base.note:
        yield "missed", f"not collected: {base.note}"
    if base.set_aside:
        yield "plain", _set_aside_line(base.set_aside)


def _set_aside_line(set_aside: Mapping[str, str]) -> str:
    first = [f"{name} ({why})" for name, why in list(set_aside.items())[:3]]
    more = f" and {len(set_aside) - 3} more" if len(set_aside) > 3 else ""
    return f"set aside: {', '.join(first)}{more}"


def estimate_line(campaign: Campaign, count: int, workers: int) -> str | None:
    """Return a line on how long the wanted number of bugs will take, to be corrected as they come; None for no time.

    workers: processes or threads that try candidates.
    """
    index = valid = 0
    while valid < count and (known := campaign.known(index)) is not None:
        valid += known.status is AttemptStatus.VALID
        index += 1
    left = count - valid
    if not left:
        return None
    suite_s = campaign.baseline.seconds
    run = f"{suite_s:.1f} s" if suite_s < 10 else duration(suite_s)
    bugs = "bug" if left == 1 else "bugs"
    more = " more" if valid else ""
    return f"one suite run takes {run}; about {duration(estimated_s(suite_s, left, workers))} for {left}{more} {bugs}"


def estimated_s(suite_s: float, bugs: int, workers: int) -> float:
    """Return the seconds that so many bugs are likely to take: twice too much or too little is usual."""
    per_bug_s = _SUITES_PER_BUG * suite_s + _SECONDS_PER_BUG
    return bugs * per_bug_s / math.pow(workers, _SPEED_UP)


def _runs_line(attempts: Sequence[Attempt]) -> str:
    """Say how the runs were made, and never silently that the quick way could not be taken or was wrong."""
    line = f"test runs: {sum(a.runs for a in attempts)}, {sum(a.forks for a in attempts)} of them in warm processes"
    fallbacks = Counter(a.fallback for a in attempts if a.fallback)
    if fallbacks:
        line += f"; {fallbacks.total()} changes screened in fresh ones ({_short(fallbacks.most_common(1)[0][0])})"
    wrong = [a.disagreement for a in attempts if a.disagreement]
    if wrong:
        line += f"; {len(wrong)} screened again because the quick way was wrong ({_short(wrong[0])})"
    return line


def summary_lines(
    attempts: Sequence[Attempt], *, diffs: bool, most: int = 20, set_aside: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (kind, line): kinds are plain, valid, heading, missed, diff.

    set_aside: tests that were found not to count while candidates were tried, with the reasons.
    """
    valid = [a for a in attempts if a.status is AttemptStatus.VALID]
    yield "heading", f"valid artifacts: {len(valid)}"
    for attempt in valid:
        yield "valid", f"  {attempt_line(attempt)[10:]}"
    steps = rejections(attempts)
    if steps:
        yield "heading", "rejected by: " + ", ".join(f"{name} {n}" for name, n in steps)
    if attempts:
        yield "heading", _runs_line(attempts)
    if set_aside:
        yield "plain", _set_aside_line(set_aside)
    unproven = [a for a in attempts if a.status is AttemptStatus.NOT_EXERCISED]
    if unproven:
        yield "plain", f"not exercised: {len(unproven)} changes ({_short(unproven[0].reason)})"
    places = missed(attempts)
    if not places:
        return
    total = sum(map(len, places.values()))
    yield (
        "heading",
        f"what the tests missed: {total} of {len(attempts)} changes survived, in {len(places)} "
        f"place{'s' if len(places) > 1 else ''}",
    )
    attempted = tried(attempts)
    for (path, scope), survivors in list(places.items())[: None if diffs else most]:
        names = ", ".join(sorted({a.operator for a in survivors}))
        yield (
            "missed",
            f"  {path}:{survivors[0].line} {scope}  {len(survivors)} of {attempted[path, scope]}: {names}",
        )
        if diffs:
            for attempt in survivors:
                yield from (("diff", f"    {line}") for line in attempt.diff.splitlines())
    if len(places) > most and not diffs:
        yield "missed", f"  and {len(places) - most} more places"
