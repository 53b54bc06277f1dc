"""Format the results of a run of self-play: tables by strategy, operator, size, round and project, and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from harness.records.attempt import Attempt
from harness.records.episode import Episode, count_graded, count_ungraded
from harness.records.rewards import best_solve_rate, clustered_interval
from pytest_ssr.progress import format_duration
from pytest_ssr.records.rate_interval import interval

SIZES = ((1, 2, "1-2 lines"), (3, 5, "3-5 lines"), (6, 15, "6-15 lines"), (16, 10**9, "16 lines and more"))
WAYS = ("strategy", "operator", "size", "round", "project")


def size_of(episode: Episode) -> str:
    """Return the size class of a bug."""
    return next((name for low, high, name in SIZES if low <= episode.lines <= high), "no lines")


def tables(episodes: Sequence[Episode], *, alpha: float, kind: str) -> dict[str, list[dict[str, Any]]]:
    """Return all tables as plain data.

    Second-order bugs, which no injector made, count only in the tables by strategy and by project, and in `all`.
    """
    by: dict[str, Callable[[Episode], str]] = {
        "strategy": lambda e: e.strategy,
        "operator": lambda e: e.operator,
        "size": size_of,
        "round": lambda e: f"round {e.round}",
        "project": lambda e: e.project,
    }
    results = {}
    for way in WAYS:
        groups: dict[str, list[Episode]] = {}
        for episode in episodes:
            if (episode.order == 1 or way in ("strategy", "project")) and (episode.valid or way != "size"):
                groups.setdefault(by[way](episode), []).append(episode)
        sizes = [*(name for _, _, name in SIZES), "no lines"]
        order = sizes if way == "size" else list(groups) if way == "round" else sorted(groups)
        results[way] = [_row(name, groups[name], alpha=alpha, kind=kind) for name in order if name in groups]
    results["all"] = [_row("all", episodes, alpha=alpha, kind=kind)]
    return results


def _row(name: str, episodes: Sequence[Episode], *, alpha: float, kind: str) -> dict[str, Any]:
    tries = [e for e in episodes if e.counts]
    valid = [e for e in tries if e.valid]
    solved, attempts = count_graded(valid)
    rewards = [r for e in episodes if (r := e.reward(alpha=alpha, kind=kind)) is not None]
    rollouts = [r for e in valid for r in e.rollouts]
    solver = [r.reward for r in rollouts if r.reward is not None]
    used: list[Attempt | Episode] = [*rollouts, *episodes]
    return {
        "name": name,
        "tried": len(tries),
        "valid": len(valid),
        "validity": _share(len(valid), len(tries), interval(len(valid), len(tries))),
        "refused": sum(bool(e.refused) for e in valid),
        "attempts": attempts,
        "solved": solved,
        "solve_rate": _share(solved, attempts, clustered_interval([count_graded([e]) for e in valid])),
        "injector_reward": fmean(rewards) if rewards else None,
        "solver_reward": fmean(solver) if solver else None,
        "ungraded": count_ungraded(valid),
        "tokens": sum(u.tokens for u in used),
        "cost_usd": round(sum(u.cost_usd for u in used), 6),
        "unpriced_calls": sum(u.unpriced for u in used),
        "estimated_calls": sum(u.estimated for u in used),
        "injecting_s": round(sum(e.seconds for e in episodes), 3),
        "solving_s": round(sum(r.seconds + r.grading_s for r in rollouts), 3),
    }


def _share(count: int, total: int, bounds: tuple[float, float]) -> dict[str, float] | None:
    """Return a rate with its interval; None if the total is 0."""
    return {"rate": count / total, "low": bounds[0], "high": bounds[1]} if total else None


def lines(
    results: dict[str, list[dict[str, Any]]], episodes: Sequence[Episode], *, attempts: int, alpha: float, kind: str
) -> Iterator[tuple[str, str]]:
    """Yield (kind, line) for the terminal."""
    for way in WAYS:
        if results[way]:
            yield "heading", heading(f"by {way}")
        for row in results[way]:
            yield "", line(row)
    (total,) = results["all"]
    yield "heading", line(total)
    steps = Counter(e.rejected_by for e in episodes if not e.valid)
    if steps:
        yield "", "not valid by: " + ", ".join(f"{name} {count}" for name, count in steps.most_common())
    for episode in episodes:
        if episode.refused:
            yield "bad", f"not given to the solver: {episode.refused.text}"
    if total["ungraded"]:
        yield (
            "bad",
            f"attempts without a grade, because of faults of the machine or of a model's server: {total['ungraded']}",
        )
        yield "bad", "their rounds are not finished: run the same command to complete only the missing attempts"
    if total["tokens"]:
        unpriced = f", and {total['unpriced_calls']} calls without a known price" if total["unpriced_calls"] else ""
        yield "", f"{total['tokens']} tokens, {total['cost_usd']:.4f} USD{unpriced}"
        if total["estimated_calls"]:
            yield (
                "",
                f"the tokens of {total['estimated_calls']} calls are estimates: their server does not count tokens",
            )
    if kind == "solve-rate" and attempts == 1:
        yield "", "with one attempt every solve rate has the same reward: a bug is always solved, or never (--attempts)"
    elif kind == "solve-rate":
        best = best_solve_rate(attempts, alpha=alpha)
        yield "", f"with {attempts} attempts a solve rate of {best:.3f} rewards the injector most"


def heading(name: str) -> str:
    """Return the first line of a table."""
    head = f"{name:24} {'valid':>9} {'(95 %)':>14}  {'solve rate (95 %)':>21}"
    return f"{head} {'no grade':>8} {'injector':>9} {'solver':>7} {'time':>7}"


def line(row: dict[str, Any]) -> str:
    """Return one line of a table."""
    validity, rate = row["validity"], row["solve_rate"]
    return (
        f"{row['name'][:24]:24} {row['valid']:>3} of {row['tried']:<3}"
        f"{'-' if validity is None else '{low:.2f} to {high:.2f}'.format(**validity):>14}  "
        f"{'-' if rate is None else '{rate:.2f} ({low:.2f} to {high:.2f})'.format(**rate):>21} "
        f"{row['ungraded'] or '-':>8} "
        f"{_signed(row['injector_reward']):>9} {_signed(row['solver_reward']):>7} "
        f"{format_duration(row['injecting_s'] + row['solving_s']):>7}"
    )


def _signed(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:+.2f}"
