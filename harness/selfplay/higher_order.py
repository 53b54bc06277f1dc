"""Turn failed repairs into bugs: a parent's buggy state with an unsuccessful patch (arXiv 2512.18552, section 2.3).

They resemble the bugs that developers leave behind. Each is weakened and validated again, and has exactly one parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.records.episode import Episode
from harness.rollouts.runner import PATCH, ROLLOUTS
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import is_code
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage.store import Store


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
    try:
        buggy = original.apply(failed.artifact.bug)
        code_patch = failed.patch.select(
            [p for p in failed.patch.paths if is_code(p) and p not in failed.artifact.test_files]
        )
        state = buggy.apply(code_patch)
    except ArtifactError:
        return None
    if not state.changes or state.changes == buggy.changes:
        return None
    changes = {path: entry.data if entry is not None else None for path, entry in state.changes.items()}
    injector = failed.artifact.info.get("injector")
    metadata = injector if isinstance(injector, dict) else {}
    path = sorted(changes)[0]
    return Candidate(
        strategy="higher-order",
        operator=str(metadata.get("operator", "unknown")),
        changes=changes,
        path=path,
        line=int(metadata.get("line") or 1),
        scope=str(metadata.get("scope", "?")),
        detail=f"a failed repair of {failed.parent}",
        parent=failed.parent,
    )


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
