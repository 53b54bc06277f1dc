"""Conversion of plain diffs, as SWE-smith and many models write them, into git diffs."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.datasets.diff_repair import as_git_diff
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, Patch, apply_patch

HUNK = b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


def test_a_plain_diff_becomes_a_git_diff() -> None:
    converted = as_git_diff(b"Index: x\n====\n--- a/d/x.py\t2026-01-01 00:00:00\n+++ b/d/x.py\n" + HUNK)
    assert converted == b"diff --git a/d/x.py b/d/x.py\n--- a/d/x.py\n+++ b/d/x.py\n" + HUNK
    two = as_git_diff(b"--- a/x\n+++ b/x\n" + HUNK + b"--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+--- z\n")
    assert Patch.parse(two).paths == ("x", "y")
    assert b"diff --git a/y b/y\nnew file mode 100644\n--- /dev/null\n" in two
    deletion = as_git_diff(b"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n")
    assert apply_patch(Patch.parse(deletion), {"x": FileEntry(b"a")}.get) == {"x": None}


def test_a_missing_final_newline_is_added() -> None:
    whole = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n" + HUNK
    assert as_git_diff(whole) == as_git_diff(whole[:-1]) == whole
    assert as_git_diff(b"--- a/x\n+++ b/x\n" + HUNK[:-1]) == whole
    assert as_git_diff(b"") == b""


@pytest.mark.parametrize(
    "text",
    [b"no diff\n", b"--- x\n+++ x\n" + HUNK, b"--- a/x\n+++ b/y\n" + HUNK, b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n?\n"],
)
def test_an_invalid_diff_is_unchanged_and_rejected(text: bytes) -> None:
    assert as_git_diff(text) == text
    with pytest.raises(ArtifactError):
        Patch.parse(text)


LINES = st.lists(st.sampled_from(["a", "b", "-- x", "++ y", "@@ -1 +1 @@", "", "diff"]), max_size=8)


@given(LINES, LINES)
def test_a_converted_diff_applies(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    text = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/x", "b/x"))
    if old == new or not old or not new:
        return
    patch = Patch.parse(as_git_diff(text.encode()))
    assert apply_patch(patch, {"x": FileEntry(old.encode())}.get) == {"x": FileEntry(new.encode())}


def test_git_applies_a_converted_diff(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\nb\n")
    converted = as_git_diff(b"--- a/x\n+++ b/x\n" + HUNK)
    subprocess.run(["git", "apply", "-"], input=converted, cwd=tmp_path, check=True)
    assert (tmp_path / "x").read_text() == "a\nc\n"
