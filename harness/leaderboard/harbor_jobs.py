"""Read attempts from the job folders of Harbor. A trial that has not finished is absent."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from harness.leaderboard.escaping import clean
from harness.leaderboard.records import Entry
from harness.leaderboard.swebench import repo_of
from harness.records.harbor_trials import RESULT, Trial, read_trial, trial_folders
from pytest_ssr.errors import SettingsError, StoreError
from pytest_ssr.records.decoding import json_object


def read_jobs(path: Path, label: str) -> tuple[list[Entry], int] | None:
    """Return the attempts of finished trials, and the number of trials that have not finished.

    None if the path is neither a trial, a job nor a folder of jobs. Several jobs get separate labels. Within a job, the
    attempts of an agent at a task are numbered by their start. Raises SettingsError for a damaged result, and for a
    trial that is twice in a job.
    """
    folders = trial_folders(path)
    if not folders:
        return None
    jobs: dict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        jobs[folder.absolute().parent].append(folder)
    entries: list[Entry] = []
    absent = 0
    for job, members in jobs.items():
        found = _entries(members, f"{label}/{clean(job.name)}" if len(jobs) > 1 else label)
        planned = 1 if folders == [path] else max(_planned(job), len(members))
        absent += planned - len(found)
        entries += found
    return entries, absent


def _entries(folders: list[Path], label: str) -> list[Entry]:
    trials: dict[str, tuple[Trial, Path]] = {}
    for folder in folders:
        try:
            trial = read_trial(folder)
        except StoreError as error:
            raise SettingsError(str(error)) from None
        if trial is None:
            continue
        if trial.id in trials:
            raise SettingsError(f"{trials[trial.id][1]} and {folder} are the same trial {trial.name}; remove one")
        trials[trial.id] = trial, folder
    numbers: Counter[tuple[str, str]] = Counter()
    entries = []
    for trial, _ in sorted(trials.values(), key=lambda item: (item[0].started_at, item[0].name, item[0].id)):
        entry = _entry(trial, numbers[_solver(trial), trial.task], label)
        numbers[_solver(trial), trial.task] += 1
        entries.append(entry)
    return entries


def _solver(trial: Trial) -> str:
    return clean(f"{trial.agent} {trial.model}".strip())


def _entry(trial: Trial, number: int, label: str) -> Entry:
    status = "infra" if trial.resolved is None else "resolved" if trial.resolved else "unresolved"
    return Entry(
        solver=_solver(trial),
        task=clean(trial.task),
        number=number,
        run=label,
        key=clean(trial.id),
        repo=repo_of(clean(trial.task).rpartition("/")[2]),
        status=status,
        reason=clean(trial.exception) or ("no reward" if trial.resolved is None else status),
        cost_usd=trial.cost_usd,
        tokens=trial.tokens,
        seconds=trial.seconds,
    )


def _planned(job: Path) -> int:
    """Return the number of trials that a job has planned; 0 if it is unknown."""
    try:
        planned = (json_object((job / RESULT).read_bytes()) or {}).get("n_total_trials")
    except OSError:
        return 0
    return planned if type(planned) is int and planned > 0 else 0
