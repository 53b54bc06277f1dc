"""Make training data for the search policy: bugs, and the candidate repairs of the function that each of them is in.

Static bugs need source code alone: an operator changes a function, and no test is run. Proven bugs come from the
artifacts of a store. A candidate that gives the original code, apart from comments and blank space, is right.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.solvers.search.arrays import load_arrays
from harness.solvers.search.features import NAMES, ScopeFeatures
from harness.solvers.search.generator.filling import WRITTEN
from harness.solvers.search.generator.generator import Generator
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import completed
from harness.solvers.search.project_files import ProjectFiles
from harness.solvers.search.token_model import TokenModel
from harness.solvers.writer.prompt import Failure
from harness.storage.atomic_write import write_bytes
from harness.training.search.reversal import Reversal, changed_lines
from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.equivalence import parses, scope_text
from pytest_ssr.injectors.protocol import Injector, SourceTree
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes

_MOST_WRONG = 250
"""Most wrong candidates of one bug that are kept, drawn evenly."""
LONGEST_BYTES = 8_000
"""Longest function whose repairs are listed: their number grows with the square of its length."""

Rows = npt.NDArray[np.float32]
Shares = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Example:
    """The candidate repairs of one bug."""

    project: str
    """The name of the project, by which data is split."""
    operator: str
    """The operator that made the bug."""
    changed_lines: int
    """The number of lines in which the buggy function and the original differ, the larger of both sides."""
    rows: Rows
    """The features of each candidate, shape (candidates, features); see `features.NAMES`."""
    shares: Shares
    """The weight of each candidate by its pattern, as a share of all of the function."""
    right: Flags
    """Whether each candidate gives the original code."""
    candidates: int
    """The number of all candidates of the function, of which some wrong ones are left out."""

    @property
    def is_covered(self) -> bool:
        """Whether a right candidate exists."""
        return bool(self.right.any())


@dataclass(frozen=True, slots=True)
class Bug:
    """A file with a bug in one function, and the file before it."""

    operator: str
    path: str
    qualname: str
    """The function, as `Scope.qualname`."""
    original: bytes
    buggy: bytes
    repairs: tuple[bytes, ...] | None = None
    """The file after each repair that is right; None if only the original is."""
    project: Callable[[], ProjectFiles] | None = field(default=None, compare=False, repr=False)
    """Returns the files of the project, of which code is taken."""
    failure: Failure | None = field(default=None, compare=False)
    """What is known of a test that fails with the bug."""


def static_bugs(
    tree: SourceTree, injectors: Sequence[Injector], *, seed: int, project: Callable[[], ProjectFiles] | None = None
) -> Iterator[Bug]:
    """Yield the bugs that operators make in the functions of a project. project: see `Bug`."""
    try:
        for candidate in interleave([i.candidates(tree, seed=seed) for i in injectors]):
            data = candidate.changes.get(candidate.path)
            if len(candidate.changes) == 1 and data is not None:
                original = tree.read(candidate.path)
                yield Bug(candidate.operator, candidate.path, candidate.scope, original, data, project=project)
    except ProjectError:
        return


def examples_of(
    bugs: Iterator[Bug],
    project: str,
    tokens: TokenModel,
    *,
    count: int,
    seed: int,
    generator: Generator | None = None,
) -> Iterator[Example]:
    """Yield the examples of at most `count` bugs, also those without a right candidate.

    generator: adds its repairs to those of the patterns.
    """
    rng = random.Random(f"{project}:{seed}")
    made = 0
    for bug in bugs:
        if made >= count:
            return
        listed = list_repairs(bug, generator)
        if listed is not None:
            made += 1
            yield example_of(listed, project, tokens, rng, graded=bug.repairs is not None)


@dataclass(frozen=True, slots=True)
class ListedBug:
    """The candidate repairs of a bug."""

    bug: Bug
    source: ParsedSource
    """The buggy file."""
    scope: Scope
    original: bytes
    """The text of the function without the bug."""
    repairs: Sequence[Repair]


def list_repairs(bug: Bug, generator: Generator | None) -> ListedBug | None:
    """Return the candidate repairs of a bug; None without any, or if it is not in one function of a readable file."""
    source, original = (parse(bug.path, data) for data in (bug.buggy, bug.original))
    if source is None or original is None or not parses(bug.buggy):
        return None
    scope, before = only_function(source, bug.qualname), only_function(original, bug.qualname)
    if scope is None or before is None or scope.end - scope.start > LONGEST_BYTES:
        return None
    repairs = repairs_of(source, scope, scopes(source))
    repairs = completed(source, scope, repairs, generator, bug.project() if bug.project is not None else None)
    return ListedBug(bug, source, scope, scope_text(original, before), repairs) if repairs else None


def example_of(listed: ListedBug, project: str, tokens: TokenModel, rng: random.Random, *, graded: bool) -> Example:
    """Return the example of a bug. graded: whether its graded repairs are right, and not the original."""
    source, scope, repairs = listed.source, listed.scope, listed.repairs
    targets = list(_repaired(listed.bug)) if graded else [listed.original]
    reversals = [Reversal(source, scope, target) for target in targets]
    right = [any(is_right(reversal, repair) for reversal in reversals) for repair in repairs]
    wrong = [i for i, is_right in enumerate(right) if not is_right]
    rng.shuffle(wrong)
    kept = sorted([*(i for i, is_right in enumerate(right) if is_right), *wrong[:_MOST_WRONG]]) if any(right) else []
    total = sum(r.weight for r in repairs)
    rows = ScopeFeatures(source, scope, tokens).rows([repairs[i] for i in kept])
    return Example(
        project,
        listed.bug.operator,
        changed_lines(listed.original, scope_text(source, scope)),
        np.array(rows, dtype=np.float32).reshape(-1, len(NAMES)),
        np.array([repairs[i].weight / total for i in kept]),
        np.array([right[i] for i in kept], dtype=bool),
        len(repairs),
    )


def is_right(reversal: Reversal, repair: Repair) -> bool:
    """Return whether a repair gives the original code; for a written one, line breaks do not count."""
    return reversal.matches(repair) or (repair.pattern in WRITTEN and reversal.matches_apart_from_breaks(repair))


def _repaired(bug: Bug) -> Iterator[bytes]:
    """Yield the text of the function after each repair."""
    for data in dict.fromkeys(bug.repairs or ()):
        source = parse(bug.path, data)
        scope = only_function(source, bug.qualname) if source is not None else None
        if source is not None and scope is not None:
            yield scope_text(source, scope)


def only_function(source: ParsedSource, qualname: str) -> Scope | None:
    """Return the only function of a name; None if no function or several have it."""
    same = [s for s in scopes(source) if s.qualname == qualname and s.kind == "function"]
    return same[0] if len(same) == 1 else None


def save_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write examples to a file, which is complete or not there."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        project=np.array([e.project for e in examples], dtype=str),
        operator=np.array([e.operator for e in examples], dtype=str),
        changed_lines=np.array([e.changed_lines for e in examples], dtype=np.int32),
        candidates=np.array([e.candidates for e in examples], dtype=np.int32),
        sizes=np.array([len(e.right) for e in examples], dtype=np.int32),
        rows=np.concatenate([np.zeros((0, len(NAMES)), np.float32), *(e.rows for e in examples)]),
        shares=np.concatenate([np.zeros(0), *(e.shares for e in examples)]),
        right=np.concatenate([np.zeros(0, bool), *(e.right for e in examples)]),
    )
    write_bytes(path, buffer.getvalue())


_COLUMNS = {
    "project": ("U", 1),
    "operator": ("U", 1),
    **dict.fromkeys(("changed_lines", "candidates", "sizes"), ("i", 1)),
}
_LISTS = {"rows": ("f", 2), "shares": ("f", 1), "right": ("b", 1)}


def load_examples(path: Path) -> list[Example]:
    """Return the examples in a file; raises ValueError or OSError if it cannot be read."""
    arrays = load_arrays(path, {**_COLUMNS, **_LISTS}, most_bytes=sys.maxsize)
    sizes = arrays["sizes"]
    lengths = {len(arrays[name]) for name in _LISTS}
    if len({len(arrays[name]) for name in _COLUMNS}) != 1 or lengths != {sizes.sum()} or (sizes < 0).any():
        raise ValueError(f"{path} is damaged: its columns have different lengths")
    if arrays["rows"].shape[1] != len(NAMES):
        raise ValueError(f"{path} holds {arrays['rows'].shape[1]} features, not {len(NAMES)}")
    if (arrays["candidates"] < sizes).any() or not all(np.isfinite(arrays[name]).all() for name in ("rows", "shares")):
        raise ValueError(f"{path} is damaged: a number is out of range")
    ends = np.cumsum(sizes).astype(int)
    columns = (arrays[name].tolist() for name in _COLUMNS)
    return [
        Example(
            project,
            operator,
            changed_lines=lines,
            candidates=candidates,
            rows=arrays["rows"][end - size : end],
            shares=arrays["shares"][end - size : end],
            right=arrays["right"][end - size : end],
        )
        for project, operator, lines, candidates, size, end in zip(*columns, ends.tolist(), strict=True)
    ]
