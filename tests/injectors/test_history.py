"""History: reverts of real commits in real repositories, and what is refused."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.history import HistoryInjector
from pytest_ssr.injectors.hunk_reverts import effect_of, revert
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.patch import FileEntry, Patch, make_patch


class Folder:
    """A source tree read from a folder, as it is on disk."""

    def __init__(self, origin: Path | None, files: Mapping[str, bytes] | None = None) -> None:
        self.origin = origin
        self.files = dict(files or {})
        if origin is not None:
            for path in sorted(origin.rglob("*.py")):
                self.files.setdefault(path.relative_to(origin).as_posix(), path.read_bytes())

    def paths(self) -> list[str]:
        return sorted(self.files)

    def read(self, path: str) -> bytes:
        return self.files[path]

    def code_paths(self) -> list[str]:
        return [p for p in self.paths() if not p.startswith("test")]


def git(folder: Path, *arguments: str, stamp: int = 0) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_DATE": f"{1_700_000_000 + stamp} +0000",
        "GIT_COMMITTER_DATE": f"{1_700_000_000 + stamp} +0000",
    }
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    completed = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return completed.stdout


def repository(folder: Path, *states: Mapping[str, bytes]) -> Path:
    """Make a repository with one commit for each state; the commit messages are `step N`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for number, state in enumerate(states):
        for path, data in state.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"step {number}", stamp=number)
    return folder


def candidates_in(origin: Path | None, files: Mapping[str, bytes] | None = None, seed: int = 0) -> list[Candidate]:
    return list(HistoryInjector().candidates(Folder(origin, files), seed=seed))


def lines(*names: str) -> bytes:
    return b"".join(f"{n}\n".encode() for n in names)


FIRST = lines("def f(x):", "    y = 1", "    return x + y", "", "", "def g(x):", "    z = 1", "    return x - z")
SECOND = FIRST.replace(b"x + y", b"x + 2 * y").replace(b"x - z", b"x - 2 * z")
OTHER = lines("def h(x):", "    y = 3", "    return x", "A = 1")


def test_hunks_files_and_commits_are_undone(tmp_path: Path) -> None:
    origin = repository(
        tmp_path,
        {"p/a.py": FIRST, "p/b.py": OTHER},
        {"p/a.py": SECOND, "p/b.py": OTHER.replace(b"return x", b"return x * y")},
    )
    candidates = {(c.operator, c.path, c.line): c for c in candidates_in(origin)}
    assert {k: v.scope for k, v in candidates.items()} == {
        ("revert-hunk", "p/a.py", 3): "f",
        ("revert-hunk", "p/a.py", 8): "g",
        ("revert-file", "p/a.py", 3): "f",
        ("revert-file", "p/b.py", 3): "h",
        ("revert-commit", "p/a.py", 3): "f",
    }
    assert candidates["revert-commit", "p/a.py", 3].changes == {"p/a.py": FIRST, "p/b.py": OTHER}
    assert candidates["revert-hunk", "p/a.py", 8].changes == {"p/a.py": SECOND.replace(b"x - 2 * z", b"x - z")}
    commit = git(origin, "rev-parse", "HEAD").strip()
    assert {c.detail for c in candidates.values()} == {f"{commit[:10]} step 1"}
    assert {c.strategy for c in candidates.values()} == {"history"}


def test_content_comes_from_the_tree_and_not_from_the_last_commit(tmp_path: Path) -> None:
    origin = repository(tmp_path / "top" / "sub", {"m.py": FIRST}, {"m.py": SECOND})
    dirty = b"import os\n\n\n" + SECOND + b"\n\nTAIL = os.name\n"
    candidates = candidates_in(origin, {"m.py": dirty})
    whole = next(c for c in candidates if c.operator == "revert-file")
    assert whole.changes["m.py"] == b"import os\n\n\n" + FIRST + b"\n\nTAIL = os.name\n"
    assert whole.line == 6


def test_paths_are_those_of_the_folder_below_the_top(tmp_path: Path) -> None:
    repository(tmp_path, {"sub/m.py": FIRST, "out.py": FIRST}, {"sub/m.py": SECOND, "out.py": SECOND})
    candidates = candidates_in(tmp_path / "sub")
    assert {p for c in candidates for p in c.changes} == {"m.py"}


def test_a_package_that_moved_below_src_is_found_again(tmp_path: Path) -> None:
    origin = repository(tmp_path, {"p/m.py": FIRST}, {"p/m.py": SECOND})
    (origin / "src").mkdir()
    git(origin, "mv", "p", "src/p")
    git(origin, "commit", "-qm", "move", stamp=9)
    assert {"src/p/m.py": FIRST} in [c.changes for c in candidates_in(origin)]


def test_side_branches_are_walked_if_the_main_line_is_short(tmp_path: Path) -> None:
    origin = repository(tmp_path, {"m.py": FIRST})
    git(origin, "checkout", "-qb", "side")
    (origin / "m.py").write_bytes(SECOND)
    git(origin, "commit", "-qam", "side", stamp=5)
    git(origin, "checkout", "-q", "main")
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "side", stamp=6)
    assert {c.detail.partition(" ")[2] for c in candidates_in(origin)} == {"side"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(FIRST, b"# note\n" + FIRST, id="comment"),
        pytest.param(FIRST, FIRST.replace(b"x + y", b"(x  +  y)"), id="formatting"),
        pytest.param(
            b'def f(x):\n    """Old."""\n    return x\n', b'def f(x):\n    """New."""\n    return x\n', id="doc"
        ),
        pytest.param(b"class A(object):\n    x = 1\n", b"class A:\n    x = 1\n", id="object"),
        pytest.param(FIRST.replace(b"y = 1", b"y = ("), FIRST, id="no Python"),
        pytest.param(FIRST.replace(b"x + y", b"x + old()"), FIRST, id="a name nobody binds"),
        pytest.param(FIRST + b"\n\nOLD = 1\n", FIRST + b"\n\n", id="too few lines to tell where"),
    ],
)
def test_changes_that_cannot_matter_or_cannot_run_are_dropped(tmp_path: Path, before: bytes, after: bytes) -> None:
    origin = repository(tmp_path, {"m.py": before, "n.py": OTHER}, {"m.py": after, "n.py": OTHER + b"B = A\n"})
    assert {p for c in candidates_in(origin) for p in c.changes} <= {"n.py"}


def test_hunks_with_two_matching_positions_are_refused(tmp_path: Path) -> None:
    origin = repository(tmp_path, {"m.py": FIRST}, {"m.py": SECOND})
    twice = SECOND + b"\n\n" + SECOND
    with pytest.raises(ProjectError, match=r"none of the 2 past commits of .* can be reverted any more; clone"):
        candidates_in(origin, {"m.py": twice})


def test_crlf_checkouts_are_supported(tmp_path: Path) -> None:
    origin = repository(tmp_path, {"m.py": FIRST}, {"m.py": SECOND})
    contents = [c.changes["m.py"] for c in candidates_in(origin, {"m.py": SECOND.replace(b"\n", b"\r\n")})]
    assert FIRST.replace(b"\n", b"\r\n") in contents


def test_tests_and_invalid_python_are_ignored(tmp_path: Path) -> None:
    origin = repository(
        tmp_path,
        {"m.py": FIRST, "test_m.py": FIRST, "bad.py": b"(\n1\n2\n", "é b.py": FIRST, "r.txt": b"a\n"},
        {
            "m.py": SECOND,
            "test_m.py": SECOND,
            "bad.py": b"(\n1\n3\n",
            "é b.py": SECOND,
            "r.txt": b"b\n",
            "new.py": OTHER,
        },
    )
    assert {p for c in candidates_in(origin) for p in c.changes} == {"m.py", "é b.py"}


def test_the_projects_git_settings_are_ignored(tmp_path: Path) -> None:
    origin = repository(tmp_path, {"p/m.py": FIRST}, {"p/m.py": SECOND})
    expected = candidates_in(origin)
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch '{tmp_path}/sprung'\n")
    trap.chmod(0o755)
    (origin / ".gitattributes").write_text("*.py diff=odd\n")
    for name, value in {
        "diff.external": str(trap),
        "diff.odd.textconv": str(trap),
        "diff.odd.command": str(trap),
        "core.pager": str(trap),
        "core.fsmonitor": str(trap),
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "diff.context": "9",
        "diff.interHunkContext": "9",
        "diff.renames": "copies",
        "diff.algorithm": "histogram",
        "color.ui": "always",
        "log.showSignature": "true",
        "log.follow": "true",
        "format.pretty": "oneline",
    }.items():
        git(origin, "config", name, value)
    before = sorted(p.relative_to(origin) for p in origin.rglob("*"))
    assert candidates_in(origin) == expected
    assert sorted(p.relative_to(origin) for p in origin.rglob("*")) == before


def test_the_order_depends_on_the_seed_and_not_on_the_hash_seed(tmp_path: Path) -> None:
    states = [{"m.py": FIRST.replace(b"1", b"%d" % n), "n.py": OTHER.replace(b"3", b"%d" % n)} for n in range(5)]
    states += [{f"o{n}.py": FIRST} for n in range(4)] + [{f"o{n}.py": SECOND} for n in range(4)]
    origin = repository(tmp_path, *states)
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); from test_history import *; "
        "[print(c) for c in candidates_in(pathlib.Path(sys.argv[2]))]"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent), str(origin)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    orders = [[c.changes for c in candidates_in(origin, seed=seed)] for seed in (1, 2, 3)]
    assert len({tuple(dict.fromkeys(c.detail for c in candidates_in(origin, seed=seed))) for seed in range(5)}) > 1
    assert all(sorted(map(repr, o)) == sorted(map(repr, orders[0])) for o in orders)


def test_a_project_without_history_raises_with_advice(tmp_path: Path) -> None:
    advice = "needs git history; clone the project with its history, or choose the injector mutation"
    (tmp_path / "plain").mkdir()
    with pytest.raises(ProjectError, match=f"plain is not a git checkout .*: the history strategy {advice}"):
        candidates_in(tmp_path / "plain", {"m.py": FIRST})
    with pytest.raises(ProjectError, match=f"no directory on disk: the history strategy {advice}"):
        candidates_in(None, {"m.py": FIRST})
    with pytest.raises(ProjectError, match=r"gone is not a git checkout .the directory does not exist"):
        candidates_in(tmp_path / "gone", {"m.py": FIRST})
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    with pytest.raises(ProjectError, match=f"empty has no commits to revert: the history strategy {advice}"):
        candidates_in(tmp_path / "empty", {"m.py": FIRST})


def test_a_shallow_clone_raises_with_advice(tmp_path: Path) -> None:
    repository(tmp_path / "full", {"m.py": FIRST}, {"m.py": SECOND})
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}/full", "shallow")
    with pytest.raises(
        ProjectError, match=r"none of the 1 past commits of .* clone the project with more of its history"
    ):
        candidates_in(tmp_path / "shallow")


def applied(old: bytes, new: bytes) -> Sequence[bytes]:
    patch = Patch.parse(make_patch({"m": (FileEntry(old), FileEntry(new))}).data)
    results = [revert(new, f.hunks) for f in patch.files]
    return [m[0] for m in results if m is not None]


TEXT = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\r\n", b"\n", b"e\n"]), max_size=14).map(b"".join)


@given(TEXT, TEXT)
def test_a_revert_restores_the_old_content_exactly(old: bytes, new: bytes) -> None:
    assert all(content == old for content in applied(old, new))


def test_effects_distinguish_code_from_comments() -> None:
    effect = effect_of(b"import os\nx = os.name\n")
    assert effect is not None
    assert effect == effect_of(b'"""Doc."""\nimport os  # why\n\nx = (os.name)\n')
    assert effect != effect_of(b"import os\nx = os.sep\n")
    assert effect_of(b"x = (\n") is None
    assert (effect_of(b"def f():\n    return a + len(b)\n") or effect).unbound == {"a", "b"}
    assert (effect_of(b"from m import *\nx = a\n") or effect).unbound == set()
