"""The example of the documentation for users of SWE-Little runs as printed, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import part, run_commands

PAGE = Path(__file__).parents[3] / "docs" / "coming-from.md"


@pytest.mark.apptainer
@pytest.mark.long
def test_an_episode_and_lora(model: Path, tmp_path: Path) -> None:
    run_commands(part(PAGE, "SWE-Little"), tmp_path, {"MODEL": str(model)})
