"""Read attempts and tries from stores of `ssr play`.

Second-order bugs are omitted: they consist of a solver's failed repairs, and no injector made them.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness.database.sharing import fetch_all
from harness.leaderboard.escaping import clean
from harness.leaderboard.records import Entry, Try
from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.selfplay.round_store import EPISODES, episodes_in
from pytest_ssr.options import STORE_MARK
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
    """Read the finished rounds of all runs of a store.

    by: the source of injector names: strategy, operator, run, or auto (a model's name, else the strategy). rule: the
    verdict of a grade that counts. Raises SettingsError for a damaged round.
    """
    fetch_all(root)
    attempts, tries = [], []
    paths = sorted((root / EPISODES).glob("*/*.json"))
    several = len({p.parent for p in paths}) > 1
    for path in paths:
        name = f"{label}#{path.parent.name[:_ID_DIGITS]}" if several else label
        for episode in episodes_in(path):
            if episode.order > 1 or not episode.counts:
                continue
            episode = episode.by(rule)
            injector = _injector(episode, by, label)
            reward = episode.reward(alpha=alpha, kind=kind)
            tries.append(_try(episode, f"{label}#{path.parent.name}", injector, reward))
            attempts += _attempts(episode, name)
    return attempts, tries


def unplayed(root: Path) -> int:
    """Return how many attempts of `ssr solve` a store holds besides those of plays, which alone are comparable."""
    played = {
        r.id for path in sorted((root / EPISODES).glob("*/*.json")) for e in episodes_in(path) for r in e.rollouts
    }
    bugs = {path.name for path in (root / "artifacts").glob("*")}
    found = (path.parent.name for path in (root / "rollouts").glob("*/rollout.json") if path.parent.name not in played)
    return sum(_task_of(root / "rollouts" / name) in bugs for name in found)


def _task_of(folder: Path) -> str:
    try:
        grade = Attempt.from_json(json.loads((folder / "rollout.json").read_bytes()))
    except (OSError, ValueError, RecursionError):
        return ""
    return grade.task if grade is not None else ""


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
