"""Repairs are acted out with the editor: its edits turn one version of a file into another, and are unambiguous."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.solvers.search.demonstration import replacements
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState

NAME = "a.py"
TEXTS = st.lists(st.sampled_from(["x\n", "y\n", "z\r\n", "\u2028\n", "", "pass"]), max_size=12).map("".join)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> CodebaseState:
    folder = tmp_path_factory.mktemp("empty")
    (folder / "other.py").write_text("")
    return CodebaseState(take_snapshot(folder, folder / "trees"))


def edited(empty: CodebaseState, old: bytes, new: bytes) -> bytes | None:
    """Return the old text after all edits; None if there are none."""
    states = [empty.replace({NAME: FileEntry(data, 0o100644)}) for data in (old, new)]
    edits = replacements(NAME, *states)
    text = old.decode("utf-8", "replace")
    for edit in edits:
        assert text.count(edit.old) == 1
        text = text.replace(edit.old, edit.new)
    return text.encode() if edits else None


@given(old=TEXTS, new=TEXTS)
@example(old="x\nx\nx\n", new="x\ny\n")
def test_edits_turn_one_version_into_the_other(empty: CodebaseState, old: str, new: str) -> None:
    result = edited(empty, old.encode(), new.encode())
    if result is None:
        # Nothing differs, or the whole file is empty or occurs in no unique context.
        assert old == new or not old
    else:
        assert result == new.encode()


def test_a_line_that_occurs_often_gets_context(empty: CodebaseState) -> None:
    old = b"if a:\n    return 1\nif b:\n    return 1\n"
    assert edited(empty, old, old.replace(b"b:\n    return 1", b"b:\n    return 2")) is not None


def test_other_encodings_have_no_edits(empty: CodebaseState, tmp_path: Path) -> None:
    assert edited(empty, b"a = '\xff'\n", b"a = '\xfe'\n") is None
