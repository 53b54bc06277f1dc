"""The collected patch is exactly the agent's changes; a tree that cannot be submitted is an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from harness.agents.patch_collector import collect_patch, collect_state
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider, fake_result
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox

INTERPRETER = Interpreter(Path(sys.executable), (), "", "")
LARGE = b"0123456789abcdef" * (17 * MIB // 16)


@pytest.fixture
def start(tmp_path: Path, calculator: Mapping[str, str]) -> CodebaseState:
    """A project with a link to a file, a link to a folder, and a file that is too large to be read."""
    project = tmp_path / "project"
    for name, text in {**calculator, "pkg/a.py": "A = 1\n", "pkg/b.py": "B = 1\n"}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "data.bin").write_bytes(LARGE)
    (project / "linked.py").symlink_to("calc.py")
    (project / "folder").symlink_to("pkg")
    return CodebaseState(take_snapshot(project, tmp_path / "trees"))


@pytest.fixture
def work(start: CodebaseState) -> Iterator[Callable[[str], Sandbox]]:
    """Runs a command in the tree and returns its sandbox."""
    with load_provider("process").open(start.snapshot.directory, mount_at="/p") as sandbox:

        def do(command: str) -> Sandbox:
            done = sandbox.exec(["bash", "-c", command], limits=Limits(wall_s=20))
            assert done.exit_code == 0, done.stderr
            return sandbox

        yield do


def test_untouched_links_and_large_files_are_not_changes(start: CodebaseState, work: Callable[[str], Sandbox]) -> None:
    assert collect_patch(work("true"), INTERPRETER, start).data == b""
    state = collect_state(
        work("echo 'A = 2' > folder/a.py; rm pkg/b.py; mkdir -p .pytest_cache; touch x.pyc"), INTERPRETER, start
    )
    assert state.changes == {"pkg/a.py": FileEntry(b"A = 2\n"), "pkg/b.py": None}


def test_new_moved_and_executable_files_are_collected(start: CodebaseState, work: Callable[[str], Sandbox]) -> None:
    sandbox = work(
        "mv calc.py 'new name é.py'; chmod +x pkg/a.py; printf '\\xff\\0' > pkg/x.dat; ln -s pkg other; rm folder"
    )
    state = collect_state(sandbox, INTERPRETER, start)
    old = start.entry("calc.py")
    assert state.changes == {
        "calc.py": None,
        "folder": None,
        "new name é.py": old,
        "pkg/a.py": FileEntry(b"A = 1\n", 0o100755),
        "pkg/x.dat": FileEntry(b"\xff\0"),
    }, "a new link where nothing existed is ignored: no patch may create one"
    assert start.apply(state.patch_from(start)).tree_hash == state.tree_hash


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo more >> data.bin", "data.bin is changed and larger than 16 MiB"),
        ("truncate -s 17000000 core", "core is changed and larger than 16 MiB"),
        ("mv calc.py real.py; ln -s real.py calc.py", r"calc\.py is now a symlink to real\.py; a patch may not"),
        ("ln -sfn tests folder", "folder is now a symlink to tests"),
        ("mv pkg moved; ln -s moved pkg", "pkg is now a symlink to moved"),
        ("rm linked.py; echo 1 > linked.py", r"linked\.py was a symlink and is now a file"),
        ("rm calc.py; mkfifo calc.py", r"calc\.py is no longer a file"),
        ("for n in 1 2 3 4 5; do truncate -s 16000000 f$n; done", "the changed files are larger than 64 MiB"),
        ("for n in $(seq 2001); do : > f$n; done", "more than 2000 files are changed"),
    ],
)
def test_a_tree_that_cannot_be_submitted_is_an_error(
    start: CodebaseState, work: Callable[[str], Sandbox], command: str, expected: str
) -> None:
    with pytest.raises(ArtifactError, match=expected):
        collect_state(work(command), INTERPRETER, start)


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (b'{"calc.py": ["unreadable", "Permission denied", 0]}', r"calc\.py cannot be read \(Permission denied\)"),
        (b'{"pkg": ["unreadable", "Permission denied", 0]}', "pkg cannot be read"),
        (b"", r"the tree cannot be listed \(status 0\)"),
        (b"[" * 9999, "the tree cannot be listed"),
    ],
)
def test_unreadable_files_do_not_count_as_deleted(start: CodebaseState, listing: bytes, expected: str) -> None:
    provider = FakeSandboxProvider({(): fake_result(listing)})
    with pytest.raises(ArtifactError, match=expected):
        collect_state(FakeSandbox(provider, "/p", {}), INTERPRETER, start)


def test_a_sandbox_that_breaks_is_not_the_agent_s_fault(start: CodebaseState) -> None:
    class Breaking(FakeSandbox):
        def read(self, path: str, *, max_bytes: int = 0) -> bytes:
            raise SandboxError("the container is gone")

    listing = fake_result(b'{"calc.py": ["100644", "another", 3], "/etc/passwd": ["100644", "", 1], "x": 3}')
    provider = FakeSandboxProvider({(sys.executable,): listing})
    with pytest.raises(SandboxError, match="no result for"):
        collect_state(Breaking(provider, "/p", {}), INTERPRETER, start)
    provider.results = {**provider.results, ("true",): fake_result()}
    with pytest.raises(ArtifactError, match=r"calc\.py cannot be read: the container is gone"):
        collect_state(Breaking(provider, "/p", {}), INTERPRETER, start)
