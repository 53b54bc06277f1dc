"""Run `ssr mcp` and `ssr skill`: serve a project's reviews to a coding agent, and tell it how to use them."""

from __future__ import annotations

import contextlib
import json
import os
import sys

from harness.agent_tools.project_tools import ProjectTools
from harness.agent_tools.skill import copy_skill, skill_text
from harness.cli.exit_code import ExitCode
from harness.cli.projects import extensions_of_sources
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.settings.agent_tools import McpSettings, SkillSettings
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import MissingExtraError
from pytest_ssr.project.snapshot import require_directory


def mcp(settings: McpSettings) -> int:
    """Serve until the client closes the streams."""
    require_directory(settings.repo)
    try:
        from harness.agent_tools.mcp_server import serve
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("anyio", "mcp"):
            raise
        raise MissingExtraError("the MCP SDK (mcp 2.3 or newer)", "mcp") from None
    # Standard output belongs to the protocol, and plugins may print while they are loaded.
    with contextlib.redirect_stdout(sys.stderr):
        extensions = extensions_of_sources([settings.repo], conftest=False, ray="")
    try:
        serve(ProjectTools(settings, extensions))
    except KeyboardInterrupt:
        print("ssr: interrupted; what is finished is kept", file=sys.stderr, flush=True)
        # A thread of the SDK reads standard input, and the interpreter would wait for it until the client closes that.
        os._exit(ExitCode.BROKEN)
    return ExitCode.DONE


def skill(settings: SkillSettings) -> int:
    """Print the skill, or copy its folder."""
    if settings.out is None:
        print(json.dumps({"skill": skill_text()}) if settings.json else skill_text(), end="\n" if settings.json else "")
        return ExitCode.DONE
    with writing(settings.out):
        files = copy_skill(settings.out)
    if settings.json:
        print(json.dumps({"files": list(map(str, files))}))
        return ExitCode.DONE
    for path in files:
        Terminal().echo(f"skill: {display_path(path)}")
    return ExitCode.DONE
