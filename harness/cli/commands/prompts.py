"""Run `ssr prompts`: write the default prompts of models, to start templates of one's own from."""

from __future__ import annotations

import json

from harness.agents.prompts import default_files
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.settings.commands import PromptsSettings
from harness.storage.atomic_write import write_text
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError


def prompts(settings: PromptsSettings) -> int:
    """Write the templates; return 0. Raises SettingsError if a file exists already."""
    files = default_files()
    for name in files:
        if (settings.out / name).exists():
            raise SettingsError(f"{settings.out / name} exists already; name another folder")
    with writing(settings.out):
        settings.out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(settings.out / name, text)
    if settings.json:
        print(json.dumps({"out": str(settings.out), "files": list(files)}))
        return ExitCode.DONE
    Terminal().echo(f"{len(files)} templates: {display_path(settings.out)}; use them with --prompt-dir", "heading")
    return ExitCode.DONE
