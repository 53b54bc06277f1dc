"""Define injectors, which yield candidate bugs of a source tree: the same ones for the same tree and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


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
    """A short description of what changed."""
    parent: str = ""
    """The artifact of which this is a failed repair; empty for a bug that is not one."""
    sign: str | None = None
    """Why it is equivalent, as in CandidateResult; a campaign sets it."""

    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What else `artifact.json` says of the injector, such as its model."""

    @property
    def order(self) -> int:
        """1, or 2 for a failed repair on top of another bug."""
        return 2 if self.parent else 1


class SourceTree(Protocol):
    """The part of the snapshot that an injector may see, read-only."""

    def paths(self) -> Sequence[str]:
        """Return every file, relative with forward slashes, sorted."""

    def read(self, path: str) -> bytes:
        """Return the content of one file; raises FileNotFoundError if it is not in the tree."""

    def code_paths(self) -> Sequence[str]:
        """Return the Python source files that bugs may go into (no tests, conftest or packaging), sorted."""

    @property
    def origin(self) -> Path | None:
        """The project's directory on disk, for the history injector; None if it has none."""


@runtime_checkable
class MeasuredTree(SourceTree, Protocol):
    """A source tree of which it is known where bugs may count."""

    def may_count(self, path: str, first: int, last: int) -> bool:
        """Return whether a bug on these 1-based lines of a function may count.

        It does not if no test runs them, if they have not changed since the revision that bugs are restricted to, or if
        `# ssr: skip` excludes them.
        """


class Injector(Protocol):
    """Makes candidates without running anything."""

    name: str

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield candidates lazily, without duplicates, in an order that depends on `tree` and `seed` only.

        A method `depends_on` returns what else they depend on (see `identities`).
        Raises ProjectError, with what to do, if it can make none for this tree (no git history, no Python source).
        """


@runtime_checkable
class DependentInjector(Protocol):
    """An injector whose candidates depend on more than the tree's files and the seed."""

    def depends_on(self, tree: SourceTree) -> str:
        """Return a string that identifies what else they depend on, such as the last commit of a history."""


@runtime_checkable
class SlowInjector(Protocol):
    """An injector that needs seconds for a candidate, such as one with a model."""

    ahead: int
    """Most candidates that are drawn before one of them is chosen."""


def ahead_of(injectors: Sequence[Injector], usual: int) -> int:
    """Return how many candidates are drawn before one of them is chosen. usual: without slow injectors."""
    return min([usual, *(injector.ahead for injector in injectors if isinstance(injector, SlowInjector))])


def identities(injectors: Sequence[Injector], tree: SourceTree) -> list[str]:
    """Return strings that identify these injectors for a tree: their names, with what else they depend on."""
    return [f"{i.name} {i.depends_on(tree)}".strip() if isinstance(i, DependentInjector) else i.name for i in injectors]
