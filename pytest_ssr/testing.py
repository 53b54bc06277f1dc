"""Provide test helpers for this package and its plugins: a fake sandbox, and the contract tests for sandboxes.

Subclass `SandboxContract` under a name that pytest collects, and define a fixture `provider`; each method `holds_x` or
`isolates_x` becomes a test `test_x`. With `isolates = False` the methods `isolates_x` are omitted.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.contract import LIMITS, LimitContract
from pytest_ssr.sandbox.fake import FakeCall, FakeSandbox, FakeSandboxProvider, fake_result
from pytest_ssr.sandbox.protocol import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ssr.sandbox.protocol import Sandbox, SandboxProvider

__all__ = ["FakeCall", "FakeSandbox", "FakeSandboxProvider", "SandboxContract", "fake_result"]

_DEEP = "d=x; for i in 1 2 3 4 5 6 7 8 9 10; do d=$d/$d; done; mkdir -p $d"
_CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 2)"


class SandboxContract(LimitContract):
    """The guarantees of the sandbox protocol, one test each."""

    isolates: ClassVar[bool] = True
    """Whether the provider hides home, mounts at the requested path, and blocks the network and other paths."""

    def __init_subclass__(cls) -> None:
        for name in dir(cls):
            kind, _, rest = name.partition("_")
            if rest and (kind == "holds" or (kind == "isolates" and cls.isolates)):
                setattr(cls, f"test_{rest}", getattr(cls, name))

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        """A small tree with a mode, a link and a nested directory."""
        tree = tmp_path / "the tree"
        (tree / "package" / "inner").mkdir(parents=True)
        (tree / "package" / "module.py").write_text("original\n")
        (tree / "package" / "inner" / "deep.txt").write_text("deep\n")
        (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (tree / "run.sh").chmod(0o755)
        (tree / "link").symlink_to("package")
        return tree

    @pytest.fixture
    def sandbox(self, provider: SandboxProvider, tree: Path) -> Iterator[Sandbox]:
        """One open sandbox that may read this interpreter."""
        readable = sorted({Path(sys.prefix), Path(sys.base_prefix)})
        with provider.open(tree, mount_at="/home/a user/pro:ject,x", readable=readable) as sandbox:
            yield sandbox

    def holds_probe_works(self, provider: SandboxProvider) -> None:
        """The probe works and reports details."""
        availability = provider.probe()
        assert availability.works, f"{availability.detail}; {availability.remedy}"
        assert availability.detail

    def holds_writes_are_kept_and_private(self, sandbox: Sandbox, tree: Path) -> None:
        """Writes, deletions and modes persist from one command to the next and never reach the tree."""
        script = "echo new > package/module.py; rm package/inner/deep.txt; chmod 644 run.sh; echo x > added"
        assert self.sh(sandbox, script).exit_code == 0
        seen = self.sh(
            sandbox, "cat package/module.py added; test ! -e package/inner/deep.txt; echo $?; test -x run.sh"
        )
        assert (seen.stdout, seen.exit_code) == (b"new\nx\n0\n", 1)
        assert (tree / "package" / "module.py").read_text() == "original\n"
        assert (tree / "package" / "inner" / "deep.txt").exists()
        assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
        assert not (tree / "added").exists()

    def holds_replaced_directory_hides_the_old(self, sandbox: Sandbox) -> None:
        """A directory that was removed and created again shows nothing of the old one."""
        self.sh(sandbox, "rm -r package; mkdir package; echo y > package/fresh")
        assert sandbox.read("package/fresh") == b"y\n"
        with pytest.raises(FileNotFoundError):
            sandbox.read("package/module.py")

    def holds_files_from_outside(self, sandbox: Sandbox) -> None:
        """Commands see files that were written and removed from outside."""
        assert sandbox.read("package/module.py") == b"original\n"
        sandbox.write("package/inner/made/tool", b"#!/bin/sh\necho tool\n", executable=True)
        sandbox.write(f"{sandbox.scratch}/note", b"note")
        sandbox.remove("package/module.py")
        sandbox.remove("package/never")
        done = self.sh(sandbox, 'package/inner/made/tool; cat "$1/note"; ls package package/inner', sandbox.scratch)
        assert done.stdout == b"tool\nnotepackage:\ninner\n\npackage/inner:\ndeep.txt\nmade\n"
        with pytest.raises(FileNotFoundError):
            sandbox.read("package/module.py")
        sandbox.write("package/module.py", b"back")
        assert self.sh(sandbox, "cat package/module.py").stdout == b"back"

    def holds_file_and_directory_change_places(self, sandbox: Sandbox) -> None:
        """A file can replace an emptied directory, and a directory a removed file."""
        sandbox.remove("package/inner/deep.txt")
        sandbox.write("package/inner", b"now a file")
        sandbox.remove("run.sh")
        sandbox.write("run.sh/below", b"now a directory")
        assert self.sh(sandbox, "cat package/inner run.sh/below; ls run.sh").stdout == (
            b"now a filenow a directorybelow\n"
        )

    def holds_read_limit(self, sandbox: Sandbox) -> None:
        """A file that is too large is refused."""
        with pytest.raises(SandboxError, match="larger than 3 bytes"):
            sandbox.read("package/module.py", max_bytes=3)

    def holds_exit_codes(self, sandbox: Sandbox) -> None:
        """Exit statuses, signals and missing programs can be distinguished."""
        assert [self.sh(sandbox, f"exit {n}").exit_code for n in (0, 3, 255)] == [0, 3, 255]
        assert self.sh(sandbox, "kill -9 $$").exit_code == -signal.SIGKILL
        assert self.sh(sandbox, "kill -15 $$").exit_code == -signal.SIGTERM
        missing = sandbox.exec(["no-such-program"], limits=LIMITS)
        assert (missing.exit_code, missing.limit) == (127, None)
        assert b"no-such-program" in missing.stderr

    def holds_streams_and_stdin(self, sandbox: Sandbox) -> None:
        """20 MiB of input and output pass unchanged, and unread input is harmless."""
        data = os.urandom(MIB) * 20
        limits = replace(LIMITS, output_bytes=64 * MIB)
        done = sandbox.exec(["sh", "-c", "cat; echo e >&2"], limits=limits, stdin=data)
        assert done.stdout == data
        assert done.stderr == b"e\n"
        assert sandbox.exec(["true"], limits=limits, stdin=data).exit_code == 0
        assert sandbox.exec(["cat"], limits=LIMITS).stdout == b""

    def holds_directory(self, sandbox: Sandbox) -> None:
        """A command starts in the root or in the given directory."""
        assert os.fsdecode(self.sh(sandbox, "pwd").stdout.strip()) == sandbox.root
        for cwd in ("package", f"{sandbox.root}/package"):
            done = sandbox.exec(["ls"], limits=LIMITS, cwd=cwd)
            assert done.stdout == b"inner\nmodule.py\n"

    def holds_environment(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        """The caller's variables are hidden, given ones are passed on, and HOME and TMPDIR are writable."""
        monkeypatch.setenv("SSR_PLANTED_SECRET", "secret")
        done = sandbox.exec(["env"], limits=LIMITS, env={"GIVEN": "a b\nc"})
        assert b"secret" not in done.stdout
        assert b"GIVEN=a b\nc\n" in done.stdout
        assert f"HOME={sandbox.scratch}/".encode() in done.stdout
        assert self.sh(sandbox, 'echo x > "$TMPDIR/t" && echo x > "$HOME/h"').exit_code == 0

    def isolates_place(self, sandbox: Sandbox) -> None:
        """The tree appears at the requested path."""
        assert sandbox.root == "/home/a user/pro:ject,x"

    def isolates_home(self, provider: SandboxProvider, tree: Path) -> None:
        """Files of the home directory cannot be read, and the whole of it cannot be requested."""
        with tempfile.NamedTemporaryFile(dir=Path.home()) as planted, provider.open(tree, mount_at="/w") as sandbox:
            Path(planted.name).write_text("private")
            assert self.sh(sandbox, 'cat "$1"', planted.name).exit_code == 1
        with pytest.raises(SandboxError, match="whole home"):
            provider.open(tree, mount_at="/w", readable=[Path.home()])

    def isolates_writes_outside(self, sandbox: Sandbox) -> None:
        """Nothing outside the view and scratch can be written, including kernel settings."""
        # The setting is written back unchanged, so that a sandbox that breaks the guarantee does no harm.
        paths = ("/planted", "/usr/planted", "/etc/planted", "/dev/planted", "/home/planted")
        for path in paths:
            assert self.sh(sandbox, 'echo x > "$1"', path).exit_code != 0, path
        setting = "/proc/sys/kernel/core_pattern"
        assert self.sh(sandbox, 'v=$(cat "$1") && echo "$v" > "$1"', setting).exit_code != 0

    def isolates_kernel(self, sandbox: Sandbox) -> None:
        """The kernel's lists of the host's keys and of other processes' timers are hidden."""
        for path in ("/proc/keys", "/proc/timer_list"):
            assert self.sh(sandbox, 'cat "$1" 2>/dev/null', path).stdout == b"", path

    def isolates_readable(self, provider: SandboxProvider, tree: Path, tmp_path: Path) -> None:
        """Requested paths are readable at their own location, also below the view, and not writable."""
        for name in ("library", "view/.venv"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "file").write_text("host\n")
        readable = [tmp_path / "library", tmp_path / "view" / ".venv", tmp_path / "absent"]
        with provider.open(tree, mount_at=str(tmp_path / "view"), readable=readable) as sandbox:
            done = self.sh(sandbox, "cat ../library/file .venv/file run.sh; echo x > .venv/file", limits=LIMITS)
        assert done.stdout == b"host\nhost\n#!/bin/sh\necho ran\n"
        assert done.exit_code != 0

    def isolates_hidden(self, provider: SandboxProvider, tree: Path, tmp_path: Path) -> None:
        """Hidden paths exist, are empty, and cannot be written; their siblings are unchanged."""
        library = tmp_path / "library"
        (library / "copied" / "inner").mkdir(parents=True)
        for name in ("copied/inner/a.py", "copied/b.py", "alone.py", "kept.py"):
            (library / name).write_text("host\n")
        hidden = [f"{library}/copied/", f"{library}/alone.py"]
        with provider.open(tree, mount_at="/w", readable=[library], hidden=hidden) as sandbox:
            done = self.sh(sandbox, 'cd "$1"; ls . copied; cat alone.py kept.py; echo x > copied/b.py', str(library))
        assert done.stdout == b".:\nalone.py\ncopied\nkept.py\n\ncopied:\nhost\n"
        assert done.exit_code != 0

    def isolates_network(self, sandbox: Sandbox) -> None:
        """Neither the network nor the host can be reached; the sandbox has its own loopback."""
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            done = self.python(sandbox, _CONNECT.format(port=server.getsockname()[1]))
        assert b"ConnectionRefusedError" in done.stderr
        assert self.python(sandbox, "import socket; socket.create_connection(('192.0.2.1', 9), 5)").exit_code == 1
        own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
        assert self.python(sandbox, own).exit_code == 0

    def holds_planted_links_and_devices(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Planted links, fifos and devices are neither followed nor opened."""
        (tmp_path / "victim").write_text("victim")
        script = 'ln -s "$1" dir; ln -s "$1/victim" file; mkfifo fifo; ln -s /dev/zero zero; mkdir d; ln -s / d/up'
        assert self.sh(sandbox, script, str(tmp_path)).exit_code == 0
        for path in ("dir/victim", "file", "fifo", "zero", "d", f"d/up{tmp_path}/victim", "link/module.py"):
            with pytest.raises(FileNotFoundError):
                sandbox.read(path)
        for path in ("dir/victim", f"d/up{tmp_path}/victim", "link/module.py"):
            sandbox.remove(path)
            with pytest.raises(SandboxError, match="a parent is a link or a file"):
                sandbox.write(path, b"attack")
        for path in ("file", "fifo"):
            sandbox.write(path, b"replaced")
            assert sandbox.read(path) == b"replaced"
        sandbox.remove("file")
        assert self.sh(sandbox, "cat package/module.py").stdout == b"original\n"
        assert (tmp_path / "victim").read_text() == "victim"

    def holds_paths_that_leave_are_refused(self, sandbox: Sandbox) -> None:
        """A path that leaves the sandbox or is not plain is refused."""
        root = sandbox.root
        for path in ("../x", "/etc/passwd", f"{root}/../x", f"{root}x/y", "a//b", "./a", "", "/", root, "a\0b"):
            for act in (sandbox.read, sandbox.remove, lambda p: sandbox.write(p, b"")):
                with pytest.raises(SandboxError, match="is not a plain path inside the sandbox"):
                    act(path)

    def holds_names_that_are_not_utf8(self, sandbox: Sandbox) -> None:
        """File names that are not UTF-8 work everywhere."""
        assert self.sh(sandbox, r"""printf x > "$(printf 'a\377b')" """).exit_code == 0
        assert sandbox.read(os.fsdecode(b"a\xffb")) == b"x"
        sandbox.write(os.fsdecode(b"c\xff"), b"y")
        assert b"a\xffb\nc\xff\n" in self.sh(sandbox, "ls | cat").stdout

    def holds_close_removes_everything(self, provider: SandboxProvider, tree: Path, tmp_path: Path) -> None:
        """Closing leaves no file, however deep or unreadable; using a closed sandbox raises an error."""
        (tmp_path / "tmp").mkdir()
        with provider.open(tree, mount_at="/w") as first:
            # Create now what a provider keeps for all of its sandboxes.
            self.sh(first, "true")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
            sandbox = provider.open(tree, mount_at="/w")
            assert self.sh(sandbox, "mkdir -p a/b && echo x > a/b/c && chmod 0 a/b a").exit_code == 0
            deep = self.sh(sandbox, f'cd "$1"; {_DEEP}', sandbox.scratch)
            assert (deep.exit_code, deep.limit) == (0, None)
            assert len(list((tmp_path / "tmp").iterdir())) <= 1
            sandbox.close()
            sandbox.close()
        assert list((tmp_path / "tmp").iterdir()) == []
        with pytest.raises(SandboxError, match="the sandbox is closed"):
            sandbox.exec(["true"], limits=LIMITS)
