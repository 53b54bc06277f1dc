"""Fill the tables that queries use from the files of a store, in the transaction that stores them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from harness.database.events import Change
from harness.database.fitting import fitted
from harness.database.schema import artifacts, candidates, episodes, rollouts, rounds
from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.records.trajectory import ending_of
from harness.records.usage import NAME, RunUsage
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.decoding import decode_or_none, json_object

_HEADER_BYTES = 1 << 20
"""Longest first line of a trajectory that is read."""
_LONGEST_NAME = 64
"""Characters of an id."""
_NOT_IN_ATTEMPT = ("id", "artifact_id", "role", "valid", "stored_at")
"""Columns of rollouts that are known from the file's path or from its trajectory."""
_RENAMED = {"player": "solver", "status": "ending"}
"""Columns of rollouts with another name than the field of an attempt that they hold."""
_Add = Callable[[sa.Connection, str, bytes], Change | None]


def add(connection: sa.Connection, files: Mapping[str, bytes], folder: Path | None = None) -> Iterator[Change]:
    """Index files that are being stored, and yield what changed. folder: contains those whose content is not given.

    What cannot be read is stored all the same, and not indexed: an earlier release may have written it.
    """
    for path, data in files.items():
        content = data
        if not content and folder is not None and path.endswith(NAME):
            content = _first_line(folder / path.rpartition("/")[2])
        function = _function(path)
        change = function(connection, path, content) if function is not None else None
        if change is not None:
            yield change


def remove(connection: sa.Connection, path: str) -> None:
    """Remove what a file has added to the tables."""
    for table in (episodes, rounds, candidates):
        connection.execute(sa.delete(table).where(table.c.path == path))
    parts = path.split("/")
    if parts[0] in ("artifacts", "spare") and len(parts) > 1:
        connection.execute(sa.delete(artifacts).where(artifacts.c.id == parts[1], artifacts.c.kind == parts[0]))
    if parts[0] == "rollouts" and parts[-1] == "rollout.json":
        connection.execute(sa.delete(rollouts).where(rollouts.c.id == parts[1]))


def move(connection: sa.Connection, source: str, target: str) -> None:
    """Index that the files of a folder were moved."""
    (_, name), (kind, _) = source.split("/", 1), target.split("/", 1)
    connection.execute(sa.update(artifacts).where(artifacts.c.id == name).values(kind=kind))


def _function(path: str) -> _Add | None:
    parts = path.split("/")
    if any(len(part) > _LONGEST_NAME for part in parts[:-1]):
        # Nothing of ours has such a name, and a part of it could be that of another.
        return None
    match parts:
        case ["artifacts" | "spare", _, "artifact.json"]:
            return _add_artifact
        case ["episodes", _, name] if name.startswith("round-"):
            return _add_round
        case ["attempts", _, name] if name.endswith(".json"):
            return _add_candidate
        case ["rollouts", _, "rollout.json"]:
            return _add_rollout
        case ["rollouts", _, "trajectory.jsonl"]:
            return _add_trajectory
    return None


def _add_artifact(connection: sa.Connection, path: str, data: bytes) -> Change | None:
    info = json_object(data)
    if info is None:
        return None
    kind, name, _ = path.split("/")
    injector, sizes = _mapping(info.get("injector")), _mapping(info.get("sizes"))
    tests = info.get("FAIL_TO_PASS")
    values = {
        "id": name,
        "kind": kind,
        "repository": _text(info.get("repository")),
        "tree_hash": _text(info.get("tree_hash")),
        "strategy": _text(injector.get("strategy")),
        "operator": _text(injector.get("operator")),
        "model": _text(injector.get("model")),
        "order": _count(info.get("order")) or 1,
        "parent": _text(info.get("parent")),
        "fail_to_pass": len(tests) if isinstance(tests, list) else 0,
        "files": _count(sizes.get("files")),
        "lines": _count(sizes.get("lines_added")) + _count(sizes.get("lines_removed")),
        "stored_at": time.time(),
    }
    row = fitted(artifacts, values)
    replace_rows(connection, artifacts, [row], key=["id"])
    return Change("artifact", name, _shown(row, "repository", "strategy", "operator", "fail_to_pass"))


def _add_round(connection: sa.Connection, path: str, data: bytes) -> Change | None:
    listed = (json_object(data) or {}).get("episodes")
    if not isinstance(listed, list):
        return None
    run = path.split("/")[1]
    read = [(n, item, Episode.from_json(item)) for n, item in enumerate(listed) if isinstance(item, dict)]
    rows = [_episode_row(path, run, n, episode, item) for n, item, episode in read if episode is not None]
    for table in (episodes, rounds):
        connection.execute(sa.delete(table).where(table.c.path == path))
    if not rows:
        return None
    connection.execute(sa.insert(episodes), rows)
    counted = [row for row in rows if row["order"] == 1]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    values = {
        "path": path,
        "run": run,
        "round": rows[0]["round"],
        "project": rows[0]["project"],
        "episodes": len(rows),
        "valid": sum(row["valid"] for row in rows),
        "solved": sum(row["solved"] for row in counted),
        "graded": sum(row["graded"] for row in counted),
        "rewards": sum(rewards),
        "rewarded": len(rewards),
        "tokens": sum(row["tokens"] for row in rows),
        "cost_usd": sum(row["cost_usd"] for row in rows),
        "stored_at": time.time(),
    }
    total = fitted(rounds, values)
    connection.execute(sa.insert(rounds).values(total))
    return Change("round", run, _shown(total, "round", "project", "episodes", "valid", "solved", "graded"))


def _episode_row(path: str, run: str, position: int, episode: Episode, item: Mapping[str, Any]) -> dict[str, Any]:
    verdicts = [r.verdict for r in episode.rollouts if r.verdict is not None]
    reward = item.get("injector_reward")
    values = {
        "path": path,
        "position": position,
        "run": run,
        "round": episode.round,
        "project": episode.project,
        "artifact_id": episode.artifact_id,
        "injection": episode.injection,
        "strategy": episode.strategy,
        "operator": episode.operator,
        "file": episode.path,
        "scope": episode.scope,
        "lines": episode.lines,
        "fail_to_pass": episode.fail_to_pass,
        "order": episode.order,
        "valid": episode.valid,
        "check": episode.rejected_by,
        "solved": sum(verdicts),
        "graded": len(verdicts),
        "solve_rate": episode.rate,
        "reward": float(reward) if isinstance(reward, int | float) and abs(reward) < 1e9 else None,
        "tokens": episode.tokens + sum(r.tokens for r in episode.rollouts),
        "cost_usd": episode.cost_usd + sum(r.cost_usd for r in episode.rollouts),
        "seconds": episode.seconds + sum(r.seconds + r.grading_s for r in episode.rollouts),
        "stored_at": time.time(),
    }
    return fitted(episodes, values)


def _add_candidate(connection: sa.Connection, path: str, data: bytes) -> Change | None:
    result = CandidateResult.from_json(json_object(data) or {})
    if result is None:
        return None
    values = {
        "path": path,
        "campaign": path.split("/")[1],
        "position": result.index,
        "status": str(result.status),
        "strategy": result.strategy,
        "operator": result.operator,
        "file": result.path,
        "scope": result.scope,
        "line": result.line,
        "check": result.check,
        "artifact_id": result.artifact_id,
        "fail_to_pass": result.fail_to_pass,
        "seconds": result.seconds,
        "stored_at": time.time(),
    }
    row = fitted(candidates, values)
    replace_rows(connection, candidates, [row], key=["path"])
    _add_injection(connection, json_object(data) or {}, result)
    shown = _shown(row, "status", "strategy", "operator", "file", "scope", "check", "artifact_id")
    return Change("candidate", path, shown)


def _add_rollout(connection: sa.Connection, path: str, data: bytes) -> Change | None:
    rollout = Attempt.from_json(json_object(data) or {})
    if rollout is None:
        return None
    name = path.split("/")[1]
    columns = [c.name for c in rollouts.columns if c.name not in _NOT_IN_ATTEMPT]
    values = {column: getattr(rollout, _RENAMED.get(column, column)) for column in columns}
    row = fitted(rollouts, {**values, "reason": str(rollout.reason.code)})
    _complete(connection, name, row, {"artifact_id": "", "role": "solver"})
    return Change("rollout", name, _shown(row, "player", "attempt", "resolved", "reason", "status"))


def _add_injection(connection: sa.Connection, record: Mapping[str, Any], result: CandidateResult) -> None:
    """Complete the rollout of a model's try, whose record names it; nothing for tries without a model."""
    name, spent = _text(record.get("rollout")), decode_or_none(RunUsage, record.get("spent"))
    if not name or spent is None:
        return
    values = {
        "artifact_id": result.artifact_id,
        "valid": result.status is CandidateStatus.VALID,
        "reason": str(result.reason.code) if result.reason is not None else "",
        "exit_reason": result.detail,
        "status": ending_of(result.detail),
        "steps": _count(record.get("steps")),
        "tokens": spent.tokens,
        "cost_usd": spent.cost_usd,
        "unpriced": spent.unpriced,
        "seconds": result.seconds,
    }
    unknown = {"player": "", "attempt": result.index, "grading_s": 0.0, "role": "injector"}
    _complete(connection, name, fitted(rollouts, values), unknown)


def _complete(connection: sa.Connection, name: str, row: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """Add the end of a rollout to its row. unknown: the rest of the row until its trajectory is stored."""
    values = {**row, "stored_at": time.time()}
    known = connection.execute(sa.update(rollouts).where(rollouts.c.id == name).values(values)).rowcount
    if not known:
        connection.execute(sa.insert(rollouts).values({**unknown, **values, "id": name}))


def _add_trajectory(connection: sa.Connection, path: str, data: bytes) -> Change | None:
    """Add the rollout of a trajectory, whose first line names its task; its grade comes later."""
    header = json_object(data.partition(b"\n")[0])
    if header is None:
        return None
    name, attempt, role = path.split("/")[1], _count(header.get("attempt")), _text(header.get("role"))
    values = {
        "id": name,
        # The task of an injector is a tree.
        "artifact_id": "" if role == "injector" else _text(header.get("task_id")),
        "role": role,
        "player": _text(header.get("model")),
        "attempt": attempt,
        "reason": "",
        "exit_reason": "",
        "status": "ended",
        **dict.fromkeys(("steps", "tokens", "cost_usd", "unpriced", "seconds", "grading_s"), 0),
        "stored_at": time.time(),
    }
    row = fitted(rollouts, values)
    known_by_it = ("role", "player", "attempt") if role == "injector" else ("artifact_id", "role", "player", "attempt")
    identity = {column: row[column] for column in known_by_it}
    known = connection.execute(sa.update(rollouts).where(rollouts.c.id == name).values(identity)).rowcount
    if known:
        return None
    connection.execute(sa.insert(rollouts).values(row))
    return Change("rollout", name, _shown(row, "artifact_id", "role", "player", "attempt", "status"))


def replace_rows(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, key: Sequence[str]
) -> None:
    """Insert rows, or replace those with the same key."""
    statement = _insert(connection, table)
    others = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=others), list(rows))


def add_row(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Insert a row unless there is one with the same key."""
    connection.execute(_insert(connection, table).on_conflict_do_nothing(), row)


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(_HEADER_BYTES)
    except OSError:
        return b""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**31 else 0


def _shown(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
