"""The workspace of an agent: a sandbox, the current folder, and the limits of one command."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.sandbox.protocol import ExecResult, Limits, Sandbox, SandboxProvider

_CWD_FILE = ".ssr-place"


@dataclass(slots=True)
class Workspace:
    """An open sandbox that an agent's tools use; changes persist between commands."""

    sandbox: Sandbox
    limits: Limits
    """The limits of one command; `wall_s` is its maximum duration."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every command."""
    cwd: str = ""
    """The folder in which the next command starts; empty means the project's top folder."""
    programs: tuple[str, ...] = ()
    """Folders of programs that the shell finds after those of its PATH."""

    def shell(self, command: str) -> ExecResult:
        """Run a command in a new bash, in the last command's final folder; raises SandboxError when the sandbox breaks.

        The shell writes its current folder to a file when it exits. A killed shell writes none, and the next command
        starts in the same folder as the killed one.
        """
        cwd_file = f"{self.sandbox.scratch}/{_CWD_FILE}"
        path = "".join(f"PATH=$PATH:{shlex.quote(folder)}\n" for folder in self.programs)
        script = f"trap 'pwd > {shlex.quote(cwd_file)}' EXIT\n{path}{command}\n"
        self.sandbox.remove(cwd_file)
        argv = ["bash", "-c", script]
        done = self.sandbox.exec(argv, limits=self.limits, env=self.env, cwd=self.cwd or None)
        if done.exit_code is None and done.limit is None:
            raise SandboxError("a command ended without a status")
        with contextlib.suppress(FileNotFoundError, SandboxError):
            self.cwd = self.sandbox.read(cwd_file, max_bytes=4096).decode("utf-8", "surrogateescape").rstrip("\n")
        if "\0" in self.cwd:
            self.cwd = ""
        if self.cwd and self.sandbox.exec(["test", "-d", self.cwd], limits=self.limits).exit_code != 0:
            self.cwd = ""
        return done


_VARIABLES = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "TERM": "dumb",
}
_REMOVED_VARIABLES = ("PYTHONHASHSEED",)


@contextlib.contextmanager
def open_workspace(
    provider: SandboxProvider, interpreter: Interpreter, tree: Path, *, shown_at: Path, limits: Limits | None = None
) -> Iterator[Workspace]:
    """Open a sandbox on a tree that is not modified, mounted at the project's path on this machine (`shown_at`)."""
    shown, hidden = interpreter.readable, interpreter.hidden
    with provider.open(tree, mount_at=str(shown_at), readable=shown, hidden=hidden) as sandbox:
        provide_interpreter(sandbox, interpreter)
        env = {**run_environment(sandbox, interpreter), **_VARIABLES}
        for name in _REMOVED_VARIABLES:
            env.pop(name, None)
        yield Workspace(sandbox, replace(limits or Limits(), wall_s=180.0), env)
