"""The sandbox `apptainer`: a container without an engine, as used on clusters; no network, home or writable root.

Without an image the container's root is a generated folder that shows the host's system directories, read-only. The
tree and scratch are copies in a folder, which lies in memory if there is room, mounted at their paths. An image in
SWE-bench's layout shows the tree at `/testbed`, with the files that it has there itself and git does not track.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.filesystem.built_files import TESTBED, BuiltFile, add_built_files, read_built_files
from pytest_ssr.sandbox.filesystem.directory_sandbox import DirectorySandbox
from pytest_ssr.sandbox.filesystem.safe_files import PlainFiles, locate, make_folder, working_directory
from pytest_ssr.sandbox.host import (
    checked_mount_point,
    checked_readable,
    etc_files,
    masked_proc_files,
    shown_directories,
    shown_links,
)
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.supervision import seccomp
from pytest_ssr.sandbox.supervision.local_session import LocalSession
from pytest_ssr.sandbox.supervision.output_listener import after_mark, listening
from pytest_ssr.sandbox.supervision.rpc_session import RpcSession
from pytest_ssr.sandbox.supervision.supervisor import run, with_limits

_SCRATCH = "/scratch"
_LOWER = "/ssr-tree"
_EMPTY = "/ssr-empty"
_OURS = ("/", "/proc", "/dev", "/etc", "/usr", "/sys", "/tmp", _SCRATCH, _LOWER)
_FILTER, _OPENED_FILTER = "filter.json", "opened-filter.json"
_INSTALL = "install it: https://apptainer.org/docs/admin/main/installation.html"
_USER = 1000
# Prints a token once the command is reached; `env` builds its environment without what the program adds to it.
_START = 'printf %s "$1" >&2; shift; exec env -i "PATH=$PATH" "$@"'


class ApptainerProvider:
    """Open sandboxes of one image with the installed Apptainer.

    image: a `.sif` file, a folder, or a reference such as `docker://python:3.12`; empty for the host's own system.
    """

    name = "apptainer"

    def __init__(self, image: str = "") -> None:
        self.image = str(Path(image).resolve()) if image and "://" not in image else image
        self._lock = threading.Lock()
        self._is_read = False
        self._built: tuple[BuiltFile, ...] | None = None

    def probe(self) -> Availability:
        """Run a trial command in a sandbox."""
        if shutil.which("apptainer") is None:
            return Availability(False, "apptainer is not installed", _INSTALL, is_missing=True)
        if self.image and "://" not in self.image and not Path(self.image).exists():
            return Availability(
                False, f"the image {self.image} does not exist", "name a .sif file, a folder or docker://NAME"
            )
        folder = workdirs.new_folder()
        try:
            with self.open(folder, mount_at="/tmp/ssr-trial") as sandbox:
                done = sandbox.exec(["true"], limits=Limits(wall_s=600 if "://" in self.image else 60))
            if done.exit_code != 0:
                return Availability(False, f"a trial command ended with {done.limit or done.exit_code}", _INSTALL)
        except (OSError, SandboxError) as error:
            return Availability(False, str(error), self._remedy())
        finally:
            workdirs.discard(folder)
        shown = self.image or "the host's system, read-only"
        note = "" if os.geteuid() == 0 else "; with user namespaces, whose /dev is private and writable"
        return Availability(
            True, f"{_version()}, {shown}, no network, no home, no capabilities, system calls filtered{note}"
        )

    def _remedy(self) -> str:
        """Return what to do about a trial that failed; one without the image shows whether the image is at fault."""
        if not self.image or not ApptainerProvider().probe().works:
            return "run apptainer exec --debug; user namespaces may be forbidden"
        if "://" in self.image:
            return f"check the image's name and that its registry can be reached: apptainer pull {self.image}"
        return f"check the image, because apptainer works without it: apptainer exec {self.image} true"

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> ApptainerSandbox:
        """Open a sandbox whose copy of the tree appears at `mount_at`, or at `/testbed` in images of SWE-bench."""
        if shutil.which("apptainer") is None:
            raise SandboxUnavailableError(f"apptainer is not installed; {_INSTALL}")
        built = self._built_files()
        root = mount_at if built is None else TESTBED
        # An empty tree is no project.
        shown = built if built and any(tree.iterdir()) else ()
        return ApptainerSandbox(tree, image=self.image, mount_at=root, readable=readable, hidden=hidden, built=shown)

    def exec_in_image(self, argv: Sequence[str], *, limits: Limits, stdin: bytes = b"") -> ExecResult:
        """Run a command in a container that shows all files of the image; see WithImage."""
        with (
            tempfile.TemporaryDirectory() as empty,
            ApptainerSandbox(Path(empty), image=self.image, mount_at=_EMPTY, readable=(), hidden=()) as sandbox,
        ):
            return sandbox.exec(argv, limits=limits, stdin=stdin, cwd="/")

    def _built_files(self) -> tuple[BuiltFile, ...] | None:
        """Return what the image has built in `/testbed`; None if it has no such folder."""
        if not self.image:
            return None
        with self._lock:
            if not self._is_read:
                run = self.exec_in_image
                self._built = read_built_files(lambda argv, stdin, limits: run(argv, limits=limits, stdin=stdin))
                self._is_read = True
            return self._built

    def image_digest(self) -> str:
        """Return a hash of a `.sif`; for a folder or reference its name and the folder's modification time."""
        path = Path(self.image)
        try:
            if path.is_file():
                with path.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            modified_ns = path.stat().st_mtime_ns if path.is_dir() else 0
        except OSError as error:
            raise SandboxError(f"the image {self.image} cannot be read: {error}") from None
        return f"{self.image} {modified_ns}"


class ApptainerSandbox(DirectorySandbox):
    """A copied tree and a scratch folder; nothing runs and nothing is mounted between commands."""

    private = ("/tmp", "/dev/shm")
    lower = _LOWER

    def __init__(
        self,
        tree: Path,
        *,
        image: str,
        mount_at: str,
        readable: Sequence[Path],
        hidden: Sequence[str],
        built: Sequence[BuiltFile] = (),
    ) -> None:
        self.root = checked_mount_point(mount_at, _OURS)
        self.scratch = _SCRATCH
        self._image = image
        self._shown = () if image else tuple(p for p in checked_readable(readable) if p.exists())
        self._hidden = tuple(hidden)
        self._folder = workdirs.new_folder()
        self._tree, self._scratch = self._folder / "tree", self._folder / "scratch"
        self._shared = {"/tmp": self._folder / "tmp", "/dev/shm": self._folder / "shm"}
        try:
            workdirs.copy_tree(tree, self._tree)
            self.built = add_built_files(built, self._tree)
            workdirs.prepare_scratch(self._scratch)
            for path in self._shared.values():
                path.mkdir()
                path.chmod(0o1777)
            (self._folder / "none").mkdir()
            (self._folder / "nil").touch()
            if not image:
                self._make_root()
            self._make_mount_points()
            for name, namespaces in ((_FILTER, False), (_OPENED_FILTER, True)):
                (self._folder / name).write_text(json.dumps(_filter(namespaces=namespaces)))
        except BaseException as error:
            workdirs.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the sandbox's folder cannot be created: {error}") from None
            raise
        self._copied = self._total_bytes()

    def _make_root(self) -> None:
        """Create the root of a container without an image: symlinks and a small `/etc`."""
        root = self._folder / "root"
        for name, data in etc_files().items():
            path = root / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name, target in shown_links().items():
            (root / name.lstrip("/")).symlink_to(target)
        for name in ("proc", "sys", "dev"):
            (root / name).mkdir()

    def _make_mount_points(self) -> None:
        """Create a directory for each mount point inside another mount; inside an image the program does so itself.

        A command may have put a symlink there, and the program, which sometimes runs as root, would follow it.
        """
        mounts = self._mounts()
        for seen in mounts:
            parent = next((p for p in map(str, Path(seen).parents) if p in mounts), "/")
            source = self._folder / "root" if parent == "/" else mounts[parent][0]
            if not seen.startswith("/proc/") and (not self._image if parent == "/" else mounts[parent][1]):
                make_folder(source, os.path.relpath(seen, parent))

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 count as signals, as apptainer reports them so."""
        inner = with_limits(argv, limits, working_directory(self.root, cwd))
        token = secrets.token_hex(16).encode()
        # Standard error begins with the token, which is not the command's.
        with listening(after_mark(token)):
            result = run(
                self._prepared_command(inner, env, token.decode(), namespaces=False),
                env=_own_environment(self._folder),
                stdin=stdin,
                limits=replace(limits, output_bytes=limits.output_bytes + len(token)),
                written=self._written,
            )
        before, _, after = result.stderr.partition(token)
        if result.limit is None and token not in result.stderr:
            raise SandboxError(f"the sandbox does not start: {_last_line(before)}")
        code = result.exit_code
        if code is not None and code < 0:
            # A signal to the command is reported as by a shell; this one hit the program, out of reach from inside.
            raise SandboxError(f"the sandbox was killed from outside (signal {-code})")
        if code is not None and 128 < code <= 192:
            code = 128 - code
        out = result.stdout[: limits.output_bytes]
        return replace(result, exit_code=code, stdout=out, stderr=after[: limits.output_bytes - len(out)])

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> RpcSession:
        """Start a long-running command; see Conversing."""
        command = LocalSession(
            self._prepared_command(with_limits(argv, limits, self.root), env, "", namespaces=True),
            env=_own_environment(self._folder),
            limits=limits,
            written=self._written,
        )
        return RpcSession(command, limits)

    def _prepared_command(
        self, inner: Sequence[str], env: Mapping[str, str] | None, token: str, *, namespaces: bool
    ) -> list[str]:
        """Prepare the folders and return the complete command line.

        token: printed on standard error right before the inner command starts.
        """
        self._require_open()
        workdirs.prepare_scratch(self._scratch)
        self._make_mount_points()
        self._chown_to_user()
        variables = {**workdirs.environment(_SCRATCH), **(env or {})}
        if self._image and "PATH" not in (env or {}):
            del variables["PATH"]
        assignments = [f"{name}={value}" for name, value in variables.items()]
        start = ["/bin/sh", "-c", _START, "sh", token, *assignments]
        return [*self._command(_OPENED_FILTER if namespaces else _FILTER), *start, *inner]

    def _command(self, filter_name: str) -> list[str]:
        command = ["apptainer", "--silent", "exec", "--containall", "--cleanenv", "--no-home", "--no-privs"]
        command += ["--security", f"seccomp:{self._folder / filter_name}"]
        command += ["--ipc", "--uts", "--pid", "--net", "--network", "none"]
        command += ["--no-mount", "home,tmp,cwd,bind-paths,sys"]
        if os.geteuid() == 0:
            command += ["--security", f"uid:{_USER}", "--security", f"gid:{_USER}"]
        for seen, (source, writable) in self._mounts().items():
            command += ["--mount", _mount(source, seen, writable=writable)]
        return [*command, "--pwd", "/", self._image or str(self._folder / "root")]

    def _mounts(self) -> dict[str, tuple[Path, bool]]:
        """Return the source of each mount point and whether it is writable; nested ones follow their parents."""
        mounts = {str(p): (p, False) for p in ([] if self._image else [*shown_directories(), *self._shown])}
        mounts["/proc/sys"] = (Path("/proc/sys"), False)
        mounts |= dict.fromkeys(masked_proc_files(), (self._folder / "nil", False))
        mounts |= {self.root: (self._tree, True), _SCRATCH: (self._scratch, True), _LOWER: (self._tree, False)}
        mounts |= {seen: (path, True) for seen, path in self._shared.items()}
        mounts |= {p.rstrip("/"): (self._folder / ("none" if p.endswith("/") else "nil"), False) for p in self._hidden}
        return dict(sorted(mounts.items(), key=lambda item: item[0].count("/")))

    def _chown_to_user(self) -> None:
        """Make the commands' user the owner of files written from outside."""
        if os.geteuid() == 0:
            # The program also reaches files that are nested too deep for a path to name them.
            command = ["chown", "-hR", f"{_USER}:{_USER}", "--", str(self._tree), str(self._scratch)]
            subprocess.run(command, capture_output=True, check=False)

    def _total_bytes(self) -> int:
        return workdirs.disk_bytes(self._tree, self._scratch, *self._shared.values())

    def _written(self) -> int:
        return self._total_bytes() - self._copied

    def _locate(self, path: str) -> tuple[PlainFiles, str]:
        self._require_open()
        in_scratch, relative = locate(path, self.root, self.scratch)
        return PlainFiles(self._scratch if in_scratch else self._tree), relative


def _mount(source: Path, seen: str, *, writable: bool) -> str:
    """Return the argument of `--mount`, which is a line of CSV: a quoted field may contain commas."""
    fields = ["type=bind", f"source={source}", f"destination={seen}", *([] if writable else ["ro"])]
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def _filter(*, namespaces: bool) -> dict[str, object]:
    """Return the system call filter in the format of container runtimes; `namespaces` allows new namespaces.

    `clone3` is allowed: it could only be refused with EPERM here, and C libraries fall back only if it is missing.
    """
    refused: list[object] = [
        {"names": list(seccomp.refused(namespaces=namespaces)), "action": "SCMP_ACT_ERRNO", "args": []}
    ]
    bits = [] if namespaces else [1 << n for n in range(32) if seccomp.NEW_NAMESPACES >> n & 1]
    for bit in bits:
        flags = {"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}
        refused.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [flags]})
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [], "syscalls": refused}


def _own_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the program itself, without the user's other variables."""
    variables = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR")}
    variables |= {
        k: v for k, v in os.environ.items() if k.startswith("APPTAINER_DOCKER_") or k.endswith(("_proxy", "_PROXY"))
    }
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **variables, "APPTAINER_CONFIGDIR": str(folder)}


def _version() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["apptainer", "--version"], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.strip()
    return "apptainer"


def _last_line(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no error output"
