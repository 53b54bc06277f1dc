"""Find the functions that changed since a git revision, and restrict injectors to them.

The working tree, as in the snapshot, is compared with the revision. A function or method has changed if its text,
decorators included, is not that of a function of the same qualified name in the old file; a move within the file is
not a change. Statements outside functions are compared one by one within their class or module. All of a new file has
changed; a renamed file is compared with its old content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node

from pytest_ssr.errors import NothingToDoError, ProjectError, SettingsError
from pytest_ssr.injectors.combination import CombinationInjector
from pytest_ssr.injectors.git_history import run_git
from pytest_ssr.injectors.protocol import Candidate, DependentInjector, Injector, SourceTree
from pytest_ssr.injectors.recorded import GivenInjector
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.patch.changes import split_lines
from pytest_ssr.patch.line_matching import edits
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.source.syntax_tree import MODULE, ParsedSource, parse

_MAX_REJECTED = 20_000
"""Number of candidates in a row outside the changed functions after which an injector counts as exhausted."""
_NAME_STATUS = ("--relative", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")
_COMMIT = re.compile(rb"[0-9a-f]{40,64}\n")
_SUBMODULE = "160000"
"""The mode of a submodule in git's index."""
_RENAMES = ("R", "C")
_MAIN_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


@dataclass(frozen=True, slots=True)
class ProjectDiff:
    """What has changed in a snapshot since a revision."""

    commit: str
    """The full hash of the revision, or that of the earlier snapshot."""
    lines: Mapping[str, tuple[tuple[int, int], ...]]
    """Path to the spans of lines (0-based, half-open) of changed functions and statements; no path without any."""
    edited: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Path to the lines (1-based) that are new or different."""

    @property
    def key(self) -> str:
        """A string that is equal exactly for equal lines."""
        return repr(sorted(self.lines.items()))

    def covers(self, candidate: Candidate, tree: SourceTree) -> bool:
        """Return whether every edit of a candidate lies in a changed function or statement."""
        return all(self._covers(path, data, tree) for path, data in candidate.changes.items())

    def _covers(self, path: str, data: bytes | None, tree: SourceTree) -> bool:
        spans = self.lines.get(path, ())
        if data is None or not spans:
            return False
        old, new = split_lines(tree.read(path)), split_lines(data)
        # An insertion before the first line of a span lies outside it, one after its last line inside.
        return all(
            any(
                first <= e.old_from and e.old_to <= end and (e.old_from, e.old_to) != (first, first)
                for first, end in spans
            )
            for e in edits(old, new)
        )


def base_revision(project: Path) -> str:
    """Return the commit at which the branch of a project left the main one, or HEAD if it is the main one itself.

    Raises ProjectError if the project is not in a git repository or has no branch that may be the main one.
    """
    succeeded, _, reason = run_git(project, "rev-parse", "--is-inside-work-tree")
    if not succeeded:
        raise ProjectError(
            f"{project} is not in a git repository ({reason}); a review needs the changes since a commit"
        )
    for name in _MAIN_BRANCHES:
        if not run_git(project, "rev-parse", "--verify", "-q", f"{name}^{{commit}}")[0]:
            continue
        found, out, _ = run_git(project, "merge-base", "HEAD", name)
        if not found:
            raise ProjectError(
                f"{project} has no commit from which both HEAD and {name} come; fetch more history in a shallow clone, "
                "or name the revision to compare with"
            )
        return out.decode("ascii").split()[0]
    raise ProjectError(f"{project} has no branch {' or '.join(_MAIN_BRANCHES)}; name the revision to compare with")


def read_diff(snapshot: Snapshot, revision: str) -> ProjectDiff:
    """Return what has changed since a revision.

    Raises ProjectError if the project is not in a git repository, SettingsError for an unknown revision,
    NothingToDoError if no code has changed.
    """
    project = snapshot.origin
    inside, _, reason = run_git(project, "rev-parse", "--is-inside-work-tree")
    if not inside:
        raise ProjectError(f"{project} is not in a git repository ({reason}); changes since {revision} cannot be found")
    exists, out, _ = run_git(project, "rev-parse", "--verify", "-q", "--end-of-options", f"{revision}^{{commit}}")
    # git also takes `^main`, which means the commits that it excludes.
    if not exists or not revision or not _COMMIT.fullmatch(out):
        raise SettingsError(
            f"{project} has no git revision {revision!r}; name a commit, a branch or a tag, "
            "and fetch it first in a shallow clone"
        )
    commit = out.decode("ascii").strip()
    earlier = _changed_files(project, commit)
    new_folders = tuple(path for path in earlier if path.endswith("/"))
    changed = [path for path in snapshot.code_paths() if path in earlier or path.startswith(new_folders)]
    diff = diff_since(snapshot, {path: _old_content(earlier.get(path)) for path in changed}, commit)
    if not diff.lines:
        raise NothingToDoError(
            f"no function of {project} has changed since {revision}; there is nothing to inject into"
        )
    return diff


def diff_between(old: Snapshot, new: Snapshot) -> ProjectDiff:
    """Return what has changed from one snapshot of a project to another one; without lines if no code has."""
    changed = [path for path in new.code_paths() if old.files.get(path) != new.files[path]]
    before = {path: old.read(path) if path in old.files else None for path in changed}
    return diff_since(new, before, old.tree_hash)


def diff_since(snapshot: Snapshot, before: Mapping[str, bytes | None], name: str) -> ProjectDiff:
    """Return what has changed in some code files. before: the earlier content of each; None for a new file."""
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    edited: dict[str, frozenset[int]] = {}
    for path, old in before.items():
        new = snapshot.read(path)
        if spans := _changed_lines(path, new, old):
            lines[path] = spans
            edited[path] = frozenset(_edited_lines(new, old or b""))
    return ProjectDiff(name, lines, edited)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Where git has the earlier content of a file."""

    repository: Path
    commit: str
    path: str
    """Relative to the repository's folder."""


def _changed_files(folder: Path, commit: str) -> dict[str, _Earlier | None]:
    """Return the files below a folder that differ from a commit, with their earlier content.

    None stands for a new file, or, if the path ends in a slash, for a folder of new files.
    """
    options = (*_NAME_STATUS, "--name-status", "-z")
    succeeded, out, reason = run_git(folder, *_without_filters(folder), "diff", *options, commit, "--", ".")
    if not succeeded:
        raise ProjectError(f"git cannot compare {folder} with {commit[:12]}: {reason}")
    found: dict[str, _Earlier | None] = {}
    fields = iter(os.fsdecode(out).split("\0"))
    for status in fields:
        if status[:1] in _RENAMES:
            old = next(fields)
            found[next(fields)] = _Earlier(folder, commit, old)
        elif status:
            path = next(fields)
            found[path] = None if status == "A" else _Earlier(folder, commit, path)
    succeeded, out, reason = run_git(folder, "ls-files", "-z", "--others", "--exclude-standard")
    if not succeeded:
        raise ProjectError(f"git cannot list the new files of {folder}: {reason}")
    found |= {path: None for path in os.fsdecode(out).split("\0") if path}
    for path in _submodules(folder):
        found |= _changed_in_submodule(folder, commit, path)
    return found


def _without_filters(folder: Path) -> list[str]:
    """Return git options that keep it from running the programs that a repository names to convert its files."""
    _, out, _ = run_git(folder, "config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    names = {key.partition(".")[2].rpartition(".")[0] for key in os.fsdecode(out).split("\0") if key}
    if unsafe := next((name for name in sorted(names) if "=" in name), ""):
        raise ProjectError(f"{folder} has a git filter {unsafe!r}, which cannot be switched off")
    values = ("clean=", "process=", "required=false")
    return [part for name in sorted(names) for value in values for part in ("-c", f"filter.{name}.{value}")]


def _submodules(folder: Path) -> Iterator[str]:
    """Yield the paths of the submodules below a folder."""
    succeeded, out, reason = run_git(folder, "ls-files", "-z", "--stage")
    if not succeeded:
        raise ProjectError(f"git cannot list the submodules of {folder}: {reason}")
    for entry in os.fsdecode(out).split("\0"):
        mode, _, path = entry.partition("\t")
        if mode.startswith(_SUBMODULE):
            yield path


def _changed_in_submodule(folder: Path, commit: str, path: str) -> dict[str, _Earlier | None]:
    """Return the files of a submodule that differ from what it had in a commit; all, if its history lacks that."""
    _, out, _ = run_git(folder, "rev-parse", "--verify", "-q", f"{commit}:./{path}")
    earlier = out.decode("ascii").strip()
    inside = folder / path
    if not earlier or not run_git(inside, "cat-file", "-e", f"{earlier}^{{commit}}")[0]:
        return {f"{path}/": None}
    return {f"{path}/{name}": old for name, old in _changed_files(inside, earlier).items()}


def _old_content(earlier: _Earlier | None) -> bytes | None:
    if earlier is None:
        return None
    succeeded, out, _ = run_git(earlier.repository, "cat-file", "blob", f"{earlier.commit}:./{earlier.path}")
    return out if succeeded else None


def _changed_lines(path: str, new: bytes, old: bytes | None) -> tuple[tuple[int, int], ...]:
    """Return the spans of lines that changed; the whole file if no old version can be parsed."""
    before = parse(path, old) if old is not None else None
    after = parse(path, new)
    if before is None or after is None:
        return ((0, len(split_lines(new))),) if new else ()
    old_units = {(unit.scope, unit.text) for unit in _units(before, before.root, "")}
    spans = [unit.lines for unit in _units(after, after.root, "") if (unit.scope, unit.text) not in old_units]
    return tuple(sorted(spans))


def _edited_lines(new: bytes, old: bytes) -> Iterator[int]:
    # Of a file that git converts, only the working tree has CRLF.
    for edit in edits(*(split_lines(data.replace(b"\r\n", b"\n")) for data in (old, new))):
        yield from range(edit.new_from + 1, edit.new_to + 1)


@dataclass(frozen=True, slots=True)
class _Unit:
    """The unit of comparison: a function with everything nested in it, or a statement outside functions."""

    scope: str
    """The qualified name of the function, or of the class or module that contains the statement."""
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
        elif _contains_definitions(inner):
            yield from _units(source, inner, prefix)
        else:
            yield _unit(source, child, child, prefix)


def _unit(source: ParsedSource, first: Node, last: Node, scope: str, *, before: bool = False) -> _Unit:
    """Return the unit from one node to another; before: without the last one, as for a class without its body."""
    end = last.start_byte if before else last.end_byte
    text = source.data[first.start_byte : end].replace(b"\r\n", b"\n").rstrip()
    row = first.start_point.row
    return _Unit(scope or MODULE, text, (row, row + 1 + text.count(b"\n")))


def _contains_definitions(node: Node) -> bool:
    """Return whether a statement outside functions (an `if`, a `try`) contains functions or classes."""
    pending = list(node.named_children)
    while pending:
        current = pending.pop()
        if current.type in ("function_definition", "class_definition"):
            return True
        pending += current.named_children
    return False


class RestrictedInjector:
    """An injector whose candidates are restricted to what has changed."""

    def __init__(self, injector: Injector, diff: ProjectDiff) -> None:
        self.name = injector.name
        self._injector, self._diff = injector, diff

    def depends_on(self, tree: SourceTree) -> str:
        """Return what the injector depends on."""
        return self._injector.depends_on(tree) if isinstance(self._injector, DependentInjector) else ""

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the candidates that lie in the changes, until too many in a row do not."""
        rejected = 0
        for candidate in self._injector.candidates(tree, seed=seed):
            raise_if_stopped()
            if self._diff.covers(candidate, tree):
                rejected = 0
                yield candidate
            elif (rejected := rejected + 1) > _MAX_REJECTED:
                return


def restrict_to_diff(injector: Injector, diff: ProjectDiff) -> Injector:
    """Return an injector restricted to what has changed; a combination draws from restricted sources.

    Candidates that the user has given are not restricted.
    """
    if isinstance(injector, GivenInjector):
        return injector
    if isinstance(injector, CombinationInjector):
        return CombinationInjector([restrict_to_diff(source, diff) for source in injector.sources])
    return RestrictedInjector(injector, diff)
