"""What TRL refuses, in a trainer or in its configuration, is an error of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.training.language.guarded import build
from harness.training.language.run_folder import RunFolder
from pytest_ssr.errors import SettingsError


class Trainer:
    """Accepts everything."""

    def __init__(self, **options: Any) -> None:
        self.options = options


def refuse(**options: Any) -> None:
    raise ValueError("two values\ndo not go together")


def test_a_configuration_is_made_and_its_refusal_is_an_error_of_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert build(Trainer, dict, {"seed": 3}, folder, model=1).options == {"args": {"seed": 3}, "model": 1}
    with pytest.raises(SettingsError) as raised:
        build(Trainer, refuse, {"seed": 3}, folder)
    assert "\n" not in str(raised.value)
