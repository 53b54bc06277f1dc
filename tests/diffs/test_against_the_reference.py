"""Every form of diff gives the tree that swebench's commands give, and is refused if they refuse it."""

from __future__ import annotations

from pathlib import Path

import pytest
from diff_forms import BARE, FURTHER, LISTED, TREE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_apply import Tree, reference_4, reference_5

from harness.diffs import DiffError, apply_diff
from pytest_ssr.patch import FileEntry, apply_patch

FORMS = {**LISTED, **FURTHER}
TOLERATED = {
    "with a new binary file without content": "x.pyc",
    "a symlink and a change": "alias.py",
}
"""Forms of which a file is left out, unlike in the reference: GNU patch makes an empty file of the first."""
STRICTER = {"a script of ed that writes elsewhere"}
"""Forms that the reference applies if ed is installed."""
ONLY_BEFORE_5 = {
    "a change of a binary file without content",
    "a change that is made already",
    "a change, and a binary file without content",
    "a deletion by its time",
    "a new file with the content that exists",
    "of -U0, two hunks",
    "one file of two needs fuzz",
    "one hunk of two does not fit",
    "one of two changes is made already",
    "overlapping hunks",
    "the same change twice",
    "with a new binary file without content",
}
"""Forms with another result in swebench 4.1.0, where a command works on what the one before has left."""


def ours(text: bytes, tree: Tree) -> Tree | None:
    """Return the tree after a diff, or None if it is refused."""
    try:
        patch = apply_diff(text, tree.get).patch
    except DiffError:
        return None
    after = {**tree, **apply_patch(patch, tree.get)}
    return {path: entry for path, entry in after.items() if entry is not None}


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def without_leftovers(tree: Tree | None, text: bytes) -> Tree | None:
    """Return a tree without the files in which GNU patch keeps earlier versions and what it rejected."""
    if tree is None:
        return None
    return {p: e for p, e in tree.items() if not p.endswith((".orig", ".rej")) or p.encode() in text}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_the_result_of_the_reference(form: str, tmp_path: Path) -> None:
    text = encoded(FORMS[form])
    expected = without_leftovers(reference_5(text, TREE, tmp_path / "5"), text)
    result = without_leftovers(ours(text, TREE), text)
    if form in TOLERATED:
        assert expected is not None
        expected = {path: entry for path, entry in expected.items() if path != TOLERATED[form]}
    assert result == (None if form in STRICTER else expected)
    earlier = without_leftovers(reference_4(text, TREE, tmp_path / "4"), text)
    if form not in TOLERATED:
        assert (earlier != without_leftovers(reference_5(text, TREE, tmp_path / "again"), text)) == (
            form in ONLY_BEFORE_5
        )


def test_the_corpus_is_as_large_as_it_has_to_be() -> None:
    assert len(LISTED) == 37
    assert len(FURTHER) >= 40
    assert set(FORMS) >= {*TOLERATED, *STRICTER, *ONLY_BEFORE_5}


def test_git_s_filters_and_line_endings_are_those_of_the_tree(tmp_path: Path) -> None:
    tree = {**TREE, ".gitattributes": FileEntry(b"*.txt text eol=crlf\n")}
    text = encoded(BARE.replace("shop.py", "crlf.txt"))
    expected = reference_5(text, tree, tmp_path)
    assert expected is not None
    assert expected["crlf.txt"].data.count(b"\r\n") == 20
    assert ours(text, tree) == expected


WORDS = st.lists(st.sampled_from(["a", "b", "c", "", "  d"]), min_size=1, max_size=16)


@st.composite
def damaged_diffs(draw: st.DrawFn) -> tuple[str, str]:
    """Return a file of few different lines, and a diff of it with wrong numbers, counts or lines."""
    lines = draw(WORDS)
    start = draw(st.integers(0, len(lines) - 1))
    count = draw(st.integers(0, min(5, len(lines) - start)))
    old = lines[start : start + count]
    body = [f" {line}" for line in old]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(body)))
        body.insert(place, f"+{draw(st.sampled_from(['new', 'a', '']))}")
    if old and draw(st.booleans()):
        place = draw(st.integers(0, len(body) - 1))
        if body[place].startswith(" "):
            body[place] = "-" + body[place][1:]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(body) - 1))
        body[place] = body[place][:1] + draw(st.sampled_from(["z", "b", " "]))
    shift, drift = draw(st.integers(-4, 4)), draw(st.integers(-3, 3))
    sides = [sum(line[0] in sign for line in body) + draw(st.sampled_from([0, 0, 0, 1, -1])) for sign in (" -", " +")]
    numbers = [max(0, start + 1 + shift), max(0, start + 1 + shift + drift)]
    header = f"@@ -{numbers[0]},{max(0, sides[0])} +{numbers[1]},{max(0, sides[1])} @@"
    head = draw(st.sampled_from(["", "diff --git a/f.py b/f.py\n"]))
    end = draw(st.sampled_from(["\n", "\n\n", "", "\n```\n"]))
    diff = head + "--- a/f.py\n+++ b/f.py\n" + "\n".join([header, *body]) + end
    return "".join(f"{line}\n" for line in lines), diff


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged_diffs())
def test_no_hunk_is_applied_elsewhere(tmp_path_factory: pytest.TempPathFactory, case: tuple[str, str]) -> None:
    content, diff = case
    tree = {"f.py": FileEntry(content.encode())}
    expected = reference_5(diff.encode(), tree, tmp_path_factory.mktemp("reference"))
    assert ours(diff.encode(), tree) == without_leftovers(expected, b"")
