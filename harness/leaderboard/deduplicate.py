"""Deduplicate attempts and tries of several runs, and separate solvers whose results differ between runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.leaderboard.records import INCOMPLETE, Attempt, Try
from pytest_ssr.errors import SettingsError


def unique_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return each attempt once; a solver with different results for an attempt becomes one solver for each run.

    Runs of one solver that do not overlap, such as parts of a dataset, are merged: what one never submitted may be in
    another. Raises SettingsError if one run has two results for one attempt.
    """
    every = sorted(attempts)
    submitted = {(a.solver, a.task, a.number) for a in every if a.status != INCOMPLETE}
    relevant = [a for a in every if a.status != INCOMPLETE or (a.solver, a.task, a.number) not in submitted]
    keys_by_run: dict[tuple[str, str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for attempt in relevant:
        keys_by_run[attempt.solver, attempt.task, attempt.number][attempt.run].add(attempt.key)
    apart = set()
    for (solver, task, number), runs in keys_by_run.items():
        for run, keys in runs.items():
            if len(keys) > 1:
                raise SettingsError(f"{run} has two results for attempt {number + 1} of {solver} at {task}")
        if len({key for keys in runs.values() for key in keys}) > 1:
            apart.add(solver)
    unique: dict[tuple[str, str, int, str], Attempt] = {}
    for attempt in relevant:
        mine = replace(attempt, solver=f"{attempt.solver} ({attempt.run})") if attempt.solver in apart else attempt
        unique.setdefault((mine.solver, mine.task, mine.number, mine.key), mine)
    return list(unique.values())


def unique_tries(tries: Iterable[Try]) -> list[Try]:
    """Return each try once: a change that an injector made in several runs is one try, with the sum of their costs.

    Runs of one store share results: equal records there are one try and cost nothing again. Within a run, two tries
    without a change may be equal, and both count. The reward is the mean over the runs.
    """
    by_content: dict[Try, dict[str, list[Try]]] = defaultdict(lambda: defaultdict(list))
    for trial in sorted(tries):
        store = trial.run.rpartition("#")[0]
        by_content[replace(trial, run=store, rewards=())][trial.run].append(trial)
    trials: list[Try] = []
    for template, runs in by_content.items():
        for number in range(max(len(copies) for copies in runs.values())):
            rewards = [r for copies in runs.values() for t in copies[number : number + 1] for r in t.rewards]
            trials.append(replace(template, rewards=tuple(rewards)))
    changes: dict[tuple[str, str, str], list[Try]] = defaultdict(list)
    for n, trial in enumerate(trials):
        changes[trial.injector, trial.project, trial.change or f"none {n}"].append(trial)
    return [_merged(same) for same in changes.values()]


def _merged(same: Sequence[Try]) -> Try:
    """Merge the tries with the same change into one; it is valid if any of them is."""
    best = max(same, key=lambda t: t.valid)
    rewards = [r for trial in same for r in trial.rewards]
    return replace(
        best,
        artifacts=tuple(sorted({a for trial in same for a in trial.artifacts})),
        tokens=sum(t.tokens for t in same),
        cost_usd=-1.0 if any(t.cost_usd < 0 for t in same) else sum(t.cost_usd for t in same),
        unpriced=sum(t.unpriced for t in same),
        seconds=sum(t.seconds for t in same),
        rewards=(sum(rewards) / len(rewards),) if rewards else (),
    )
