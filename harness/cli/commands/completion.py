"""Run `ssr completion`."""

from __future__ import annotations

import json

from harness.cli.app import completion_script
from harness.cli.exit_code import ExitCode
from harness.settings.commands import CompletionSettings


def completion(settings: CompletionSettings) -> int:
    """Print the script."""
    script = completion_script(settings.shell)
    print(json.dumps({"shell": settings.shell, "script": script}) if settings.json else script)
    return ExitCode.DONE
