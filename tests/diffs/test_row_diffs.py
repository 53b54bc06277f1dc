"""Diffs of rows, plain ones as SWE-smith's too, are read without their tree."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.diffs import read_row_diff
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, apply_patch

HUNK = b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
GIT = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n" + HUNK


def test_a_plain_diff_becomes_a_git_diff() -> None:
    patch = read_row_diff(b"Index: x\n====\n--- a/d/x.py\t2026-01-01 00:00:00\n+++ b/d/x.py\n" + HUNK)
    assert patch.data == b"diff --git a/d/x.py b/d/x.py\n--- a/d/x.py\n+++ b/d/x.py\n" + HUNK
    two = read_row_diff(b"--- a/x\n+++ b/x\n" + HUNK + b"--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+--- z\n")
    assert two.paths == ("x", "y")
    assert b"diff --git a/y b/y\nnew file mode 100644\n--- /dev/null\n" in two.data
    deletion = read_row_diff(b"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n")
    assert apply_patch(deletion, {"x": FileEntry(b"a")}.get) == {"x": None}


@pytest.mark.parametrize(
    "text",
    [
        GIT[:-1],
        GIT + b"\n",
        GIT + b"\n\n \n",
        b"```diff\n" + GIT + b"```\n",
        b"prose\n\n" + GIT + b"-- \n2.39.2\n",
        GIT
        + b"diff --git a/x.pyc b/x.pyc\nnew file mode 100644\nindex 0..1\nBinary files /dev/null and b/x.pyc differ\n",
        b"diff --git a/x.png b/x.png\nindex 1..2 100644\nBinary files a/x.png and b/x.png differ\n" + GIT,
    ],
)
def test_what_surrounds_the_files_of_a_git_diff_is_dropped(text: bytes) -> None:
    assert read_row_diff(text).data == GIT


def test_files_between_which_there_is_text() -> None:
    binary = b"diff --git a/b b/b\nnew file mode 100644\n"
    binary += b"index %s..%s\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n" % (
        b"0" * 40,
        b"f76dd238ade08917e6712764a16a22005a50573d",
    )
    rename = b"diff --git a/r b/s\nsimilarity index 100%\nrename from r\nrename to s\n"
    patch = read_row_diff(GIT + b"\n" + binary + b"text\n" + rename + b"\n")
    assert patch.paths == ("b", "r", "s", "x")


@pytest.mark.parametrize(
    "text",
    [b"no diff\n", b"--- x\n+++ x\n" + HUNK, b"--- a/x\n+++ b/y\n" + HUNK, b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n?\n"],
)
def test_an_invalid_diff_is_rejected(text: bytes) -> None:
    with pytest.raises(ArtifactError):
        read_row_diff(text)


LINES = st.lists(st.sampled_from(["a", "b", "-- x", "++ y", "@@ -1 +1 @@", "", "diff"]), max_size=8)


@given(LINES, LINES)
def test_a_converted_diff_applies(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    text = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/x", "b/x"))
    if old == new or not old or not new:
        return
    assert apply_patch(read_row_diff(text.encode()), {"x": FileEntry(old.encode())}.get) == {
        "x": FileEntry(new.encode())
    }


def test_git_applies_a_converted_diff(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\nb\n")
    converted = read_row_diff(b"--- a/x\n+++ b/x\n" + HUNK).data
    subprocess.run(["git", "apply", "-"], input=converted, cwd=tmp_path, check=True)
    assert (tmp_path / "x").read_text() == "a\nc\n"
