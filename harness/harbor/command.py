"""Run the engine's own client, which builds images and starts services; the SDK does neither as it does."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.sandbox.docker.engine import client_program, engine_variables
from pytest_ssr.sandbox.protocol import MIB

ENGINE_ADVICE = "install and start it: apt-get install docker.io, systemctl start docker"
MAX_OUTPUT_BYTES = MIB
_CLIENT_VARIABLES = ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "BUILDX_CONFIG")
"""Variables that the client needs, with those of `_PREFIXES`. Compose files can read all that it gets."""
_PREFIXES = ("DOCKER_", "CONTAINER_")
"""Those of Podman begin with the latter, such as `CONTAINER_HOST`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    exit_code: int | None
    """None if its time was over."""
    output: str
    """The end of its standard output and error."""

    @property
    def failure(self) -> str:
        """What went wrong, in a few lines."""
        return "its time was over" if self.exit_code is None else self.output.strip()[-500:]


def program() -> str:
    """Return the path of the engine's client; raises SandboxUnavailableError without one."""
    path = client_program()
    if path is None:
        raise SandboxUnavailableError("neither the program docker nor podman is installed", remedy=ENGINE_ADVICE)
    return path


def run_docker(
    *arguments: str,
    seconds: float,
    merged: bool = True,
    env: Mapping[str, str] | None = None,
    passed: tuple[str, ...] = (),
) -> Done:
    """Run a command of the client.

    merged: whether the output has the standard error, too. env: variables besides those that the client needs. passed:
    names of this process's variables that it gets as well.
    """
    variables = engine_variables()
    names = {name for name in variables if name in (*_CLIENT_VARIABLES, *passed) or name.startswith(_PREFIXES)}
    try:
        done = subprocess.run(
            [program(), *arguments],
            env={**{name: variables[name] for name in names}, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Done(None, "")
    output = done.stdout if merged or done.returncode == 0 else done.stdout + done.stderr
    return Done(done.returncode, output[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace"))
