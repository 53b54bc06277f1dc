"""Know the images that this machine's workers have pulled, which may be removed again; others belong to its owner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.storage.store import Store, key_of

_KIND = "images"


@dataclass(frozen=True, slots=True)
class PulledImage:
    """An image that a worker has pulled."""

    sandbox: str
    """As users name it, such as `docker:NAME`."""
    size: int
    """Its bytes; layers that it shares with others count for each of them."""
    used_at: float

    @property
    def lock(self) -> str:
        """The name of the lock that those hold together who use it."""
        return f"using-{_KIND}-{key_of(self.sandbox)}"


class PulledImages:
    """The images that the workers of all runs on this machine have pulled."""

    def __init__(self, folder: Path) -> None:
        """folder: remembers them; it is created with the first one."""
        self.folder = folder

    @contextlib.contextmanager
    def using(self, sandbox: str) -> Iterator[None]:
        """Pull the image of a sandbox such as `docker:NAME` if it is missing, and keep it until the end of the block.

        Raises SandboxUnavailableError if it cannot be pulled, or without an engine.
        """
        provider = load_provider(sandbox)
        if not isinstance(provider, DockerProvider) or not provider.image:
            yield
            return
        store, key = Store(self.folder), key_of(sandbox)
        with contextlib.closing(provider), store.in_use(PulledImage(sandbox, 0, 0.0).lock):
            with store.alone(f"pull-{key}"):
                is_here = provider.local_size(provider.image) is not None
                if not is_here:
                    provider.image_digest()
                if not is_here or store.record(_KIND, key) is not None:
                    # The time of the record is that of the last use.
                    store.put_record(_KIND, key, {"sandbox": sandbox, "size": provider.local_size(provider.image) or 0})
            yield

    def kept(self) -> Iterator[PulledImage]:
        """Yield what was pulled and not removed again."""
        for path in sorted((self.folder / _KIND).glob("*.json")):
            with contextlib.suppress(FileNotFoundError):
                record = Store(self.folder).record(_KIND, path.stem) or {}
                yield PulledImage(str(record.get("sandbox")), int(record.get("size", 0)), path.stat().st_mtime)

    def remove(self, image: PulledImage) -> bool:
        """Remove an image; return whether that was possible: a container of somebody else may use it."""
        provider = load_provider(image.sandbox)
        assert isinstance(provider, DockerProvider)
        with contextlib.closing(provider):
            try:
                provider.remove_image()
            except SandboxError:
                return False
        Store(self.folder).remove_record(_KIND, key_of(image.sandbox))
        return True
