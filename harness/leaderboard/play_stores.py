"""Read attempts and tries from stores of `ssr play` and `ssr solve`.

Second-order bugs are omitted: they consist of a solver's failed repairs, and no injector made them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.database.sharing import fetch_all
from harness.leaderboard.escaping import clean
from harness.leaderboard.records import Entry, Try
from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.selfplay.round_store import EPISODES, episodes_in
from pytest_ssr.options import STORE_MARK
from pytest_ssr.records.decoding import json_object
from pytest_ssr.records.reasons import Rule

WAYS = ("auto", "strategy", "operator", "run")
_ID_DIGITS = 8
"""Digits of a run's id in labels, if a store has several runs."""


def find_store(path: Path) -> Path | None:
    """Return the store at a path, or in `.ssr` below it; None if it does not exist."""
    return next((p for p in (path, path / ".ssr") if (p / STORE_MARK).is_file()), None)


def read_store(
    root: Path, label: str, *, by: str, alpha: float, kind: str, rule: Rule
) -> tuple[list[Entry], list[Try]]:
    """Read the finished rounds of all runs of a store, and the attempts of `ssr solve` at bugs that its solver has not
    attempted in one of them.

    by: the source of injector names: strategy, operator, run, or auto (a model's name, else the strategy). rule: the
    verdict of a grade that counts. Raises SettingsError for a damaged round.
    """
    fetch_all(root)
    attempts: list[Entry] = []
    tries: list[Try] = []
    played: set[str] = set()
    left_out: set[str] = set()
    paths = sorted((root / EPISODES).glob("*/*.json"))
    several = len({p.parent for p in paths}) > 1
    for path in paths:
        name = f"{label}#{path.parent.name[:_ID_DIGITS]}" if several else label
        for episode in episodes_in(path):
            played.update(r.id for r in episode.rollouts)
            if episode.order > 1:
                left_out.add(episode.artifact_id)
            if episode.order > 1 or not episode.counts:
                continue
            episode = episode.by(rule)
            injector = _injector(episode, by, label)
            reward = episode.reward(alpha=alpha, kind=kind)
            tries.append(_try(episode, f"{label}#{path.parent.name}", injector, reward))
            attempts += _attempts(episode, name)
    solved = [
        attempt.by(rule) for attempt in _solved(root) if attempt.task not in left_out and attempt.id not in played
    ]
    return attempts + _numbered(solved, {(a.solver, a.task) for a in attempts}, label, root), tries


def unranked(root: Path) -> int:
    """Return how many attempts of `ssr solve` a board leaves out: their solver has attempted the bug in a play, too."""
    pairs, played = set(), set()
    for path in (root / EPISODES).glob("*/*.json"):
        for episode in episodes_in(path):
            pairs |= {(r.solver, episode.artifact_id) for r in episode.rollouts}
            played |= {r.id for r in episode.rollouts}
    return sum((a.solver, a.task) in pairs for a in _solved(root) if a.id not in played)


def _numbered(solved: list[Attempt], played: set[tuple[str, str]], label: str, root: Path) -> list[Entry]:
    """Return the entries of attempts of `ssr solve`, renumbered: several commands may have made a first one.

    played: the solvers and bugs of plays. All attempts of a play are at bugs that were chosen by chance, and others at
    the same bug would be more of what somebody wanted to see.
    """
    entries: list[Entry] = []
    counts: Counter[tuple[str, str]] = Counter()
    for attempt in sorted(solved, key=lambda a: (a.seed, a.attempt, a.id)):
        entry = Entry.of(attempt, run=label, repo=_repository(root, attempt.task))
        pair = (entry.solver, entry.task)
        if pair not in played:
            entries.append(replace(entry, number=counts[pair]))
            counts[pair] += 1
    return entries


def _solved(root: Path) -> list[Attempt]:
    """Return the graded attempts at bugs of a store; those of its plays are among them."""
    bugs = {path.name for path in (root / "artifacts").glob("*")}
    found = (_attempt(path) for path in sorted((root / "rollouts").glob("*/rollout.json")))
    return [attempt for attempt in found if attempt is not None and attempt.task in bugs]


def _attempt(path: Path) -> Attempt | None:
    return Attempt.from_json(_object(path))


def _repository(root: Path, bug: str) -> str:
    name = _object(root / "artifacts" / bug / "artifact.json").get("repository")
    return name if isinstance(name, str) else ""


def _object(path: Path) -> Mapping[str, Any]:
    try:
        return json_object(path.read_bytes()) or {}
    except OSError:
        return {}


def _injector(episode: Episode, by: str, label: str) -> str:
    if by == "run":
        return label
    if by == "operator" or (by == "auto" and episode.tokens and episode.operator):
        return clean(episode.operator)
    return clean(episode.strategy)


def _try(episode: Episode, run: str, injector: str, reward: float | None) -> Try:
    return Try(
        injector=injector,
        project=clean(episode.project),
        artifacts=(episode.artifact_id,) if episode.valid else (),
        run=run,
        valid=episode.valid,
        operator=clean(episode.operator),
        path=clean(episode.path),
        scope=clean(episode.scope),
        change=episode.change,
        lines=episode.lines,
        tokens=episode.tokens,
        cost_usd=-1.0 if episode.unpriced else episode.cost_usd,
        unpriced=episode.unpriced,
        seconds=episode.seconds,
        rewards=() if reward is None else (reward,),
    )


def _attempts(episode: Episode, run: str) -> list[Entry]:
    return [
        Entry.of(r, run=run, repo=episode.project, task=episode.artifact_id) for r in episode.rollouts if episode.valid
    ]
