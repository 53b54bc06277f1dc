"""Combination: separate parts, the three modes, and merges that refuse conflicts."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.combination import CombinationInjector, combine, mode_of
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.three_way_merge import line_edits, merge
from pytest_ssr.source.syntax_tree import splice


class Files:
    """A source tree of files in memory."""

    origin = None

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def paths(self) -> list[str]:
        return sorted(self.files)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    code_paths = paths


class Refusing:
    """An injector that always raises ProjectError."""

    name = "refusing"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        raise ProjectError("nothing here; do something else")
        yield


FUNCTION = b"def f%d(x, y=%d):\n    z = x + y\n    if z > 3:\n        return z\n    return [x, y]\n\n\n"
MODULE = b"".join(FUNCTION % (n, n) for n in range(6))
TREE = Files({f"{folder}/{name}.py": MODULE for folder in ("p", "q") for name in "abc"})


def part(path: str, scope: str, old: bytes, new: bytes, tree: Files = TREE) -> Candidate:
    data = tree.read(path)
    assert data.count(old) == 1
    return Candidate(
        "mutation", "op", {path: data.replace(old, new)}, path, data.count(b"\n", 0, data.index(old)) + 1, scope
    )


F1 = part("p/a.py", "f1", b"y=1", b"y=9")
F2 = part("p/a.py", "f2", b"y=2", b"y=8")
G1 = part("p/b.py", "f1", b"y=1", b"y=7")
H1 = part("q/a.py", "f1", b"y=1", b"y=6")


@pytest.mark.parametrize(
    ("parts", "mode"),
    [
        ([F1, F2], "same-file"),
        ([F1, G1], "same-module"),
        ([F1, F2, G1], "same-module"),
        ([F1, H1], "across-files"),
        ([H1, G1, F2, F1], "across-files"),
    ],
)
def test_all_parts_are_in_the_combination(parts: list[Candidate], mode: str) -> None:
    both = combine(TREE, parts)
    assert both is not None
    assert both == combine(TREE, parts[::-1])
    assert (both.strategy, both.operator) == ("combination", f"combine-{mode}")
    for one in parts:
        assert f"op in {one.path}:{one.line} {one.scope}" in both.detail
        changed = set(line_edits(TREE.read(one.path), one.changes[one.path] or b""))
        assert changed <= set(line_edits(TREE.read(one.path), both.changes[one.path] or b""))
    assert set(both.changes) == {p for one in parts for p in one.changes}
    assert (both.path, both.line, both.scope) == min((c.path, c.line, c.scope) for c in parts)


def test_parts_that_cannot_be_distinguished_are_refused() -> None:
    assert combine(TREE, []) is None
    assert combine(TREE, [F1]) is None
    assert combine(TREE, [F1, F1]) is None
    assert combine(TREE, [F1, replace(F2, scope="f1")]) is None
    assert combine(TREE, [F1, replace(F1, scope="f2")]) is None
    assert combine(TREE, [F1, replace(F2, changes={"p/a.py": MODULE})]) is None
    assert combine(TREE, [F1, replace(G1, changes={"p/b.py": MODULE})]) is None


def test_neighbouring_lines_are_a_conflict() -> None:
    assert combine(TREE, [F1, part("p/a.py", "f9", b"y=1):\n    z = x + y", b"y=1):\n    z = x - y")]) is None


def test_new_and_deleted_files_may_come_from_one_part_only() -> None:
    new = replace(G1, changes={"p/new.py": b"A = 1\n"})
    deleted = replace(H1, changes={"q/a.py": None})
    both = combine(TREE, [F1, new, deleted])
    assert both is not None
    assert both.changes == {**F1.changes, "p/new.py": b"A = 1\n", "q/a.py": None}
    assert combine(TREE, [deleted, replace(H1, scope="f3")]) is None
    assert combine(TREE, [new, replace(new, scope="f4", changes={"p/new.py": b"A = 2\n"})]) is None


def test_the_three_modes_come_in_turn_with_two_to_four_parts() -> None:
    candidates = list(islice(CombinationInjector().candidates(TREE, seed=0), 60))
    modes = Counter(c.operator for c in candidates)
    assert set(modes) == {"combine-same-file", "combine-same-module", "combine-across-files"}
    assert min(modes.values()) >= 15
    sizes = Counter(c.detail.count(";") + 1 for c in candidates)
    assert set(sizes) <= {2, 3, 4}
    assert sizes[2] > sizes[3] + sizes[4]
    assert len({str(sorted(c.changes.items(), key=lambda kv: kv[0])) for c in candidates}) == len(candidates)
    for candidate in candidates:
        assert candidate.operator == f"combine-{mode_of(candidate.changes)}"
        for path, data in candidate.changes.items():
            assert data is not None
            assert parses(data)
            assert data != TREE.read(path)


def test_a_tree_with_one_function_has_no_combinations() -> None:
    assert list(CombinationInjector().candidates(Files({"m.py": FUNCTION % (1, 1), "e.py": b""}), seed=0)) == []
    assert list(CombinationInjector().candidates(Files({}), seed=0)) == []


def test_sources_that_refuse_are_left_out_unless_all_do() -> None:
    with pytest.raises(ProjectError, match="nothing here; do something else"):
        list(CombinationInjector([Refusing()]).candidates(TREE, seed=0))
    default = CombinationInjector().sources
    assert next(CombinationInjector([Refusing(), *default]).candidates(TREE, seed=0)).strategy == "combination"


def test_the_order_depends_on_the_seed_and_not_on_the_hash_seed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_combination import *; "
        "print(list(islice(CombinationInjector().candidates(TREE, seed=0), 25)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    one, two = (list(islice(CombinationInjector().candidates(TREE, seed=s), 25)) for s in (1, 2))
    assert one != two


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d\r\n"]), max_size=20)


@given(LINES, LINES, st.sampled_from([b"", b"end"]))
def test_line_edits_turn_one_text_into_the_other(old: list[bytes], new: list[bytes], end: bytes) -> None:
    before, after = b"".join(old) + end, b"".join(new)
    assert splice(before, line_edits(before, after)) == after


@given(LINES, st.data())
def test_a_merge_makes_both_changes_or_none(lines: list[bytes], data: st.DataObject) -> None:
    numbered = [b"%d " % n + line for n, line in enumerate([b"top\n", *lines, b"end\n"])]
    positions = st.integers(0, len(numbered) - 1)
    one, two = data.draw(positions), data.draw(positions)
    versions = [b"".join([*numbered[:n], b"new %d\n" % n, *numbered[n + 1 :]]) for n in (one, two)]
    both = merge(b"".join(numbered), versions)
    if abs(one - two) < 2:
        assert both is None
    else:
        expected = [b"new %d\n" % n if n in (one, two) else line for n, line in enumerate(numbered)]
        assert both == b"".join(expected)


def test_very_long_stretches_are_one_edit() -> None:
    old = b"".join(b"%d\n" % n for n in range(4000))
    new = b"x\n" + old.replace(b"\n", b"!\n") + b"y\n"
    assert len(line_edits(old, new)) == 1
