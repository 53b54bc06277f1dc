"""Turn failed repairs into bugs: a parent's buggy state with an unsuccessful patch (arXiv 2512.18552, section 2.3).

They resemble the bugs that developers leave behind, and each has exactly one parent. In the form `flattened`, the
buggy state is a bug like any other: the tests that fail are found, weakened and validated again. In the form `paper`,
the parent's tests, script and weakening stay as they are, so that the specification is the parent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.injectors.artifact_codec import encode_artifact
from harness.injectors.model import Injected
from harness.records.episode import Episode
from harness.records.trajectory import ExitReason, Journal
from harness.rollouts.runner import PATCH, ROLLOUTS
from pytest_ssr.checks import NamedCheck
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import is_code
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, key_of

STRATEGY = "higher-order"
PARENT_FORM = "paper"
FORMS = ("flattened", PARENT_FORM)


@dataclass(frozen=True, slots=True)
class FailedRepair:
    """A repair that did not resolve a bug of order 1."""

    parent: str
    """The artifact's id."""
    artifact: BugArtifact
    patch: Patch


def failed_repairs(store: Store, episode: Episode, most: int) -> list[FailedRepair]:
    """Return distinct failed repairs of an episode, at most `most` of them."""
    repairs: dict[str, FailedRepair] = {}
    for rollout in episode.rollouts:
        is_failed = rollout.verdict is False and rollout.patch_sha256 and not rollout.forged
        if not is_failed or rollout.patch_sha256 in repairs or len(repairs) >= most:
            continue
        data = store.file(f"{ROLLOUTS}/{rollout.id}", PATCH)
        try:
            patch = Patch.parse(data or b"")
            artifact = store.artifact(episode.artifact_id)
        except (ArtifactError, StoreError):
            continue
        repairs[rollout.patch_sha256] = FailedRepair(episode.artifact_id, artifact, patch)
    return list(repairs.values())


def failed_repair_candidate(original: CodebaseState, failed: FailedRepair) -> Candidate | None:
    """Return the buggy state with the failed repair, as a candidate.

    Returns None if the repair does not apply, changes no code, or restores the parent or the original.
    """
    state = _failed_state(original, failed)
    if state is None:
        return None
    changes = {path: entry.data if entry is not None else None for path, entry in state.changes.items()}
    injector = failed.artifact.info.get("injector")
    metadata = injector if isinstance(injector, dict) else {}
    path = sorted(changes)[0]
    return Candidate(
        strategy=STRATEGY,
        operator=str(metadata.get("operator", "unknown")),
        changes=changes,
        path=path,
        line=int(metadata.get("line") or 1),
        scope=str(metadata.get("scope", "?")),
        detail=f"a failed repair of {failed.parent}",
        parent=failed.parent,
    )


def _failed_state(original: CodebaseState, failed: FailedRepair) -> CodebaseState | None:
    """Return the buggy state with the failed repair of code; None as for `failed_repair_candidate`."""
    try:
        buggy = original.apply(failed.artifact.bug)
        code_patch = failed.patch.select(
            [p for p in failed.patch.paths if is_code(p) and p not in failed.artifact.test_files]
        )
        state = buggy.apply(code_patch)
    except ArtifactError:
        return None
    return state if state.changes and state.changes != buggy.changes else None


class HigherOrderInjector:
    """Offers failed repairs as bugs, each distinct bug once."""

    def __init__(self, failed: Sequence[FailedRepair]) -> None:
        self._failed = tuple(failed)
        digest = hashlib.sha256()
        for repair in failed:
            digest.update(repair.parent.encode() + repair.patch.data)
        self.name = f"higher-order {digest.hexdigest()[:12]}"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the candidates in the order in which the repairs failed; the seed has no effect."""
        assert isinstance(tree, Snapshot)
        for failed in self._failed:
            candidate = failed_repair_candidate(CodebaseState(tree), failed)
            if candidate is not None:
                yield candidate


def parent_rules(rule: RuleSettings) -> RuleSettings:
    """Return the thresholds for a bug that keeps its parent's tests: how many of them fail is not its choice.

    Its checks are otherwise those of every bug, although the paper has none here: a grade needs to know which tests
    the bug breaks, and that they do not flicker.
    """
    return replace(rule, max_broken_fraction=1.0, max_weakened_failing=1.0)


class HigherOrderArtifacts:
    """Submits failed repairs as artifacts with their parents' tests, scripts and weakenings."""

    name = "higher-order"

    def __init__(self, failed: Sequence[FailedRepair]) -> None:
        self._failed = tuple(failed)
        parts = [(repair.parent, hashlib.sha256(repair.patch.data).hexdigest()) for repair in failed]
        self.key = key_of(PARENT_FORM, parts)

    def history(self, snapshot: Snapshot) -> str:
        """Return an empty string: a failed repair does not depend on a commit."""
        return ""

    def require(self, snapshot: Snapshot) -> None:
        """Do nothing: an attempt has no preconditions."""

    def inject(
        self, runner: Runner, *, seed: int, journal: Journal, extra_checks: Sequence[NamedCheck] = ()
    ) -> Injected:
        """Submit the failed repair with the attempt's number, and validate it."""
        failed = self._failed[journal.trajectory.attempt]
        state = _failed_state(runner.original, failed)
        info = failed.artifact.info.get("injector")
        operator = str(info.get("operator", "unknown")) if isinstance(info, dict) else "unknown"
        if state is None:
            reason = CheckReason(CheckCode.NOTHING_CHANGED)
            done = journal.end(ExitReason.SUBMITTED, reason.text, {"rejected": reason.text})
            return Injected(None, None, STRATEGY, done, reason, operator)
        artifact = replace(failed.artifact, bug=state.patch_from(runner.original), info={})
        done = journal.end(ExitReason.SUBMITTED, f"a failed repair of {failed.parent}", encode_artifact(artifact))
        verdict = validate(artifact, runner.scoped(), extra_checks=extra_checks)
        return Injected(artifact, verdict, STRATEGY, done, verdict.reason, operator, failed.parent)
