"""The sandbox of another user keeps its guarantees, and what its users may not read or write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ssr.sandbox.contract import LIMITS
from pytest_ssr.sandbox.other_user import OtherUserProvider, OtherUserSandbox
from pytest_ssr.sandbox.protocol import ExecResult, Limits, Sandbox
from pytest_ssr.testing import SandboxContract

pytestmark = pytest.mark.user


@pytest.fixture(autouse=True)
def passable(tmp_path: Path) -> None:
    """Let other users pass through the temporary folders of pytest, which are private."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)


class TestOtherUser(SandboxContract):
    isolates = False

    @pytest.fixture
    def provider(self) -> OtherUserProvider:
        return OtherUserProvider()

    def python(self, sandbox: Sandbox, program: str, *args: str, limits: Limits = LIMITS) -> ExecResult:
        """Run a Python program with the machine's interpreter: that of the tests may be in a home directory."""
        return sandbox.exec(["/usr/bin/python3", "-I", "-c", program, *args], limits=limits)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[OtherUserSandbox]:
    (tmp_path / "file").write_text("x")
    with OtherUserProvider().open(tmp_path, mount_at="/w") as opened:
        yield opened


def shell(sandbox: OtherUserSandbox, script: str) -> str:
    return sandbox.exec(["sh", "-c", script], limits=Limits(wall_s=60)).stdout.decode()


def test_commands_have_neither_privileges_nor_the_files_of_others(sandbox: OtherUserSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the answer")
    secret.chmod(0o600)
    assert "answer" not in shell(sandbox, f"cat {secret}")
    assert shell(sandbox, f"echo 1 > {tmp_path}/reward; echo ended") == "ended\n"
    assert not (tmp_path / "reward").exists()
    assert shell(sandbox, "grep CapBnd /proc/self/status").split() == ["CapBnd:", "0" * 16]


def test_two_sandboxes_are_of_different_users(sandbox: OtherUserSandbox, tmp_path: Path) -> None:
    with OtherUserProvider().open(tmp_path, mount_at="/w") as other:
        assert shell(sandbox, "id -u") != shell(other, "id -u")
        assert "x" not in shell(other, f"cat {sandbox.root}/file")


def test_what_is_written_from_outside_belongs_to_the_user(sandbox: OtherUserSandbox) -> None:
    shell(sandbox, "true")
    sandbox.write("new/file.py", b"1")
    assert shell(sandbox, "echo 2 > new/file.py; touch new/other; cat new/file.py; ls new") == "2\nfile.py\nother\n"


AS_IN_A_CONTAINER = (
    """
import sys
from pathlib import Path
from pytest_ssr.sandbox.other_user import OtherUserProvider
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.sandbox.supervision import cgroup, process_table

cgroup.new_group = lambda limits: None
HIDES = """
    + repr("""
import os
for _ in range(30):
    if os.fork():
        continue
    for _ in range(3):
        if os.fork():
            os._exit(0)
        os.setsid()
    os.execve("/bin/sleep", ["sleep", "300"], {})
""")
    + """
with OtherUserProvider().open(Path(sys.argv[1]), mount_at="/w") as sandbox:
    user = int(sandbox.exec(["id", "-u"], limits=Limits(wall_s=60)).stdout)
    left = []
    # Some are found by their parents before these have ended.
    for _ in range(3):
        sandbox.exec(["/usr/bin/python3", "-I", "-c", HIDES], limits=Limits(wall_s=60))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            entry = process_table.entry_of(int(folder.name))
            left += [folder.name] if entry and not entry.ended and folder.stat().st_uid == user else []
        except OSError:
            pass
    print(left)
"""
)


def test_a_process_that_hides_its_origin_ends_with_the_command(tmp_path: Path) -> None:
    """As in a container, whose root has no control groups: neither its parents nor its environment show its origin."""
    command = [sys.executable, "-c", AS_IN_A_CONTAINER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
