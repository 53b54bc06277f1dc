"""An index of sources in, records and tasks out, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.exporters.files import MOST_BYTES, parsed
from harness.exporters.filters import Filters
from harness.exporters.index import Index, Place
from harness.exporters.leaving import LeftOutError, damaged
from harness.exporters.protocol import Task
from harness.exporters.record import Record
from harness.exporters.recording import Known, record_of
from harness.exporters.sources import Leave, Source, grade_of
from harness.spent import NAME
from harness.trajectory import Trajectory, read_trajectory
from pytest_ssr.artifact import BugArtifact, read_artifact
from pytest_ssr.errors import ArtifactError, StoreError

_SOME_REWARDS = "rewards-differ"
"""Runs of different settings give a rollout different rewards."""
_MADE_BEFORE = "made-before"
"""The same bug was made before."""


@dataclass(frozen=True, slots=True)
class Library:
    """Everything that some sources hold."""

    sources: Sequence[Source]
    index: Index

    def record(self, place: Place) -> Record:
        """Read one rollout; raises LeftOutError for what cannot be read or is damaged."""
        source = self.sources[place.source]
        if source.is_file:
            return self._told(place, source)
        folder = source.path / "rollouts" / place.place
        path = folder / NAME
        try:
            if path.stat().st_size > MOST_BYTES:
                raise damaged(f"it is longer than {MOST_BYTES // 1024**2} MiB")
            rollout = read_trajectory(path)
        except (OSError, StoreError) as error:
            raise damaged(str(error).removeprefix(f"{path}").removeprefix(": ").strip()) from None
        if rollout.rollout_id != place.id:
            raise damaged("it was written anew meanwhile")
        known = self._injected(rollout, place) if rollout.role == "injector" else self._solved(rollout, place, folder)
        return record_of(rollout, known)

    def _told(self, place: Place, source: Source) -> Record:
        """Read a line of a file of records; its solve rate is that of all that is exported here."""
        try:
            with source.path.open("rb") as file:
                file.seek(int(place.place))
                data = parsed(file.readline(MOST_BYTES))
        except OSError as error:
            raise StoreError(f"{source.path} cannot be read: {error.strerror or error}") from None
        record = Record.of(data)
        if record.data["role"] == "solver":
            rate, graded = self.index.solve_rate(data["task_id"], str(data["policy"].get("model", "")))
            data["task"] = {**data["task"], "solve_rate": rate, "graded": graded}
        return record

    def _solved(self, rollout: Trajectory, place: Place, folder: Path) -> Known:
        row, grade = self.index.task(rollout.task_id), grade_of(folder)
        rate, graded = self.index.solve_rate(rollout.task_id, rollout.model)
        task: dict[str, Any] = {"artifact": rollout.task_id, "repository": place.repository, "tree_hash": place.tree}
        if row is not None:
            task |= {"strategy": row["strategy"], "operator": row["operator"], "order": row["nth"]}
        task |= {"solve_rate": rate, "graded": graded}
        patch = rollout.result.get("patch")
        if not isinstance(patch, str) or "patch_base64" in rollout.result:
            patch = None
        if grade is None:
            why = "it has no grade: it was cut off, or its record is damaged or of another release"
            return Known(task, verdict={"resolved": None, "reason": why, "infra": True}, patch=patch)
        reward, components = grade.reward, {"resolved": grade.reward}
        judged = self.index.judged(place.id)
        if len(judged) == 1:
            reward, components["judge"] = judged[0]["reward"], judged[0]["score"]
        flags = [*(str(f.code) for f in grade.flags), *(["forged"] if grade.forged else [])]
        if grade.verdict is None:
            reward, components = None, {}
        elif len(judged) > 1:
            reward, flags = None, [*flags, _SOME_REWARDS]
        verdict = {
            "resolved": grade.resolved,
            "tests": grade.tests,
            "rule": grade.rule,
            "reason": grade.reason.text,
            "reason_code": str(grade.reason.code),
            "infra": grade.verdict is None,
        }
        return Known(task, reward, components, verdict, flags, patch)

    def _injected(self, rollout: Trajectory, place: Place) -> Known:
        """Tell what came of a rollout that injects, by the campaign's record and the episodes."""
        made = self.index.injection(place.id)
        task: dict[str, Any] = {"repository": place.repository, "tree_hash": place.tree}
        task["strategy"] = str(rollout.provenance.get("strategy", ""))
        if made is None:
            why = "its campaign has no record of it: it was cut off, or is a replay"
            return Known(task, verdict={"valid": None, "reason": why, "infra": True})
        task |= {"strategy": made["strategy"], "operator": made["operator"], "artifact": made["artifact"] or None}
        verdict = {"valid": bool(made["valid"]), "reason": made["why"], "infra": False}
        if not made["valid"]:
            return Known(task, -1.0, {"valid": -1.0}, verdict)
        artifact = self.index.task(made["artifact"])
        if artifact is not None and artifact["rollout"] not in ("", place.id):
            return Known(task, verdict=verdict, flags=[_MADE_BEFORE])
        outcomes = self.index.outcomes(made["artifact"])
        told = {row["reward"] for row in outcomes if not row["repeated"] and row["reward"] is not None}
        rates = {row["rate"] for row in outcomes if row["rate"] is not None}
        task["solve_rate"] = rates.pop() if len(rates) == 1 else None
        if len(told) == 1:
            reward = told.pop()
            return Known(task, reward, {"solve-rate": reward}, verdict)
        return Known(task, verdict=verdict, flags=[_SOME_REWARDS] if told else [])

    def tasks(self) -> Iterator[Task]:
        """Yield the artifacts."""
        for row in self.index.tasks():
            if (task := self.task(row["id"])) is not None:
                yield task

    def task(self, name: str) -> Task | None:
        """Return an artifact and what is known of it; None where there is none of that id."""
        row = self.index.task(name)
        if row is None:
            return None
        rate, graded = self.index.solve_rate(name)
        store = self.sources[row["source"]].path
        folder = store / row["folder"]
        return Task(
            id=name,
            repository=row["repository"],
            tree_hash=row["tree"],
            strategy=row["strategy"],
            operator=row["operator"],
            order=row["nth"],
            solve_rate=rate,
            graded=graded,
            folder=folder,
            tree=store / "trees" / row["tree"],
            artifact=lambda: _artifact(folder),
        )


def _artifact(folder: Path) -> BugArtifact:
    try:
        return read_artifact(folder)
    except ArtifactError as error:
        raise damaged(str(error).removeprefix(f"{folder}").lstrip(":/ ")) from None


@dataclass(slots=True)
class Rollouts:
    """The rollouts of one role at one task, as formats see them."""

    library: Library
    filters: Filters
    name: str
    role: str
    told: Leave
    rewarded: bool
    """Leave out those without a reward."""
    _read: bool = False
    """All of it, once: what is left out has been told."""

    @property
    def task(self) -> Task | None:
        """The artifact; an injector's task is a tree."""
        return self.library.task(self.name) if self.role == "solver" else None

    def records(self) -> Iterator[Record]:
        """Yield the records that the filters keep."""
        for place in self.library.index.rollouts(self.name, self.role):
            try:
                record = self.library.record(place)
                self.filters.require(record, rewarded=self.rewarded)
            except LeftOutError as error:
                if not self._read:
                    self.told(place.id, error)
                continue
            yield record
        self._read = True

    def record(self, rollout: str) -> Record:
        """Return the record of a rollout that `records` has yielded."""
        return self.library.record(self.library.index.rollout(rollout))

    def leave(self, what: str, error: LeftOutError) -> None:
        """Count something that is no row."""
        self.told(what, error)


@dataclass(frozen=True, slots=True)
class OneTask:
    """An artifact alone, as formats see it."""

    task: Task
    told: Leave

    def records(self) -> Iterator[Record]:
        """Yield nothing: its rows are made of the artifact."""
        return iter(())

    def record(self, rollout: str) -> Record:
        """Raise KeyError: there is none here."""
        raise KeyError(rollout)

    def leave(self, what: str, error: LeftOutError) -> None:
        """Count something that is no row."""
        self.told(what, error)
