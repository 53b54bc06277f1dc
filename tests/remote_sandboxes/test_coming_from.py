"""The example of the documentation for users of OpenClaw-RL's swe-rl runs as printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import free_port, part, run_commands

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


@pytest.mark.bubblewrap
@pytest.mark.long
def test_a_rollout_on_a_sandbox_server(tmp_path: Path) -> None:
    run_commands(part(PAGE, "OpenClaw-RL's swe-rl").replace("8701", free_port()), tmp_path)
