"""Where an agent works: a sandbox, the folder it is in, and the limits of one command."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.protocol import ExecResult, Limits, Sandbox

_PLACE = ".ssr-place"


@dataclass(slots=True)
class Desk:
    """An open sandbox that an agent's tools use; what it changes stays for the next command."""

    sandbox: Sandbox
    limits: Limits
    """Of one command; `wall_s` is what a command may take."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command."""
    cwd: str = ""
    """The folder the next command starts in; empty: the project's."""

    def shell(self, command: str) -> ExecResult:
        """Run a command in a new bash, where the last one ended; raises SandboxError when the sandbox breaks.

        The shell is told to leave its folder behind at its end. A shell that is killed leaves none, and the next
        command starts where it did.
        """
        place = f"{self.sandbox.scratch}/{_PLACE}"
        script = f"trap 'pwd > {shlex.quote(place)}' EXIT\n{command}\n"
        self.sandbox.remove(place)
        argv = ["bash", "-c", script]
        done = self.sandbox.exec(argv, limits=self.limits, env=self.env, cwd=self.cwd or None)
        if done.exit_code is None and done.limit is None:
            raise SandboxError("a command ended without a status")
        with contextlib.suppress(FileNotFoundError, SandboxError):
            self.cwd = self.sandbox.read(place, max_bytes=4096).decode("utf-8", "surrogateescape").rstrip("\n")
        if "\0" in self.cwd:
            self.cwd = ""
        if self.cwd and self.sandbox.exec(["test", "-d", self.cwd], limits=self.limits).exit_code != 0:
            self.cwd = ""
        return done
