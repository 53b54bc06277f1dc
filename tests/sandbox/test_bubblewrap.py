"""bubblewrap keeps the contract with overlay views and with copied ones, and its own guarantees."""

from __future__ import annotations

import errno
import json
import platform
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.bubblewrap import BubblewrapProvider, overlay_works
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.sandbox.supervision import seccomp
from pytest_ssr.testing import SandboxContract

pytestmark = pytest.mark.bubblewrap


class TestOverlay(SandboxContract):
    @pytest.fixture
    def provider(self) -> BubblewrapProvider:
        assert overlay_works()
        return BubblewrapProvider(overlay=True)


class TestCopied(SandboxContract):
    @pytest.fixture
    def provider(self) -> BubblewrapProvider:
        return BubblewrapProvider(overlay=False)


@pytest.mark.parametrize("mount_at", ["/", "relative", "/a/../b", "/scratch", "/usr", "/etc"])
def test_invalid_mount_points_are_rejected(tmp_path: Path, mount_at: str) -> None:
    with pytest.raises(SandboxError, match=f"a tree cannot be shown at '{mount_at}' inside a sandbox"):
        BubblewrapProvider().open(tmp_path, mount_at=mount_at)


def test_a_view_that_cannot_be_mounted_raises(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with BubblewrapProvider(overlay=True).open(tree, mount_at="/w") as sandbox:
        tree.rmdir()
        with pytest.raises(SandboxError, match="the sandbox does not start: "):
            sandbox.exec(["true"], limits=Limits())


def test_a_missing_working_directory_is_exit_code_126(tmp_path: Path) -> None:
    with BubblewrapProvider().open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.exec(["true"], limits=Limits(), cwd="absent").exit_code == 126


def test_modes_of_directories_survive_a_write(tmp_path: Path) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o750)
    with BubblewrapProvider().open(tmp_path, mount_at="/w") as sandbox:
        sandbox.write("closed/inner/file", b"")
        done = sandbox.exec(["stat", "-c", "%a", "closed"], limits=Limits())
    assert done.stdout == b"750\n"


def test_host_processes_and_descriptors_are_hidden(tmp_path: Path) -> None:
    with BubblewrapProvider().open(tmp_path, mount_at="/w") as sandbox:
        seen = sandbox.exec(["sh", "-c", "ls -d /proc/[0-9]* | wc -l; ls /proc/self/fd"], limits=Limits())
        nested = sandbox.exec(["unshare", "-Urpf", "--mount-proc", "true"], limits=Limits())
    assert int(seen.stdout.split()[0]) <= 5
    assert set(seen.stdout.split()[1:]) <= {b"0", b"1", b"2", b"3"}
    assert nested.exit_code != 0


def test_shared_memory_is_bounded(tmp_path: Path) -> None:
    limits = Limits(file_bytes=2**40)
    with BubblewrapProvider().open(tmp_path, mount_at="/w") as sandbox:
        for folder in ("/dev/shm", "/tmp"):
            done = sandbox.exec(["sh", "-c", f"head -c 300000000 /dev/zero > {folder}/x"], limits=limits)
            assert b"No space left on device" in done.stderr


def test_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert BubblewrapProvider().probe().works
    assert list(tmp_path.iterdir()) == []


CALLS = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, number in json.loads(sys.argv[1]).items():
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    found[name] = ctypes.get_errno()
libc.syscall(int(sys.argv[2]), 0x10000000, 0, 0, 0, 0)
found["clone"] = ctypes.get_errno()
libc.syscall(435, 0, 0)
found["clone3"] = ctypes.get_errno()
print(json.dumps(found))
"""


@pytest.mark.skipif(not seccomp.is_known_here(), reason="no filter for this processor")
def test_system_calls_that_expose_the_kernel_are_refused(tmp_path: Path) -> None:
    refused = {n: k for n, k in seccomp.refused(namespaces=False).items() if n != "syslog"}
    clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    readable = [Path(sys.prefix), Path(sys.base_prefix)]
    with BubblewrapProvider().open(tmp_path, mount_at="/w", readable=readable) as sandbox:
        argv = [sys.executable, "-I", "-c", CALLS, json.dumps(refused), str(clone)]
        errors = json.loads(sandbox.exec(argv, limits=Limits()).stdout)
        inner = sandbox.exec(["unshare", "--user", "true"], limits=Limits())
    assert errors.pop("clone3") == errno.ENOSYS
    assert len(errors) > 40
    assert {n: e for n, e in errors.items() if e != errno.EPERM} == {}
    assert inner.exit_code != 0


CACHE = """\
import os, sys

file = os.open(sys.executable, os.O_RDONLY)
for tell in (
    lambda: os.posix_fadvise(file, 0, 4096, os.POSIX_FADV_DONTNEED),
    lambda: os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT),
):
    try:
        tell()
    except PermissionError:
        print("refused")
print(len(os.pread(file, 4096, 0)))
"""


@pytest.mark.skipif(not seccomp.is_known_here(), reason="no filter for this processor")
def test_the_page_cache_carries_nothing_between_sandboxes(tmp_path: Path) -> None:
    """A run could otherwise drop pages of a shared file, and the next one see which are missing."""
    readable = [Path(sys.prefix), Path(sys.base_prefix)]
    with BubblewrapProvider().open(tmp_path, mount_at="/w", readable=readable) as sandbox:
        done = sandbox.exec([sys.executable, "-I", "-c", CACHE], limits=Limits())
    assert done.stdout.split() == [b"refused", b"refused", b"4096"], done.stderr


def test_the_fork_server_may_create_namespaces_and_nothing_else() -> None:
    allowed = set(seccomp.refused(namespaces=False)) - set(seccomp.refused(namespaces=True))
    assert allowed >= {"unshare", "mount", "setns"}
    assert "keyctl" in seccomp.refused(namespaces=True)
    for namespaces in (False, True):
        steps = len(seccomp.program(namespaces=namespaces)) / 8
        assert steps.is_integer()
        assert steps < 256


def test_a_session_that_does_not_start_leaves_the_sandbox_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(name: str, flags: int) -> int:
        raise OSError(errno.ENOMEM, "no memory")

    with BubblewrapProvider().open(tmp_path, mount_at="/w") as sandbox:
        with monkeypatch.context() as patch:
            patch.setattr(seccomp.os, "memfd_create", no_memory)
            with pytest.raises(OSError, match="no memory"):
                sandbox.converse(["true"], limits=Limits())
        assert not sandbox._lock.locked()
