"""The injector `mutation`: its candidates, their order, and what it never changes."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ssr.injectors.equivalence import fingerprint, parses
from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.source.syntax_tree import MODULE, Edit, parse, scopes, splice

ROOT = Path(__file__).parents[2]

SHAPES = '''"""Shapes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elsewhere import Thing

__all__ = ["Box", "area"]
__version__ = "1.0"
LIMIT = 10


class Box(object):
    """A box."""

    sides: int = 4

    def __init__(self, width: int, height: "int | None" = None) -> None:
        """Make one."""
        self.width = width  # kept as it is
        self.height = height if height is not None else width

    def area(self, scale: int = 1) -> int:
        total = 0
        for row in range(self.height):
            if row >= LIMIT and scale != 0:
                break
            total += self.width * scale
        return total


def area(boxes):
    try:
        return sum(list(b.area() for b in boxes))
    except (TypeError, ValueError):
        return -1


if __name__ == "__main__":
    print(area([Box(1, 2)]))
'''
QUEUE = "class Queue:\n    def get(self, at=0):\n        return self.items[at:].copy()\n"


class Files:
    """A tree in memory that counts how often each file is read."""

    origin = None

    def __init__(self, **files: str | bytes) -> None:
        self.files = {f"{n}.py": t.encode() if isinstance(t, str) else t for n, t in files.items()}
        self.reads: Counter[str] = Counter()

    def paths(self) -> Sequence[str]:
        return sorted(self.files)

    def code_paths(self) -> Sequence[str]:
        return self.paths()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return self.files[path]


def every(tree: Files, seed: int = 0) -> list[Candidate]:
    return list(MutationInjector().candidates(tree, seed=seed))


def text_of(candidate: Candidate) -> bytes:
    (data,) = candidate.changes.values()
    assert data is not None
    return data


def test_every_candidate_parses_differs_and_is_unique() -> None:
    tree = Files(shapes=SHAPES, queue=QUEUE)
    candidates = every(tree)
    assert len(candidates) > 60
    assert len({(c.path, fingerprint(text_of(c))) for c in candidates}) == len(candidates)
    for candidate in candidates:
        assert list(candidate.changes) == [candidate.path]
        assert parses(text_of(candidate)), candidate
        assert fingerprint(tree.files[candidate.path]) != fingerprint(text_of(candidate)), candidate


def test_a_candidate_describes_its_change_and_location() -> None:
    candidates = every(Files(queue=QUEUE))
    one = next(c for c in candidates if c.operator == "lost-copy")
    assert (one.strategy, one.path, one.line, one.scope) == ("mutation", "queue.py", 3, "Queue.get")
    assert one.detail == "self.items[at:].copy() -> self.items[at:]"
    assert text_of(one) == QUEUE.replace(".copy()", "").encode()


def test_docstrings_comments_annotations_guards_and_dunders_stay() -> None:
    protected = [
        line for line in SHAPES.splitlines() if '"""' in line or line.startswith(("__", "from", "    from", "if "))
    ]
    for candidate in every(Files(shapes=SHAPES)):
        new = text_of(candidate).decode()
        if candidate.operator in ("remove-method", "shuffle-methods"):
            continue
        assert all(line in new for line in protected), candidate
        assert "print(area([Box(1, 2)]))" in new, candidate
        assert new.count(": int") == SHAPES.count(": int"), candidate
        assert "# kept as it is" in new or candidate.operator in ("remove-assignment", "shuffle-statements"), candidate


def test_a_guard_inside_a_function_stays() -> None:
    guarded = "def f(a):\n    if TYPE_CHECKING:\n        b = 1\n    return a\n"
    assert all(b"    if TYPE_CHECKING:\n        b = 1\n" in text_of(c) for c in every(Files(m=guarded)))


def test_the_only_statement_of_a_block_becomes_pass() -> None:
    results = {text_of(c) for c in every(Files(m="def f(a):\n    if a:\n        g(a)\n"))}
    assert b"def f(a):\n    if a:\n        pass\n" in results
    assert b"def f(a):\n    pass\n" in results


def test_the_seed_determines_the_order() -> None:
    tree = Files(shapes=SHAPES, queue=QUEUE)
    first, again, other = every(tree, 3), every(tree, 3), every(tree, 4)
    assert first == again
    assert [text_of(c) for c in first[:20]] != [text_of(c) for c in other[:20]]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_hash_seed_does_not_matter(seed: int, tmp_path: Path) -> None:
    script = tmp_path / "listing.py"
    script.write_text(
        "import hashlib, sys\n"
        "from pytest_ssr.injectors.mutation import MutationInjector\n"
        "class Tree:\n"
        "    origin = None\n"
        "    def paths(self): return ['m.py', 'n.py']\n"
        "    code_paths = paths\n"
        "    def read(self, path): return sys.argv[1 if path == 'm.py' else 2].encode()\n"
        "for c in MutationInjector().candidates(Tree(), seed=int(sys.argv[3])):\n"
        "    print(c.operator, c.scope, c.line, c.detail, hashlib.sha256(c.changes[c.path]).hexdigest())\n"
    )
    listings = [
        subprocess.run(
            [sys.executable, str(script), SHAPES, QUEUE, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    ]
    assert len(listings[0].splitlines()) > 60
    assert listings[0] == listings[1] == listings[2]


def test_a_large_module_is_not_drawn_more_often_than_a_small_one() -> None:
    large = "".join(f"def f{i}(a):\n    b = a + {i}\n    return b * 2\n\n\n" for i in range(200))
    small = "def g(a, b):\n    if a < b and a != 0:\n        return [a, b][a:]\n    return a - b or a * 3 + 7\n"
    drawn = Counter(c.path for c in islice(MutationInjector().candidates(Files(large=large, small=small), seed=1), 30))
    assert drawn == {"large.py": 15, "small.py": 15}


def test_the_code_outside_functions_is_one_location_among_the_others() -> None:
    many = "".join(f"C{i} = {i}\n" for i in range(100))
    functions = "".join(f"def f{i}(a):\n    return a + {i} * (a - {i + 5})\n" for i in range(9))
    drawn = Counter(c.scope for c in islice(MutationInjector().candidates(Files(m=many + functions), seed=1), 50))
    assert drawn[MODULE] == 5
    assert len(drawn) == 10


def test_operators_are_balanced() -> None:
    numbers = "".join(f"def f{i}(a, b):\n    return (1, 2, 3, 4, 5, 6, a < b, not a)\n" for i in range(20))
    drawn = Counter(c.operator for c in islice(MutationInjector().candidates(Files(m=numbers), seed=1), 20))
    assert max(drawn.values()) - min(drawn.values()) <= 1
    assert {"change-constant", "boundary-comparison", "drop-not"} <= set(drawn)


def test_the_first_candidate_needs_one_file_and_no_file_is_read_twice() -> None:
    tree = Files(**{f"m{i}": SHAPES for i in range(20)})
    stream = MutationInjector().candidates(tree, seed=0)
    next(stream)
    assert sum(tree.reads.values()) == 1
    assert len(list(islice(stream, 100))) == 100
    assert set(tree.reads.values()) == {1}


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + QUEUE.encode(),
        QUEUE.replace("\n", "\r\n").encode(),
        QUEUE.replace("    ", "\t").encode(),
        b"# -*- coding: latin-1 -*-\nNAME = '\xe9'  # \xe8\n" + QUEUE.encode(),
        "é = 'ü'\n".encode() + QUEUE.encode(),
        QUEUE.rstrip("\n").encode(),
    ],
    ids=["bom", "crlf", "tabs", "latin-1", "utf-8", "no newline at the end"],
)
def test_encodings_newlines_and_tabs_survive(data: bytes) -> None:
    candidates = every(Files(m=data))
    assert len(candidates) >= 6
    for candidate in candidates:
        new = text_of(candidate)
        assert parses(new), candidate
        assert new.startswith(data[:3])
        assert (b"\r\n" in data) == (b"\r\n" in new)
        assert b"\n" not in new.replace(b"\r\n", b"") or b"\r\n" not in data, candidate


@pytest.mark.parametrize(
    "data",
    [
        b"x = (\n",
        b"x = '\xff'\n",
        b"# coding: nonesuch\nx = 1\n",
        b"# coding: shift_jis\nx = '\x83\x5c'\n",
        b"x = 1\ry = 2\n",
        b"",
    ],
    ids=["syntax error", "not utf-8", "unknown encoding", "two bytes a character", "lone carriage return", "empty"],
)
def test_a_file_that_cannot_be_edited_safely_is_skipped(data: bytes) -> None:
    assert every(Files(m=data)) == []
    assert {c.path for c in every(Files(m=data, queue=QUEUE))} == {"queue.py"}


def test_scopes_have_qualified_names_and_leave_guards_out() -> None:
    source = parse("shapes.py", SHAPES.encode())
    assert source is not None
    assert [(s.qualname, s.kind) for s in scopes(source)] == [
        ("Box", "class"),
        ("Box.__init__", "function"),
        ("Box.area", "function"),
        ("area", "function"),
        (MODULE, "module"),
    ]


def test_edits_that_overlap_are_refused() -> None:
    assert splice(b"abcd", [Edit(3, 4, b"Y"), Edit(0, 1, b"XX")]) == b"XXbcY"
    with pytest.raises(ValueError, match="edits overlap at byte 1"):
        splice(b"abcd", [Edit(0, 2, b""), Edit(1, 3, b"")])


EXPRESSIONS = st.recursive(
    st.sampled_from(
        ["a", "b", "1", "0", "'s'", "None", "True", "a.c", "a[0]", "b[1:]", "f(a, b)", "list(a)", "f(k=1)"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "and", "or", "<", ">=", "==", "is", "in"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda e: f"(not {e})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=4), st.integers(0, 3))
def test_each_candidate_of_random_expressions_is_a_different_program(expressions: list[str], seed: int) -> None:
    text = "def f(a, b):\n" + "".join(f"    x{i} = {e}\n" for i, e in enumerate(expressions)) + "    return x0\n"
    candidates = every(Files(m=text), seed)
    trees = [ast.dump(ast.parse(text_of(c))) for c in candidates]
    assert ast.dump(ast.parse(text)) not in trees
    assert len(set(trees)) == len(trees)
