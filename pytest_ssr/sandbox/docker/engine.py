"""Check that the Docker engine listens, and explain its errors to the user."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

from pytest_ssr.errors import MissingExtraError, SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox.docker.images import short_message

if TYPE_CHECKING:
    import docker


class Stream:
    """A socket, and the data that the SDK had already read from it."""

    def __init__(self, raw: Any) -> None:
        """raw: the object that the SDK returns for `socket=True`."""
        self._raw = raw
        self.socket: socket.socket = getattr(raw, "_sock", raw)
        self.buffered = self._peek_buffer()
        """The first bytes, which cannot be read from the socket again."""

    def _peek_buffer(self) -> bytes:
        """Return the data that the SDK has read along with the headers of the engine's response.

        On a busy machine a command may print before the SDK reads the headers; the SDK's buffer then contains the
        output, but the SDK returns the socket below that buffer.
        """
        with contextlib.suppress(AttributeError):
            reader = self._raw._response.raw._fp.fp
            self.socket.setblocking(False)
            try:
                # `peek` fills an empty buffer, which would block if the socket did.
                return bytes(reader.peek())
            finally:
                self.socket.setblocking(True)
        return b""

    def close(self) -> None:
        """Close the stream; a socket stays open as long as a file object made from it."""
        for part in (self.socket, self._raw):
            with contextlib.suppress(OSError):
                part.close()


_UNIX = "http+unix://"
_DOCKER_SOCKET = "/var/run/docker.sock"


def explain(error: Exception, engine: str) -> SandboxError:
    """Convert an error of the SDK to a SandboxError with advice; raises other errors again.

    engine: the advice if the engine cannot be reached.
    """
    import docker
    import requests

    text = short_message(error)
    if "Permission denied" in text or isinstance(error, PermissionError):
        return SandboxUnavailableError(
            f"this user may not use the Docker engine ({text})",
            remedy="add the user to the group docker and log in again",
        )
    if "no space left" in text.lower():
        remedy = "free some space with docker system prune"
        return SandboxError(f"the Docker engine's disk is full ({text})", remedy=remedy)
    if isinstance(error, docker.errors.APIError):
        return SandboxError(f"the Docker engine returned an error: {text}")
    if isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
        return SandboxUnavailableError(f"the Docker engine cannot be reached ({text})", remedy=engine)
    raise error


def is_podman(client: docker.DockerClient) -> bool:
    """Return whether the engine is Podman, which speaks Docker's protocol."""
    parts = client.version().get("Components") or ()
    return any(part.get("Name") == "Podman Engine" for part in parts)


def engine_variables() -> dict[str, str]:
    """Return this process's variables; `DOCKER_HOST` names Podman's socket if Docker has none and nothing is set."""
    variables = dict(os.environ)
    if not variables.get("DOCKER_HOST") and not os.path.exists(_DOCKER_SOCKET):
        folders = filter(None, (variables.get("XDG_RUNTIME_DIR"), "/run"))
        sockets = [f"{folder}/podman/podman.sock" for folder in folders]
        address = variables.get("CONTAINER_HOST") or next((f"unix://{s}" for s in sockets if os.path.exists(s)), "")
        variables |= {"DOCKER_HOST": address} if address else {}
    return variables


def client_program() -> str | None:
    """Return the path of the engine's client, `docker` or else `podman`; None without one."""
    return shutil.which("docker") or shutil.which("podman")


def connect(timeout_s: float) -> docker.DockerClient:
    """Return a client of the SDK.

    Raises MissingExtraError without the SDK, its own exceptions, and OSError if no engine listens.
    """
    try:
        import docker
    except ImportError:
        raise MissingExtraError("docker", "docker") from None
    variables = engine_variables()
    _check_listening(variables.get("DOCKER_HOST"))
    return docker.from_env(timeout=timeout_s, environment=variables)


def _check_listening(address: str | None) -> None:
    """Check that an engine listens on its socket: the SDK leaks a socket that cannot be connected."""
    from docker.utils import parse_host

    host = parse_host(address)
    if host.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.removeprefix(_UNIX))
