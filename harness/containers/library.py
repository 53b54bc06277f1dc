"""Keep the layers of images on this machine, and build images from Dockerfiles on top of them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from harness.containers import user_namespace
from harness.containers.container import Container, ContainerOptions, LocalImage, archive_of
from harness.containers.dockerfile import Copy, DockerfileError, Fault, MakeFolder, Run, base_image, steps_of
from harness.containers.registry import ImageSettings, Reference, Registry

_TAIL_LINES = 3


def default_cache() -> Path:
    """Return the folder for images if none is named."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-ssr" / "images"


class ImageLibrary:
    """The images in a folder; several processes may use it at the same time."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache.resolve()
        self._layers, self._builds = self._cache / "layers", self._cache / "builds"

    def pulled(self, name: str) -> LocalImage:
        """Return an image of a registry, with its missing layers downloaded; raises ImageError or SandboxError."""
        registry = Registry(Reference.parse(name))
        manifest = registry.manifest()
        layers = tuple(self._layer(registry, digest) for digest in manifest.layers)
        return LocalImage(manifest.settings, layers, manifest.has_triggers)

    def built(self, context: Path) -> LocalImage:
        """Return the image of a folder with a Dockerfile; raises DockerfileError, ImageError or SandboxError."""
        text = (context / "Dockerfile").read_text(encoding="utf-8")
        if (context / ".dockerignore").exists():
            raise DockerfileError(Fault.IGNORE_FILE, ".dockerignore")
        base = self.pulled(base_image(text))
        if base.has_triggers:
            raise DockerfileError(Fault.TRIGGERS, text.splitlines()[0])
        steps, settings = steps_of(text, base.settings)
        if not steps:
            return LocalImage(settings, base.layers)
        key = hashlib.sha256(
            json.dumps([[layer.name for layer in base.layers], asdict(base.settings), _digest_of(context)]).encode()
        ).hexdigest()
        target = self._builds / key
        with self._locked(key):
            if not target.is_dir():
                with self._new_folder(self._builds) as folder:
                    container = Container(base, folder, ContainerOptions(has_network=True))
                    try:
                        for step in steps:
                            _follow(container, step, context)
                    finally:
                        container.stop()
                    (folder / "upper").rename(target)
        return LocalImage(settings, (*base.layers, target))

    def _layer(self, registry: Registry, digest: str) -> Path:
        name = digest.replace(":", "-")
        target = self._layers / name
        with self._locked(name):
            if not target.is_dir():
                with self._new_folder(self._layers) as folder, tempfile.TemporaryDirectory() as temporary:
                    archive = Path(temporary, "layer")
                    registry.download(digest, archive)
                    files = folder / "files"
                    files.mkdir()
                    files.chmod(0o755)
                    user_namespace.run("unpack", files, {"archive": str(archive)})
                    files.rename(target)
        return target

    @contextlib.contextmanager
    def _new_folder(self, parent: Path) -> Iterator[Path]:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
        try:
            yield folder
        finally:
            user_namespace.remove(folder)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        locks = self._cache / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _follow(container: Container, step: Run | Copy | MakeFolder, context: Path) -> None:
    match step:
        case MakeFolder():
            with tempfile.TemporaryFile() as nothing:
                tarfile.open(fileobj=nothing, mode="w").close()
                nothing.seek(0)
                _require(step.text, *container.run(container.unpack_request(step.path), nothing))
        case Run():
            settings: ImageSettings = step.settings
            request = container.execute_request(step.argv, env=settings.env, user=settings.user, cwd=settings.workdir)
            _require(step.text, *container.run(request))
        case Copy():
            for source in _sources(step, context):
                _copy(container, step, source)


def _copy(container: Container, step: Copy, source: Path) -> None:
    unpacks = step.unpacks and source.is_file() and tarfile.is_tarfile(source)
    is_folder = step.is_folder or unpacks or source.is_dir()
    target, rename = (step.target, "") if is_folder else os.path.split(step.target)
    request = container.unpack_request(target, rename=rename, user=step.owner, mode=step.mode, keeps_owners=unpacks)
    with source.open("rb") if unpacks else tempfile.TemporaryFile() as data:
        if not unpacks:
            archive_of(source, data)
            data.seek(0)
        _require(step.text, *container.run(request, data))


def _sources(step: Copy, context: Path) -> Iterator[Path]:
    root = context.resolve()
    for pattern in step.sources:
        relative = os.path.normpath(pattern.lstrip("/") or ".")
        found = [root] if relative == "." else sorted(root.glob(relative))
        if not found or not all(path.resolve().is_relative_to(root) for path in found):
            raise DockerfileError(Fault.SOURCE, step.text)
        yield from found


def _require(text: str, code: int, output: str) -> None:
    if code:
        tail = " | ".join(output.splitlines()[-_TAIL_LINES:])
        raise DockerfileError(Fault.COMMAND, text, f"exit status {code}: {tail}")


def _digest_of(context: Path) -> str:
    """Return a hash of the names, modes and contents of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(context.rglob("*")):
        status = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(os.readlink(path))
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(f"{path.relative_to(context)}\0{status.st_mode:o}\0".encode() + content + b"\0")
    return digest.hexdigest()
