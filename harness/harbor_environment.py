"""Harbor's environment: its tasks run in containers that need no engine. `harbor run -e` takes the import path.

Images come from a registry, Dockerfiles are followed line by line; see `harness.containers`. What cannot be served is
refused before a trial begins: Compose, GPUs, Windows, lists of allowed hosts, Dockerfiles with more than one stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO, Any

from harbor.environments.base import (
    BaseEnvironment,
    ExecResult,
    SandboxBuildFailedError,
    transfer_tar_filter,
)
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    COMPOSE_FILE_NAME,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.environments.options import EnvironmentOptions
from pydantic import Field

from harness.containers import user_namespace
from harness.containers.container import Bind, Container, ContainerOptions, LocalImage, archive_of, end
from harness.containers.dockerfile import DockerfileError, base_image
from harness.containers.library import ImageLibrary, default_cache
from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.sandbox.supervision import cgroup

_MOST_OUTPUT = 64 * MIB


class SsrOptions(EnvironmentOptions):
    """The environment's own options (`--ek NAME=VALUE`)."""

    cache: Path | None = Field(default=None, description="The folder for images; ~/.cache/pytest-ssr by default.")


class SsrEnvironment(BaseEnvironment):
    """A container of a task's image, made by bubblewrap and without an engine."""

    options_model = SsrOptions
    options: SsrOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._library = ImageLibrary(self.options.cache or default_cache())
        self._container: Container | None = None
        self._folder: Path | None = None

    @staticmethod
    def type() -> str:
        """Return the name under which Harbor reports this environment."""
        return "ssr"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What Harbor may ask for."""
        return EnvironmentCapabilities(disable_internet=True, mounted=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return what is enforced: whole processors, and memory if this user may create control groups."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=cgroup.usable())

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Check before the first trial that containers can be made here."""
        super().preflight(kwargs)
        if shutil.which("bwrap") is None:
            raise SystemExit("bubblewrap is not installed; install it: apt-get install bubblewrap")
        workdirs.reap()
        with tempfile.TemporaryDirectory() as folder:
            try:
                user_namespace.run("remove", Path(folder), {})
            except SandboxError as error:
                raise SystemExit(f"no container can be made here: {error}") from None

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if (self.environment_dir / COMPOSE_FILE_NAME).exists():
            raise SandboxBuildFailedError("the task needs Docker Compose, which this environment does not have")
        for mount in self._host_mounts:
            if mount["type"] != "bind":
                raise SandboxBuildFailedError(f"this environment binds folders, and has no mount {mount['type']!r}")
        if not self._is_prebuilt(force_build=False):
            try:
                base_image((self.environment_dir / "Dockerfile").read_text(encoding="utf-8"))
            except DockerfileError as error:
                raise SandboxBuildFailedError(str(error)) from None

    def _is_prebuilt(self, *, force_build: bool) -> bool:
        image = self.task_env_config.docker_image
        return bool(should_use_prebuilt_docker_image(self.environment_dir, docker_image=image, force_build=force_build))

    async def start(self, force_build: bool) -> None:
        """Get the image and start the container."""
        options = self._container_options()
        try:
            image = await asyncio.to_thread(self._image, force_build)
            self._folder = workdirs.new_folder(Path(tempfile.gettempdir()))
            place = self._folder / "container"
            place.mkdir()
            self._container = await asyncio.to_thread(Container, image, place, options)
        except SandboxError:
            raise
        except SsrError as error:
            raise SandboxBuildFailedError(str(error)) from None
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    def _image(self, force_build: bool) -> LocalImage:
        if self._is_prebuilt(force_build=force_build):
            return self._library.pulled(str(self.task_env_config.docker_image))
        return self._library.built(self.environment_dir)

    def _container_options(self) -> ContainerOptions:
        binds = []
        for mount in self._host_mounts:
            source = Path(mount["source"])
            if not source.exists():
                source.mkdir(parents=True)
            binds.append(Bind(str(source.resolve()), mount["target"], bool(mount.get("read_only"))))
        return ContainerOptions(
            has_network=not self._network_disabled,
            cpus=int(self._effective_cpus or 0),
            memory_bytes=(self._effective_memory_mb or 0) * MIB,
            binds=binds,
        )

    async def stop(self, delete: bool) -> None:
        """Kill what runs in the container and remove its files; images stay."""
        if self._container is not None:
            await asyncio.to_thread(self._container.stop)
            self._container = None
        if self._folder is not None:
            with contextlib.suppress(SandboxError):
                await asyncio.to_thread(user_namespace.remove, self._folder / "container")
            workdirs.discard(self._folder)
            self._folder = None

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command by bash; what it leaves in the background goes on running."""
        container = self._started
        settings = container.image.settings
        resolved = self._resolve_user(user)
        request = container.execute_request(
            ["bash", "-c", command],
            env={**settings.env, **(self._merge_env(env) or {})},
            user=settings.user if resolved is None else str(resolved),
            cwd=cwd or self.task_env_config.workdir or settings.workdir,
        )
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            code = await self._communicate(request, None, output, errors, timeout_sec)
            return ExecResult(stdout=_text(output), stderr=_text(errors), return_code=code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file, which then belongs to root; its folder is created."""
        path = PurePosixPath("/", target_path)
        if target_path.endswith("/"):
            await self._upload(Path(source_path), str(path), "")
        else:
            await self._upload(Path(source_path), str(path.parent), path.name)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a folder, which then belongs to root."""
        await self._upload(Path(source_dir), str(PurePosixPath("/", target_dir)), "")

    async def _upload(self, source: Path, folder: str, rename: str) -> None:
        with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as output:
            await asyncio.to_thread(archive_of, source, data)
            data.seek(0)
            request = self._started.unpack_request(folder, rename=rename)
            if await self._communicate(request, data, output, output, None):
                raise RuntimeError(f"{source} cannot be copied into the container: {_text(output)}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the container."""
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            await self._download(source_path, Path(folder))
            found = Path(folder, PurePosixPath(source_path).name)
            if not found.is_file():
                raise RuntimeError(f"{source_path} is not a file of the container")
            shutil.move(found, target / found.name if target.is_dir() else target)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a folder out of the container; devices and links that lead out of it are left out."""
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        await self._download(source_dir, Path(target_dir))

    async def _download(self, source: str, target: Path) -> None:
        with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as errors:
            if await self._communicate(self._started.pack_request(source), None, data, errors, None):
                raise RuntimeError(f"{source} cannot be copied out of the container: {_text(errors)}")
            data.seek(0)
            await asyncio.to_thread(_unpack, data, target)

    @property
    def _started(self) -> Container:
        if self._container is None:
            raise RuntimeError("the environment has not been started")
        return self._container

    async def _communicate(
        self, request: bytes, data: IO[bytes] | None, output: IO[bytes], errors: IO[bytes], timeout_s: int | None
    ) -> int:
        """Run a request with an archive after it, and return its exit status.

        Outputs are files, as a command that stays in the background would keep a pipe open.
        """
        process = await asyncio.create_subprocess_exec(
            *self._started.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=user_namespace.HOST_ENV,
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            async with asyncio.timeout(timeout_s):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    process.stdin.write(request)
                    while data is not None and (chunk := data.read(MIB)):
                        process.stdin.write(chunk)
                        await process.stdin.drain()
                    process.stdin.close()
                return await process.wait()
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_s} seconds") from None
        finally:
            if process.returncode is None:
                end(process.pid)
                await process.wait()


def _unpack(data: IO[bytes], target: Path) -> None:
    with tarfile.open(fileobj=data, mode="r:") as archive:
        for member in archive:
            # Code of others has made these links.
            with contextlib.suppress(tarfile.FilterError):
                if safe := transfer_tar_filter(member, str(target)):
                    archive.extract(safe, target, filter="fully_trusted")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode("utf-8", "replace")
