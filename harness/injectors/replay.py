"""An injector that replays recorded attempts byte for byte; only the verdict is computed again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.loop import record_end
from harness.agents.replay import Recordings, repeat
from harness.injectors.artifact_codec import decode_artifact
from harness.injectors.model import Injected
from harness.records.trajectory import ExitReason, Journal, read_trajectory
from pytest_ssr.checks.validator import Validation
from pytest_ssr.errors import ArtifactError, ModelError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ReplayInjector(Recordings):
    """Replays the injectors' rollouts of a folder."""

    role = "injector"

    def history(self, snapshot: Snapshot) -> str:
        """Return an empty string: a recording does not depend on a commit."""
        return ""

    def require(self, snapshot: Snapshot) -> None:
        """Do nothing: an attempt has no preconditions."""

    def inject(self, runner: Runner, *, seed: int, journal: Journal) -> Injected:
        """Replay the attempt with the same number at the same tree, and validate its bug again.

        A missing recording, or one that cannot be reproduced, is an aborted attempt. Raises SettingsError if several
        recordings match.
        """
        with record_end(journal):
            path = self.find((runner.snapshot.tree_hash, journal.trajectory.attempt), seed)
        if path is None:
            reason = f"{self.path} contains no attempt {journal.trajectory.attempt + 1} at this tree"
            return Injected(None, None, "", journal.end(ExitReason.MODEL, reason), reason)
        try:
            done = repeat(read_trajectory(path), journal)
            artifact = decode_artifact(done.result)
        except (ModelError, ArtifactError, StoreError) as error:
            reason = f"{path}: {error}"
            done = replace(journal.end(ExitReason.MODEL, reason), exit_reason=ExitReason.MODEL, detail=reason)
            return Injected(None, None, "", done, reason)
        strategy = str(done.provenance.get("strategy", ""))
        if artifact is None:
            reason = str(
                done.result.get("rejected") or f"nothing was submitted: {done.exit_reason} {done.detail}".strip()
            )
            return Injected(None, None, strategy, done, reason)
        verdict = Validation(artifact, runner.scoped()).verdict()
        rejection = verdict.rejection
        reason = verdict.fault or (f"{rejection.name}: {rejection.reason}" if rejection else "")
        return Injected(artifact, verdict, strategy, done, reason, done.model)
