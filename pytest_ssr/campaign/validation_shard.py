"""Keep the verdicts of a shard of artifacts in a store, so that those of all shards can be joined."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ssr.campaign.ending import Cut
from pytest_ssr.campaign.shard_record import ENDINGS, ShardEnding, ShardKind, ShardRecord, put_shard
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.injectors.git_history import last_commit
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.check_reasons import reason_to_json
from pytest_ssr.records.shard import Shard
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.store import Store, code_hash, key_of

VALIDATIONS = "validations"
"""The folder of the store with the results of validations that are split."""
_STEPS = ("checks", "controls", "repeats")


class ValidationShard:
    """The part of a list of artifacts that one of several machines validates."""

    def __init__(
        self, store: Store, shard: Shard, directories: Sequence[Path], runner: Runner, *, checks: Sequence[str] = ()
    ) -> None:
        """directories: of all artifacts. checks: names of the checks that run besides the seven."""
        snapshot = runner.snapshot
        conditions = {
            "version": code_hash(),
            "files": snapshot.tree_hash,
            "environment": runner.interpreter.environment_hash,
            "sandbox": runner.provider.name,
            "limits": runner.settings.key(),
            "checks": str(list(checks)),
            "artifacts": key_of(*(_identity(directory, snapshot.tree_hash) for directory in directories)),
        }
        self.directories = {index: directories[index] for index in shard.indices(len(directories))}
        """The artifacts of this shard, by their index in the list of all."""
        self._store = store
        self._record = ShardRecord(
            kind=ShardKind.VALIDATE,
            key=key_of(*conditions.values()),
            number=shard.number,
            of=shard.of,
            changes=len(directories),
            planned=len(directories),
            is_all=True,
            ending=ShardEnding.RUNNING,
            tried=0,
            started_at=time.time(),
            conditions=conditions,
            commit=last_commit(snapshot.origin),
        )

    @property
    def done(self) -> int:
        """How many of its artifacts have a result."""
        return sum(self._store.record(self._folder, _name(index)) is not None for index in self._record.indices)

    @property
    def _folder(self) -> str:
        return f"{VALIDATIONS}/{self._record.key}"

    def begin(self) -> None:
        """Record that the shard runs; results of an earlier run of it are made again."""
        for index in self._record.indices:
            self._store.remove_record(self._folder, _name(index))
        put_shard(self._store, self._record)

    def keep(self, index: int, result: Mapping[str, Any]) -> None:
        """Store the result for an artifact, as `validation_json` returns it."""
        self._store.put_record(self._folder, _name(index), result)

    def end(self, cut: Cut) -> None:
        """Record how the shard ended. cut: what ended it before its last artifact, if anything did."""
        put_shard(self._store, replace(self._record, ending=ENDINGS[cut], tried=self.done))


def validation_json(path: str, verdict: Verdict) -> dict[str, Any]:
    """Return the result for one artifact as plain data. path: of its directory, as the user named it."""
    data = verdict.to_json()
    return {
        "path": path,
        "id": verdict.artifact_id or None,
        "valid": verdict.valid,
        **reason_to_json(verdict.reason),
        **{key: data[key] for key in (*_STEPS, "fail_to_pass", "pass_to_pass", "set_aside")},
        "certified": data["certified"],
    }


def without_seconds(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a validation without what differs from run to run."""
    steps = {name: [_step_without_seconds(step) for step in result.get(name, ())] for name in _STEPS}
    return {**result, **steps}


def _step_without_seconds(step: Mapping[str, Any]) -> dict[str, Any]:
    runs = [{key: value for key, value in run.items() if key != "seconds"} for run in step.get("runs", ())]
    return {**{key: value for key, value in step.items() if key != "seconds"}, "runs": runs}


def _identity(directory: Path, tree_hash: str) -> str:
    """Return what an artifact is; the path of its folder may differ from machine to machine."""
    try:
        return f"{directory.name} {read_artifact(directory).content_id(tree_hash)}"
    except ArtifactError:
        return f"{directory.name} cannot be read"


def _name(index: int) -> str:
    return f"{index:05d}"
