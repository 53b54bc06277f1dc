"""Parsing of diffs, and the errors for damaged ones."""

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import ChangeKind, Hunk, Patch, PatchStats

HEAD = b"diff --git a/x b/x\n"
NAMES = HEAD + b"--- a/x\n+++ b/x\n"
HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
CHANGE = NAMES + HUNK


def test_a_hunk_is_read_with_its_section_and_counts() -> None:
    patch = Patch.parse(NAMES + b"@@ -3,2 +3,3 @@ def f():\n a\n-b\n+c\r\n+d\n\\ No newline at end of file\n")
    lines = (b" a\n", b"-b\n", b"+c\r\n", b"+d\n", b"\\ No newline at end of file\n")
    assert patch.files[0].hunks == (Hunk(3, 2, 3, 3, b" def f():", lines),)
    assert patch.files[0].hunks[0].side(b"+") == [b"a\n", b"c\r\n", b"d"]
    assert patch.stats == PatchStats(files=1, hunks=1, added=2, removed=1)


def test_a_commit_message_before_the_diff_is_dropped() -> None:
    message = b"From 1234\nSubject: a diff of two things\n\ndiff of things\n---\n x | 2 +-\n\n"
    assert Patch.parse(message + CHANGE).data == CHANGE


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_an_empty_diff_is_an_empty_patch(data: bytes) -> None:
    assert Patch.parse(data) == Patch()


@pytest.mark.parametrize(
    "hunk", [b"@@ -1,1 +1,1 @@\n-a\n+b\n", b"@@ -1,2 +1,2 @@\n\n-a\n+b\n", b"@@ -01 +1 @@ \n-a\n+b\n"]
)
def test_unusual_spellings_are_preserved(hunk: bytes) -> None:
    assert Patch.parse(NAMES + hunk).data == NAMES + hunk


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (b'"X/sp\\303\\244m"', "späm"),
        (b"X/a b/c d", "a b/c d"),
        (b'"X/a b/\\"q\\\\\\t"', 'a b/"q\\\t'),
        (b"X/ b/ b/b", " b/ b/b"),
        (b'"X/\\377"', "\udcff"),
        (b"X/sp\xc3\xa4m", "späm"),
    ],
)
def test_names_are_read_as_git_writes_them(written: bytes, path: str) -> None:
    old, new = written.replace(b"X/", b"a/", 1), written.replace(b"X/", b"b/", 1)
    patch = Patch.parse(b"diff --git " + old + b" " + new + b"\nold mode 100644\nnew mode 100755\n")
    assert patch.paths == (path,)
    assert patch.files[0].kind is ChangeKind.MODE
    assert Patch.parse(patch.reverse().data).paths == (path,)


def test_a_rename_has_both_names_and_is_selected_by_either() -> None:
    data = b"diff --git a/p b/q b/r\nsimilarity index 100%\nrename from p\nrename to q b/r\n"
    patch = Patch.parse(data + CHANGE)
    assert (patch.files[0].kind, patch.files[0].old_path, patch.files[0].new_path) == ("renamed", "p", "q b/r")
    assert patch.paths == ("p", "q b/r", "x")
    assert patch.select(["p"]).data == patch.select(["q b/r"]).data == data
    assert patch.reverse().files[0].path == "p"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"--- a/x\n+++ b/x\n" + HUNK, "line 1: a change without `diff --git` before it"),
        (b"--- a/z\n+++ b/z\n" + HUNK + CHANGE, "line 1: a change without `diff --git` before it"),
        (b"hello\n", "line 1: no `diff --git` line; make the diff with git diff"),
        (CHANGE + b"garbage\n" + CHANGE, "line 7: expected `diff --git`, found 'garbage'; remove"),
        (CHANGE + b"\n" + CHANGE.replace(b"/x", b"/y"), "line 7: expected `diff --git`, found ''"),
        (CHANGE + b"-- \n2.39.5\n", "line 7: the hunk is longer than its header states"),
        (CHANGE + CHANGE, "line 7: x is changed twice; make one diff of both changes"),
        (CHANGE[:-1], "line 6: the last line has no newline, the diff is cut off"),
        (CHANGE.replace(b"\n", b"\r\n"), "line 1: the diff's own lines end in CRLF"),
        (NAMES + b"@@ -1,2 +1 @@\n-a\n+b\n", "line 7: the hunk is shorter than its header states"),
        (NAMES + b"@@ -1 +1 @@\n-a\n-b\n+c\n", "line 4: the hunk's lines do not match the counts in its header"),
        (NAMES + b"@@ -0 +1 @@\n-a\n+b\n", "line 4: the hunk begins at line 0"),
        (NAMES + b"@@ -1 +1 @@\n a\n", "line 4: the hunk changes nothing"),
        (NAMES + b"@@ -" + b"1" * 5000 + b" +1 @@\n-a\n+b\n", "line 4: the hunk's header is damaged"),
        (NAMES + b"@@ -1,2 +1,2 @@\n-a\n\\ No\n b\n+c\n", "line 4: `No newline at end of file` before the last"),
        (NAMES + b"@@ -1 +1 @@\n\\ No\n-a\n+b\n", "line 5: `No newline at end of file` must follow a line"),
        (NAMES, "line 1: `---`, `\\+\\+\\+` and hunks go together"),
        (HEAD + HUNK, "line 1: `---`, `\\+\\+\\+` and hunks go together"),
        (HEAD, "line 1: the diff has no change for x; it is cut off"),
        (HEAD + b"--- a/y\n+++ b/y\n" + HUNK, "line 1: `---` and `\\+\\+\\+` do not name x"),
        (HEAD + b"--- x\n+++ x\n" + HUNK, "line 2: 'x' does not begin with a/"),
        (HEAD + b"new file mode 100644\n--- a/x\n+++ b/x\n" + HUNK, "do not name x as the header does"),
        (HEAD + b"new file mode 100644\n--- /dev/null\n+++ b/x\n" + HUNK, "x is added, but a hunk contradicts that"),
        (HEAD + b"new file mode 100644\ndeleted file mode 100644\n", "x cannot be added, deleted, renamed at once"),
        (HEAD + b"old mode 100644\n", "line 1: `old mode` and `new mode` of x go together"),
        (HEAD + b"old mode 100999\nnew mode 100644\n", "line 2: only regular files, executable files and symlinks"),
        (HEAD + b"old mode 100644\nnew mode 120000\n", "x changes between a file and a symlink"),
        (HEAD + b"index a..b 160000\n--- a/x\n+++ b/x\n" + HUNK, "line 2: only regular files"),
        (HEAD + b"new mode 100644\nnew mode 100755\n", "line 3: `new mode` is given twice"),
        (b"diff --git a/x b/y\nrename from x\n", "line 1: `rename from` and `rename to` go together"),
        (b"diff --git a/x b/y\nrename from p\nrename to q\n", "line 1: p and q are not the names in the header"),
        (b"diff --git a/x b/y\n--- a/x\n+++ b/y\n" + HUNK, "line 1: the header's names are not"),
        (b'diff --git "a/x b/x\n' + HUNK, "line 1: .* damaged|line 1: "),
        (HEAD + b'--- "a/\\q"\n+++ b/x\n' + HUNK, "line 2: the quoted name .* is damaged"),
        (HEAD + b"Binary files a/x and b/x differ\n", "line 2: a binary file without its content; .*--binary"),
        (HEAD + b"what is this\n", "line 2: 'what is this' is not part of a git diff"),
        (HEAD + b"GIT binary patch\nliteral 0\nHcmV?d00001\n\n", "line 1: a binary patch without a full index line"),
        (b"diff --cc x\nindex 1,2..3\n", "line 1: a combined diff of a merge; diff against one parent"),
        (b"diff --cc x\nindex 1,2..3\n" + CHANGE, "line 1: a combined diff of a merge"),
        (CHANGE + b"diff --combined y\n", "line 7: a combined diff of a merge"),
    ],
)
def test_damaged_diffs_are_refused_with_the_line(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Patch.parse(data)


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../b", "a//b", "a/./b", "a/", ".git/hooks/x", "a/.GIT/x", "a\\000b"]
)
def test_paths_that_leave_the_repository_are_refused(path: str) -> None:
    quote = '"' if "\\" in path else ""
    names = f"{quote}a/{path}{quote} {quote}b/{path}{quote}"
    with pytest.raises(ArtifactError, match=r"line 1: .* is not a plain relative path|line 1: .* lies inside .git"):
        Patch.parse(f"diff --git {names}\nold mode 100644\nnew mode 100755\n".encode())
    for side in ("rename from", "rename to"):
        other = "rename to" if side == "rename from" else "rename from"
        data = f"diff --git a/x b/y\n{side} {quote}{path}{quote}\n{other} y\n".encode()
        with pytest.raises(ArtifactError, match=r"line 2: .* is not a plain relative path|line 2: .* inside .git"):
            Patch.parse(data)
