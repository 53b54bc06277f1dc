"""Stores, run folders and files of records in; an index of what they hold out.

Nothing is written to a source: it may lie where nobody may write, or be in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.episode import Episode, Rollout
from harness.exporters.files import MOST_BYTES, folders, lines_of, parsed, read_json
from harness.exporters.index import Index
from harness.exporters.leaving import LeftOutError, damaged, require_text
from harness.spent import NAME
from harness.trajectory import SCHEMA
from pytest_ssr.attempt import Attempt
from pytest_ssr.errors import SettingsError, StoreError
from pytest_ssr.reasons import Rule
from pytest_ssr.snapshot import STORE_MARK
from pytest_ssr.store import key_of

_STORE = ".ssr"
_CAMPAIGN = "model-"
Leave = Callable[[str, LeftOutError], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A store, or a file of canonical records."""

    path: Path
    is_file: bool = False


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the stores and files that are meant, each once, by their paths: the order they come in decides nothing.

    Raises SettingsError for a path that is, or holds, none.
    """
    found: dict[Path, Source] = {}
    for path in paths:
        source = _found(path)
        found.setdefault(source.path.resolve(), source)
    return [found[place] for place in sorted(found)]


def _found(path: Path) -> Source:
    if path.is_file():
        if path.suffix != ".jsonl":
            raise SettingsError(f"{path} is no source; a file of records ends in .jsonl, and is not compressed")
        return Source(path, is_file=True)
    for folder in (path, path / _STORE):
        if (folder / STORE_MARK).is_file() or any((folder / n).is_dir() for n in ("rollouts", "artifacts")):
            return Source(folder)
    what = "is no store, and holds none" if path.is_dir() else "does not exist"
    if re.match(r"\w+:/", str(path)):
        what = "is not on this machine, and only what is can be read"
    raise SettingsError(f"{path} {what}; name a store (.ssr), a project or run folder that has one, or a .jsonl file")


def fill(index: Index, sources: Sequence[Source], leave: Leave) -> None:
    """Look what the sources hold; what cannot be read is left out and told."""
    for number, source in enumerate(sources):
        if source.is_file:
            _fill_from_file(index, number, source.path, leave)
            continue
        try:
            _fill_artifacts(index, number, source.path, leave)
            _fill_outcomes(index, source.path, leave)
            _fill_injections(index, source.path)
            _fill_rollouts(index, number, source.path, leave)
        except OSError as error:
            raise StoreError(f"{source.path} cannot be read: {error.strerror or error}") from None
    index.close_filling()


def _fill_artifacts(index: Index, number: int, store: Path, leave: Leave) -> None:
    for kind in ("artifacts", "spare"):
        for folder in folders(store / kind):
            try:
                info = read_json(folder / "artifact.json")
                injector = info.get("injector")
                told = injector if isinstance(injector, Mapping) else {}
                values = {n: require_text(info.get(n, ""), n) for n in ("repository", "tree_hash")}
                strategy, operator, rollout = (
                    require_text(told.get(n, ""), n) for n in ("strategy", "operator", "rollout")
                )
                order = info.get("order", 1)
                if not re.fullmatch(r"[0-9a-f]{40}|", values["tree_hash"]):
                    raise damaged("tree_hash of the artifact is no hash")
                index.add_task(
                    id=folder.name,
                    source=number,
                    spare=kind == "spare",
                    folder=f"{kind}/{folder.name}",
                    repository=values["repository"],
                    tree=values["tree_hash"],
                    strategy=strategy,
                    operator=operator,
                    nth=order if type(order) is int and 0 < order < 100 else 1,
                    rollout=rollout,
                )
            except LeftOutError as error:
                leave(f"artifact {folder.name}", error)


def _fill_outcomes(index: Index, store: Path, leave: Leave) -> None:
    for path in sorted(store.glob("episodes/*/round-*.json")):
        name = f"episodes {path.parent.name}/{path.stem}"
        try:
            told = read_json(path).get("episodes")
        except LeftOutError as error:
            leave(name, error)
            continue
        for data in told if isinstance(told, list) else ():
            episode = Episode.from_json(data) if isinstance(data, dict) else None
            if episode is None:
                leave(name, damaged("an episode is not whole, or of another version"))
                continue
            try:
                _add_episode(index, episode, data)
            except LeftOutError as error:
                leave(name, error)


def _add_episode(index: Index, episode: Episode, data: Mapping[str, Any]) -> None:
    reward = data.get("injector_reward")
    if episode.change:
        index.add(
            "outcomes",
            artifact=episode.artifact_id,
            change=episode.change,
            # Projects of one name are told apart by their folders, which are nobody else's business.
            project=re.sub(r" \(.*\)$", "", episode.project),
            repeated=episode.repeated,
            reward=float(reward) if isinstance(reward, int | float) and abs(reward) < 1e9 else None,
            rate=episode.rate,
        )
    for rollout in episode.rollouts:
        if rollout.score is not None and rollout.reward is not None:
            index.add("judged", rollout=rollout.id, reward=rollout.reward, score=rollout.score)


def _fill_injections(index: Index, store: Path) -> None:
    for path in sorted(store.glob(f"attempts/{_CAMPAIGN}*/*.json")):
        # A rollout whose record is damaged is told to have no reward, when it is read.
        with contextlib.suppress(LeftOutError):
            data = read_json(path)
            attempt = Attempt.from_json({k: v for k, v in data.items() if k != "spent"})
            names = ("diff", "strategy", "operator", "artifact_id", "check", "reason")
            if attempt is None or not all(type(getattr(attempt, n)) is str for n in names):
                continue
            index.add(
                "injections",
                rollout=key_of(path.parent.name.removeprefix(_CAMPAIGN), attempt.index),
                valid=attempt.status == "valid",
                strategy=attempt.strategy,
                operator=attempt.operator,
                artifact=attempt.artifact_id,
                change=_change(attempt.diff),
                why=": ".join(filter(None, (attempt.check, attempt.reason))),
            )


def _change(diff: str) -> str:
    """Return the name by which episodes know a change."""
    return hashlib.sha256(diff.encode("utf-8", "surrogatepass")).hexdigest()[:24] if diff else ""


def _fill_rollouts(index: Index, number: int, store: Path, leave: Leave) -> None:
    for folder in folders(store / "rollouts"):
        path = folder / NAME
        if not path.exists():
            continue  # Scores alone, or the traces of an earlier try.
        try:
            header = _header(path)
            grade = grade_of(folder)
            new = index.add_rollout(
                id=header["rollout_id"],
                source=number,
                place=folder.name,
                first=header["rollout_id"] == folder.name,
                task=header["task_id"],
                role=header["role"],
                model=header["model"],
                attempt=header["attempt"],
                resolved=grade.verdict if grade is not None and grade.status != "aborted" else None,
                repository=_repository(header),
            )
        except LeftOutError as error:
            leave(folder.name, error)
            continue
        if not new:
            leave(folder.name, LeftOutError("it is there already: the same rollout, replayed or in another store"))


def _header(path: Path) -> dict[str, Any]:
    """Return the first line of a trajectory."""
    try:
        with path.open("rb") as file:
            line = file.readline(MOST_BYTES)
    except OSError as error:
        raise damaged(f"it cannot be read: {error.strerror}") from None
    if not line.strip():
        raise damaged("it is empty: it was killed before its first line")
    data = parsed(line)
    _require_header(data)
    require_text(data.get("model"), "model")
    return data


def _repository(header: Mapping[str, Any]) -> str:
    """Return the project that a rollout itself names, where its task is no artifact of the store."""
    told = header.get("provenance")
    name = told.get("repository") if isinstance(told, dict) else ""
    return name if isinstance(name, str) else ""


def _require_header(data: Mapping[str, Any]) -> None:
    """Raise LeftOutError unless it can be told which rollout this is; the rest is looked at when it is read."""
    if data.get("schema") != SCHEMA:
        raise damaged(f"it is no {SCHEMA}")
    for name in ("rollout_id", "task_id", "role"):
        require_text(data.get(name), name)
    if type(data.get("attempt")) is not int or not 0 <= data["attempt"] < 2**31:
        raise damaged("attempt is no number")


def grade_of(folder: Path) -> Rollout | None:
    """Return the grade of a solver's rollout; None where there is none, or none that is whole."""
    path = folder / "rollout.json"
    try:
        return Rollout.from_json(read_json(path)) if path.exists() else None
    except LeftOutError:
        return None


def _fill_from_file(index: Index, number: int, path: Path, leave: Leave) -> None:
    try:
        for offset, line in lines_of(path):
            name = f"{path.name}, byte {offset}"
            try:
                data = parsed(line)
                _require_header(data)
                task, policy, verdict = (dict(data.get(n) or {}) for n in ("task", "policy", "verdict"))
                graded = data.get("status") != "aborted" and verdict.get("infra") is not True
                decisive = "tests" if verdict.get("rule") == Rule.TESTS else "resolved"
                resolved = verdict.get(decisive) if graded else None
                new = index.add_rollout(
                    id=data["rollout_id"],
                    source=number,
                    place=str(offset),
                    first=True,
                    task=data["task_id"],
                    role=data["role"],
                    model=str(policy.get("model", "")),
                    attempt=data["attempt"],
                    resolved=resolved if type(resolved) is bool else None,
                    repository=require_text(task.get("repository", ""), "repository"),
                    tree=require_text(task.get("tree_hash", ""), "tree_hash"),
                )
            except (LeftOutError, TypeError, ValueError) as error:
                leave(name, error if isinstance(error, LeftOutError) else damaged("a field is no object"))
                continue
            if not new:
                leave(name, LeftOutError("it is there already: the same rollout, replayed or in another store"))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
