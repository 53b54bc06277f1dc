"""Load results of `ssr run`, `ssr eval` and `ssr play`, reports of SWE-bench, and jobs of Harbor."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.leaderboard.escaping import clean
from harness.leaderboard.harbor_jobs import read_jobs
from harness.leaderboard.play_stores import find_store, read_store
from harness.leaderboard.records import INCOMPLETE, Entry, Results, Run, Try
from harness.leaderboard.swebench import is_report, read_reports, repo_of
from harness.records.attempt import OLDEST_VERSION, Attempt
from harness.records.rewards import ALPHA
from pytest_ssr.errors import SettingsError, StoreError
from pytest_ssr.records.reasons import Rule


def unique_attempts(attempts: Iterable[Entry]) -> list[Entry]:
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
    unique: dict[tuple[str, str, int, str], Entry] = {}
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


RESULTS = "results.jsonl"
_MOST_PLANNED = 1000
"""Bounds the attempts at a task that a damaged summary can ask for."""


def read_runs(
    paths: Sequence[str],
    *,
    by: str = "auto",
    alpha: float = ALPHA,
    kind: str = "solve-rate",
    rule: Rule = Rule.STRICT,
) -> Results:
    """Return the results of all runs, each attempt once. paths: PATH or NAME=PATH of each run.

    by: the source of injector names in a store of `ssr play` (auto, strategy, operator, run). alpha and kind: of its
    rewards. rule: the verdict of a grade that counts; SWE-bench and Harbor report only one. Raises SettingsError for a
    path that is not a run, and for a damaged line, naming the file and the line.
    """
    labels = _labels(list(dict.fromkeys(map(_named, paths))))
    planned: dict[str, set[tuple[str, str, int]]] = {}
    runs: list[Run] = []
    attempts: list[Entry] = []
    tries: list[Try] = []
    for (_, path), label in labels.items():
        kind_of, run_attempts, run_tries, unfinished = _read(path, label, by=by, alpha=alpha, kind=kind, rule=rule)
        if not run_attempts and not run_tries:
            raise SettingsError(f"{path} contains no results")
        summary = _summary(path)
        wanted = summary.get("wanted")
        absent = max(0, wanted - len(run_attempts)) if type(wanted) is int else unfinished
        planned[label] = _unmade(run_attempts, summary) if absent else set()
        if kind_of == "results" and _is_cut_off(path / RESULTS):
            absent = max(absent, 1)
        if not absent and isinstance(unsubmitted := summary.get("without_outcome"), list):
            run_attempts += _unsubmitted(run_attempts, unsubmitted, label)
        runs.append(Run(label, kind_of, len(run_attempts), len(run_tries), absent))
        attempts += run_attempts
        tries += run_tries
    attempts = _under_one_name(attempts, {run.label for run in runs if run.kind == "harbor"})
    made = {(a.solver, a.task, a.number) for a in attempts if a.status != INCOMPLETE}
    runs = [replace(run, absent=max(0, run.absent - len(planned[run.label] & made))) for run in runs]
    return Results.of(runs, unique_attempts(attempts), unique_tries(tries))


def _under_one_name(attempts: list[Entry], jobs: Collection[str]) -> list[Entry]:
    """Name the tasks of Harbor's jobs as results on the same task directories do, which leave the organisation out.

    jobs: the labels of the runs of Harbor. A name that several organisations use is not changed.
    """
    known = {attempt.task: attempt.repo for attempt in attempts if attempt.run not in jobs}
    full = {attempt.task for attempt in attempts if attempt.run in jobs}
    counts = Counter(_short(task) for task in full)
    same = {task: _short(task) for task in full if _short(task) in known and counts[_short(task)] == 1}
    return [
        replace(attempt, task=same[attempt.task], repo=known[same[attempt.task]])
        if attempt.run in jobs and attempt.task in same
        else attempt
        for attempt in attempts
    ]


def _short(task: str) -> str:
    return task.rpartition("/")[2]


def _read(
    path: Path, label: str, *, by: str, alpha: float, kind: str, rule: Rule
) -> tuple[str, list[Entry], list[Try], int]:
    """Return the kind of a run, its attempts and tries, and the number of trials that have not finished."""
    if (path / RESULTS).is_file():
        recorded = [attempt.by(rule) for attempt in read_attempts(path / RESULTS)]
        return "results", [Entry.of(a, run=label, repo=a.repo or repo_of(a.task)) for a in recorded], [], 0
    store = find_store(path)
    if store is not None:
        return "play", *read_store(store, label, by=by, alpha=alpha, kind=kind, rule=rule), 0
    jobs = read_jobs(path, label)
    if jobs is not None:
        return "harbor", jobs[0], [], jobs[1]
    if (path.is_dir() or is_report(path)) and (attempts := read_reports(path, label)):
        return "swe-bench", attempts, [], 0
    problem = "is not a run" if path.exists() else "does not exist"
    raise SettingsError(
        f"{path} {problem}; name a folder with {RESULTS}, a report of SWE-bench, a job of Harbor or a store of ssr play"
    )


def results_of(paths: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the labels and folders of those runs that are folders of `ssr run` or `ssr eval`."""
    labels = _labels(list(dict.fromkeys(map(_named, paths))))
    return sorted((label, path) for (_, path), label in labels.items() if (path / RESULTS).is_file())


def stores_of(paths: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the labels and folders of those runs that are stores of `ssr play`."""
    labels = _labels(list(dict.fromkeys(map(_named, paths))))
    found = ((label, find_store(path)) for (_, path), label in labels.items() if not (path / RESULTS).is_file())
    return sorted((label, root) for label, root in found if root is not None)


def _named(argument: str) -> tuple[str, Path]:
    name, separator, path = argument.partition("=")
    if separator and name and "/" not in name and not Path(argument).exists():
        return name, Path(path)
    return "", Path(argument)


def _labels(named: Sequence[tuple[str, Path]]) -> dict[tuple[str, Path], str]:
    """Return a label for each run: its name, else the shortest unique end of its path; a repeated path counts once."""
    whole_paths = {path.resolve(): (name, path) for name, path in sorted(named, key=str)}
    labels: dict[tuple[str, Path], str] = {}
    for resolved, (name, path) in whole_paths.items():
        other_parts = [p.parts for p, (own, _) in whole_paths.items() if p != resolved and not own]
        tails = ("/".join(resolved.parts[-n:]) for n in range(1, len(resolved.parts) + 1))
        ends = (t for n, t in enumerate(tails, 1) if all(o[-n:] != resolved.parts[-n:] for o in other_parts))
        labels[name, path] = name or next(ends, str(resolved))
    all_labels = list(labels.values())
    for label in all_labels:
        if all_labels.count(label) > 1:
            raise SettingsError(f"two runs are called {label}; give each a name with NAME=PATH")
    return labels


def read_attempts(path: Path) -> Iterator[Attempt]:
    """Yield the attempts of a results file; raises SettingsError, naming the line, for a damaged one."""
    for location, row in read_lines(path, cut_off=_is_cut_off(path)):
        if row.get("schema_version") in range(1, OLDEST_VERSION):
            raise SettingsError(
                f"{location} is a result of an earlier release; run the same command again to grade it again"
            )
        try:
            attempt = Attempt.read(row)
        except StoreError as error:
            raise SettingsError(f"{location} is damaged: {error}") from None
        if not attempt.task or not attempt.solver:
            raise SettingsError(f"{location} is damaged: it names no instance or no model; run the same command again")
        yield attempt


def _is_cut_off(path: Path) -> bool:
    """Return whether a file ends in the middle of a line: its run was killed, or the disk was full."""
    try:
        last = path.read_bytes().rpartition(b"\n")[2]
        json.loads(last or b"0")
    except (OSError, RecursionError):
        return False
    except ValueError:
        return True
    return False


def read_lines(path: Path, *, cut_off: bool = False) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a JSONL file with their locations; raises SettingsError, naming the line, for a damaged one.

    cut_off: omit a last line without a newline.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not (cut_off and not line.endswith(b"\n")):
                    location = f"{path}: line {number}"
                    yield location, read_object(line, location)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


def read_object(text: bytes, location: str) -> Mapping[str, Any]:
    """Parse a JSON object; raises SettingsError, naming its location, for anything else."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise SettingsError(f"{location} is damaged: it is not JSON") from None
    if not isinstance(row, dict):
        raise SettingsError(f"{location} is damaged: it is not an object")
    return row


def _summary(path: Path) -> Mapping[str, Any]:
    """Return the summary of a run; an empty mapping if it has none."""
    try:
        summary = json.loads((path / "summary.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return summary if isinstance(summary, dict) else {}


def _unmade(attempts: Sequence[Entry], summary: Mapping[str, Any]) -> set[tuple[str, str, int]]:
    """Return the solver, task and number of each attempt that an unfinished run has planned at tasks without any."""
    tasks, count = summary.get("without_outcome"), summary.get("attempts")
    if not isinstance(tasks, list):
        return set()
    numbers = range(min(count, _MOST_PLANNED) if type(count) is int else 1)
    return {
        (s, clean(t), n) for s in {a.solver for a in attempts} for t in tasks if isinstance(t, str) for n in numbers
    }


def _unsubmitted(attempts: Sequence[Entry], unsubmitted: Sequence[object], label: str) -> list[Entry]:
    """Return a missing attempt for each solver and task of a finished run without a result."""
    others = [clean(i) for i in unsubmitted if isinstance(i, str)]
    tasks = {**{i: repo_of(i) for i in others}, **{a.task: a.repo for a in attempts}}
    existing = {(a.solver, a.task) for a in attempts}
    return [
        Entry(solver, task, 0, label, INCOMPLETE, repo, INCOMPLETE, "never submitted")
        for solver in sorted({a.solver for a in attempts})
        for task, repo in sorted(tasks.items())
        if (solver, task) not in existing
    ]
