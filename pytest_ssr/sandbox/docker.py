"""The sandbox `docker`: a container without network, capabilities or a writable root, by the Docker SDK.

Without an image the container shows the host's system directories and interpreter, read-only, as bubblewrap does;
with one (`docker:IMAGE`) nothing of the host. The tree and scratch are file systems in memory, filled by archive
streams. A container whose sandbox is closed is emptied and serves the next one that asks for the same, if it is then
as it was when it was new; it ends with this process, whatever ends that.
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
from pytest_ssr.sandbox import docker_container, docker_engine, docker_images
from pytest_ssr.sandbox.conversation import Conversation
from pytest_ssr.sandbox.docker_archive import archived, stamped
from pytest_ssr.sandbox.docker_command import ContainerCommand
from pytest_ssr.sandbox.docker_container import Container, Recipe
from pytest_ssr.sandbox.docker_recipe import LOWER
from pytest_ssr.sandbox.files import inside, place
from pytest_ssr.sandbox.folders import environment
from pytest_ssr.sandbox.host import checked_place, checked_readable
from pytest_ssr.sandbox.protocol import MIB, Availability, ExecResult, Limits

if TYPE_CHECKING:
    import docker

_SCRATCH = "/scratch"
_OURS = ("/", "/proc", "/dev", "/etc", "/usr", "/sys", "/tmp", _SCRATCH, LOWER)
_TESTBED = "/testbed"
_IDLE = 4
_ENGINE = "install and start it: apt-get install docker.io, systemctl start docker"
_GVISOR = "https://gvisor.dev/docs/user_guide/quick_start/docker/"
T = TypeVar("T")


class DockerProvider:
    """Opens sandboxes in containers of one image.

    image: name, name:tag or name@digest; none: the host's own system, which needs an engine on this machine. An image
    in SWE-bench's layout shows the tree at `/testbed`. runtime: such as `runsc` (gVisor); none: the engine's own.
    cpus: how many processors a container may use.
    """

    def __init__(self, image: str = "", *, runtime: str = "", cpus: float = 2.0) -> None:
        self.name = "gvisor" if runtime else "docker"
        self.image, self._runtime, self._cpus = image, runtime, cpus
        self._lock = threading.Lock()
        self._client: docker.DockerClient | None = None
        self._idle: list[Container] = []
        self._archives: dict[tuple[Path, int], bytes] = {}
        self._testbed: bool | None = None
        atexit.register(self.close)

    def probe(self) -> Availability:
        """Run a command in a container, now."""
        try:
            return self._probe()
        except MissingExtraError as error:
            return Availability(False, "the package docker is not installed", str(error).partition("; ")[2])
        except SandboxError as error:
            what, _, remedy = str(error).partition("; ")
            return Availability(False, what, remedy or _ENGINE)
        finally:
            self.close()

    def _probe(self) -> Availability:
        with self._guarded():
            client = self._engine()
            docker_container.reap(client)
            said = client.version()
            if self._runtime and self._runtime not in client.info().get("Runtimes", {}):
                return Availability(False, f"the engine knows no runtime {self._runtime}", f"register it: {_GVISOR}")
        with tempfile.TemporaryDirectory() as empty, self.open(Path(empty), mount_at="/tmp/ssr-trial") as sandbox:
            done = sandbox.exec(["true"], limits=Limits(wall_s=60))
        if done.exit_code != 0:
            return Availability(False, f"a trial command ended with {done.limit or done.exit_code}", _ENGINE)
        shown = self.image or "the host's system, read-only"
        runtime = f" on {self._runtime}" if self._runtime else ""
        return Availability(True, f"Docker {said['Version']}{runtime}, {shown}, no network, no home, no capabilities")

    def open(
        self, tree: Path, *, mount_at: str, readable: Sequence[Path] = (), hidden: Sequence[str] = ()
    ) -> DockerSandbox:
        """Open a sandbox whose copy of the tree lies at `mount_at`, in SWE-bench's images at `/testbed`."""
        root = _TESTBED if self._is_testbed() else checked_place(mount_at, _OURS)
        shown = () if self.image else tuple(p for p in checked_readable(readable) if p.exists())
        recipe = Recipe(self.image, self._runtime, self._cpus, root, _SCRATCH, shown, tuple(hidden))
        archive = self._archive(tree, recipe)
        container = self._container(recipe)
        sandbox = DockerSandbox(self, container)
        try:
            with self._guarded():
                container.shell.unpack(root, archive)
                sandbox._begin()
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def close(self) -> None:
        """Remove the containers that are kept for the next sandbox and close what leads to the engine."""
        with self._lock:
            idle, self._idle = self._idle, []
            client, self._client = self._client, None
        for container in idle:
            container.remove()
        if client is not None:
            client.close()

    def connect(self) -> None:
        """Reach the engine; raises SandboxUnavailableError with what to do."""
        with self._guarded():
            self._engine()

    def image_digest(self) -> str:
        """Return the engine's id of the image, which is a hash of its content."""
        with self._guarded():
            client = self._engine()
            return str(client.images.get(docker_images.provide(client, self.image)).id)

    def _is_testbed(self) -> bool:
        if not self.image:
            return False
        if self._testbed is None:
            with self._guarded():
                client = self._engine()
                config = client.images.get(docker_images.provide(client, self.image)).attrs["Config"]
                self._testbed = (config.get("WorkingDir") or "").rstrip("/") == _TESTBED
        return self._testbed

    def _container(self, recipe: Recipe) -> Container:
        """Return a new container, or one that a closed sandbox has left."""
        while True:
            with self._lock:
                found = next((c for c in self._idle if c.recipe == recipe), None)
                if found is not None:
                    self._idle.remove(found)
            if found is None:
                with self._guarded():
                    return Container(self._engine(), recipe)
            if found.is_as_new():
                return found
            found.remove()

    def _give_back(self, container: Container) -> None:
        if container.is_as_new():
            with self._lock:
                self._idle.append(container)
                # A provider that was closed has no client, and keeps nothing.
                full = len(self._idle) > _IDLE or self._client is None
                surplus = self._idle.pop(0) if full else None
            container = surplus  # type: ignore[assignment] # nothing left to remove is None
        if container is not None:
            container.remove()

    def _archive(self, tree: Path, recipe: Recipe) -> bytes:
        try:
            stamp = stamped(tree)
            with self._lock:
                known = self._archives.get((tree, stamp))
            if known is None:
                known = archived(tree, recipe)
                with self._lock:
                    self._archives = {(tree, stamp): known}
        except OSError as error:
            raise SandboxError(f"the tree cannot be copied for the sandbox: {error}") from None
        return known

    def _engine(self) -> docker.DockerClient:
        """Return the client, connected; raises SandboxUnavailableError with what to do."""
        with self._lock:
            if self._client is None:
                try:
                    import docker
                except ImportError:
                    raise MissingExtraError("docker", "docker") from None
                docker_engine.knock()
                self._client = docker.from_env(timeout=120)
                self._client.ping()
            return self._client

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn what the SDK raises into errors that say what to do."""
        try:
            yield
        except SandboxError:
            self._require_engine()
            raise
        except (ImportError, MissingExtraError):
            raise
        except Exception as error:
            raise docker_engine.explained(error, _ENGINE) from None

    def _require_engine(self) -> None:
        """Raise SandboxUnavailableError where the engine is gone as well: that is then what to mend."""
        with self._lock:
            client = self._client
        if client is not None:
            try:
                client.ping()
            except Exception as error:
                raise docker_engine.explained(error, _ENGINE) from None


class GvisorProvider(DockerProvider):
    """The same on gVisor, a kernel in user space, where the engine knows it as the runtime `runsc`."""

    def __init__(self, image: str = "") -> None:
        super().__init__(image, runtime="runsc")


class DockerSandbox:
    """A copy of a tree in a container of its own, for as long as the sandbox is open.

    Commands can bring the container itself to its end, for want of memory or of time. That is theirs to answer for and
    no broken sandbox: the limit is told, and from then on every command meets it and no file is found.
    """

    lower = LOWER
    private = ("/tmp", "/dev/shm")

    def __init__(self, provider: DockerProvider, container: Container) -> None:
        self._provider, self._container = provider, container
        self.root, self.scratch = container.recipe.root, _SCRATCH
        self._used = 0
        self._closed = False

    def _begin(self) -> None:
        self._container.shell.prepare(self.scratch)
        self._used = self._container.shell.usage().disk_bytes

    def exec(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see the protocol. Exit statuses 129 to 192 are read as signals, as the engine tells them."""
        variables = self._variables(env)
        if self._container.ended_by is not None:
            return ExecResult(None, b"", b"", 0.0, self._container.ended_by)
        return self._do(lambda c: c.run(argv, variables, limits, stdin, place(self.root, cwd), used_before=self._used))

    def converse(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None) -> Conversation:
        """Start a command that stays; see Conversing. The sandbox goes over to a container that allows namespaces."""
        if not self._container.recipe.namespaces:
            self._move(replace(self._container.recipe, namespaces=True))
        variables = self._variables(env)
        command = self._do(
            lambda c: ContainerCommand(c, argv, env=variables, limits=limits, cwd=self.root, used_before=self._used)
        )
        return Conversation(command, limits)

    def _move(self, recipe: Recipe) -> None:
        """Copy tree and scratch into a container of another recipe and give back the one that held them."""
        archive = self._do(lambda c: c.pack())
        container = self._provider._container(recipe)
        try:
            container.shell.unpack("/", archive)
        except BaseException:
            container.remove()
            raise
        left, self._container = self._container, container
        self._provider._give_back(left)

    def _variables(self, env: Mapping[str, str] | None) -> dict[str, str]:
        variables = {**environment(self.scratch), **(env or {})}
        if self._provider.image and "PATH" not in (env or {}):
            del variables["PATH"]
        return variables

    def read(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's content; see the protocol."""
        top, relative = self._place(path)
        data = None
        if self._container.ended_by is None:
            data = self._do(lambda c: c.shell.read(top, relative, max_bytes))
        if data is None:
            raise FileNotFoundError(path)
        return data

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a regular file; see the protocol."""
        top, relative = self._place(path)
        if self._container.ended_by is None:
            self._do(lambda c: c.shell.write(top, relative, data, executable=executable))

    def remove(self, path: str) -> None:
        """Remove a file or link; see the protocol."""
        top, relative = self._place(path)
        if self._container.ended_by is None:
            self._do(lambda c: c.shell.remove(top, relative))

    def fork(self) -> Self:
        """Copy the tree and scratch into another container."""
        archive = self._do(lambda c: c.pack())
        other = type(self)(self._provider, self._provider._container(self._container.recipe))
        try:
            other._do(lambda c: c.shell.unpack("/", archive))
            other._begin()
            other._used = self._used
        except BaseException:
            other.close()
            raise
        return other

    def close(self) -> None:
        """Kill what still runs and give the container back, emptied; idempotent."""
        if not self._closed:
            self._closed = True
            self._provider._give_back(self._container)

    def __enter__(self) -> Self:
        """Return the sandbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def _do(self, act: Callable[[Container], T]) -> T:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        with self._provider._guarded():
            return act(self._container)

    def _place(self, path: str) -> tuple[str, str]:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        in_scratch, relative = inside(path, self.root, self.scratch)
        return self.scratch if in_scratch else self.root, relative
