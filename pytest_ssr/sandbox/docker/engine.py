"""Check that the Docker engine listens, and explain its errors to the user."""

from __future__ import annotations

import os
import socket

from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.sandbox.docker.images import short_message

_UNIX = "http+unix://"


def explain(error: Exception, engine: str) -> SandboxError:
    """Convert an error of the SDK to a SandboxError with advice; raises other errors again.

    engine: the advice if the engine cannot be reached.
    """
    import docker
    import requests

    text = short_message(error)
    if "Permission denied" in text or isinstance(error, PermissionError):
        return SandboxUnavailableError(
            f"this user may not use the Docker engine ({text}); add the user to the group docker and log in again"
        )
    if "no space left" in text.lower():
        return SandboxError(f"the Docker engine's disk is full ({text}); free some space with docker system prune")
    if isinstance(error, docker.errors.APIError):
        return SandboxError(f"the Docker engine returned an error: {text}")
    if isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
        return SandboxUnavailableError(f"the Docker engine cannot be reached ({text}); {engine}")
    raise error


def check_listening() -> None:
    """Check that an engine listens on its socket: the SDK leaks a socket that cannot be connected.

    Raises OSError if no engine listens.
    """
    from docker.utils import parse_host

    host = parse_host(os.environ.get("DOCKER_HOST"))
    if host.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.removeprefix(_UNIX))
