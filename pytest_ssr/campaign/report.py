"""Format the results of a campaign as text, for the plugin's summary and the command line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.escaping import escaped_line
from pytest_ssr.progress import counted, format_duration
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.shard import Shard
from pytest_ssr.records.test_run import SetAside

# The cost of a valid bug, including the candidates that were rejected or survived before it: 1.6 to 2.8 suite runs on
# toolz, jinja2 and sortedcontainers (suites of 2 to 7 s); 2 workers are 1.4 to 1.7 times as fast as one.
_SUITES_PER_BUG, _SECONDS_PER_BUG, _SPEED_UP = 2.0, 2.0, 0.7


def result_line(result: CandidateResult) -> str:
    """Return one line about a candidate's result."""
    location = f"{result.path}:{result.line} {result.scope}"
    tail = {
        CandidateStatus.VALID: f"{result.artifact_id}, breaks {result.fail_to_pass}",
        CandidateStatus.NOTICED: "",
        CandidateStatus.SURVIVED: "",
    }.get(result.status, shorten(result.explanation))
    return f"{result.status!s:9} {location}  {result.operator}" + (f"  ({tail})" if tail else "")


def shorten(text: str) -> str:
    """Return a text on one line of at most 160 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:157] + "..."


def goal_line(goal: Goal) -> str:
    """Return what a run does."""
    if goal.indices is not None:
        return f"trying {counted(len(goal.indices), 'change')}, the part of this shard"
    if goal.changes:
        return f"trying {goal.changes} changes; the tests should notice them"
    bugs = "1 bug is" if goal.count == 1 else f"{goal.count} bugs are"
    return f"trying changes, one after another, until {bugs} proven"


def progress_line(results: Sequence[CandidateResult], goal: Goal, elapsed_s: float) -> str:
    """Return the counts so far and an estimate of the remaining time."""
    statuses = Counter(a.status for a in results)
    valid, noticed = statuses[CandidateStatus.VALID], statuses[CandidateStatus.NOTICED]
    survived, unproven = statuses[CandidateStatus.SURVIVED], sum(not a.status.is_judged for a in results)
    not_judged = f"{unproven} not judged, " if unproven else ""
    counting = sum(map(goal.counts, results))
    remaining = ""
    if 0 < counting < goal.wanted:
        remaining = f", about {format_duration(elapsed_s / counting * (goal.wanted - counting))} left"
    first = f"{min(counting, goal.wanted)} of {goal.wanted} {'tried' if goal.changes else 'valid'}"
    also = [f"{valid} valid"] if goal.changes and valid else []
    also += [f"{noticed} noticed"] if noticed else []
    rejected = len(results) - valid - noticed - survived - unproven
    counts = ", ".join([first, *also, f"{survived} survived", f"{rejected} rejected"])
    return f"{counts}, {not_judged}{format_duration(elapsed_s)}{remaining}"


def time_is_up(budget_s: float, goal: Goal, results: Sequence[CandidateResult]) -> str:
    """Return the line for a run that the time budget has ended."""
    return (
        f"the time budget of {format_duration(budget_s)} has ended: {sum(map(goal.counts, results))} of {goal.wanted} "
        "reached; run the same command to continue"
    )


def shard_gate_line(shard: Shard, fail_under: float) -> str:
    """Return the line for a shard whose score a gate does not judge."""
    return f"the score of all {shard.of} shards is compared with {fail_under:g} % when ssr merge joins them"


def ended_while_measuring(budget_s: float) -> str:
    """Return the line for a time budget that ended before the first candidate."""
    return (
        f"the time budget of {format_duration(budget_s)} ended while the baseline was measured; "
        "the results so far are kept, give a longer budget to continue"
    )


def display_path(path: Path) -> str:
    """Return a path for display: relative to the current directory if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def rejections(results: Sequence[CandidateResult]) -> list[tuple[str, int]]:
    """Return how many candidates each step rejected, most first."""
    steps = Counter(a.check for a in results if a.status in (CandidateStatus.REJECTED, CandidateStatus.TIMED_OUT))
    return sorted(steps.items(), key=lambda pair: (-pair[1], pair[0]))


def changes_by_location(results: Sequence[CandidateResult]) -> Counter[tuple[str, str]]:
    """Return how many changes were tried by (file, function)."""
    judged = (a for a in results if a.status.is_judged and a.status is not CandidateStatus.TIMED_OUT)
    return Counter((a.path, a.scope) for a in judged)


def opening_lines(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) about the start of a campaign; kinds are plain and missed."""
    base, runner = campaign.baseline, campaign.runner
    yield (
        "plain",
        f"{len(base.stable)} of {counted(len(base.collected), 'test')} pass, one run takes {base.seconds:.1f} s; "
        f"sandbox {runner.provider.name}, Python {base.python}; store {display_path(campaign.store.root)}",
    )
    if runner.interpreter.note:
        yield "missed", runner.interpreter.note
    if base.note:
        yield "missed", left_out_line(base.note)
    if campaign.evidence_only & base.stable:
        able = len(base.stable - campaign.evidence_only)
        yield (
            "plain",
            f"{counted(able, 'test')} can give artifacts; the others cannot be removed from their files, and only show "
            f"what is missed: {campaign.evidence_reasons()}",
        )
    if base.by_position:
        name = f"{base.by_position[0]}[#0]"
        yield (
            "plain",
            f"the parameter ids of {counted(len(base.by_position), 'test function')} change from run to run; "
            f"they are replaced by positions, as in {escaped_line(name)}",
        )
    if base.set_aside:
        yield "plain", set_aside_line(base.set_aside)
    if base.messages:
        yield "missed", failures_line(base.messages.values())


def left_out_line(note: str) -> str:
    """Return a line about tests that a run leaves out. note: the files that cannot be collected, with the reason."""
    return f"not collected, so that its tests are left out: {note}"


def ignored_line(flags: Sequence[str]) -> str:
    """Return a line about options for tests that were given to a session that injects."""
    line = f"{', '.join(flags)}: of no effect on the runs of the tests, which use addopts and the paths that you name"
    selecting = [flag for flag in flags if flag in ("-k", "--deselect")]
    return f"{line}; {' and '.join(selecting)} selects changes by name" if selecting else line


def failures_line(messages: Iterable[str]) -> str:
    """Return a line about what tests of the original fail with, the three commonest first lines."""
    counts = Counter(messages)
    commonest = counts.most_common(3)
    shown = [f"{message} ({count})" for message, count in commonest]
    if others := counts.total() - sum(count for _, count in commonest):
        shown.append(f"{others} with others")
    return f"tests that are set aside fail with: {'; '.join(shown)}"


def set_aside_line(set_aside: Mapping[str, SetAside]) -> str:
    """Return a line about the tests that were set aside, with the first three for each reason."""
    by_reason: dict[SetAside, list[str]] = {}
    for name, reason in set_aside.items():
        by_reason.setdefault(reason, []).append(name)
    groups = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        groups.append(f"{', '.join(names[:3])}{more} ({reason.text})")
    return f"set aside: {'; '.join(groups)}"


def estimate_line(campaign: Campaign, count: int, workers: int) -> str | None:
    """Return a line with a first estimate of the time for the wanted bugs; None if the store has enough of them.

    workers: processes or threads that run trials.
    """
    index = valid = 0
    while valid < count and (result := campaign.stored(index)) is not None:
        valid += result.status is CandidateStatus.VALID
        index += 1
    remaining = count - valid
    if not remaining:
        return None
    bugs = "bug" if remaining == 1 else "bugs"
    more = " more" if valid else ""
    seconds = estimated_s(campaign.baseline.seconds, remaining, workers)
    return f"about {format_duration(seconds)} for {remaining}{more} {bugs}, often up to twice as long"


def estimated_s(suite_s: float, bugs: int, workers: int) -> float:
    """Return the estimated seconds for a number of bugs; an error by a factor of two is usual."""
    per_bug_s = _SUITES_PER_BUG * suite_s + _SECONDS_PER_BUG
    return bugs * per_bug_s / math.pow(workers, _SPEED_UP)


def runs_line(results: Sequence[CandidateResult]) -> str:
    """Return how the runs were made; also how often the fast screening was not possible, or was wrong."""
    line = f"test runs: {sum(a.runs for a in results)}, {sum(a.forks for a in results)} of them in warm processes"
    fallbacks = [a.fallback for a in results if a.fallback is not None]
    if fallbacks:
        ((code, _),) = Counter(f.code for f in fallbacks).most_common(1)
        example = next(f for f in fallbacks if f.code is code)
        line += f"; {len(fallbacks)} changes screened in fresh ones ({shorten(example.text)})"
    wrong = [a.disagreement for a in results if a.disagreement]
    if wrong:
        line += f"; {len(wrong)} screened again because the quick way was wrong ({shorten(wrong[0])})"
    return line
