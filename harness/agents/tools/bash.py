"""The tool `bash`: one command in a new shell, in the folder where the last one ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace

_MAX_BYTES = 100_000
"""A little less than Linux's limit on one argument of a command (`MAX_ARG_STRLEN`)."""


class Bash:
    """Runs commands."""

    name = "bash"
    description = (
        "Run a command in bash. Each one has a new shell that starts in the folder where the last one ended; "
        "variables are not kept. There is no network and no terminal: nothing can be asked."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "the command, of one or many lines"}},
        "required": ["command"],
    }

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Run the command."""
        return run_command(arguments["command"], workspace)


def refusal(command: str) -> str:
    """Return why a command cannot be run at all, or an empty string."""
    if "\0" in command or any(0xD800 <= ord(c) < 0xE000 for c in command):
        return "a command cannot contain NUL or lone surrogates"
    if (size := len(command.encode())) > _MAX_BYTES:
        return (
            f"a command can have at most {_MAX_BYTES} bytes, and this one has {size}; write it to a file and run that"
        )
    return ""


def run_command(command: str, workspace: Workspace) -> Observation:
    """Run a command in the workspace's shell; the observation has its output, its errors and its exit status."""
    if problem := refusal(command):
        return Observation(problem, 1)
    done = workspace.shell(command)
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.limit is not None:
        limit = f"{done.limit} ({workspace.limits.wall_s:g} s)" if done.limit == "wall time" else str(done.limit)
        ending = f"[ended: it passed the limit on {limit}]"
    else:
        ending = f"[exit status {done.exit_code}]"
    separator = "" if not text or text.endswith("\n") else "\n"
    return Observation(f"{text}{separator}{ending}", done.exit_code, str(done.limit or ""), done.seconds)
