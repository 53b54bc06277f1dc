"""What several runs hold of the same: counted once where it is the same, told apart where it is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.leaderboard.records import INCOMPLETE, Attempt, Try
from pytest_ssr.errors import SettingsError


def separated(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return each attempt once; a solver whose runs hold other results for the same attempt is one solver for each run.

    Runs of one solver that do not meet, as parts of a dataset, are one: what one has never handed in, another may have.
    Raises SettingsError where one run holds two results for one attempt.
    """
    every = sorted(attempts)
    made = {(a.solver, a.task, a.number) for a in every if a.status != INCOMPLETE}
    found = [a for a in every if a.status != INCOMPLETE or (a.solver, a.task, a.number) not in made]
    places: dict[tuple[str, str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for attempt in found:
        places[attempt.solver, attempt.task, attempt.number][attempt.run].add(attempt.key)
    apart = set()
    for (solver, task, number), runs in places.items():
        for run, keys in runs.items():
            if len(keys) > 1:
                raise SettingsError(f"{run} holds two results for attempt {number + 1} of {solver} at {task}")
        if len({key for keys in runs.values() for key in keys}) > 1:
            apart.add(solver)
    once: dict[tuple[str, str, int, str], Attempt] = {}
    for attempt in found:
        mine = replace(attempt, solver=f"{attempt.solver} ({attempt.run})") if attempt.solver in apart else attempt
        once.setdefault((mine.solver, mine.task, mine.number, mine.key), mine)
    return list(once.values())


def tried_once(tries: Iterable[Try]) -> list[Try]:
    """Return each try once: a change that an injector has made in several runs is one, with all that it took.

    Runs of a store share what they have made: records that are alike there took nothing again. In one run two tries
    without a change may well be alike, and both count. The reward is the mean of those of the runs.
    """
    alike: dict[Try, dict[str, list[Try]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(tries):
        store = one.run.rpartition("#")[0]
        alike[replace(one, run=store, rewards=())][one.run].append(one)
    found: list[Try] = []
    for plain, runs in alike.items():
        for number in range(max(len(made) for made in runs.values())):
            rewards = [r for made in runs.values() for t in made[number : number + 1] for r in t.rewards]
            found.append(replace(plain, rewards=tuple(rewards)))
    changes: dict[tuple[str, str, str], list[Try]] = defaultdict(list)
    for n, one in enumerate(found):
        changes[one.injector, one.project, one.change or f"none {n}"].append(one)
    return [_together(same) for same in changes.values()]


def _together(same: Sequence[Try]) -> Try:
    """Return one try for all at the same change; it is valid where any of them was."""
    best = max(same, key=lambda t: t.valid)
    rewards = [r for one in same for r in one.rewards]
    return replace(
        best,
        artifacts=tuple(sorted({a for one in same for a in one.artifacts})),
        tokens=sum(t.tokens for t in same),
        cost_usd=-1.0 if any(t.cost_usd < 0 for t in same) else sum(t.cost_usd for t in same),
        unpriced=sum(t.unpriced for t in same),
        seconds=sum(t.seconds for t in same),
        rewards=(sum(rewards) / len(rewards),) if rewards else (),
    )
