"""Start the containers of Harbor tasks with the Docker engine, and run commands and copy files in them.

Containers have the engine's default isolation and the network that their task names: a task may install packages, or
start a service. They end with this process at the latest; the next one removes what a kill has left behind.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from harness.harbor.command import ENGINE_ADVICE, MAX_OUTPUT_BYTES, Done, program, run_docker
from harness.harbor.compose import KEEP_ALIVE, MAIN, Project
from harness.harbor.schema import Healthcheck
from harness.harbor.task import Place
from pytest_ssr.errors import MissingExtraError, SandboxError
from pytest_ssr.patch import FileEntry
from pytest_ssr.sandbox.docker import engine, images
from pytest_ssr.sandbox.docker.reaper import owner, reap
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.protocol import MIB

if TYPE_CHECKING:
    pass

_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""Variables that builds get if they are set: addresses of mirrors, which images do not keep."""
_MAX_PROCESSES = 4096
_NOT_FOUND = 404
_FOLDER = 1 << 31
"""The bit of a folder in the engine's modes, which are Go's."""
_CHUNK = MIB


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which the next run removes if this process is killed."""
    folder = workdirs.new_folder(Path(tempfile.gettempdir()))
    try:
        inner = folder / "files"
        inner.mkdir()
        yield inner
    finally:
        workdirs.discard(folder)


class TooLargeError(SandboxError):
    """A file or folder of a container exceeds the limit for reading."""


class Engine:
    """A connection to the Docker engine, and the images that it was asked for."""

    def __init__(self) -> None:
        """Raise SandboxUnavailableError without an engine."""
        self._images: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        with self.guarded():
            self.client = engine.connect(timeout_s=120)
            self.client.ping()
            reap(self.client)
        workdirs.reap()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Convert exceptions of the SDK to errors with advice."""
        try:
            yield
        except (SandboxError, MissingExtraError):
            raise
        except Exception as error:
            raise engine.explain(error, ENGINE_ADVICE) from None

    def image(self, place: Place) -> str:
        """Return the id of the image of a container that stands alone, which is pulled or built if it is missing.

        Raises SandboxError, with the end of the engine's output, if that fails.
        """
        key = (place.image, str(place.folder))
        with self._lock:
            if key not in self._images:
                with self.guarded():
                    name = images.ensure_image(self.client, place.image) if place.image else self._built(place)
                    self._images[key] = str(self.client.images.get(name).id)
        return self._images[key]

    def _built(self, place: Place) -> str:
        arguments = [f"--build-arg={variable}" for variable in _PASSED_ON if os.environ.get(variable)]
        if not self._has_bridge:
            arguments.append("--network=host")
        with temporary_folder() as temporary:
            name = temporary / "id"
            done = run_docker(
                "build", "--quiet", *arguments, f"--iidfile={name}", str(place.folder),
                seconds=place.environment.build_timeout_sec, passed=_PASSED_ON,
            )  # fmt: skip
            if done.exit_code != 0:
                raise SandboxError(f"the image of {place.folder} cannot be built: {done.failure}")
            return name.read_text().strip()

    @property
    def _has_bridge(self) -> bool:
        """Whether builds have a network of their own."""
        return bool(self.client.networks.list(names=["bridge"]))

    def configuration(self, image: str) -> Mapping[str, Any]:
        """Return the configuration of an image: `WorkingDir`, `User` and others."""
        with self.guarded():
            return self.client.images.get(image).attrs["Config"] or {}

    @contextlib.contextmanager
    def started(self, place: Place, *, network: str) -> Iterator[Container]:
        """Start a container, with its services if its task has several, and remove it on exit.

        network: the mode of its network. Services need the compose plugin; see `require_compose`.
        """
        with contextlib.ExitStack() as stack:
            if place.compose is not None:
                container = stack.enter_context(self._project(place, network))
            else:
                container = stack.enter_context(self._alone(place, network))
            if place.environment.healthcheck is not None:
                container.wait_until_healthy(place.environment.healthcheck)
            yield container

    @contextlib.contextmanager
    def _alone(self, place: Place, network: str) -> Iterator[Container]:
        environment, image = place.environment, self.image(place)
        limits: dict[str, Any] = {"pids_limit": _MAX_PROCESSES}
        if environment.processors:
            limits["nano_cpus"] = int(environment.processors * 1e9)
        if environment.memory_bytes:
            limits["mem_limit"] = limits["memswap_limit"] = environment.memory_bytes
        if network != "public":
            limits["network_mode"] = "none"
        with self.guarded():
            api = self.client.api
            name = api.create_container(
                image,
                list(KEEP_ALIVE),
                environment=dict(environment.env),
                labels={images.LABEL: owner()},
                host_config=api.create_host_config(init=True, **limits),
            )["Id"]
        try:
            with self.guarded():
                api.start(name)
            yield Container(self, name, environment.workdir or "")
        finally:
            with contextlib.suppress(Exception):
                api.remove_container(name, force=True, v=True)

    @contextlib.contextmanager
    def _project(self, place: Place, network: str) -> Iterator[Container]:
        """Start all services of a compose file, as Harbor does: `main` is the agent's, and stays alive."""
        project = f"ssr-{uuid.uuid4().hex[:12]}"
        with temporary_folder() as temporary:
            compose = Project(project, place, temporary)
            with self.guarded():
                has_bridge = self._has_bridge
            compose.write(network, has_bridge=has_bridge)
            try:
                compose.run("up", "--detach", "--wait", "--quiet-pull", seconds=place.environment.build_timeout_sec)
                name = compose.run("ps", "--quiet", MAIN).output.strip()
                yield Container(self, name, place.environment.workdir or "", compose)
            finally:
                compose.run("down", "--volumes", "--remove-orphans", "--timeout=0", check=False)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


class Container:
    """A running container of a task."""

    def __init__(self, engine: Engine, name: str, workdir: str, compose: Project | None = None) -> None:
        """name: its id. workdir: the folder of all of its commands; an empty one is the image's own."""
        self._engine, self._name, self._compose = engine, name, compose
        with engine.guarded():
            config = engine.client.api.inspect_container(name)["Config"]
        self.workdir = workdir or config.get("WorkingDir") or "/"

    def exec(
        self, command: str, *, seconds: float, user: str = "", env: Mapping[str, str] | None = None, cwd: str = ""
    ) -> Done:
        """Run a command in bash; when its time is over, the container is killed and can run nothing more."""
        return self._exec(self._name, ["bash", "-c", command], seconds, user, env or {}, cwd or self.workdir)

    def _exec(
        self, name: str, argv: Sequence[str], seconds: float, user: str, env: Mapping[str, str], cwd: str
    ) -> Done:
        options = [part for key, value in env.items() for part in ("--env", f"{key}={value}")]
        options += ["--user", user] if user else []
        # The SDK's streams stay open when a command has ended.
        command = [program(), "exec", "--workdir", cwd, *options, name, *argv]
        over = threading.Event()
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:

            def kill() -> None:
                over.set()
                with contextlib.suppress(Exception):
                    self._engine.client.api.kill(name)
                process.kill()

            timer = threading.Timer(seconds, kill)
            timer.start()
            try:
                output = bytearray()
                assert process.stdout is not None
                while chunk := process.stdout.read(_CHUNK):
                    output += chunk
                    del output[:-MAX_OUTPUT_BYTES]
            except BaseException:
                process.kill()
                raise
            finally:
                timer.cancel()
        return Done(None if over.is_set() else process.returncode, output.decode("utf-8", "replace"))

    def wait_until_healthy(self, check: Healthcheck) -> None:
        """Run a task's check until it succeeds; raises SandboxError if it never does."""
        deadline = time.monotonic() + check.start_period_sec
        failures = 0
        while failures < max(1, check.retries):
            if self.exec(check.command, seconds=check.timeout_sec).exit_code == 0:
                return
            failures += time.monotonic() >= deadline
            time.sleep(check.interval_sec)
        raise SandboxError("the container never becomes healthy")

    def collect(self, command: str, *, service: str, seconds: float, user: str) -> Done:
        """Run a command of a task that prepares what is collected."""
        if service == MAIN:
            return self.exec(command, seconds=seconds, user=user)
        return self._exec(self._service(service), ["sh", "-c", command], seconds, user, {}, "/")

    def put_folder(self, source: Path, target: str) -> None:
        """Copy the content of a folder of this machine; links stay links."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            for path in sorted(source.iterdir()):
                archive.add(path, _below_root(target, path.name), filter=_of_root)
        self._put(target, raw.getvalue())

    def put_files(self, target: str, files: Mapping[str, FileEntry | None], *, owner_of: tuple[int, int]) -> None:
        """Write files and remove others, by their paths below a folder; they belong to a user and a group."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            for path in sorted(files):
                entry = files[path]
                if entry is None:
                    continue
                member = tarfile.TarInfo(_below_root(target, path))
                member.uid, member.gid = owner_of
                if entry.mode == 0o120000:
                    member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.data)
                    archive.addfile(member)
                else:
                    member.size, member.mode, member.mtime = len(entry.data), entry.mode & 0o777, int(time.time())
                    archive.addfile(member, io.BytesIO(entry.data))
        gone = [path for path, entry in files.items() if entry is None]
        for part in _parts_of(gone):
            self._exec(self._name, ["rm", "-f", "--", *(f"{target}/{path}" for path in part)], 60.0, "0", {}, "/")
        # As git does: a folder without files is gone, too.
        for part in _parts_of(_folders_above(gone)):
            script = 'cd "$0" && for folder; do rmdir -- "$folder" 2>/dev/null; done'
            self._exec(self._name, ["sh", "-c", script, target, *part], 60.0, "0", {}, "/")
        user = ":".join(map(str, owner_of))
        for part in _parts_of(_folders_above(path for path, entry in files.items() if entry is not None)):
            # The archive would make folders that belong to root.
            self._exec(self._name, ["mkdir", "-p", "--", *(f"{target}/{path}" for path in part)], 60.0, user, {}, "/")
        self._put(target, raw.getvalue())

    def _put(self, target: str, archive: bytes) -> None:
        """Unpack an archive whose files are below a folder, which is made if it is missing."""
        self._exec(self._name, ["mkdir", "-p", "--", target], 60.0, "0", {}, "/")
        with self._engine.guarded():
            # The engine refuses links that lead out of the folder that it unpacks in.
            self._engine.client.api.put_archive(self._name, "/", archive)

    def empty(self, folder: str) -> None:
        """Remove the content of a folder, which is made if it is missing and which everybody may write."""
        script = 'rm -rf -- "$0" 2>/dev/null; mkdir -p -- "$0" && chmod 0777 "$0"'
        self._exec(self._name, ["sh", "-c", script, folder], 60.0, "0", {}, "/")

    @contextlib.contextmanager
    def archive(self, path: str, *, service: str = MAIN, max_bytes: int) -> Iterator[tarfile.TarFile | None]:
        """Open the archive of a file or folder, to be read member by member; None if it does not exist.

        Raises SandboxError beyond a number of bytes.
        """
        name, api = self._name if service == MAIN else self._service(service), self._engine.client.api
        with self._engine.guarded():
            # The SDK's own method leaves the connection open if not everything is read.
            address = f"{api.base_url}/v{api.api_version}/containers/{name}/archive"
            response = api.get(address, params={"path": path}, stream=True, timeout=api.timeout)
            with contextlib.closing(response):
                if response.status_code == _NOT_FOUND:
                    yield None
                    return
                response.raise_for_status()
                chunks = response.iter_content(_CHUNK)
                with tarfile.open(fileobj=_Stream(chunks, path, max_bytes), mode="r|") as archive:
                    yield archive

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return a regular file; None if it is missing or something else. Raises SandboxError if it is larger."""
        with self.archive(path, max_bytes=max_bytes + 64 * 1024) as archive:
            member = archive.next() if archive is not None else None
            if archive is None or member is None or not member.isreg():
                return None
            file = archive.extractfile(member)
            return file.read() if file is not None else None

    def without_link(self, path: str, *, service: str = MAIN) -> str:
        """Return a path, or the folder that it leads to within the container if it is a link to one."""
        goal = self._stat(path, service).get("linkTarget")
        return str(goal) if goal and self._stat(goal, service).get("mode", 0) & _FOLDER else path

    def _stat(self, path: str, service: str) -> Mapping[str, Any]:
        with self._engine.guarded():
            name, api = self._name if service == MAIN else self._service(service), self._engine.client.api
            response = api.head(f"{api.base_url}/v{api.api_version}/containers/{name}/archive", params={"path": path})
            shown = response.headers.get("X-Docker-Container-Path-Stat", "")
            return dict(json.loads(base64.b64decode(shown) or b"{}"))

    def changed_paths(self) -> list[str]:
        """Return the files and folders that differ from the image."""
        with self._engine.guarded():
            return [str(change["Path"]) for change in self._engine.client.api.diff(self._name) or ()]

    def stop(self) -> None:
        """Kill all processes of the container; its services go on."""
        with contextlib.suppress(Exception):
            self._engine.client.api.kill(self._name)

    def _service(self, service: str) -> str:
        name = self._compose.container(service) if self._compose is not None else ""
        if not name:
            raise SandboxError(f"the task has no service {service}")
        return name


class _Stream(io.RawIOBase):
    """The chunks of a download as a file that can be read once, up to a number of bytes."""

    def __init__(self, chunks: Iterable[bytes], path: str, max_bytes: int) -> None:
        super().__init__()
        self._chunks, self._path, self._room, self._rest = iter(chunks), path, max_bytes, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._chunks, b"")
            self._room -= len(self._rest)
            if self._room < 0:
                raise TooLargeError(f"{self._path} is too large")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _folders_above(paths: Iterable[str]) -> list[str]:
    """Return the folders of relative paths, the deepest first."""
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"."}
    return sorted(folders, key=lambda folder: (-folder.count("/"), folder))


def _parts_of(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield paths in parts that fit on a command line."""
    yield from (paths[first : first + 500] for first in range(0, len(paths), 500))


def _below_root(target: str, path: str) -> str:
    return f"{target.strip('/')}/{path}".lstrip("/")


def relative_name(member: tarfile.TarInfo) -> str:
    """Return the path of a member below the folder that was archived; empty for the folder itself."""
    return "/".join(PurePosixPath(member.name).parts[1:])


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    return member


__all__ = ["Container", "Done", "Engine", "TooLargeError", "relative_name", "temporary_folder"]
