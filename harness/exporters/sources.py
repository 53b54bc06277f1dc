"""Find the sources of an export (stores, run folders, files of records, jobs of Harbor) and index their contents.

Nothing is written to a source: it may be read-only, or in use. Of a store with a database, the results of other
machines are copied into its folder first.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.database.sharing import fetch_all, fetch_trees
from harness.exporters.files import MOST_BYTES, folders, parsed, read_json
from harness.exporters.index import Index
from harness.exporters.record_files import locations, read_header
from harness.exporters.skipped import SkipCode, SkippedError, damaged, require_text
from harness.records.attempt import Attempt
from harness.records.episode import Episode
from harness.records.harbor_trials import trial_folders
from harness.records.rewards import reward_at_rate
from harness.records.trajectory import SCHEMA
from harness.records.usage import NAME
from pytest_ssr.errors import SettingsError, StoreError
from pytest_ssr.options import STORE_MARK
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.reasons import Rule
from pytest_ssr.storage.store import key_of

_STORE = ".ssr"
_CAMPAIGN = "model-"
ReportSkip = Callable[[str, SkippedError], None]
"""Takes the name of something that yields no row, and the error."""


@dataclass(frozen=True, slots=True)
class Source:
    """A store, or a file or folder of records that `record_files` reads."""

    path: Path
    is_store: bool = True


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the stores and files that the paths refer to, each once, sorted by path so that their order is irrelevant.

    Raises SettingsError for a path that neither is nor contains a source.
    """
    sources: dict[Path, Source] = {}
    for path in paths:
        source = _find_source(path)
        sources.setdefault(source.path.resolve(), source)
    return [sources[resolved] for resolved in sorted(sources)]


def _find_source(path: Path) -> Source:
    if path.is_file():
        if path.suffix not in (".jsonl", ".json"):
            raise SettingsError(
                f"{path} is not a source; a file of records ends in .jsonl, or in .json, and is not compressed"
            )
        return Source(path, is_store=False)
    folder = _store_in(path)
    if folder is not None:
        fetch_all(folder)
        fetch_trees(folder)
        return Source(folder)
    if trial_folders(path):
        return Source(path, is_store=False)
    problem = "is not a store and contains none" if path.is_dir() else "does not exist"
    if re.match(r"\w+:/", str(path)):
        problem = "is not on this machine; sources must be local"
    raise SettingsError(
        f"{path} {problem}; name a store (.ssr), a project or run folder with one, a .jsonl file, or a job of Harbor"
    )


def holds_store(path: Path) -> bool:
    """Return whether a folder is a store or has one, or has jobs of Harbor."""
    return _store_in(path) is not None or bool(trial_folders(path))


def _store_in(path: Path) -> Path | None:
    for folder in (path, path / _STORE):
        if (folder / STORE_MARK).is_file() or any((folder / n).is_dir() for n in ("rollouts", "artifacts")):
            return folder
    return None


def index_sources(
    index: Index, sources: Sequence[Source], report_skip: ReportSkip, *, rule: Rule | None = None
) -> None:
    """Index the contents of the sources; report what cannot be read.

    rule: the verdict of a grade that counts; None for the one that each run used. Raises StoreError if a source cannot
    be read.
    """
    for number, source in enumerate(sources):
        if not source.is_store:
            _fill_from_records(index, number, source.path, report_skip, rule)
            continue
        try:
            _fill_artifacts(index, number, source.path, report_skip)
            _fill_episodes(index, source.path, report_skip, rule)
            _fill_injections(index, source.path)
            _fill_rollouts(index, number, source.path, report_skip, rule)
        except OSError as error:
            raise StoreError(f"{source.path} cannot be read: {error.strerror or error}") from None
    index.close_filling()


def _fill_artifacts(index: Index, number: int, store: Path, report_skip: ReportSkip) -> None:
    for kind in ("artifacts", "spare"):
        for folder in folders(store / kind):
            try:
                info = read_json(folder / "artifact.json")
                injector = info.get("injector")
                fields = injector if isinstance(injector, Mapping) else {}
                values = {n: require_text(info.get(n, ""), n) for n in ("repository", "tree_hash")}
                strategy, operator, rollout = (
                    require_text(fields.get(n, ""), n) for n in ("strategy", "operator", "rollout")
                )
                model = require_text(fields.get("model") or "", "model")
                path, scope = (require_text(fields.get(n) or "", n) for n in ("path", "scope"))
                order = info.get("order", 1)
                if not re.fullmatch(r"[0-9a-f]{40}|", values["tree_hash"]):
                    raise damaged("tree_hash of the artifact is not a hash")
                index.add_task(
                    id=folder.name,
                    source=number,
                    spare=kind == "spare",
                    folder=f"{kind}/{folder.name}",
                    repository=values["repository"],
                    tree=values["tree_hash"],
                    strategy=strategy,
                    operator=operator,
                    function=f"{path}::{scope}" if path and scope else "",
                    # Without a model, the strategy is the name of the injector.
                    injector=model or strategy,
                    nth=order if type(order) is int and 0 < order < 100 else 1,
                    rollout=rollout,
                )
            except SkippedError as error:
                report_skip(f"artifact {folder.name}", error)


def _fill_episodes(index: Index, store: Path, report_skip: ReportSkip, rule: Rule | None) -> None:
    for path in sorted(store.glob("episodes/*/round-*.json")):
        name = f"episodes {path.parent.name}/{path.stem}"
        try:
            episodes = read_json(path).get("episodes")
        except SkippedError as error:
            report_skip(name, error)
            continue
        for data in episodes if isinstance(episodes, list) else ():
            episode = Episode.from_json(data) if isinstance(data, dict) else None
            if episode is None:
                report_skip(name, damaged("an episode is incomplete or from another version"))
                continue
            try:
                _add_episode(index, episode, data, rule)
            except SkippedError as error:
                report_skip(name, error)


def _add_episode(index: Index, recorded: Episode, data: Mapping[str, Any], rule: Rule | None) -> None:
    episode = recorded if rule is None else recorded.by(rule)
    stored = data.get("injector_reward")
    reward = float(stored) if isinstance(stored, int | float) and abs(stored) < 1e9 else None
    if episode.valid:
        reward = reward_at_rate(reward, recorded.rate, episode.rate)
    if episode.change:
        index.add(
            "episodes",
            artifact=episode.artifact_id,
            change=episode.change,
            # The suffix is the folder that distinguishes projects of one name; it is private.
            project=re.sub(r" \(.*\)$", "", episode.project),
            repeated=episode.repeated,
            reward=reward,
            rate=episode.rate,
        )
    for rollout in episode.rollouts:
        _add_judge_reward(index, rollout)


def _add_judge_reward(index: Index, rollout: Attempt) -> None:
    if rollout.score is not None and rollout.reward is not None:
        index.add("judge_rewards", rollout=rollout.id, reward=rollout.reward, score=rollout.score)


def _fill_injections(index: Index, store: Path) -> None:
    for path in sorted(store.glob(f"attempts/{_CAMPAIGN}*/*.json")):
        # A rollout whose record is damaged has no reward; that is reported when it is read.
        with contextlib.suppress(SkippedError):
            data = read_json(path)
            attempt = CandidateResult.from_json(data)
            if attempt is None:
                continue
            index.add(
                "injections",
                rollout=key_of(path.parent.name.removeprefix(_CAMPAIGN), attempt.index),
                valid=attempt.status == "valid",
                strategy=attempt.strategy,
                operator=attempt.operator,
                artifact=attempt.artifact_id,
                change=_change(attempt.diff),
                reason=attempt.explanation,
            )


def _change(diff: str) -> str:
    """Return the hash by which episodes identify a change."""
    return hashlib.sha256(diff.encode("utf-8", "surrogatepass")).hexdigest()[:24] if diff else ""


def _fill_rollouts(index: Index, number: int, store: Path, report_skip: ReportSkip, rule: Rule | None) -> None:
    for folder in folders(store / "rollouts"):
        path = folder / NAME
        if not path.exists():
            continue  # Only scores, or the traces of an earlier run.
        try:
            header = _header(path)
            grade = grade_of(folder, rule)
            new = index.add_rollout(
                id=header["rollout_id"],
                source=number,
                location=folder.name,
                first=header["rollout_id"] == folder.name,
                task=header["task_id"],
                role=header["role"],
                model=header["model"],
                attempt=header["attempt"],
                resolved=grade.verdict if grade is not None and grade.ending != "aborted" else None,
                repository=_repository(header),
            )
        except SkippedError as error:
            report_skip(folder.name, error)
            continue
        if not new:
            report_skip(folder.name, SkippedError(SkipCode.DUPLICATE))
        elif grade is not None:
            _add_judge_reward(index, grade)


def _header(path: Path) -> dict[str, Any]:
    """Return the first line of a trajectory."""
    try:
        with path.open("rb") as file:
            line = file.readline(MOST_BYTES)
    except OSError as error:
        raise damaged(f"it cannot be read: {error.strerror}") from None
    if not line.strip():
        raise damaged("it is empty: its run was killed before the first line")
    data = parsed(line)
    _require_header(data)
    require_text(data.get("model"), "model")
    return data


def _repository(header: Mapping[str, Any]) -> str:
    """Return the project that a rollout itself names; empty if none. It counts if no artifact is the task."""
    provenance = header.get("provenance")
    name = provenance.get("repository") if isinstance(provenance, dict) else ""
    return name if isinstance(name, str) else ""


def _require_header(data: Mapping[str, Any]) -> None:
    """Raise SkippedError unless the record identifies its rollout; the rest is validated when it is read."""
    if data.get("schema") != SCHEMA:
        raise damaged(f"it is not a record of {SCHEMA}")
    for name in ("rollout_id", "task_id", "role"):
        require_text(data.get(name), name)
    if type(data.get("attempt")) is not int or not 0 <= data["attempt"] < 2**31:
        raise damaged("attempt is not a valid number")


def grade_of(folder: Path, rule: Rule | None = None) -> Attempt | None:
    """Return the grade of a solver's rollout, by another rule if one is given; None if it is missing or damaged."""
    path = folder / "rollout.json"
    try:
        grade = Attempt.from_json(read_json(path)) if path.exists() else None
    except SkippedError:
        return None
    return grade if grade is None or rule is None else grade.by(rule)


def _fill_from_records(index: Index, number: int, path: Path, report_skip: ReportSkip, rule: Rule | None) -> None:
    try:
        for location, name, line in locations(path):
            try:
                data, omissions = read_header(path, location, line)
                _require_header(data)
                task, policy, verdict = (dict(data.get(n) or {}) for n in ("task", "policy", "verdict"))
                graded = data.get("status") != "aborted" and verdict.get("infra") is not True
                decisive = "tests" if (rule or verdict.get("rule")) == Rule.TESTS else "resolved"
                resolved = verdict.get(decisive) if graded else None
                new = index.add_rollout(
                    id=data["rollout_id"],
                    source=number,
                    location=location,
                    first=True,
                    task=data["task_id"],
                    role=data["role"],
                    model=str(policy.get("model", "")),
                    attempt=data["attempt"],
                    resolved=resolved if type(resolved) is bool else None,
                    repository=require_text(task.get("repository", ""), "repository"),
                    tree=require_text(task.get("tree_hash", ""), "tree_hash"),
                )
            except (SkippedError, TypeError, ValueError) as error:
                report_skip(name, error if isinstance(error, SkippedError) else damaged("a field is not an object"))
                continue
            for part, omission in omissions if new else ((name, SkippedError(SkipCode.DUPLICATE)),):
                report_skip(part, omission)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
