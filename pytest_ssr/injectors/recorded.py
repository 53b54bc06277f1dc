"""Make candidates of changes that earlier runs have recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from pytest_ssr.errors import ArtifactError
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.patch import FileEntry, Patch, apply_patch
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.source.change_identity import identity_of

Change = tuple[str, bytes, bytes | None]
"""The path of a file, its original and its new content; None if it is deleted."""


def changes_of(result: CandidateResult, read: Callable[[str], bytes]) -> list[Change] | None:
    """Return the files that a recorded change changes; None if its diff does not apply, or changes nothing.

    A record keeps the diff as text for people, which does not apply to a file in another encoding than UTF-8.

    read: returns the original content of a file; raises FileNotFoundError.
    """

    def original(path: str) -> bytes:
        try:
            return read(path)
        except FileNotFoundError:
            return b""

    def entry(path: str) -> FileEntry | None:
        try:
            return FileEntry(read(path), 0o100644)
        except FileNotFoundError:
            return None

    try:
        changed = apply_patch(Patch.parse(result.diff.encode()), entry)
    except (ArtifactError, UnicodeEncodeError):
        # A record that was edited may hold half of a surrogate pair.
        return None
    if not changed:
        return None
    return [(path, original(path), new.data if new is not None else None) for path, new in changed.items()]


def identity_of_result(result: CandidateResult, read: Callable[[str], bytes]) -> str:
    """Return the identity of a recorded change, see `source.change_identity`; empty if its diff does not apply.

    Records have it for survivors alone, since it takes up to a tenth of a second in a large file.
    """
    if result.identity:
        return result.identity
    changes = changes_of(result, read)
    return identity_of(result.operator, [(before, after) for _, before, after in changes]) if changes else ""


class GivenInjector:
    """Yields candidates that its user has made, in their order; they are not restricted to what has changed."""

    name = "given"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = tuple(candidates)

    def depends_on(self, tree: SourceTree) -> str:
        """Return a hash of the changes."""
        changes = [sorted(candidate.changes.items()) for candidate in self._candidates]
        return hashlib.sha256(repr(changes).encode()).hexdigest()

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the candidates."""
        yield from self._candidates


class RecordedInjector:
    """Yields the changes of recorded results, in their order."""

    name = "recorded"

    def __init__(self, results: Sequence[CandidateResult]) -> None:
        self.results = tuple(results)

    def depends_on(self, tree: SourceTree) -> str:
        """Return a hash of the changes."""
        return hashlib.sha256(
            "\0".join(result.diff for result in self.results).encode("utf-8", "surrogatepass")
        ).hexdigest()

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield a candidate for each change whose diff applies to the tree."""
        for result in self.results:
            changes = changes_of(result, tree.read)
            if changes:
                yield Candidate(
                    strategy=result.strategy,
                    operator=result.operator,
                    changes={path: after for path, _, after in changes},
                    path=result.path,
                    line=result.line,
                    scope=result.scope,
                    detail=result.detail,
                )
