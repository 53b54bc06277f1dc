"""Bugs by a model, one attempt after the other, kept as those of the injectors that need none are."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.injectors.given import GivenInjector
from harness.injectors.model import Injected, ModelInjector
from harness.injectors.replay import ReplayInjector
from harness.spent import NAME, Spent, begin_anew
from harness.trajectory import ExitReason, Journal, Trajectory
from harness.version import code_hash
from pytest_ssr.artifact import BugArtifact
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.baselines import project_baseline
from pytest_ssr.errors import ModelError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.making import artifact_info
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.store import Store, key_of
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import Verdicts

_MOST_ABORTED = 3


Submitting = ModelInjector | ReplayInjector | GivenInjector
"""What hands in artifacts as they are."""


class ModelCampaign:
    """Attempts of one model at one tree; the same for the same seed as far as its server answers the same."""

    def __init__(self, bench: Workbench, store: Store, injector: Submitting, *, seed: int) -> None:
        """Raises ProjectError or SettingsError where no attempt can be made."""
        injector.require(bench.snapshot)
        self.bench, self.store, self.injector, self.seed = bench, store, injector, seed
        self._spent: dict[int, Spent] = {}
        self._ending = threading.Event()
        self.key = key_of(
            code_hash(),
            bench.snapshot.tree_hash,
            bench.interpreter.environment_hash,
            bench.provider.name,
            bench.settings.key(),
            injector.key,
            injector.history(bench.snapshot),
            seed,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The tree."""
        return self.bench.snapshot

    @property
    def baseline(self) -> Baseline:
        """The project's baseline, measured unless the store holds it."""
        return project_baseline(self.bench, self.store)

    def attempt(self, index: int) -> Attempt | None:
        """Return an attempt, making it unless the store holds it.

        A try that is aborted by a fault that is not the model's counts as none: it is made again as what it was, with
        the same seed, and its trajectory is put aside. Raises ModelError after several of them: the same run goes on
        later. None: the campaign has ended. What another run makes meanwhile is waited for.
        """
        with self.store.alone(key_of(self.key, index)):
            return self._known(index) or self._made(index)

    def _known(self, index: int) -> Attempt | None:
        data = self.store.record(f"attempts/model-{self.key}", f"{index:05d}")
        known = Attempt.from_json({k: v for k, v in data.items() if k != "spent"}) if data is not None else None
        if data is None or known is None or (known.artifact_id and not self.store.has_artifact(known.artifact_id)):
            return None
        try:
            self._spent[index] = Spent(**data["spent"])
        except (KeyError, TypeError):
            return None
        return known

    def _made(self, index: int) -> Attempt | None:
        name = key_of(self.key, index)
        folder = self.store.root / "rollouts" / name
        for _ in range(_MOST_ABORTED):
            if self._ending.is_set():
                return None
            earlier, begin = begin_anew(folder), time.perf_counter()
            done = self._injected(name, index, folder / NAME)
            if done.trajectory.status != "aborted":
                self._spent[index] = earlier + Spent.of(done.trajectory)
                return self._kept(index, done, time.perf_counter() - begin)
        raise ModelError(f"{self.injector.name}: {done.trajectory.detail or done.trajectory.exit_reason}")

    def spent(self, index: int) -> Spent:
        """Return what an attempt that is finished has used, aborted tries included."""
        return self._spent.get(index, Spent())

    def _injected(self, name: str, index: int, path: Path) -> Injected:
        provenance = {"code": code_hash(), "sandbox": self.bench.provider.name, "seed": self.seed + index}
        trajectory = Trajectory(
            name, self.snapshot.tree_hash, "injector", index, self.injector.name, provenance=provenance
        )
        journal = Journal(trajectory, path)
        try:
            return self.injector.inject(self.bench.scoped(), seed=self.seed + index, journal=journal)
        except BaseException as error:
            journal.end(ExitReason.INTERRUPTED, f"{type(error).__name__}: {error}")
            raise

    def _kept(self, index: int, done: Injected, seconds: float) -> Attempt:
        verdict, artifact = done.verdict, done.artifact
        path = artifact.bug.paths[0] if artifact is not None and artifact.bug.paths else ""
        attempt = Attempt(
            index=index,
            status=AttemptStatus.VALID if done.valid else AttemptStatus.REJECTED,
            strategy=done.strategy,
            operator=done.operator or self.injector.name,
            path=path,
            line=1,
            scope="",
            detail=str(done.trajectory.exit_reason),
            diff=artifact.bug.data.decode("utf-8", "replace") if artifact is not None else "",
            check=verdict.rejection.name if verdict is not None and verdict.rejection else "",
            reason=_without(done.reason, verdict),
            artifact_id=verdict.artifact_id if verdict is not None and done.valid else "",
            fail_to_pass=len(verdict.fail_to_pass) if verdict is not None else 0,
            seconds=round(seconds, 3),
        )
        if verdict is not None and artifact is not None and done.valid:
            info = self._info(artifact, verdict, done)
            whole = BugArtifact(
                artifact.script, artifact.test_files, artifact.parser, artifact.bug, artifact.weaken, info
            )
            Verdicts(self.store, self.bench).put(verdict)
            self.store.put_artifact(verdict.artifact_id, whole)
        record = {**attempt.to_json(), "spent": asdict(self._spent[index])}
        self.store.put_record(f"attempts/model-{self.key}", f"{index:05d}", record)
        return attempt

    def _info(self, artifact: BugArtifact, verdict: Verdict, done: Injected) -> dict[str, Any]:
        by_model = Candidate(done.strategy, "model", {}, artifact.bug.paths[0], 1, "")
        name = self.snapshot.project_name
        info = artifact_info(artifact, verdict, by_model, seed=self.seed, repository=name)
        info["injector"] |= {
            "operator": done.operator or "model",
            "model": self.injector.name,
            "rollout": done.trajectory.rollout_id,
        }
        return info

    def settle(self, wanted: Sequence[Attempt], made: Sequence[Attempt]) -> None:
        """Keep every valid bug: each was paid for."""
        for attempt in made:
            if attempt.status is AttemptStatus.VALID:
                self.store.publish(attempt.artifact_id)

    def end(self) -> None:
        """Begin no more tries."""
        self._ending.set()

    def close(self) -> None:
        """Nothing is held."""


def _without(reason: str, verdict: Verdict | None) -> str:
    """Return a reason without the name of the check that rejected, which is told beside it."""
    return reason.removeprefix(f"{verdict.rejection.name}: ") if verdict is not None and verdict.rejection else reason
