"""Failed repairs as bugs: a parent's buggy state with a patch that did not resolve it (arXiv 2512.18552, section 2.3).

They look like what developers leave behind. Each is weakened and validated anew; none has more than one parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import Patch
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.surface import is_code


@dataclass(frozen=True, slots=True)
class Failed:
    """A repair that did not resolve a bug of order 1."""

    parent: str
    """The artifact's id."""
    artifact: BugArtifact
    patch: Patch


def candidate_of(original: CodebaseState, failed: Failed) -> Candidate | None:
    """Return the buggy state with the failed repair, as a candidate.

    None where the repair does not apply, changes no code, or leads back to the parent or to the original.
    """
    try:
        buggy = original.apply(failed.artifact.bug)
        kept = failed.patch.select(
            [p for p in failed.patch.paths if is_code(p) and p not in failed.artifact.test_files]
        )
        state = buggy.apply(kept)
    except ArtifactError:
        return None
    if not state.changes or state.changes == buggy.changes:
        return None
    changes = {path: entry.data if entry is not None else None for path, entry in state.changes.items()}
    injector = failed.artifact.info.get("injector")
    told = injector if isinstance(injector, dict) else {}
    path = sorted(changes)[0]
    return Candidate(
        strategy="higher-order",
        operator=str(told.get("operator", "unknown")),
        changes=changes,
        path=path,
        line=int(told.get("line") or 1),
        scope=str(told.get("scope", "?")),
        detail=f"a failed repair of {failed.parent}",
        parent=failed.parent,
    )


class HigherOrderInjector:
    """Offers failed repairs, each different bug once."""

    def __init__(self, failed: Sequence[Failed]) -> None:
        self._failed = tuple(failed)
        digest = hashlib.sha256()
        for one in failed:
            digest.update(one.parent.encode() + one.patch.data)
        self.name = f"higher-order {digest.hexdigest()[:12]}"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield them in the order in which they failed; the seed changes nothing."""
        assert isinstance(tree, Snapshot)
        for failed in self._failed:
            candidate = candidate_of(CodebaseState(tree), failed)
            if candidate is not None:
                yield candidate
