"""A project and a git revision in; out come the lines of functions that changed since, and injectors that keep to them.

The working tree, as the snapshot has it, is compared with the revision. A function or method has changed if its text,
decorators included, is not that of a function of the same qualified name in the old file, so what only moved within its
file has not. Statements outside of functions are compared one by one within their class or module. All of a new file
has changed; a renamed file is compared with what it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.errors import NothingToDoError, ProjectError, SettingsError
from pytest_ssr.injectors.combination import CombinationInjector
from pytest_ssr.injectors.past_commits import run_git
from pytest_ssr.injectors.protocol import Candidate, Depending, Injector, SourceTree
from pytest_ssr.injectors.python_source import MODULE, ParsedSource, parse
from pytest_ssr.patch.matching import edits
from pytest_ssr.patch.model import split_lines
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.stopping import require_going_on

_MOST_REFUSED = 20_000
"""Candidates outside of the changed functions that are drawn in a row before an injector counts as exhausted."""
_NAME_STATUS = ("--relative", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--name-status", "-z")
_RENAMES = ("R", "C")


@dataclass(frozen=True, slots=True)
class ProjectDiff:
    """What has changed in a snapshot since a revision."""

    commit: str
    """The full hash of the revision."""
    lines: Mapping[str, tuple[tuple[int, int], ...]]
    """Path to the spans of lines (0-based, half-open) of changed functions and statements; no path without any."""

    @property
    def key(self) -> str:
        """A string that is equal exactly for equal lines."""
        return repr(sorted(self.lines.items()))

    def covers(self, candidate: Candidate, tree: SourceTree) -> bool:
        """Return whether every place that a candidate changes lies in a changed function or statement."""
        return all(self._covers(path, data, tree) for path, data in candidate.changes.items())

    def _covers(self, path: str, data: bytes | None, tree: SourceTree) -> bool:
        spans = self.lines.get(path, ())
        if data is None or not spans:
            return False
        old, new = split_lines(tree.read(path)), split_lines(data)
        # An insertion before the first line of a span lies outside of it, one after its last line inside.
        return all(
            any(
                first <= e.old_from and e.old_to <= end and (e.old_from, e.old_to) != (first, first)
                for first, end in spans
            )
            for e in edits(old, new)
        )


def read_diff(snapshot: Snapshot, revision: str) -> ProjectDiff:
    """Return what has changed since a revision.

    Raises ProjectError if the project is not in a git repository, SettingsError for an unknown revision,
    NothingToDoError if no code has changed.
    """
    project = snapshot.origin
    inside, _, why = run_git(project, "rev-parse", "--is-inside-work-tree")
    if not inside:
        raise ProjectError(f"{project} is not in a git repository ({why}); changes since {revision} cannot be found")
    known, out, _ = run_git(project, "rev-parse", "--verify", "-q", "--end-of-options", f"{revision}^{{commit}}")
    if not known or not revision:
        raise SettingsError(
            f"{project} has no git revision {revision!r}; name a commit, a branch or a tag, "
            "and fetch it first in a shallow clone"
        )
    commit = out.decode("ascii").strip()
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    earlier = _changed_files(snapshot, commit)
    for path in snapshot.code_paths():
        if path in earlier:
            spans = _changed_lines(path, snapshot.read(path), _old_content(snapshot, commit, earlier[path]))
            if spans:
                lines[path] = spans
    if not lines:
        raise NothingToDoError(
            f"no function of {project} has changed since {revision}; there is nothing to inject into"
        )
    return ProjectDiff(commit, lines)


def _changed_files(snapshot: Snapshot, commit: str) -> dict[str, str]:
    """Return the files that differ from a commit, each with its path in it; an empty one for a new file."""
    worked, out, why = run_git(snapshot.origin, "diff", *_NAME_STATUS, commit, "--", ".")
    if not worked:
        raise ProjectError(f"git cannot compare {snapshot.origin} with {commit[:12]}: {why}")
    found: dict[str, str] = {}
    fields = iter(os.fsdecode(out).split("\0"))
    for status in fields:
        if status[:1] in _RENAMES:
            old = next(fields)
            found[next(fields)] = old
        elif status:
            path = next(fields)
            found[path] = "" if status == "A" else path
    worked, out, why = run_git(snapshot.origin, "ls-files", "-z", "--others", "--exclude-standard")
    found |= {path: "" for path in os.fsdecode(out).split("\0") if path}
    return found


def _old_content(snapshot: Snapshot, commit: str, path: str) -> bytes | None:
    if not path:
        return None
    worked, out, _ = run_git(snapshot.origin, "cat-file", "blob", f"{commit}:./{path}")
    return out if worked else None


def _changed_lines(path: str, new: bytes, old: bytes | None) -> tuple[tuple[int, int], ...]:
    """Return the spans of lines that changed; the whole file if there is no old one that can be read."""
    before = parse(path, old) if old is not None else None
    after = parse(path, new)
    if before is None or after is None:
        return ((0, len(split_lines(new))),) if new else ()
    known = {(unit.scope, unit.text) for unit in _units(before, before.root, "")}
    spans = [unit.lines for unit in _units(after, after.root, "") if (unit.scope, unit.text) not in known]
    return tuple(sorted(spans))


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is compared as a whole: a function with all that is nested in it, or a statement outside of functions."""

    scope: str
    """The qualified name of the function, or of the class or module that the statement stands in."""
    text: bytes
    lines: tuple[int, int]


def _units(source: ParsedSource, parent: Node, prefix: str) -> Iterator[_Unit]:
    for child in parent.named_children:
        inner = child.child_by_field_name("definition") if child.type == "decorated_definition" else child
        if inner is None or child.type == "comment":
            continue
        body = inner.child_by_field_name("body")
        if inner.type in ("function_definition", "class_definition"):
            name_node = inner.child_by_field_name("name")
            name = prefix + (source.text(name_node).decode(errors="replace") if name_node is not None else "?")
            if inner.type == "function_definition" or body is None:
                yield _unit(source, child, child, f"{name}()")
            else:
                yield _unit(source, child, body, prefix, before=True)
                yield from _units(source, body, f"{name}.")
        elif _holds_definitions(inner):
            yield from _units(source, inner, prefix)
        else:
            yield _unit(source, child, child, prefix)


def _unit(source: ParsedSource, first: Node, last: Node, scope: str, *, before: bool = False) -> _Unit:
    """Return the unit from one node to another; before: up to the last one, without it, as a class without its body."""
    end = last.start_byte if before else last.end_byte
    text = source.data[first.start_byte : end].replace(b"\r\n", b"\n").rstrip()
    row = first.start_point.row
    return _Unit(scope or MODULE, text, (row, row + 1 + text.count(b"\n")))


def _holds_definitions(node: Node) -> bool:
    """Return whether a statement outside of functions (an `if`, a `try`) has functions or classes in it."""
    waiting = list(node.named_children)
    while waiting:
        current = waiting.pop()
        if current.type in ("function_definition", "class_definition"):
            return True
        waiting += current.named_children
    return False


class NarrowedInjector:
    """An injector's candidates as far as they keep to what has changed."""

    def __init__(self, injector: Injector, diff: ProjectDiff) -> None:
        self.name = injector.name
        self._injector, self._diff = injector, diff

    def depends_on(self, tree: SourceTree) -> str:
        """Return that of the injector."""
        return self._injector.depends_on(tree) if isinstance(self._injector, Depending) else ""

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the candidates that keep to it, until too many in a row do not."""
        refused = 0
        for candidate in self._injector.candidates(tree, seed=seed):
            require_going_on()
            if self._diff.covers(candidate, tree):
                refused = 0
                yield candidate
            elif (refused := refused + 1) > _MOST_REFUSED:
                return


def narrowed(injector: Injector, diff: ProjectDiff) -> Injector:
    """Return an injector that keeps to what has changed; one that combines others draws from such as do."""
    if isinstance(injector, CombinationInjector):
        return CombinationInjector([narrowed(source, diff) for source in injector.sources])
    return NarrowedInjector(injector, diff)
