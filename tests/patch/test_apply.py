"""Make, apply, reverse and split patches, by example."""

import time

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import ChangeKind, FileEntry, Patch, apply_patch, make_patch

NOTHING: dict[str, FileEntry] = {}
THIRTY = b"".join(b"%d\n" % n for n in range(1, 31))


def one(old: FileEntry | None, new: FileEntry | None, path: str = "x") -> Patch:
    return make_patch({path: (old, new)})


def test_a_made_patch_reads_as_git_writes_it() -> None:
    patch = one(FileEntry(b"a\nb\n"), FileEntry(b"a\nc"), "a b")
    assert patch.data == (
        b"diff --git a/a b b/a b\nindex 422c2b7ab3b3..817f660e4423 100644\n--- a/a b\t\n+++ b/a b\t\n"
        b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
    )


def test_a_marker_stays_with_its_line_when_reversed() -> None:
    patch = one(FileEntry(b"a\nb\n"), FileEntry(b"a\nc"))
    assert patch.reverse().files[0].hunks[0].lines[1:] == (b"-c\n", b"\\ No newline at end of file\n", b"+b\n")


def test_files_are_added_and_deleted() -> None:
    patch = one(None, FileEntry(b"a\n", 0o100755))
    assert patch.files[0].kind is ChangeKind.ADDED
    assert apply_patch(patch, NOTHING.get) == {"x": FileEntry(b"a\n", 0o100755)}
    assert apply_patch(patch.reverse(), {"x": FileEntry(b"a\n", 0o100755)}.get) == {"x": None}
    with pytest.raises(ArtifactError, match="x already exists"):
        apply_patch(patch, {"x": FileEntry(b"")}.get)
    with pytest.raises(ArtifactError, match="x has content that the diff does not delete"):
        apply_patch(patch.reverse(), {"x": FileEntry(b"a\nb\n")}.get)
    with pytest.raises(ArtifactError, match="x does not exist in the tree"):
        apply_patch(patch.reverse(), NOTHING.get)


@pytest.mark.parametrize("end", [b"\n", b"y\n"])
def test_hunks_apply_at_their_line_only(end: bytes) -> None:
    patch = one(FileEntry(THIRTY), FileEntry(THIRTY.replace(b"3\n4\n", b"4\n").replace(b"27\n", b"z\n")))
    assert [h.old_start for h in patch.files[0].hunks] == [1, 24]
    with pytest.raises(ArtifactError, match=r"hunk 1 of x does not apply: line 1 is '.*', not '1'"):
        apply_patch(patch, {"x": FileEntry(end + THIRTY)}.get)
    with pytest.raises(ArtifactError, match=r"hunk \d of x does not apply: the file ends before line \d+"):
        apply_patch(patch, {"x": FileEntry(THIRTY[:40])}.get)


def test_an_insertion_beyond_the_end_is_refused() -> None:
    patch = Patch.parse(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -9,0 +10 @@\n+b\n")
    with pytest.raises(ArtifactError, match="hunk 1 of x does not apply: the file ends before line 9"):
        apply_patch(patch, {"x": FileEntry(b"a\n")}.get)


def test_a_reversed_diff_ignores_the_new_line_numbers() -> None:
    patch = Patch.parse(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3 +9 @@\n-a\n+b\n")
    assert apply_patch(patch.reverse(), {"x": FileEntry(b"1\n2\nb\n")}.get) == {"x": FileEntry(b"1\n2\na\n")}


def test_renames_and_copies_carry_content_and_mode() -> None:
    rename = Patch.parse(b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n")
    copy = Patch.parse(b"diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n")
    entry = FileEntry(b"a\n", 0o100755)
    assert apply_patch(rename, {"x": entry}.get) == {"x": None, "y": entry}
    assert apply_patch(copy, {"x": entry}.get) == {"y": entry}
    with pytest.raises(ArtifactError, match="y: a copy cannot be reversed; make the diff with --no-renames"):
        copy.reverse()


def test_split_hunks_of_a_renamed_file() -> None:
    header = b"diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n--- a/x\n+++ b/y\n"
    patch = Patch.parse(header + b"@@ -1 +1,2 @@\n-1\n+one\n+more\n@@ -9 +10 @@\n-9\n+nine\n")
    parts = [apply_patch(p, {"x": FileEntry(THIRTY)}.get)["y"] for p in patch.split_hunks()]
    assert parts == [
        FileEntry(THIRTY.replace(b"1\n", b"one\nmore\n", 1)),
        FileEntry(THIRTY.replace(b"9\n", b"nine\n", 1)),
    ]
    assert patch.split_hunks()[1].files[0].hunks[0].new_start == 9


def test_a_binary_patch_applies_to_one_content_only() -> None:
    old, new = FileEntry(b"\0one"), FileEntry(b"\0two")
    assert apply_patch(one(old, new), {"x": old}.get) == {"x": new}
    assert apply_patch(one(old, None), {"x": old}.get) == {"x": None}
    for patch in (one(old, new), one(old, None)):
        with pytest.raises(ArtifactError, match="x is not the file the binary patch was made from"):
            apply_patch(patch, {"x": FileEntry(b"\0six")}.get)


@pytest.mark.parametrize(("correct", "wrong"), [(b"literal 4", b"literal 5"), (b"\nL", b"\n["), (b"\nL", b"\nZ")])
def test_damaged_binary_blocks_are_refused(correct: bytes, wrong: bytes) -> None:
    old, new = FileEntry(b"\0one"), FileEntry(b"\0two")
    data = one(old, new).data
    assert correct in data
    with pytest.raises(ArtifactError, match="x: the binary patch is damaged"):
        apply_patch(Patch.parse(data.replace(correct, wrong, 1)), {"x": old}.get)


def test_nothing_is_written_through_a_symlink() -> None:
    patch = one(None, FileEntry(b"a\n"), "link/x")
    with pytest.raises(ArtifactError, match="link/x cannot be written: link is a file or a symlink, not a folder"):
        apply_patch(patch, {"link": FileEntry(b"/etc", 0o120000)}.get)
    both = make_patch({"link": (None, FileEntry(b"/etc", 0o120000)), "link/x": (None, FileEntry(b"a\n"))})
    with pytest.raises(ArtifactError, match="link/x cannot be written"):
        apply_patch(both, NOTHING.get)


def test_a_file_does_not_become_a_symlink() -> None:
    with pytest.raises(ArtifactError, match="x changes between a file and a symlink"):
        one(FileEntry(b"a"), FileEntry(b"a", 0o120000))


@pytest.mark.parametrize("path", ["../x", "/x", ".git/config", "a//b"])
def test_no_patch_is_made_for_a_path_outside_the_tree(path: str) -> None:
    with pytest.raises(ArtifactError, match="no diff can be made: "):
        one(None, FileEntry(b"a\n"), path)


def test_long_files_with_repeated_lines_are_compared_quickly() -> None:
    lines = [b"\n" if n % 3 else b"line %d\n" % n for n in range(30_000)]
    changed = [b"first\n", *lines[1:15_000], b"middle\n", *lines[15_001:-1], b"last\n"]
    old, new = FileEntry(b"".join(lines)), FileEntry(b"".join(changed))
    started = time.monotonic()
    patch = one(old, new)
    assert time.monotonic() - started < 5
    assert [c.stats.hunks for c in patch.split_files()] == [3]
    assert apply_patch(patch, {"x": old}.get) == {"x": new}
