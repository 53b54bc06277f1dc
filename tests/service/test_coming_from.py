"""The example of the documentation for users of SSR Studio runs as printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import free_port, part, run_commands

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


@pytest.mark.bubblewrap
@pytest.mark.long
def test_an_episode_by_the_api(tmp_path: Path) -> None:
    run_commands(part(PAGE, "SSR Studio").replace("8700", free_port()), tmp_path)
