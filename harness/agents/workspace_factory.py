"""Open a workspace: a sandbox on a tree, with the project's interpreter first on the PATH and git usable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.agents.workspace import Workspace
from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.sandbox.protocol import Limits, SandboxProvider

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
