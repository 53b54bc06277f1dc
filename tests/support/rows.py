"""Create a repository with a history, and rows in SWE-bench's format from it; used by tests of instances."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BASE = {
    "shop.py": "def add(a, b):\n    return a - b\n\n\ndef shout(text):\n    return text.upper()\n",
    "tests/test_shop.py": 'from shop import shout\n\n\ndef test_shout():\n    assert shout("a") == "A"\n',
}
FIXED = BASE["shop.py"].replace("a - b", "a + b")
DOUBLE = f"{BASE['shop.py']}\n\ndef double(a):\n    return 2 * a\n"
TEST_ADD = (
    f"from shop import add, shout\n{BASE['tests/test_shop.py'].partition(chr(10))[2]}"
    "\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ndef test_add_more():\n    assert add(5, 6) == 11\n"
)
TEST_DOUBLE = "from shop import double\n\n\ndef test_double():\n    assert double(3) == 6\n    assert double(4) == 8\n"
SHOUT = "tests/test_shop.py::test_shout"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def diff(folder: Path, changes: Mapping[str, str]) -> str:
    """Return the output of `git diff` for some changes, and undo them."""
    for name, text in changes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    output = git(folder, "diff", "--cached")
    git(folder, "reset", "-q", "--hard")
    return output


def write_project(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Create a folder of clones, and two rows: a bug to fix, and a function to write."""
    repository = folder / "clones" / "acme__shop"
    for name, text in BASE.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "first")
    base = git(repository, "rev-parse", "HEAD").strip()

    def row(name: str, code: str, tests: Mapping[str, str], fail_to_pass: list[str], statement: str) -> dict[str, Any]:
        return {
            "repo": "acme/shop",
            "instance_id": f"acme__shop-{name}",
            "base_commit": base,
            "patch": diff(repository, {"shop.py": code}),
            "test_patch": diff(repository, tests),
            "problem_statement": statement,
            "hints_text": "",
            "created_at": "",
            "version": "1.0",
            "FAIL_TO_PASS": json.dumps(fail_to_pass),
            "PASS_TO_PASS": json.dumps([SHOUT]),
            "environment_setup_commit": base,
        }

    added = [f"tests/test_shop.py::{name}" for name in ("test_add", "test_add_more")]
    rows = [
        row("1", FIXED, {"tests/test_shop.py": TEST_ADD}, added, "add() subtracts."),
        row("2", DOUBLE, {"tests/test_double.py": TEST_DOUBLE}, ["tests/test_double.py::test_double"], "Add double()."),
    ]
    return repository.parent, rows


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path
