"""The sandbox `docker`: a container without network, capabilities or a writable root, using the Docker SDK.

Without an image the container shows the host's system directories and interpreter, read-only, as bubblewrap does;
with one (`docker:IMAGE`) nothing of the host. The tree and scratch are file systems in memory, filled by archive
streams. When a sandbox is closed, its container is emptied and reused for the next sandbox with the same spec, if its
state is then the same as when it was new. It ends with this process, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from pytest_ssr.errors import MissingExtraError, SandboxError
from pytest_ssr.sandbox.docker import engine, images
from pytest_ssr.sandbox.docker.archive import Packed, pack_tree, tree_stamp
from pytest_ssr.sandbox.docker.container import Container, ContainerSpec
from pytest_ssr.sandbox.docker.container_spec import LOWER
from pytest_ssr.sandbox.docker.reaper import reap
from pytest_ssr.sandbox.docker.session import ContainerSession
from pytest_ssr.sandbox.filesystem.built_files import TESTBED, BuiltFile, read_built_files
from pytest_ssr.sandbox.filesystem.safe_files import locate, working_directory
from pytest_ssr.sandbox.filesystem.workdirs import environment
from pytest_ssr.sandbox.host import checked_mount_point, checked_readable
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, Image, Limits
from pytest_ssr.sandbox.supervision.rpc_session import RpcSession

if TYPE_CHECKING:
    import docker

_SCRATCH = "/scratch"
_RESERVED = ("/", "/proc", "/dev", "/etc", "/usr", "/sys", "/tmp", _SCRATCH, LOWER)
_EMPTY = "/ssr-empty"
_MAX_IDLE = 4
_INSTALL_ENGINE = "install and start it: apt-get install docker.io, systemctl start docker"
_GVISOR_URL = "https://gvisor.dev/docs/user_guide/quick_start/docker/"
T = TypeVar("T")


class DockerProvider:
    """Open sandboxes in containers of one image.

    image: name, name:tag or name@digest; empty for the host's own system, which needs an engine on this machine. An
    image in SWE-bench's layout shows the tree at `/testbed`, with the files that it has there itself and git does not
    track. runtime: such as `runsc` (gVisor); empty for the engine's
    default. cpus: the number of processors a container may use.
    """

    def __init__(self, image: str = "", *, runtime: str = "", cpus: float = 2.0) -> None:
        self.name = "gvisor" if runtime else "docker"
        self.image, self._runtime, self._cpus = image, runtime, cpus
        self._lock = threading.Lock()
        self._client: docker.DockerClient | None = None
        self._idle: list[Container] = []
        self._archives: dict[tuple[Path, int], Packed] = {}
        self._testbed: bool | None = None
        self._built: tuple[BuiltFile, ...] | None = None
        self._reading = threading.Lock()
        atexit.register(self.close)

    def probe(self) -> Availability:
        """Run a trial command in a container, which is kept for reuse if it works."""
        try:
            availability = self._probe()
        except MissingExtraError as error:
            availability = Availability(False, "the package docker is not installed", error.remedy, is_missing=True)
        except SandboxError as error:
            availability = Availability(False, error.message, error.remedy or _INSTALL_ENGINE)
        if not availability.works:
            self.close()
        return availability

    def _probe(self) -> Availability:
        with self._guarded():
            client = self._engine()
            reap(client)
            version = f"{'Podman' if engine.is_podman(client) else 'Docker'} {client.version()['Version']}"
            if self._runtime and self._runtime not in client.info().get("Runtimes", {}):
                return Availability(False, f"the engine has no runtime {self._runtime}", f"register it: {_GVISOR_URL}")
        with tempfile.TemporaryDirectory() as empty, self.open(Path(empty), mount_at="/tmp/ssr-trial") as sandbox:
            done = sandbox.exec(["true"], limits=Limits(wall_s=60))
        if done.exit_code != 0:
            return Availability(False, f"a trial command ended with {done.limit or done.exit_code}", _INSTALL_ENGINE)
        shown = self.image or "the host's system, read-only"
        runtime = f" on {self._runtime}" if self._runtime else ""
        return Availability(True, f"{version}{runtime}, {shown}, no network, no home, no capabilities")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> DockerSandbox:
        """Open a sandbox whose copy of the tree lies at `mount_at`, or at `/testbed` in images of SWE-bench."""
        root = TESTBED if self._is_testbed() else checked_mount_point(mount_at, _RESERVED)
        shown = () if self.image else tuple(p for p in checked_readable(readable) if p.exists())
        spec = self._spec(root, shown, hidden)
        return self._open(spec, self._packed(tree, spec))

    def _spec(self, root: str, shown: Sequence[Path] = (), hidden: Sequence[str] = ()) -> ContainerSpec:
        return ContainerSpec(self.image, self._runtime, self._cpus, root, _SCRATCH, tuple(shown), tuple(hidden))

    def _open(self, spec: ContainerSpec, packed: Packed | None = None) -> DockerSandbox:
        container = self._container(spec)
        sandbox = DockerSandbox(self, container, packed.built if packed is not None else frozenset())
        try:
            with self._guarded():
                if packed is not None:
                    container.shell.unpack(spec.root, packed.archive)
                sandbox._prepare()
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def exec_in_image(self, argv: Sequence[str], *, limits: Limits, stdin: bytes = b"") -> ExecResult:
        """Run a command in a container that shows all files of the image; see WithImage."""
        with self._open(self._spec(_EMPTY)) as sandbox:
            return sandbox.exec(argv, limits=limits, stdin=stdin, cwd="/")

    def close(self) -> None:
        """Remove the containers that are kept for reuse and close the connection to the engine."""
        with self._lock:
            idle, self._idle = self._idle, []
            client, self._client = self._client, None
        for container in idle:
            container.remove()
        if client is not None:
            client.close()

    def connect(self) -> None:
        """Connect to the engine; raises SandboxUnavailableError with advice if that fails."""
        with self._guarded():
            self._engine()

    def local_size(self, image: str) -> int | None:
        """Return the bytes of an image, or None if it has to be pulled; raises SandboxError without an engine."""
        with self._guarded():
            entry = images.find_image(self._engine(), image)
        return entry[1] if entry is not None else None

    def local_images(self) -> list[Image]:
        """Return the images of the engine, by name; see HoldsImages."""
        with self._guarded():
            return images.list_images(self._engine())

    def pull(self, image: str) -> Image:
        """Pull an image if it is missing; see HoldsImages."""
        with self._guarded():
            found = self._engine().images.get(images.ensure_image(self._engine(), image))
            return Image(image, str(found.id), int(found.attrs["Size"]))

    def remove_image(self) -> None:
        """Remove the image from the engine; raises SandboxError if a container has it."""
        with self._guarded():
            images.remove_image(self._engine(), self.image)

    def image_digest(self) -> str:
        """Return the image's id, which is a hash of its content."""
        with self._guarded():
            client = self._engine()
            return str(client.images.get(images.ensure_image(client, self.image)).id)

    def _is_testbed(self) -> bool:
        if not self.image:
            return False
        if self._testbed is None:
            with self._guarded():
                client = self._engine()
                config = client.images.get(images.ensure_image(client, self.image)).attrs["Config"]
                self._testbed = (config.get("WorkingDir") or "").rstrip("/") == TESTBED
        return self._testbed

    def _container(self, spec: ContainerSpec) -> Container:
        """Return a container left by a closed sandbox, or a new one."""
        while True:
            with self._lock:
                container = next((c for c in self._idle if c.spec == spec), None)
                if container is not None:
                    self._idle.remove(container)
            if container is None:
                with self._guarded():
                    return Container(self._engine(), spec)
            if container.reset():
                return container
            container.remove()

    def _release(self, container: Container) -> None:
        if container.reset():
            with self._lock:
                self._idle.append(container)
                # A closed provider has no client and keeps no containers.
                full = len(self._idle) > _MAX_IDLE or self._client is None
                surplus = self._idle.pop(0) if full else None
            container = surplus  # type: ignore[assignment] # nothing left to remove is None
        if container is not None:
            container.remove()

    def _packed(self, tree: Path, spec: ContainerSpec) -> Packed:
        try:
            stamp = tree_stamp(tree)
            with self._lock:
                packed = self._archives.get((tree, stamp))
            if packed is None:
                packed = pack_tree(tree, spec, self._built_files(tree))
                with self._lock:
                    self._archives = {(tree, stamp): packed}
        except OSError as error:
            raise SandboxError(f"the tree cannot be copied for the sandbox: {error}") from None
        return packed

    def _built_files(self, tree: Path) -> tuple[BuiltFile, ...]:
        """Return what the image has built in the project's folder; an empty tree is no project."""
        if not self._is_testbed() or not any(tree.iterdir()):
            return ()
        with self._reading:
            if self._built is None:
                run = self.exec_in_image
                self._built = read_built_files(lambda argv, stdin, limits: run(argv, limits=limits, stdin=stdin)) or ()
            return self._built

    def _engine(self) -> docker.DockerClient:
        """Return the client, connecting it first if needed."""
        with self._lock:
            if self._client is None:
                self._client = engine.connect(timeout_s=120)
                self._client.ping()
            return self._client

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Convert exceptions of the SDK to errors with advice."""
        try:
            yield
        except SandboxError:
            self._require_engine()
            raise
        except (ImportError, MissingExtraError):
            raise
        except Exception as error:
            raise engine.explain(error, _INSTALL_ENGINE) from None

    def _require_engine(self) -> None:
        """Raise SandboxUnavailableError if the engine does not respond, as it is then the cause of the failure."""
        with self._lock:
            client = self._client
        if client is not None:
            try:
                client.ping()
            except Exception as error:
                raise engine.explain(error, _INSTALL_ENGINE) from None


class GvisorProvider(DockerProvider):
    """Open Docker sandboxes on gVisor, a kernel in user space, registered with the engine as the runtime `runsc`."""

    def __init__(self, image: str = "") -> None:
        super().__init__(image, runtime="runsc")


class DockerSandbox:
    """A copy of a tree in a separate container, which belongs to the sandbox while it is open.

    Commands can end the container itself by using up memory or time. That is their fault, not a sandbox failure: the
    limit is reported, and afterwards every command reports it again and no file is found.
    """

    lower = LOWER
    private = ("/tmp", "/dev/shm")
    streams = True

    def __init__(self, provider: DockerProvider, container: Container, built: frozenset[str]) -> None:
        self._provider, self._container = provider, container
        self.built = built
        self.root, self.scratch = container.spec.root, _SCRATCH
        self._used_before = 0
        self._closed = False

    def _prepare(self) -> None:
        self._container.shell.prepare(self.scratch)
        self._used_before = self._container.shell.usage().disk_bytes

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 count as signals, as the engine reports them so."""
        variables = self._variables(env)
        if self._container.ended_by is not None:
            return ExecResult(None, b"", b"", 0.0, self._container.ended_by)
        directory = working_directory(self.root, cwd)
        return self._do(lambda c: c.run(argv, variables, limits, stdin, directory, used_before=self._used_before))

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> RpcSession:
        """Start a long-running command; see Conversing. The sandbox moves to a container that allows namespaces."""
        if not self._container.spec.namespaces:
            self._move(replace(self._container.spec, namespaces=True))
        variables = self._variables(env)
        command = self._do(
            lambda c: ContainerSession(
                c, argv, env=variables, limits=limits, cwd=self.root, used_before=self._used_before
            )
        )
        return RpcSession(command, limits)

    def _move(self, spec: ContainerSpec) -> None:
        """Copy tree and scratch into a container with another spec, and release the current container."""
        archive = self._do(lambda c: c.pack())
        container = self._provider._container(spec)
        try:
            container.shell.unpack("/", archive)
        except BaseException:
            container.remove()
            raise
        previous, self._container = self._container, container
        self._provider._release(previous)

    def _variables(self, env: Mapping[str, str] | None) -> dict[str, str]:
        variables = {**environment(self.scratch), **(env or {})}
        if self._provider.image and "PATH" not in (env or {}):
            del variables["PATH"]
        return variables

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        top, relative = self._locate(path)
        data = None
        if self._container.ended_by is None:
            data = self._do(lambda c: c.shell.read(top, relative, max_bytes))
        if data is None:
            raise FileNotFoundError(path)
        return data

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        top, relative = self._locate(path)
        if self._container.ended_by is None:
            self._do(lambda c: c.shell.write(top, relative, data, executable=executable))

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        top, relative = self._locate(path)
        if self._container.ended_by is None:
            self._do(lambda c: c.shell.remove(top, relative))

    def close(self) -> None:
        """Kill running commands, empty the container and release it for reuse; idempotent."""
        if not self._closed:
            self._closed = True
            self._provider._release(self._container)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _do(self, operation: Callable[[Container], T]) -> T:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        with self._provider._guarded():
            return operation(self._container)

    def _locate(self, path: str) -> tuple[str, str]:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        in_scratch, relative = locate(path, self.root, self.scratch)
        return self.scratch if in_scratch else self.root, relative
