from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(autouse=True)
def _programs() -> None:
    """Skip tests without the programs that they compare with; in CI they fail."""
    if missing := [program for program in ("git", "patch") if shutil.which(program) is None]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{missing} is not installed")
