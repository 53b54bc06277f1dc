"""Make a small git project with a function on a branch that its tests do not test well."""

from __future__ import annotations

import subprocess
from pathlib import Path

CODE = "def double(x):\n    return x * 2\n"
NEW = """

def clamp(value, high):
    if value > high:
        return high
    return value
"""
TESTS = "import calc\n\n\ndef test_double():\n    assert calc.double(3) == 6\n"
NEW_TESTS = "\n\ndef test_clamp():\n    assert calc.clamp(3, 5) == 3\n"


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True, capture_output=True
    )


def make_project(folder: Path) -> Path:
    """Write the project; its branch `feature` has a function `clamp`, and half a test of it."""
    (folder / "tests").mkdir(parents=True)
    (folder / "conftest.py").write_text("")
    (folder / "calc.py").write_text(CODE)
    (folder / "tests" / "test_calc.py").write_text(TESTS)
    git(folder, "init", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "first")
    git(folder, "checkout", "-b", "feature")
    (folder / "calc.py").write_text(CODE + NEW)
    (folder / "tests" / "test_calc.py").write_text(TESTS + NEW_TESTS)
    git(folder, "commit", "-am", "second")
    return folder
