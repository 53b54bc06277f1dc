"""Hostile diffs: nothing is written outside of the folder that is made for a diff, and no program is started."""

from __future__ import annotations

import base64
import contextlib
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from diff_forms import BARE, HUNK, NEW_FILE, OLD, TREE, named

from harness.diffs import DiffError, MissingToolError, apply_diff
from harness.diffs.commands import Step
from pytest_ssr.patch import FileEntry
from pytest_ssr.patch.changes import SYMLINK
from pytest_ssr.patch.paths import check_path
from pytest_ssr.records.reasons import ReasonCode

FUZZY = HUNK.replace(" line 6\n", " Line 6\n")
"""A change that only GNU patch applies."""
LINK = "diff --git a/up b/up\nnew file mode 120000\n--- /dev/null\n+++ b/up\n@@ -0,0 +1 @@\n+{}\n\\ No newline at end of file\n"


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put temporary folders below this one, and require that nothing of them and nothing beside them is left."""
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    (tmp_path / "outer" / "shop.py").write_text(OLD)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")} == {
        "outer",
        "outer/inner",
        "outer/shop.py",
    }
    assert (tmp_path / "outer" / "shop.py").read_text() == OLD


def new_file(path: str) -> str:
    return NEW_FILE.replace("more.py", path)


OUTSIDE = (
    "../shop.py",
    "pkg/../../shop.py",
    "../../../outer/shop.py",
    "/etc/ssr-x.py",
    ".git/hooks/pre-commit",
    "pkg/.git/config",
)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    "form",
    [
        lambda path: new_file(path),
        lambda path: new_file(path).partition("mode 100644\n")[2],
        lambda path: named(f"a/{path}", f"b/{path}"),
        lambda path: named(f"a/{path}", f"b/{path}", FUZZY),
        lambda path: named(path),
        lambda path: BARE + new_file(path) + "\n",
        lambda path: f"Index: {path}\n" + named(path, path, FUZZY),
        lambda path: f"diff --git a/shop.py b/{path}\nrename from shop.py\nrename to {path}\n\n",
    ],
    ids=["new", "new-plain", "plain", "fuzz", "no-prefix", "second", "index", "rename"],
)
def test_a_path_outside_of_the_tree_is_refused(path: str, form) -> None:
    with contextlib.suppress(DiffError):
        # Without its first component, the name may be one in the tree, as for the reference.
        applied = apply_diff(form(path).encode(), TREE.get)
        assert all(check_path(p) for p in applied.patch.paths)


def test_a_git_folder_that_a_diff_makes_configures_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    config = f"[core]\n\tfsmonitor = touch {mark}\n\thooksPath = .\n\tpager = touch {mark}\n"
    lines = config.splitlines()
    diff = f"--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{x}\n" for x in lines)
    with pytest.raises(DiffError):
        apply_diff((named("a/shop.py", "b/shop.py", FUZZY) + diff + BARE).encode(), TREE.get)


@pytest.mark.parametrize("target", ["..", "../..", "/tmp", "pkg", "."])
def test_nothing_is_written_through_a_symlink_of_the_diff(target: str) -> None:
    for more in (new_file("up/shop.py"), named("a/up/shop.py", "b/up/shop.py", FUZZY)):
        with pytest.raises(DiffError):
            apply_diff((LINK.format(target) + more + "\n").encode(), TREE.get)


@pytest.mark.parametrize("target", ["..", "../..", "/etc", "pkg"])
def test_nothing_is_written_through_a_symlink_of_the_tree(target: str) -> None:
    tree = {**TREE, "up": FileEntry(target.encode(), SYMLINK)}
    for diff in (
        new_file("up/shop.py") + "\n",
        named("a/up/shop.py", "b/up/shop.py", FUZZY),
        named("a/up", "b/up", FUZZY),
    ):
        with pytest.raises(DiffError):
            apply_diff(diff.encode(), tree.get)


def test_a_symlink_is_left_out_and_the_rest_counts() -> None:
    text = BARE + LINK.format("../../../etc/passwd")
    for diff in (text, text + "\n"):
        applied = apply_diff(diff.encode(), TREE.get)
        assert applied.patch.paths == ("shop.py",)
        assert applied.left_out == ("up",)


@pytest.mark.parametrize("command", ["r !touch {}", "!touch {}", "w {}", "s/.//w {}"])
@pytest.mark.parametrize("start", ["9c\nline nine\n.\n", "9d\n", "  9,10d\n", "X9d\n", "- 9a\nx\n.\n"])
def test_a_script_of_ed_is_not_run(tmp_path: Path, command: str, start: str) -> None:
    mark = tmp_path / "mark"
    for head in ("--- a/shop.py\n+++ b/shop.py\n", "Index: shop.py\n", "diff -e shop.py new\nIndex: shop.py\n"):
        with pytest.raises(DiffError):
            apply_diff(f"{head}{start}{command.format(mark)}\n".encode(), TREE.get)


def test_a_large_diff_is_refused_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(DiffError, match="larger than 16 MiB") as error:
        apply_diff(b"--- a/shop.py\n+++ b/shop.py\n" + b"+x\n" * (50 << 20 >> 2), TREE.get)
    assert error.value.code is ReasonCode.PATCH_UNREADABLE
    assert time.monotonic() - begin < 5


def test_a_diff_that_names_too_many_files_is_refused() -> None:
    text = "".join(f"--- {n} a b c d e f g h i j k l m n o p\n" for n in range(40_000))
    with pytest.raises(DiffError, match="may name more than"):
        apply_diff(text.encode(), TREE.get)


def test_zero_bytes_are_no_way_out() -> None:
    for text in (
        named("a/shop.py\0../x", "b/shop.py"),
        BARE.replace("+line nine", "+line\0nine").replace(" line 6", " Line 6"),
        "\0" * 100 + BARE,
    ):
        with contextlib.suppress(DiffError):
            assert set(apply_diff(text.encode(), TREE.get).patch.paths) <= {"shop.py"}


def test_binary_data_that_expands_is_refused() -> None:
    size = 3 << 30
    compressor = zlib.compressobj(9)
    block = b"\0" * (1 << 20)
    packed = b"".join(compressor.compress(block) for _ in range(64)) + compressor.flush()
    lines = b""
    for start in range(0, len(packed), 52):
        chunk = packed[start : start + 52]
        length = bytes([len(chunk) + 64 if len(chunk) <= 26 else len(chunk) - 26 + 96])
        lines += length + base64.b85encode(chunk + b"\0" * (-len(chunk) % 4)) + b"\n"
    head = b"diff --git a/b.bin b/b.bin\nnew file mode 100644\nindex %s..%s\nGIT binary patch\n" % (
        b"0" * 40,
        b"1" * 40,
    )
    with pytest.raises(DiffError):
        apply_diff(head + b"literal %d\n" % size + lines + b"\n", TREE.get)


def test_the_user_s_configuration_changes_nothing(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    home = tmp_path_factory.mktemp("home")
    mark = home / "mark"
    (home / ".gitconfig").write_text(
        f"[apply]\n\twhitespace = error-all\n\tignoreWhitespace = change\n[core]\n\tautocrlf = true\n\tfsmonitor = touch {mark}\n"
        f'[filter "x"]\n\tclean = touch {mark}\n\tsmudge = touch {mark}\n'
    )
    for name, value in {
        "HOME": home,
        "GIT_DIR": home / "none",
        "GIT_CONFIG_GLOBAL": home / ".gitconfig",
        "PATCH_GET": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    tree = {**TREE, ".gitattributes": FileEntry(b"* filter=x\n")}
    applied = apply_diff(BARE.replace("+line nine", "+line nine   ").encode() + b"\n", tree.get)
    assert b"+line nine   \n" in applied.patch.data
    assert not mark.exists()


def test_a_missing_program_is_no_fault_of_the_diff(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    programs = tmp_path_factory.mktemp("bin")
    for name in ("git", "sh"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    assert apply_diff((BARE + "\n").encode(), TREE.get).forms == (Step.GIT_APPLY,)
    with pytest.raises(MissingToolError, match="GNU patch"):
        apply_diff(named("a/shop.py", "b/shop.py", FUZZY).encode(), TREE.get)
    (programs / "git").unlink()
    assert apply_diff(BARE.encode(), TREE.get).forms == ()
    with pytest.raises(MissingToolError, match="git is not installed"):
        apply_diff((BARE + "\n").encode(), TREE.get)
