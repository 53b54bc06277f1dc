"""The seam for injectors: source text in, candidate bugs out, the same ones for the same tree and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may be a bug; nothing has been run yet."""

    strategy: str
    """mutation, removal, history, combination."""
    operator: str
    """The operator's name as shown to users: `change-operator`, `remove-function`, `revert-commit`."""
    changes: Mapping[str, bytes | None]
    """Relative path to the file's new content; None deletes the file."""
    path: str
    """The file a reader should look at first."""
    line: int
    """1-based line of the first change in the original."""
    scope: str
    """Qualified name of the function or class changed (`Parser.parse`), or `<module>`."""
    detail: str = ""
    """A few words: what became what."""
    parent: str = ""
    """The artifact whose failed repair this is; empty for a bug of its own."""

    @property
    def order(self) -> int:
        """1; 2 for a failed repair on top of another bug."""
        return 2 if self.parent else 1


class SourceTree(Protocol):
    """What an injector may see: the snapshot, read-only."""

    def paths(self) -> Sequence[str]:
        """Every file, relative with forward slashes, sorted."""

    def read(self, path: str) -> bytes:
        """The content of one file; FileNotFoundError when the tree has no such file."""

    def code_paths(self) -> Sequence[str]:
        """The Python source files that bugs may go into (no tests, no conftest, no packaging), sorted."""

    @property
    def origin(self) -> Path | None:
        """The project's directory on disk, for the history injector; None when there is none."""


class Injector(Protocol):
    """Makes candidates without running anything."""

    name: str

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates lazily, without duplicates, in an order that depends on `tree` and `seed` only.

        What else they depend on is told by a method `depends_on` (see `identities`).
        Raises ProjectError, with what to do, when it can make none here (no git history, no Python source).
        """


@runtime_checkable
class Depending(Protocol):
    """An injector whose candidates depend on more than the tree's files and the seed."""

    def depends_on(self, tree: SourceTree) -> str:
        """Return a text that is equal exactly where that is equal: the last commit of a history."""


def identities(injectors: Sequence[Injector], tree: SourceTree) -> list[str]:
    """Return what tells these injectors, at a tree, from others: their names, with what else they depend on."""
    return [f"{i.name} {i.depends_on(tree)}".strip() if isinstance(i, Depending) else i.name for i in injectors]
