"""Read the finished rounds of self-play from a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness.records.episode import Episode
from pytest_ssr.errors import SettingsError
from pytest_ssr.storage.store import Store

EPISODES = "episodes"


def read_round(store: Store, run: str, number: int, project_index: int, *, attempts: int) -> list[Episode] | None:
    """Return the episodes of a round of a project (both counted from 0); None if the round is not finished."""
    data = (store.record(f"{EPISODES}/{run}", round_name(number, project_index)) or {}).get("episodes")
    if not isinstance(data, list):
        return None
    episodes = [e for e in map(Episode.from_json, data) if e is not None]
    attempt_lists = [[r.attempt for r in e.rollouts] for e in episodes]
    is_complete = all(len(set(a)) == len(a) and set(a) <= set(range(attempts)) for a in attempt_lists)
    return episodes if is_complete and len(episodes) == len(data) else None


def stored_episodes(root: Path) -> Iterator[tuple[str, Episode]]:
    """Yield the episodes of the finished rounds of a store, each with its run; raises SettingsError for a damaged one.

    Runs are in the order in which they stored their last round.
    """
    paths = sorted((root / EPISODES).glob("*/*.json"))
    last = {path.parent: path.stat().st_mtime for path in sorted(paths, key=lambda path: path.stat().st_mtime)}
    for path in sorted(paths, key=lambda path: (last[path.parent], path)):
        for episode in episodes_in(path):
            yield path.parent.name, episode


def episodes_in(path: Path) -> list[Episode]:
    """Return the episodes of a round in a file; raises SettingsError if it is damaged."""
    try:
        items = json.loads(path.read_bytes())["episodes"]
        parsed = [Episode.from_json(e) for e in items]
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SettingsError(f"{path} is damaged: it is not a round of episodes") from None
    episodes = [e for e in parsed if e is not None]
    if len(episodes) < len(parsed):
        raise SettingsError(
            f"{path} is damaged: episode {parsed.index(None) + 1} is incomplete, or from another release"
        )
    return episodes


def round_name(number: int, project_index: int) -> str:
    """Return the name of the record of a round of a project; both are counted from 0."""
    return f"round-{number + 1:03d}-{project_index + 1:03d}"
