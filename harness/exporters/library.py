"""Read the records and tasks of indexed sources, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness.datasets.instance import Instance
from harness.exporters.admission import Admission, Bug
from harness.exporters.files import MOST_BYTES
from harness.exporters.filters import Filters
from harness.exporters.index import Index, RolloutLocation
from harness.exporters.protocol import Choices, Format, Row, Task
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.exporters.record_files import read_record
from harness.exporters.skipped import SkipCode, SkippedError, damaged, require_plain
from harness.exporters.sources import ReportSkip, Source, grade_of
from harness.records.rewards import reward_at_rate, solver_reward
from harness.records.trajectory import Trajectory, read_trajectory
from harness.records.usage import NAME
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.records.artifact import BUG, PROMPT_NAMES, BugArtifact, read_artifact, read_regular_file
from pytest_ssr.records.reasons import Rule

_REWARDS_DIFFER = "rewards-differ"
"""A flag: runs with different settings give the rollout different rewards."""
_OF_THE_ROW = ("schema_version", "status", "reward", "flags", "flag_details", "rule")
"""Fields of an attempt that a record has itself: another rule may change them there."""
_MADE_BEFORE = "made-before"
"""A flag: an earlier rollout made the same bug."""


@dataclass(frozen=True, slots=True)
class Library:
    """The records and tasks of some sources."""

    sources: Sequence[Source]
    index: Index
    rule: Rule | None = None
    """The verdict of a grade that counts; None for the one that each run used."""

    def record(self, location: RolloutLocation) -> Record:
        """Read the record of a rollout; raises SkippedError if it is damaged or cannot be read."""
        source = self.sources[location.source]
        if not source.is_store:
            return self._from_records(location, source)
        folder = source.path / "rollouts" / location.location
        path = folder / NAME
        try:
            if path.stat().st_size > MOST_BYTES:
                raise damaged(f"it is longer than {MOST_BYTES // 1024**2} MiB")
            rollout = read_trajectory(path)
        except (OSError, StoreError) as error:
            raise damaged(str(error).removeprefix(f"{path}").removeprefix(": ").strip()) from None
        if rollout.rollout_id != location.id:
            raise damaged("it was overwritten during the export")
        if rollout.role == "injector":
            context = self._injector_context(rollout, location)
        else:
            context = self._solver_context(rollout, location, folder)
        return record_of(rollout, context)

    def _from_records(self, location: RolloutLocation, source: Source) -> Record:
        """Read one of many records, with the solve rate over all sources of this export."""
        try:
            data, _ = read_record(source.path, location.location)
        except OSError as error:
            raise StoreError(f"{source.path} cannot be read: {error.strerror or error}") from None
        record = Record.of(data)
        if record.data["role"] == "solver":
            rate, graded = self.index.solve_rate(data["task_id"], record.model)
            data["task"] = {**data["task"], "solve_rate": rate, "graded": graded}
        return record if self.rule is None else self._by_rule(record, self.rule)

    def _by_rule(self, record: Record, rule: Rule) -> Record:
        """Return a record with the reward of another rule; other graders, such as those of Harbor, have only one."""
        data, reward = dict(record.data), record.reward
        task, verdict = data["task"], data["verdict"]
        if reward is None:
            return record
        if data["role"] == "solver" and "resolved" in data["reward_components"]:
            outcomes = {name: _truth(verdict.get(name)) for name in ("resolved", "tests")}
            before = solver_reward(_recorded_rule(verdict).verdict(**outcomes))
            after = solver_reward(rule.verdict(**outcomes))
            data["verdict"] = {**verdict, "rule": str(rule)}
            judged = reward - before if before is not None else 0.0
            data["reward"] = None if after is None else after + judged
            data["reward_components"] = {**data["reward_components"], "resolved": after}
        elif data["role"] == "injector" and "solve-rate" in data["reward_components"]:
            rate, graded = self.index.solve_rate(str(task.get("artifact", "")))
            data["reward"] = reward_at_rate(reward, task.get("solve_rate"), rate) if graded else None
            data["reward_components"] = {"solve-rate": data["reward"]} if graded else {}
            data["task"] = {**task, "solve_rate": rate}
        return Record.of(data)

    def _solver_context(self, rollout: Trajectory, location: RolloutLocation, folder: Path) -> RolloutContext:
        row, grade = self.index.task(rollout.task_id), grade_of(folder, self.rule)
        rate, graded = self.index.solve_rate(rollout.task_id, rollout.model)
        task: dict[str, Any] = {
            "artifact": rollout.task_id,
            "repository": location.repository,
            "tree_hash": location.tree,
        }
        if row is not None:
            task |= {n: row[n] for n in ("strategy", "operator", "function", "injector")} | {"order": row["nth"]}
        task |= {"solve_rate": rate, "graded": graded}
        patch = rollout.result.get("patch")
        if not isinstance(patch, str) or "patch_base64" in rollout.result:
            patch = None
        if grade is None:
            reason = "it has no grade: it was cut off, or its record is damaged or from another release"
            return RolloutContext(task, verdict={"resolved": None, "reason": reason, "infra": True}, patch=patch)
        reward = solver_reward(grade.verdict)
        components = {"resolved": reward}
        judge_rewards = self.index.judge_rewards(location.id)
        if len(judge_rewards) == 1:
            reward, components["judge"] = judge_rewards[0]["reward"], judge_rewards[0]["score"]
        flags = [*(str(f.code) for f in grade.flags), *(["forged"] if grade.forged else [])]
        if grade.verdict is None:
            reward, components = None, {}
        elif len(judge_rewards) > 1:
            reward, flags = None, [*flags, _REWARDS_DIFFER]
        verdict = {
            **{name: value for name, value in grade.to_json().items() if name not in _OF_THE_ROW},
            "rule": grade.rule,
            "reason": grade.reason.text,
            "reason_code": str(grade.reason.code),
            "infra": grade.verdict is None,
        }
        return RolloutContext(task, reward, components, verdict, flags, patch)

    def _injector_context(self, rollout: Trajectory, location: RolloutLocation) -> RolloutContext:
        """Return the context of an injector's rollout, from the campaign's record and the episodes."""
        injection = self.index.injection(location.id)
        task: dict[str, Any] = {"repository": location.repository, "tree_hash": location.tree}
        task["strategy"] = str(rollout.provenance.get("strategy", ""))
        if injection is None:
            reason = "its campaign has no record of it: it was cut off, or it is a replay"
            return RolloutContext(task, verdict={"valid": None, "reason": reason, "infra": True})
        task |= {
            "strategy": injection["strategy"],
            "operator": injection["operator"],
            "artifact": injection["artifact"] or None,
        }
        artifact = self.index.task(injection["artifact"])
        if artifact is not None:
            task["function"] = artifact["function"]
        verdict = {"valid": bool(injection["valid"]), "reason": injection["reason"], "infra": False}
        if not injection["valid"]:
            return RolloutContext(task, -1.0, {"valid": -1.0}, verdict)
        if artifact is not None and artifact["rollout"] not in ("", location.id):
            return RolloutContext(task, verdict=verdict, flags=[_MADE_BEFORE])
        episodes = self.index.episodes(injection["artifact"])
        rewards = {row["reward"] for row in episodes if not row["repeated"] and row["reward"] is not None}
        rates = {row["rate"] for row in episodes if row["rate"] is not None}
        task["solve_rate"] = rates.pop() if len(rates) == 1 else None
        if len(rewards) == 1:
            reward = rewards.pop()
            return RolloutContext(task, reward, {"solve-rate": reward}, verdict)
        return RolloutContext(task, verdict=verdict, flags=[_REWARDS_DIFFER] if rewards else [])

    def tasks(self) -> Iterator[Task]:
        """Yield the artifacts as tasks."""
        for row in self.index.tasks():
            if (task := self.task(row["id"])) is not None:
                yield task

    def task(self, name: str) -> Task | None:
        """Return the task of an artifact; None if the id is unknown."""
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
            function=row["function"],
            order=row["nth"],
            solve_rate=rate,
            graded=graded,
            folder=folder,
            tree=store / "trees" / row["tree"],
            artifact=lambda: _artifact(folder),
        )

    def diff(self, artifact: str) -> bytes:
        """Return the diff of a bug; empty if it is unknown or cannot be read."""
        row = self.index.task(artifact)
        if row is None:
            return b""
        folder = self.sources[row["source"]].path / row["folder"]
        for name in (BUG, PROMPT_NAMES[BUG]):
            with contextlib.suppress(ArtifactError):
                return read_regular_file(folder / name)
        return b""

    def known_bug(self, name: str) -> Bug:
        """Return a bug by its diff alone, without its rollouts."""
        return Bug(name, diff=self.diff(name))

    def bug(self, record: Record) -> Bug:
        """Return the bug that a rollout repairs or made; without a bug, its id is empty."""
        task = record.data["task"]
        name = record.bug
        operator, function = (task.get(n) for n in ("operator", "function"))
        return Bug(
            name,
            record.repository,
            operator if isinstance(operator, str) else "",
            function if isinstance(function, str) else "",
            self.diff(name),
        )


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _recorded_rule(verdict: Mapping[str, Any]) -> Rule:
    return Rule.TESTS if verdict.get("rule") == Rule.TESTS else Rule.STRICT


def _artifact(folder: Path) -> BugArtifact:
    try:
        return read_artifact(folder)
    except ArtifactError as error:
        raise damaged(str(error).removeprefix(f"{folder}").lstrip(":/ ")) from None


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one role at one task, as formats see them."""

    library: Library
    filters: Filters
    name: str
    role: str
    report_skip: ReportSkip
    rewarded: bool
    """Skip those without a reward."""
    admission: Admission = field(default_factory=Admission)
    repository: str = ""
    """The project of the record that was read last."""
    _has_reported: bool = False
    """Whether all records were read once, so that each skipped one has been reported."""

    @property
    def task(self) -> Task | None:
        """The artifact; None for an injector, whose task is a tree."""
        return self.library.task(self.name) if self.role == "solver" else None

    def records(self) -> Iterator[Record]:
        """Yield the records that the filters keep."""
        for location in self.library.index.rollouts(self.name, self.role):
            try:
                record = self.library.record(location)
                self.filters.require(record, rewarded=self.rewarded)
                if bug := record.bug:
                    self.admission.require(bug, partial(self.library.bug, record))
            except SkippedError as error:
                if not self._has_reported:
                    self.report_skip(location.id, error)
                continue
            self.repository = record.repository
            yield record
        self._has_reported = True

    def record(self, rollout: str) -> Record:
        """Return the record of a rollout that `records` has yielded."""
        return self.library.record(self.library.index.rollout(rollout))

    def leave(self, name: str, error: SkippedError) -> None:
        """Report something that yields no row. name: its id."""
        self.report_skip(name, error)


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """An instance of a dataset."""

    instance: Instance
    filters: Filters
    admission: Admission

    def row(self, form: Format, choices: Choices) -> Row:
        """Return its row in a format that takes instances; raises SkippedError if it has none."""
        assert form.instance_row is not None
        if self.instance.invalid:
            raise SkippedError(SkipCode(str(self.instance.invalid_code)), self.instance.invalid)
        if code := self.filters.refusal_of_instance(self.instance.id, self.instance.artifact_id):
            raise SkippedError(code)
        if not self.instance.fail_to_pass and (form.names_tests or not self.instance.has_tests):
            raise SkippedError(SkipCode.NO_TESTS)
        self.admission.require(self.instance.id, self._bug)
        row = form.instance_row(self.instance, choices)
        if form.columns:
            require_plain(row, "the row")
        return row

    def _bug(self) -> Bug:
        instance = self.instance
        operator = instance.row.get("operator")
        return Bug(
            instance.id,
            instance.repo,
            operator if isinstance(operator, str) else "",
            diff=instance.patch.data,
            statement="" if instance.artifact_id else instance.statement,
        )


@dataclass(frozen=True, slots=True)
class ArtifactGroup:
    """An artifact alone, as formats see it."""

    library: Library
    task: Task
    report_skip: ReportSkip

    @property
    def repository(self) -> str:
        """The project's name."""
        return self.task.repository

    def bug(self) -> Bug:
        """Return the artifact as a bug."""
        task = self.task
        return Bug(task.id, task.repository, task.operator, task.function, self.library.diff(task.id))

    def records(self) -> Iterator[Record]:
        """Yield nothing: the rows are made from the artifact."""
        return iter(())

    def record(self, rollout: str) -> Record:
        """Raise KeyError: an artifact has no rollouts."""
        raise KeyError(rollout)

    def leave(self, name: str, error: SkippedError) -> None:
        """Report something that yields no row. name: its id."""
        self.report_skip(name, error)
