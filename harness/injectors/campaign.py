"""A campaign of a model that injects: one attempt after the other, stored like those of other injectors."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

from harness.injectors.model import Injected
from harness.models.protocol import label_of
from harness.records.trajectory import ExitReason, Journal, Trajectory
from harness.records.usage import NAME, RunUsage, archive_interrupted
from harness.storage.code_version import code_hash
from pytest_ssr.campaign.artifact_builder import artifact_info
from pytest_ssr.checks import NamedCheck, names_of
from pytest_ssr.errors import ModelError, ModelUnavailableError, StoreError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, key_of
from pytest_ssr.storage.verdict_store import Verdicts

_MAX_ABORTED = 3


class ArtifactInjector(Protocol):
    """An injector that submits complete artifacts."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on, except the project."""

    def history(self, snapshot: Snapshot) -> str:
        """Return the commit that an attempt at a project depends on; empty if it depends on none."""

    def require(self, snapshot: Snapshot) -> None:
        """Raise ProjectError or SettingsError if no attempt at the project is possible."""

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Make one attempt; a bad artifact is a verdict or a reason, never an exception.

        extra_checks: those that plugins add to the validation.
        """


class ModelCampaign:
    """Attempts of one model at one tree; reproducible for a seed if the model's server is deterministic."""

    def __init__(
        self,
        runner: Runner,
        store: Store,
        injector: ArtifactInjector,
        *,
        seed: int,
        extra_checks: Sequence[NamedCheck] = (),
    ) -> None:
        """Raises ProjectError or SettingsError if no attempt is possible."""
        injector.require(runner.snapshot)
        self.runner, self.store, self.injector, self.seed = runner, store, injector, seed
        self.extra_checks = tuple(extra_checks)
        self._spent: dict[int, RunUsage] = {}
        self._ending = threading.Event()
        self.key = key_of(
            code_hash(),
            runner.snapshot.tree_hash,
            runner.interpreter.environment_hash,
            runner.provider.name,
            runner.settings.key(),
            injector.key,
            injector.history(runner.snapshot),
            seed,
            *filter(None, [names_of(self.extra_checks)]),
        )

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the project."""
        return self.runner.snapshot

    @property
    def baseline(self) -> Baseline:
        """The project's baseline, from the store or measured."""
        return project_baseline(self.runner, self.store)

    def attempt(self, index: int) -> CandidateResult | None:
        """Return an attempt, from the store or by running it; None after the end of the campaign.

        A try that an infrastructure failure aborts does not count: it is repeated with the same number and seed, and
        its trajectory is archived. Raises ModelError after several such tries; running the campaign again continues
        from there. If another run works on the attempt, wait for it.
        """
        with self.store.alone(self.rollout_of(index)):
            return self.stored(index) or self._run(index)

    def stored(self, index: int) -> CandidateResult | None:
        """Return the stored result of an attempt; None if it does not exist or its artifact has been deleted."""
        data = self.store.record(f"attempts/model-{self.key}", f"{index:05d}")
        result = CandidateResult.from_json(data) if data is not None else None
        if data is None or result is None or (result.artifact_id and not self.store.has_artifact(result.artifact_id)):
            return None
        try:
            self._spent[index] = decode(RunUsage, data.get("spent"))
        except StoreError:
            return None
        return result

    def _run(self, index: int) -> CandidateResult | None:
        name = self.rollout_of(index)
        folder = self.store.root / "rollouts" / name
        if not folder.exists():
            self.store.fetch(f"rollouts/{name}")
        for _ in range(_MAX_ABORTED):
            if self._ending.is_set():
                return None
            earlier, begin = archive_interrupted(folder), time.perf_counter()
            done = self._inject(name, index, folder / NAME)
            self.store.keep(f"rollouts/{name}")
            if done.trajectory.status != "aborted":
                self._spent[index] = earlier + RunUsage.of(done.trajectory)
                return self._store_result(index, done, time.perf_counter() - begin)
        is_away = done.trajectory.exit_reason is ExitReason.UNAVAILABLE
        kind = ModelUnavailableError if is_away else ModelError
        raise kind(f"{self.injector.name}: {done.trajectory.detail or done.trajectory.exit_reason}")

    def rollout_of(self, index: int) -> str:
        """Return the id of the rollout of an attempt."""
        return key_of(self.key, index)

    def spent(self, index: int) -> RunUsage:
        """Return the usage of a finished attempt, including its aborted tries."""
        if index not in self._spent:
            # Another machine has run it.
            self.stored(index)
        return self._spent.get(index, RunUsage())

    def _inject(self, name: str, index: int, path: Path) -> Injected:
        provenance = {"code": code_hash(), "sandbox": self.runner.provider.name, "seed": self.seed + index}
        trajectory = Trajectory(
            name, self.snapshot.tree_hash, "injector", index, self.injector.name, provenance=provenance
        )
        journal = Journal(trajectory, path)
        try:
            return self.injector.inject(
                self.runner.scoped(), seed=self.seed + index, journal=journal, extra_checks=self.extra_checks
            )
        except BaseException as error:
            journal.end(ExitReason.INTERRUPTED, f"{type(error).__name__}: {error}")
            raise

    def _store_result(self, index: int, done: Injected, seconds: float) -> CandidateResult:
        verdict, artifact = done.verdict, done.artifact
        path = artifact.bug.paths[0] if artifact is not None and artifact.bug.paths else ""
        attempt = CandidateResult(
            index=index,
            status=CandidateStatus.VALID if done.valid else CandidateStatus.REJECTED,
            strategy=done.strategy,
            operator=done.operator or label_of(self.injector),
            path=path,
            line=1,
            scope="",
            detail=str(done.trajectory.exit_reason),
            diff=artifact.bug.data.decode("utf-8", "replace") if artifact is not None else "",
            check=verdict.rejected_by if verdict is not None else "",
            reason=done.reason,
            artifact_id=verdict.artifact_id if verdict is not None and done.valid else "",
            fail_to_pass=len(verdict.fail_to_pass) if verdict is not None else 0,
            seconds=round(seconds, 3),
        )
        if verdict is not None and artifact is not None and done.valid:
            complete = described(
                artifact,
                verdict,
                snapshot=self.snapshot,
                strategy=done.strategy,
                operator=done.operator or "model",
                seed=self.seed,
                model=self.injector.name,
                rollout=done.trajectory.rollout_id,
                parent=done.parent,
            )
            Verdicts(self.store, self.runner, extra_checks=names_of(self.extra_checks)).put(verdict)
            self.store.put_artifact(verdict.artifact_id, complete)
        rollout = {"rollout": done.trajectory.rollout_id, "steps": len(done.trajectory.steps)}
        record = {**attempt.to_json(), "spent": asdict(self._spent[index]), **rollout}
        self.store.put_record(f"attempts/model-{self.key}", f"{index:05d}", record)
        return attempt

    def take(self, result: CandidateResult) -> None:
        """Do nothing: every valid bug is published."""

    def settle(self, requested: Sequence[CandidateResult], results: Sequence[CandidateResult]) -> None:
        """Publish every valid bug, because each was paid for."""
        for attempt in results:
            if attempt.status is CandidateStatus.VALID:
                self.store.publish(attempt.artifact_id)

    def end(self) -> None:
        """Start no more tries."""
        self._ending.set()

    def close(self) -> None:
        """Do nothing: the campaign holds no resources."""


def described(
    artifact: BugArtifact,
    verdict: Verdict,
    *,
    snapshot: Snapshot,
    strategy: str,
    seed: int,
    model: str,
    rollout: str,
    operator: str = "model",
    parent: str = "",
) -> BugArtifact:
    """Return a valid artifact of an agent with the content of its `artifact.json`.

    model: the agent's name. rollout: the id of the rollout that made it. operator: what made the bug. parent:
    the artifact of which it is a failed repair.
    """
    by_model = Candidate(strategy, "model", {}, artifact.bug.paths[0], 1, "", parent=parent)
    info = artifact_info(artifact, verdict, by_model, seed=seed, repository=snapshot.project_name)
    info["injector"] |= {"operator": operator, "model": model, "rollout": rollout}
    return replace(artifact, info=info)
