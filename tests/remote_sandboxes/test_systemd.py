"""The files of docs/deployment/systemd are valid, agree with each other, and use options that exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli.app import parse
from harness.settings.service import SandboxServerSettings

FOLDER = Path(__file__).parents[2] / "docs" / "deployment" / "systemd"
UNIT, SCRIPT = FOLDER / "ssr-sandbox-server.service", FOLDER / "set-up-node"
COMMAND = "/opt/pytest-ssr/bin/ssr"


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    done = subprocess.run(["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_of_the_unit_has_these_options(tmp_path: Path) -> None:
    script = re.search(r"^ExecStart=/bin/sh -c '(.*?)'$", UNIT.read_text(), re.MULTILINE | re.DOTALL)
    assert script is not None
    # As systemd does.
    command = script[1].replace("\\\n", " ").replace("$$", "$")
    shown = command.replace(COMMAND, "echo").replace("/sys/fs/cgroup", str(tmp_path))
    variables = {**os.environ, "CREDENTIALS_DIRECTORY": "/credentials", "OPTIONS": "--slots 2 --lease 9"}
    done = subprocess.run(["/bin/sh", "-c", shown], env=variables, capture_output=True, text=True, check=True)
    parsed = parse(shlex.split(done.stdout))
    assert parsed is not None
    settings = parsed.settings
    assert isinstance(settings, SandboxServerSettings)
    assert (settings.host, settings.port, settings.sandbox) == ("0.0.0.0", 8701, "bubblewrap")
    assert (settings.token_file, settings.slots, settings.lease) == (Path("/credentials/token"), 2, 9)
    assert command.count(COMMAND) == 1


def test_the_script_creates_what_the_unit_uses() -> None:
    assert subprocess.run(["sh", "-n", str(SCRIPT)], check=False).returncode == 0
    unit, script = UNIT.read_text(), SCRIPT.read_text()
    (user,) = re.findall("^User=(.*)$", unit, re.MULTILINE)
    assert f"useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {user}" in script
    (settings,) = re.findall("^settings=(.*)$", script, re.MULTILINE)
    assert f"LoadCredential=token:{settings}/token" in unit
    assert f"EnvironmentFile=-{settings}/options" in unit
    assert COMMAND.removesuffix("/bin/ssr") in script
