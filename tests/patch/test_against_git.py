"""Compare the diff engine with git itself, over random trees."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pytest_ssr.patch import ChangeKind, FileEntry, Patch, apply_patch, make_patch

LINES = st.sampled_from(
    [b"a", b"b", b"", b"\tx = 1", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"caf\xc3\xa9", b"\xff", b"c\r"]
)
TEXT = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(LINES, max_size=14), st.sampled_from([b"", b"\n"])
)
CONTENT = st.one_of(TEXT, TEXT, TEXT, st.binary(max_size=80).map(lambda b: b"\0" + b))
ENTRY = st.builds(FileEntry, CONTENT, st.sampled_from([0o100644, 0o100644, 0o100755]))
NAMES = st.sampled_from(["a.py", "src/b c.py", "src/d b/e.py", 'q"uote.py', "tab\there.py", "ünï.py", "x/y/z.txt"])
LINKS = st.dictionaries(
    st.sampled_from(["link", "src/li nk"]),
    st.sampled_from([b"a.py", b"../nowhere", b"caf\xc3\xa9"]).map(lambda target: FileEntry(target, 0o120000)),
)


def _no_file_is_a_folder(tree: dict[str, FileEntry]) -> dict[str, FileEntry]:
    return {p: e for p, e in tree.items() if not any(q.startswith(p + "/") for q in tree)}


TREE = st.builds(
    lambda files, links: _no_file_is_a_folder({**files, **links}),
    st.dictionaries(st.one_of(NAMES, st.sampled_from(["x", "src"])), ENTRY, max_size=6),
    LINKS,
)


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    command = ["git", "-c", "core.autocrlf=false", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, check=False)


def write_tree(folder: Path, tree: dict[str, FileEntry]) -> None:
    for old in [*folder.rglob("*")]:
        if ".git" not in old.relative_to(folder).parts and (old.is_symlink() or old.is_file()):
            old.unlink()
    for old in sorted(folder.rglob("*"), reverse=True):
        if ".git" not in old.relative_to(folder).parts:
            old.rmdir()
    for path, entry in tree.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == 0o120000:
            os.symlink(entry.data, target)
        else:
            target.write_bytes(entry.data)
            target.chmod(entry.mode & 0o777)


def read_back(folder: Path) -> dict[str, FileEntry]:
    entries = {}
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if path.is_symlink():
            entries[relative.as_posix()] = FileEntry(os.readlink(os.fsencode(path)), 0o120000)
        elif path.is_file() and ".git" not in relative.parts:
            mode = 0o100755 if path.stat().st_mode & 0o100 else 0o100644
            entries[relative.as_posix()] = FileEntry(path.read_bytes(), mode)
    return entries


def applied(patch: Patch, tree: dict[str, FileEntry]) -> dict[str, FileEntry]:
    result = dict(tree)
    for path, entry in apply_patch(patch, tree.get).items():
        if entry is None:
            del result[path]
        else:
            result[path] = entry
    return result


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    assert git(folder, "init", "-q").returncode == 0
    return folder


FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(old=TREE, new=TREE, renames=st.booleans())
def test_git_diffs_are_read_back_applied_and_reversed(
    checkout: Path, old: dict[str, FileEntry], new: dict[str, FileEntry], renames: bool
) -> None:
    write_tree(checkout, old)
    git(checkout, "add", "-A")
    base = git(checkout, "write-tree").stdout.decode().strip()
    write_tree(checkout, new)
    git(checkout, "add", "-A")
    data = git(checkout, "diff", "--cached", "--binary", "-M" if renames else "--no-renames", base).stdout
    patch = Patch.parse(data)
    assert patch.data == data
    assert applied(patch, old) == new
    assume(all(c.kind is not ChangeKind.COPIED for c in patch.files))
    back = patch.reverse()
    assert back.reverse().data == data
    assert applied(back, new) == old
    if data:
        done = git(checkout, "apply", "--check", "-", stdin=back.data)
        assert done.returncode == 0, done.stderr
        assert git(checkout, "apply", "--index", "-", stdin=back.data).returncode == 0
        assert git(checkout, "write-tree").stdout.decode().strip() == base
    # One at a time, a rename that frees a folder's path may come after the file that goes into the folder.
    step = old
    for part in () if renames else patch.split_files():
        step = applied(part, step)
    assert renames or step == new


@FEW
@given(old=TREE, new=TREE)
def test_made_patches_are_accepted_by_git(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, FileEntry], new: dict[str, FileEntry]
) -> None:
    pairs = {p: (old.get(p), new.get(p)) for p in {*old, *new}}
    patch = make_patch(pairs)
    folder = tmp_path_factory.mktemp("tree")
    write_tree(folder, old)
    if patch.files:
        done = git(folder, "apply", "-", stdin=patch.data)
        assert done.returncode == 0, (done.stderr, patch.data)
    assert read_back(folder) == new
    assert applied(patch, old) == new
    assert applied(patch.reverse(), new) == old
    assert make_patch(pairs).data == patch.data


@FEW
@given(old=TEXT, new=TEXT)
def test_hunks_apply_one_at_a_time_from_the_last(old: bytes, new: bytes) -> None:
    patch = make_patch({"f.py": (FileEntry(old), FileEntry(new))})
    tree = {"f.py": FileEntry(old)}
    for part in reversed(patch.split_hunks()):
        tree = applied(part, tree)
    assert tree == {"f.py": FileEntry(new)}


@FEW
@given(old=TEXT, new=TEXT)
def test_each_hunk_applies_alone_and_git_agrees(checkout: Path, old: bytes, new: bytes) -> None:
    tree = {"f.py": FileEntry(old)}
    for part in make_patch({"f.py": (FileEntry(old), FileEntry(new))}).split_hunks():
        write_tree(checkout, tree)
        done = git(checkout, "apply", "--unidiff-zero", "-", stdin=part.data)
        assert done.returncode == 0, (done.stderr, part.data)
        assert read_back(checkout) == applied(part, tree)
        assert applied(part.reverse(), applied(part, tree)) == tree


@FEW
@given(old=TREE, new=TREE)
def test_git_diffs_without_context_are_applied(
    checkout: Path, old: dict[str, FileEntry], new: dict[str, FileEntry]
) -> None:
    write_tree(checkout, old)
    git(checkout, "add", "-A")
    base = git(checkout, "write-tree").stdout.decode().strip()
    write_tree(checkout, new)
    git(checkout, "add", "-A")
    options = ("--binary", "-U0", "-C", "--find-copies-harder")
    patch = Patch.parse(git(checkout, "-c", "core.quotepath=false", "diff", "--cached", *options, base).stdout)
    assert applied(patch, old) == new


def test_a_mode_only_change_has_its_own_kind() -> None:
    patch = make_patch({"run": (FileEntry(b"x\n"), FileEntry(b"x\n", 0o100755))})
    assert [c.kind for c in patch.files] == [ChangeKind.MODE]
    assert applied(patch.reverse(), {"run": FileEntry(b"x\n", 0o100755)}) == {"run": FileEntry(b"x\n")}


def test_gits_binary_deltas_are_applied_and_reversed(checkout: Path) -> None:
    data = b"\0" + b"".join(bytes([n * n % 251, n % 256]) for n in range(60_000))
    old, new = {"b": FileEntry(data)}, {"b": FileEntry(data[:70_000] + b"changed" + data[70_100:])}
    write_tree(checkout, old)
    git(checkout, "add", "-A")
    base = git(checkout, "write-tree").stdout.decode().strip()
    write_tree(checkout, new)
    git(checkout, "add", "-A")
    patch = Patch.parse(git(checkout, "diff", "--cached", "--binary", base).stdout)
    assert [c.forward[0][:6] for c in patch.files] == [b"delta "]
    assert applied(patch, old) == new
    assert applied(patch.reverse(), new) == old
