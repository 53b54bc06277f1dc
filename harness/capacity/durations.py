"""Read from a store how long its units of work took, and how large their results are."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from harness.records.attempt import Attempt
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.snapshot import MANIFEST
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.decoding import json_object
from pytest_ssr.storage.store import Store

MIN_UNITS = 5
"""Fewer results say nothing about the longest ones."""


class Work(StrEnum):
    """What a run makes."""

    BUGS = "bugs"
    ATTEMPTS = "attempts"
    ROWS = "rows"


_RESULTS = {
    Work.BUGS: ("attempts", "artifacts", "spare", "verdicts", "wanted"),
    Work.ATTEMPTS: ("rollouts",),
    Work.ROWS: ("outcomes",),
}
"""The folders of a store that have the results of each kind of work."""
_MAKERS = {
    Work.BUGS: "ssr inject or ssr play",
    Work.ATTEMPTS: "ssr play, ssr solve or ssr run",
    Work.ROWS: "ssr eval or ssr run",
}
_UNITS = {Work.BUGS: "tried candidates", Work.ATTEMPTS: "finished attempts", Work.ROWS: "graded predictions"}


class Unit(NamedTuple):
    """A unit of work that was measured."""

    seconds: float
    counts: bool
    """Whether it gave what was wanted: a valid bug, or an attempt or a prediction with a grade."""
    outcome: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The durations of units with the same outcome."""

    count: int
    mean_s: float
    median_s: float
    longest_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Outcome:
        """Summarize durations."""
        return cls(len(seconds), statistics.fmean(seconds), statistics.median(seconds), max(seconds))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a store knows about one kind of work."""

    work: Work
    groups: tuple[tuple[Unit, ...], ...]
    """Units that resemble each other: attempts at one bug, predictions for one instance, one candidate."""
    files_per_unit: float = 1.0
    bytes_per_unit: float = 0.0
    """Of results in the store."""
    tree_bytes: int = 0
    """The projects' trees, which each node fetches."""
    tree_disk_bytes: int = 0
    """The same with the copies that a node makes of them."""
    preparation_s: float = 0.0
    """Time to measure the projects' tests, once on each node."""

    @property
    def units(self) -> list[Unit]:
        """All measured units."""
        return [unit for group in self.groups for unit in group]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The durations by outcome."""
        seconds = defaultdict(list)
        for unit in self.units:
            seconds[unit.outcome].append(unit.seconds)
        return {name: Outcome.of(seconds[name]) for name in sorted(seconds)}

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        units = self.units
        return {
            "work": str(self.work),
            "units": len(units),
            "groups": len(self.groups),
            "counted": sum(unit.counts for unit in units),
            "outcomes": {name: asdict(outcome) for name, outcome in self.outcomes.items()},
            "files_per_unit": self.files_per_unit,
            "bytes_per_unit": self.bytes_per_unit,
            "tree_bytes": self.tree_bytes,
            "tree_disk_bytes": self.tree_disk_bytes,
            "preparation_s": self.preparation_s,
        }


def read_durations(store: Store, work: Work) -> Measured:
    """Read what a store knows about a kind of work; results of other machines are copied here first.

    Raises SettingsError if it has too few results to plan from, or if none of them is what is wanted.
    """
    files = {folder: list(_results(store, folder, work)) for folder in _RESULTS[work]}
    groups = tuple(tuple(group) for group in _READERS[work](files).values())
    measured = [unit for group in groups for unit in group]
    if len(measured) < MIN_UNITS:
        raise SettingsError(
            f"{store.root} has {len(measured)} {_UNITS[work]}, and a plan needs at least {MIN_UNITS}; "
            f"run {_MAKERS[work]} with this store first",
            option=str(work),
        )
    if not any(unit.counts for unit in measured):
        raise SettingsError(
            f"none of the {len(measured)} {_UNITS[work]} of {store.root} gave what is wanted, so that nothing is known "
            f"about how many a run needs",
            option=str(work),
        )
    paths = [path for folder in files.values() for path in folder]
    trees = [path / "tree" for path in store.trees.iterdir() if (path / MANIFEST).is_file()]
    return Measured(
        work,
        groups,
        len(paths) / len(measured),
        sum(path.stat().st_size for path in paths) / len(measured),
        sum(_bytes_below(tree) for tree in trees),
        _bytes_below(store.trees),
        sum(_baseline_seconds(store.root / "baselines")),
    )


def _results(store: Store, folder: str, work: Work) -> Iterator[Path]:
    """Yield the files of a folder that belong to a kind of work."""
    for path in store.fetch(folder):
        # ssr run keeps its results directly in the folder in which each campaign has one of its own.
        if work is not Work.BUGS or path.parent != store.root / "attempts":
            yield path


def _candidates(files: Mapping[str, Sequence[Path]]) -> dict[str, list[Unit]]:
    groups: dict[str, list[Unit]] = {}
    for path, data in _records(files["attempts"]):
        result = CandidateResult.from_json(data)
        if result is not None:
            valid = result.status is CandidateStatus.VALID
            groups[str(path)] = [Unit(result.seconds, valid, str(result.status))]
    return groups


def _attempts(files: Mapping[str, Sequence[Path]]) -> dict[str, list[Unit]]:
    groups = defaultdict(list)
    for path, data in _records(p for p in files["rollouts"] if p.name == "rollout.json"):
        rollout = Attempt.from_json(data)
        if rollout is not None and rollout.ending != "aborted":
            verdict = rollout.verdict
            outcome = {True: "resolved", False: "unresolved", None: "no-grade"}[verdict]
            unit = Unit(rollout.seconds + rollout.grading_s, verdict is not None, outcome)
            groups[_task_of(path.with_name("trajectory.jsonl")) or str(path)].append(unit)
    return dict(groups)


def _predictions(files: Mapping[str, Sequence[Path]]) -> dict[str, list[Unit]]:
    groups = defaultdict(list)
    for _, data in _records(files["outcomes"]):
        result = Attempt.from_json(data)
        if result is not None:
            unit = Unit(result.grading_s, result.verdict is not None, str(result.status))
            groups[result.task].append(unit)
    return dict(groups)


_READERS = {Work.BUGS: _candidates, Work.ATTEMPTS: _attempts, Work.ROWS: _predictions}


def _records(paths: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in paths:
        data = json_object(path.read_bytes()) if path.suffix == ".json" else None
        if data is not None:
            yield path, data


def _task_of(trajectory: Path) -> str:
    """Return the task of a rollout, from the first line of its trajectory; empty without a trajectory."""
    try:
        with trajectory.open(encoding="utf-8") as file:
            return str(json.loads(file.readline())["task_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _baseline_seconds(folder: Path) -> Iterator[float]:
    """Yield how long each measured suite took; other records of the folder have no duration."""
    for _, data in _records(sorted(folder.glob("*.json"))):
        if isinstance(data.get("seconds"), int | float):
            yield float(data["seconds"])


def _bytes_below(folder: Path) -> int:
    """Return the size of all files in a folder; a file with several links counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(parent, name))
            sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())
