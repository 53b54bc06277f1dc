"""The files that an image has built in its project folder are visible in the tree, and nothing else of that folder."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from images import BUILT, ENVIRONMENT, LATER, TRACKED, images_of, write_folder_image, write_testbed
from rows import git

from harness.agents.patch_collector import collect_state
from pytest_ssr.errors import ProjectError, SandboxError
from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.interpreter import find_in_image
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.apptainer import ApptainerProvider
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.filesystem.built_files import (
    MAX_BYTES,
    BuiltFile,
    add_built_files,
    read_built_files,
    read_index,
    untracked_paths,
)
from pytest_ssr.sandbox.protocol import ExecResult, Limit, Limits

LIMITS = Limits(wall_s=60)
SHOWN = {*BUILT, "shop/latest.so", "build/temp", "build/lib/shop/__pycache__/generated.cpython-311.pyc"}


def on_host(testbed: Path):
    """Return a function that runs the commands on this machine, on a folder in place of `/testbed`."""

    def execute(argv: Sequence[str], stdin: bytes, limits: Limits) -> ExecResult:
        done = subprocess.run([*argv[:-1], str(testbed)], input=stdin, capture_output=True, check=False)
        return ExecResult(done.returncode, done.stdout, done.stderr, 0.0)

    return execute


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The tracked files of the image's project, as a project of its own."""
    folder = tmp_path / "shop"
    for name, text in TRACKED.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_untracked_files_are_read_without_git(tmp_path: Path, version: str):
    write_testbed(tmp_path, version)
    if version == "3":
        (tmp_path / "intended").write_text("tracked without content\n")
        git(tmp_path, "add", "--intent-to-add", "intended")
    index = read_index((tmp_path / ".git" / "index").read_bytes())
    assert {p: b for p, b in index.items() if p != "intended"} == {
        path: git(tmp_path, "rev-parse", f"HEAD:{path}").strip() for path in TRACKED
    }
    built = read_built_files(on_host(tmp_path))
    assert built is not None
    assert {file.path for file in built} == SHOWN
    assert {file.path: file.data.decode() for file in built if file.path in BUILT} == BUILT


def test_submodules_are_not_tracked_files(tmp_path: Path):
    write_testbed(tmp_path)
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{commit},extern")
    (tmp_path / "extern" / ".git").mkdir(parents=True)
    (tmp_path / "extern" / ".git" / "packed-refs").write_text("later\n")
    (tmp_path / "extern" / "tool.py").write_text("tool\n")
    assert read_index((tmp_path / ".git" / "index").read_bytes()).keys() == TRACKED.keys()
    built = read_built_files(on_host(tmp_path))
    assert built is not None
    assert {file.path for file in built} == {*SHOWN, "extern/tool.py"}


def test_every_file_of_a_folder_without_git_is_read(tmp_path: Path):
    (tmp_path / "module.py").write_text("x = 1\n")
    assert [file.path for file in read_built_files(on_host(tmp_path)) or ()] == ["module.py"]
    assert read_built_files(on_host(tmp_path / "absent")) is None


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC\0\0\0\7\0\0\0\1", b"DIRC\0\0\0\4\0\0\0\1" + b"\xff" * 80])
def test_a_damaged_index_is_an_error(data: bytes):
    with pytest.raises(SandboxError):
        read_index(data)


def test_too_many_bytes_are_an_error():
    def execute(argv: Sequence[str], stdin: bytes, limits: Limits) -> ExecResult:
        assert limits.output_bytes == MAX_BYTES
        if stdin:
            return ExecResult(None, b"", b"", 0.0, Limit.OUTPUT)
        return ExecResult(0, b"0\n.\0\0./file\0", b"", 0.0)

    with pytest.raises(SandboxError):
        read_built_files(execute)


def test_folders_of_tracked_files_are_not_kept():
    """Otherwise a package that a state deletes would still be importable."""
    folders, files = {"gone", "gone/__pycache__", "empty"}, {"gone/x.py", "gone/__pycache__/x.cpython-311.pyc"}
    assert untracked_paths(folders, files, {"gone/x.py"}) == ["empty"]


def test_links_of_an_image_do_not_lead_out_of_the_tree(tmp_path: Path):
    testbed, tree, outside = (tmp_path / name for name in ("testbed", "tree", "outside"))
    for folder in (testbed / "linked", tree / "real", outside):
        folder.mkdir(parents=True)
    (testbed / "linked" / "file").write_text("new")
    (testbed / "real").symlink_to(outside)
    (testbed / "file").symlink_to(outside / "made")
    (tree / "linked").symlink_to(outside)
    (tree / "file").write_text("the tree's own")
    built = read_built_files(on_host(testbed))
    assert built is not None
    below_link = BuiltFile("file/below", next(f.header for f in built if f.path == "linked/file"), b"new")
    assert add_built_files((*built, below_link), tree) == frozenset()
    assert list(outside.iterdir()) == []
    assert (tree / "file").read_text() == "the tree's own"


def check_tree(provider: DockerProvider | ApptainerProvider, project: Path, tmp_path: Path) -> None:
    """Check what commands see of a state on an image in SWE-bench's layout."""
    snapshot = take_snapshot(project, tmp_path / "trees")
    changed = {"shop/old.py": None, "shop/new.py": FileEntry(b"new\n", 0o100644)}
    state = CodebaseState(snapshot).replace(changed)
    for _ in range(2):
        with state.open(provider) as sandbox:
            assert sandbox.root == "/testbed"
            listing = sandbox.exec(["find", ".", "!", "-type", "d", "-o", "-empty"], limits=LIMITS).stdout.decode()
            expected = {*SHOWN, *TRACKED, "shop/new.py"} - {"shop/old.py"}
            assert {line.removeprefix("./") for line in listing.splitlines()} == expected
            assert sandbox.read("shop/core.py").decode() == TRACKED["shop/core.py"]
            for path, text in BUILT.items():
                assert sandbox.read(path).decode() == text
            command = ["sh", "-c", "cat shop/latest.so; grep -r 'the answer' / --include=core.py 2>/dev/null; pwd"]
            assert sandbox.exec(command, limits=LIMITS).stdout == b"\x7fELF/testbed\n"
            found = sandbox.exec(["find", "/", "-name", ".git", "-not", "-path", "/proc/*"], limits=LIMITS).stdout
            assert found == b""
            # A later run must not see this.
            wreck = "echo changed > shop/_version.py; rm shop/fast.so; echo left > left; mkdir .git; rm -rf build"
            assert sandbox.exec(["sh", "-c", wreck], limits=LIMITS).exit_code == 0
            with pytest.raises(FileNotFoundError):
                sandbox.read("shop/fast.so")
    with CodebaseState(snapshot).open(provider) as sandbox:
        assert b"old.py" in sandbox.exec(["ls", "shop"], limits=LIMITS).stdout


def check_patch(provider: DockerProvider | ApptainerProvider, project: Path, tmp_path: Path) -> None:
    """Check that files of the image are part of no patch."""
    start = CodebaseState(take_snapshot(project, tmp_path / "trees"))
    interpreter = find_in_image(provider, project, None)
    assert interpreter is not None
    with start.open(provider) as sandbox:
        edit = "echo changed > shop/_version.py; rm notes.txt; echo new > added.py; rm shop/old.py"
        assert sandbox.exec(["sh", "-c", edit], limits=LIMITS).exit_code == 0
        state = collect_state(sandbox, interpreter, start)
    assert dict(state.changes) == {"added.py": FileEntry(b"new\n", 0o100644), "shop/old.py": None}


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, str]]:
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-built") as names:
        yield names
    provider.close()


@pytest.mark.docker
def test_docker_shows_what_an_image_has_built(images: dict[str, str], project: Path, tmp_path: Path):
    provider = DockerProvider(images["built"])
    check_tree(provider, project, tmp_path)
    check_patch(provider, project, tmp_path)
    # The image itself holds the answer.
    history = ["git", "-c", "safe.directory=*", "-C", "/testbed", "show", "HEAD@{1}:shop/core.py"]
    assert provider.exec_in_image(history, limits=LIMITS).stdout.decode() == LATER
    with provider.open(project, mount_at="/w") as sandbox:
        assert sandbox.exec(["git", "-c", "safe.directory=*", "log"], limits=LIMITS).exit_code == 128
    provider.close()


@pytest.mark.docker
def test_docker_shows_an_empty_tree_alone(images: dict[str, str], tmp_path: Path):
    provider = DockerProvider(images["built"])
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert (sandbox.root, sandbox.exec(["ls", "-A"], limits=LIMITS).stdout) == ("/testbed", b"")
    provider.close()


@pytest.mark.docker
def test_warm_processes_see_built_files(images: dict[str, str], project: Path):
    """The sandbox moves to another container for them."""
    provider = DockerProvider(images["built"])
    with provider.open(project, mount_at="/w") as sandbox:
        answer = "n=$(cat shop/fast.so | wc -c); printf '\\000\\000\\000\\002\\000\\000\\000\\001{}%s' $n >&3; sleep 60"
        with sandbox.converse(["sh", "-c", answer], limits=LIMITS) as session:
            assert session.answer(wall_s=20) == ({}, b"4")
    provider.close()


@pytest.mark.apptainer
def test_apptainer_shows_what_an_image_has_built(project: Path, tmp_path: Path):
    programs = ("find", "tar", "wc", "grep", "rm", "mkdir")
    image = write_folder_image(tmp_path / "image", programs)
    write_testbed(image / "testbed")
    provider = ApptainerProvider(str(image))
    check_tree(provider, project, tmp_path)
    check_patch(provider, project, tmp_path)
    shown = provider.exec_in_image(["cat", "/testbed/.git/HEAD"], limits=LIMITS).stdout
    assert shown.startswith(b"ref: ")
    (tmp_path / "empty").mkdir()
    with provider.open(tmp_path / "empty", mount_at="/w") as sandbox:
        assert (sandbox.root, sandbox.exec(["ls", "-A"], limits=LIMITS).stdout) == ("/testbed", b"")
    assert {file.relative_to(image / "testbed").as_posix() for file in (image / "testbed").rglob("*.so")} == {
        "shop/fast.so",
        "shop/latest.so",
    }


@pytest.mark.docker
def test_the_environment_of_an_image_is_used_as_if_activated(images: dict[str, str], project: Path, tmp_path: Path):
    provider = DockerProvider(images["conda"])
    interpreter = find_in_image(provider, project, None)
    assert interpreter is not None
    assert str(interpreter.executable) == f"{ENVIRONMENT}/bin/python"
    with provider.open(project, mount_at="/w") as sandbox:
        provide_interpreter(sandbox, interpreter)
        env = run_environment(sandbox, interpreter)
        script = "for p in python python3 tool conda; do command -v $p; done; python3 -c 'import sys; print(sys.prefix)'; pwd"
        lines = sandbox.exec(["sh", "-c", script], limits=LIMITS, env=env).stdout.decode().splitlines()
    programs = [f"{ENVIRONMENT}/bin/{name}" for name in ("python", "python3", "tool")]
    assert lines == [*programs, "/opt/miniconda3/bin/conda", ENVIRONMENT, "/testbed"]
    provider.close()


@pytest.mark.docker
def test_another_interpreter_does_not_replace_the_one_of_the_environment(images: dict[str, str], project: Path):
    """The project's dependencies are not installed there, even if pytest is."""
    provider = DockerProvider(images["conda"])
    with pytest.raises(ProjectError):
        find_in_image(WithoutPytest(provider), project, None)
    interpreter = find_in_image(provider, project, Path("/opt/miniconda3/bin/python3"))
    assert interpreter is not None
    assert interpreter.search_path.startswith("/opt/miniconda3/bin:")
    provider.close()


class WithoutPytest:
    """A provider whose environment has no distributions."""

    def __init__(self, provider: DockerProvider) -> None:
        self._provider = provider
        self.name, self.image = provider.name, provider.image
        self.image_digest, self.exec_in_image, self.probe = (
            provider.image_digest,
            provider.exec_in_image,
            provider.probe,
        )

    @contextlib.contextmanager
    def open(self, *arguments: object, **more: object) -> Iterator[WithoutPytest]:
        with self._provider.open(*arguments, **more) as self._sandbox:
            self.root, self.scratch = self._sandbox.root, self._sandbox.scratch
            yield self

    def exec(self, argv: Sequence[str], **more: object) -> ExecResult:
        flags = ["-I", "-S"] if argv[0].startswith(ENVIRONMENT) else []
        return self._sandbox.exec([argv[0], *flags, *argv[1:]], **more)
