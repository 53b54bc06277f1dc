"""Paths in, results out: folders of `ssr run` and `ssr eval`, reports of SWE-bench, stores of `ssr play`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.evaluation.outcome import SCHEMA_VERSION, Outcome
from harness.leaderboard.play_stores import is_store, read_store
from harness.leaderboard.records import INCOMPLETE, Attempt, Results, Run, Try
from harness.leaderboard.sorting_out import separated, tried_once
from harness.leaderboard.swebench import is_report, read_reports, repo_of
from harness.leaderboard.texts import clean, clean_flag
from harness.rewards import ALPHA
from harness.shapes import whole
from pytest_ssr.errors import SettingsError
from pytest_ssr.reasons import Rule

RESULTS = "results.jsonl"
_KNOWN = {f.name for f in fields(Outcome)} | {"schema_version", "flag_details"}


def read_runs(
    words: Sequence[str],
    *,
    by: str = "auto",
    alpha: float = ALPHA,
    kind: str = "solve-rate",
    rule: Rule = Rule.STRICT,
) -> Results:
    """Read all runs, each a path or NAME=PATH, and return what they hold, each attempt once.

    by: what names an injector in a store of `ssr play` (auto, strategy, operator, run). alpha and kind: of its rewards.
    rule: which verdict of a grade decides; reports of SWE-bench hold one alone.
    Raises SettingsError for what is no run, and for a damaged line, naming the file and the line.
    """
    labels = _labels(list(dict.fromkeys(map(_named, words))))
    runs: list[Run] = []
    attempts: list[Attempt] = []
    tries: list[Try] = []
    for (_, path), label in labels.items():
        kind_of, found, made = _read(path, label, by=by, alpha=alpha, kind=kind, rule=rule)
        if not found and not made:
            raise SettingsError(f"{path} holds no result")
        told = _summary(path)
        wanted = told.get("wanted")
        absent = max(0, wanted - len(found)) if type(wanted) is int else 0
        if kind_of == "results" and _is_cut_off(path / RESULTS):
            absent = max(absent, 1)
        if not absent and isinstance(without := told.get("without_outcome"), list):
            found += _not_handed_in(found, without, label)
        runs.append(Run(label, kind_of, len(found), len(made), absent))
        attempts += found
        tries += made
    return Results.of(runs, separated(attempts), tried_once(tries))


def _read(
    path: Path, label: str, *, by: str, alpha: float, kind: str, rule: Rule
) -> tuple[str, list[Attempt], list[Try]]:
    if (path / RESULTS).is_file():
        return "results", list(_outcomes(path / RESULTS, label, rule)), []
    store = is_store(path)
    if store is not None:
        return "play", *read_store(store, label, by=by, alpha=alpha, kind=kind, rule=rule)
    if (path.is_dir() or is_report(path)) and (found := read_reports(path, label)):
        return "swe-bench", found, []
    there = "is no run" if path.exists() else "is not there"
    raise SettingsError(f"{path} {there}; name a folder with {RESULTS}, a report of SWE-bench, or a store of ssr play")


def results_of(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the folders with results of `ssr run` or `ssr eval` among runs, with their labels."""
    labels = _labels(list(dict.fromkeys(map(_named, words))))
    return sorted((label, path) for (_, path), label in labels.items() if (path / RESULTS).is_file())


def _named(word: str) -> tuple[str, Path]:
    name, mark, path = word.partition("=")
    if mark and name and "/" not in name and not Path(word).exists():
        return name, Path(path)
    return "", Path(word)


def _labels(named: Sequence[tuple[str, Path]]) -> dict[tuple[str, Path], str]:
    """Return a label for each: its name, else the end of its path that no other has; one path twice counts once."""
    whole_paths = {path.resolve(): (name, path) for name, path in sorted(named, key=str)}
    found: dict[tuple[str, Path], str] = {}
    for place, (name, path) in whole_paths.items():
        others = [p.parts for p, (own, _) in whole_paths.items() if p != place and not own]
        tails = ("/".join(place.parts[-n:]) for n in range(1, len(place.parts) + 1))
        ends = (t for n, t in enumerate(tails, 1) if all(o[-n:] != place.parts[-n:] for o in others))
        found[name, path] = name or next(ends, str(place))
    taken = list(found.values())
    for label in taken:
        if taken.count(label) > 1:
            raise SettingsError(f"two runs are called {label}; name each with NAME=PATH")
    return found


def _outcomes(path: Path, label: str, rule: Rule) -> Iterator[Attempt]:
    for where, row in read_lines(path, cut_off=_is_cut_off(path)):
        yield _attempt(row, where, label, rule)


def _is_cut_off(path: Path) -> bool:
    """Tell whether a file ends in the middle of a line: its run was killed, or had no room left."""
    try:
        last = path.read_bytes().rpartition(b"\n")[2]
        json.loads(last or b"0")
    except (OSError, RecursionError):
        return False
    except ValueError:
        return True
    return False


def read_lines(path: Path, *, cut_off: bool = False) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a JSONL file with their places; raises SettingsError naming the line that is none.

    cut_off: leave out a last line that does not end.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not (cut_off and not line.endswith(b"\n")):
                    where = f"{path}: line {number}"
                    yield where, read_object(line, where)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


def read_object(text: bytes, where: str) -> Mapping[str, Any]:
    """Return one JSON object; raises SettingsError naming its place."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise SettingsError(f"{where} is damaged: it is not JSON") from None
    if not isinstance(row, dict):
        raise SettingsError(f"{where} is damaged: it is no object")
    return row


def _attempt(row: Mapping[str, Any], where: str, label: str, rule: Rule) -> Attempt:
    if row.get("schema_version") in range(1, SCHEMA_VERSION):
        raise SettingsError(f"{where} is a result of an earlier release; run the same command again to grade it again")
    outcome = Outcome.from_json({k: v for k, v in row.items() if k in _KNOWN})
    try:
        if outcome is None or not outcome.instance_id or not outcome.model:
            raise TypeError(f"it is no result of schema version {SCHEMA_VERSION}")
        told = whole(outcome).by(rule)
    except TypeError as error:
        raise SettingsError(f"{where} is damaged: {error}") from None
    by_solver = bool(told.rollout)
    # Of a prediction that mini-swe-agent made elsewhere all is known but its time.
    recorded = by_solver or bool(told.exit_reason)
    created = row.get("created_at")
    return Attempt(
        solver=clean(told.model),
        task=clean(told.instance_id),
        number=told.attempt,
        run=label,
        key=clean(told.rollout) or _digest(clean(told.patch_sha256), told.status, clean(told.reason.text)),
        repo=clean(told.repo) or repo_of(clean(told.instance_id)),
        status=str(told.status),
        reason=clean(told.reason.text),
        flags=tuple(map(clean_flag, told.flags)),
        forged=told.forged,
        unpriced=told.unpriced,
        estimated=told.estimated,
        created_at=clean(created) if isinstance(created, str) else "",
        cost_usd=told.cost_usd if recorded and not told.unpriced else -1.0,
        tokens=told.tokens if recorded else -1,
        steps=told.steps if recorded else -1,
        seconds=told.solver_s if by_solver else -1.0,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _summary(path: Path) -> Mapping[str, Any]:
    """Return what a run tells of itself, if it does."""
    try:
        told = json.loads((path / "summary.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _not_handed_in(found: Sequence[Attempt], without: Sequence[object], label: str) -> list[Attempt]:
    """Return an attempt that is missing for each solver and task of a finished run that it has no result for."""
    others = [clean(i) for i in without if isinstance(i, str)]
    tasks = {**{i: repo_of(i) for i in others}, **{a.task: a.repo for a in found}}
    there = {(a.solver, a.task) for a in found}
    return [
        Attempt(solver, task, 0, label, INCOMPLETE, repo, INCOMPLETE, "never handed in")
        for solver in sorted({a.solver for a in found})
        for task, repo in sorted(tasks.items())
        if (solver, task) not in there
    ]
