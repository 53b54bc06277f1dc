"""Read the finished rounds of self-play from a store."""

from __future__ import annotations

from harness.records.episode import Episode
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


def round_name(number: int, project_index: int) -> str:
    """Return the name of the record of a round of a project; both are counted from 0."""
    return f"round-{number + 1:03d}-{project_index + 1:03d}"
