"""An injector that replays recorded attempts byte for byte; only the verdict is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.agents.loop import record_end
from harness.agents.replay import Recordings, repeat
from harness.injectors.artifact_codec import decode_artifact
from harness.injectors.model import Injected, nothing_submitted
from harness.records.trajectory import ExitReason, Journal, read_trajectory
from pytest_ssr.checks import NamedCheck
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, ModelError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.records.check_reasons import CheckCode, CheckReason


@dataclass(frozen=True, slots=True)
class ReplayInjector(Recordings):
    """Replays the injectors' rollouts of a folder."""

    role = "injector"

    def history(self, snapshot: Snapshot) -> str:
        """Return an empty string: a recording does not depend on a commit."""
        return ""

    def require(self, snapshot: Snapshot) -> None:
        """Do nothing: an attempt has no preconditions."""

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Replay the attempt with the same number at the same tree, and validate its bug again.

        A missing recording, or one that cannot be reproduced, is an aborted attempt. Raises SettingsError if several
        recordings match.
        """
        with record_end(journal):
            path = self.find((runner.snapshot.tree_hash, journal.trajectory.attempt), seed)
        if path is None:
            number = journal.trajectory.attempt + 1
            reason = CheckReason.of(CheckCode.NO_RECORDING, path=str(self.path), attempt=number)
            return Injected(None, None, "", journal.end(ExitReason.MODEL, reason.text), reason)
        try:
            done = repeat(read_trajectory(path), journal)
            artifact = decode_artifact(done.result)
        except (ModelError, ArtifactError, StoreError) as failure:
            reason = CheckReason.of(CheckCode.BAD_RECORDING, path=str(path), error=str(failure))
            ended = journal.end(ExitReason.MODEL, reason.text)
            done = replace(ended, exit_reason=ExitReason.MODEL, detail=reason.text)
            return Injected(None, None, "", done, reason)
        strategy = str(done.provenance.get("strategy", ""))
        if artifact is None:
            error = str(done.result.get("rejected") or "")
            reason = CheckReason.of(CheckCode.UNREADABLE, error=error) if error else nothing_submitted(done)
            return Injected(None, None, strategy, done, reason)
        verdict = validate(artifact, runner.scoped(), extra_checks=extra_checks)
        return Injected(artifact, verdict, strategy, done, verdict.reason, done.model)
