"""The sandbox `apptainer`: a container without an engine, as clusters have it; no network, no home, no writable root.

Without an image the container's root is a folder of ours that shows the host's system directories, read-only. The tree
and scratch are copies in a folder that lies in memory where there is room, mounted at their places.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox import folders, seccomp
from pytest_ssr.sandbox.conversation import Conversation
from pytest_ssr.sandbox.files import PlainFiles, inside, make_folder, place
from pytest_ssr.sandbox.folder_backed import FolderBacked
from pytest_ssr.sandbox.host import checked_place, checked_readable, etc_files, shown_directories, shown_links, telling
from pytest_ssr.sandbox.local_command import LocalCommand
from pytest_ssr.sandbox.protocol import Availability, ExecResult, Limits
from pytest_ssr.sandbox.running import limited, run

_SCRATCH = "/scratch"
_LOWER = "/ssr-tree"
_OURS = ("/", "/proc", "/dev", "/etc", "/usr", "/sys", "/tmp", _SCRATCH, _LOWER)
_FILTER, _OPENED_FILTER = "filter.json", "opened-filter.json"
_INSTALL = "install it: https://apptainer.org/docs/admin/main/installation.html"
_USER = 1000
# Says that the command is reached; its environment is made by `env`, as what the program adds to it is not wanted.
_START = 'printf %s "$1" >&2; shift; exec env -i "PATH=$PATH" "$@"'


class ApptainerProvider:
    """Opens sandboxes of one image with the Apptainer that is installed.

    image: a `.sif` file, a folder, or a reference such as `docker://python:3.12`; none: the host's own system.
    """

    name = "apptainer"

    def __init__(self, image: str = "") -> None:
        self.image = str(Path(image).resolve()) if image and "://" not in image else image

    def probe(self) -> Availability:
        """Start one, now."""
        if shutil.which("apptainer") is None:
            return Availability(False, "apptainer is not installed", _INSTALL)
        if self.image and "://" not in self.image and not Path(self.image).exists():
            return Availability(False, f"there is no image {self.image}", "name a .sif file, a folder or docker://NAME")
        folder = folders.new_folder()
        try:
            with self.open(folder, mount_at="/tmp/ssr-trial") as sandbox:
                done = sandbox.exec(["true"], limits=Limits(wall_s=600 if "://" in self.image else 60))
            if done.exit_code != 0:
                return Availability(False, f"a trial command ended with {done.limit or done.exit_code}", _INSTALL)
        except (OSError, SandboxError) as error:
            return Availability(False, str(error), "apptainer exec --debug says more; user namespaces may be forbidden")
        finally:
            folders.discard(folder)
        shown = self.image or "the host's system, read-only"
        how = "" if os.geteuid() == 0 else "; by user namespaces, where /dev is its own and can be written"
        return Availability(
            True, f"{_version()}, {shown}, no network, no home, no capabilities, system calls filtered{how}"
        )

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> ApptainerSandbox:
        """Open a sandbox whose copy of the tree appears at `mount_at`."""
        if shutil.which("apptainer") is None:
            raise SandboxUnavailableError(f"apptainer is not installed; {_INSTALL}")
        return ApptainerSandbox(tree, image=self.image, mount_at=mount_at, readable=readable, hidden=hidden)

    def image_digest(self) -> str:
        """Return a hash of a `.sif`; of a folder or a reference its name, and when the folder was changed."""
        path = Path(self.image)
        try:
            if path.is_file():
                with path.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            changed = path.stat().st_mtime_ns if path.is_dir() else 0
        except OSError as error:
            raise SandboxError(f"the image {self.image} cannot be read: {error}") from None
        return f"{self.image} {changed}"


class ApptainerSandbox(FolderBacked):
    """A copied tree and a scratch folder; between commands nothing runs and nothing is mounted."""

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
        like: Self | None = None,
    ) -> None:
        self.root = checked_place(mount_at, _OURS)
        self.scratch = _SCRATCH
        self._image = image
        self._shown = () if image else tuple(p for p in checked_readable(readable) if p.exists())
        self._hidden = tuple(hidden)
        self._folder = folders.new_folder()
        self._tree, self._scratch = self._folder / "tree", self._folder / "scratch"
        self._shared = {"/tmp": self._folder / "tmp", "/dev/shm": self._folder / "shm"}
        try:
            folders.copy_tree(tree if like is None else like._tree, self._tree)
            if like is not None:
                folders.copy_tree(like._scratch, self._scratch)
            folders.prepare_scratch(self._scratch)
            for path in self._shared.values():
                path.mkdir()
                path.chmod(0o1777)
            (self._folder / "none").mkdir()
            (self._folder / "nil").touch()
            if not image:
                self._make_root()
            self._make_places()
            for name, namespaces in ((_FILTER, False), (_OPENED_FILTER, True)):
                (self._folder / name).write_text(json.dumps(_filter(namespaces=namespaces)))
        except BaseException as error:
            folders.discard(self._folder)
            if isinstance(error, OSError | shutil.Error):
                raise SandboxError(f"the sandbox's folder cannot be made: {error}") from None
            raise
        self._copied = self._written_in_all()

    def _make_root(self) -> None:
        """Make the root of a container without an image: links and a small `/etc`."""
        root = self._folder / "root"
        for name, data in etc_files().items():
            path = root / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name, target in shown_links().items():
            (root / name.lstrip("/")).symlink_to(target)
        for name in ("proc", "sys", "dev"):
            (root / name).mkdir()

    def _make_places(self) -> None:
        """Make a directory for each mount in what is mounted above it; in an image's own files the program does so.

        Commands can have put a link there, and the program, which is root at times, would follow it.
        """
        mounts = self._mounts()
        for seen in mounts:
            above = next((p for p in map(str, Path(seen).parents) if p in mounts), "/")
            source = self._folder / "root" if above == "/" else mounts[above][0]
            if not seen.startswith("/proc/") and (not self._image if above == "/" else mounts[above][1]):
                make_folder(source, os.path.relpath(seen, above))

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 are read as signals, as apptainer tells them."""
        inner = limited(argv, limits, place(self.root, cwd))
        reached = secrets.token_hex(16).encode()
        result = run(
            self._whole(inner, env, reached.decode(), namespaces=False),
            env=_own_environment(self._folder),
            stdin=stdin,
            limits=replace(limits, output_bytes=limits.output_bytes + len(reached)),
            written=self._written,
        )
        before, _, after = result.stderr.partition(reached)
        if result.limit is None and reached not in result.stderr:
            raise SandboxError(f"the sandbox does not start: {_last(before)}")
        code = result.exit_code
        if code is not None and code < 0:
            # A signal to the command is told as a shell does; this one hit the program, which nothing inside can reach.
            raise SandboxError(f"the sandbox was killed from outside (signal {-code})")
        if code is not None and 128 < code <= 192:
            code = 128 - code
        out = result.stdout[: limits.output_bytes]
        return replace(result, exit_code=code, stdout=out, stderr=after[: limits.output_bytes - len(out)])

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays; see Conversing."""
        command = LocalCommand(
            self._whole(limited(argv, limits, self.root), env, "", namespaces=True),
            env=_own_environment(self._folder),
            limits=limits,
            written=self._written,
        )
        return Conversation(command, limits)

    def _whole(
        self, inner: Sequence[str], env: Mapping[str, str] | None, reached: str, *, namespaces: bool
    ) -> list[str]:
        """Prepare the folders and return the program's whole command.

        reached: what is printed on standard error once the inner command is reached.
        """
        self._require_open()
        folders.prepare_scratch(self._scratch)
        self._make_places()
        self._give()
        variables = {**folders.environment(_SCRATCH), **(env or {})}
        if self._image and "PATH" not in (env or {}):
            del variables["PATH"]
        words = [f"{name}={value}" for name, value in variables.items()]
        start = ["/bin/sh", "-c", _START, "sh", reached, *words]
        return [*self._command(_OPENED_FILTER if namespaces else _FILTER), *start, *inner]

    def _command(self, filter_name: str) -> list[str]:
        words = ["apptainer", "--silent", "exec", "--containall", "--cleanenv", "--no-home", "--no-privs"]
        words += ["--security", f"seccomp:{self._folder / filter_name}"]
        words += ["--ipc", "--uts", "--pid", "--net", "--network", "none", "--no-mount", "home,tmp,cwd,bind-paths,sys"]
        if os.geteuid() == 0:
            words += ["--security", f"uid:{_USER}", "--security", f"gid:{_USER}"]
        for seen, (source, writable) in self._mounts().items():
            words += ["--mount", _mount(source, seen, writable=writable)]
        return [*words, "--pwd", "/", self._image or str(self._folder / "root")]

    def _mounts(self) -> dict[str, tuple[Path, bool]]:
        """Return what is mounted where, and whether it can be written; what lies below another comes after it."""
        found = {str(p): (p, False) for p in ([] if self._image else [*shown_directories(), *self._shown])}
        found["/proc/sys"] = (Path("/proc/sys"), False)
        found |= dict.fromkeys(telling(), (self._folder / "nil", False))
        found |= {self.root: (self._tree, True), _SCRATCH: (self._scratch, True), _LOWER: (self._tree, False)}
        found |= {seen: (path, True) for seen, path in self._shared.items()}
        found |= {p.rstrip("/"): (self._folder / ("none" if p.endswith("/") else "nil"), False) for p in self._hidden}
        return dict(sorted(found.items(), key=lambda item: item[0].count("/")))

    def _give(self) -> None:
        """Make the commands' user the owner of what was put in from outside."""
        if os.geteuid() == 0:
            # The program goes deeper than any path can be written.
            command = ["chown", "-hR", f"{_USER}:{_USER}", "--", str(self._tree), str(self._scratch)]
            subprocess.run(command, capture_output=True, check=False)

    def _written_in_all(self) -> int:
        return folders.disk_bytes(self._tree, self._scratch, *self._shared.values())

    def _written(self) -> int:
        return self._written_in_all() - self._copied

    def fork(self) -> Self:
        """Copy tree and scratch as they are now."""
        self._require_open()
        return type(self)(
            self._tree,
            image=self._image,
            mount_at=self.root,
            readable=self._shown,
            hidden=self._hidden,
            like=self,
        )

    def _place(self, path: str) -> tuple[PlainFiles, str]:
        self._require_open()
        in_scratch, relative = inside(path, self.root, self.scratch)
        return PlainFiles(self._scratch if in_scratch else self._tree), relative


def _mount(source: Path, seen: str, *, writable: bool) -> str:
    """Return a mount in the program's form, which is that of CSV: a field with quotes may hold commas."""
    fields = ["type=bind", f"source={source}", f"destination={seen}", *([] if writable else ["ro"])]
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def _filter(*, namespaces: bool) -> dict[str, object]:
    """Return the filter of system calls in the form of container runtimes; `namespaces` may still be made.

    `clone3` stays: it could only be refused as forbidden here, and C libraries do without it only where it is missing.
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
    """Return the variables of the program itself; none of the user's reach a container's start."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR")}
    kept |= {
        k: v for k, v in os.environ.items() if k.startswith("APPTAINER_DOCKER_") or k.endswith(("_proxy", "_PROXY"))
    }
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **kept, "APPTAINER_CONFIGDIR": str(folder)}


def _version() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["apptainer", "--version"], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.strip()
    return "apptainer"


def _last(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
