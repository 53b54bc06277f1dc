"""An injector for existing artifacts, made by another run, by a model or by another SSR system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.agents.loop import record_end
from harness.injectors.artifact_codec import encode_artifact
from harness.injectors.model import Injected
from harness.records.trajectory import ExitReason, Journal
from pytest_ssr.checks import NamedCheck
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact, find_artifacts, read_artifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.storage.store import key_of

PREFIX = "artifacts:"
_MAX_LABEL_CHARS = 40


@dataclass(frozen=True, slots=True)
class ExternalInjector:
    """Submits the artifacts of a folder one after the other; each is validated again."""

    path: Path
    """An artifact's directory, or a directory that contains artifacts."""
    directories: tuple[Path, ...] = ()
    key: str = field(default="", repr=False)
    """A hash of the contents of all artifacts."""

    @classmethod
    def named(cls, name: str) -> ExternalInjector:
        """Return the injector for the name `artifacts:PATH`; raises ArtifactError if there are no artifacts."""
        path = Path(name.removeprefix(PREFIX))
        directories = find_artifacts(path)
        return cls(path, tuple(directories), key_of("artifacts", [_content(d) for d in directories]))

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{PREFIX}{self.path}"

    def history(self, snapshot: Snapshot) -> str:
        """Return an empty string: an artifact does not depend on a commit."""
        return ""

    def require(self, snapshot: Snapshot) -> None:
        """Do nothing: an attempt has no preconditions."""

    def part(self, snapshot: Snapshot, number: int, count: int) -> ExternalInjector:
        """Return the injector for one round: `count` of the artifacts whose bug applies to the tree.

        number: of the round, from 0. Raises ProjectError if no bug applies.
        """
        applicable = tuple(d for d in self.directories if _applies(d, snapshot))
        if not applicable:
            raise ProjectError(f"none of the {len(self.directories)} artifacts in {self.path} fits {snapshot.origin}")
        return replace(self, directories=applicable[number * count : (number + 1) * count])

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Submit the artifact with the attempt's number, and validate it."""
        directory = self.directories[journal.trajectory.attempt]
        with record_end(journal):
            try:
                artifact = read_artifact(directory)
            except ArtifactError as error:
                done = journal.end(ExitReason.SUBMITTED, str(error), {"rejected": str(error)})
                return Injected(None, None, "given", done, CheckReason.of(CheckCode.UNREADABLE, error=str(error)))
            strategy, operator = _labels(artifact)
            journal.trajectory.provenance = {**journal.trajectory.provenance, "strategy": strategy}
            done = journal.end(ExitReason.SUBMITTED, str(directory), encode_artifact(artifact))
        verdict = validate(artifact, runner.scoped(), extra_checks=extra_checks)
        return Injected(artifact, verdict, strategy, done, verdict.reason, operator)


def _applies(directory: Path, snapshot: Snapshot) -> bool:
    """Return whether a bug applies to a tree; True for an unreadable artifact, which its attempt reports."""
    try:
        artifact = read_artifact(directory)
    except ArtifactError:
        return True
    try:
        CodebaseState(snapshot).apply(artifact.bug)
    except ArtifactError:
        return False
    return True


def _content(directory: Path) -> Sequence[object]:
    try:
        return sorted(read_artifact(directory).contents().items())
    except ArtifactError as error:
        return [str(error)]


def _labels(artifact: BugArtifact) -> tuple[str, str]:
    """Return the strategy and the operator that the artifact claims."""
    claims: Any = artifact.info.get("injector")
    claims = claims if isinstance(claims, Mapping) else {}
    labels = [str(claims.get(name) or "given")[:_MAX_LABEL_CHARS] for name in ("strategy", "operator")]
    strategy, operator = ("".join(c for c in word if c.isprintable()) for word in labels)
    return strategy, operator
