"""What the search for leaks finds in a tree, its history, its caches, installed packages and other folders."""

from __future__ import annotations

import json
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from images import images_of
from rows import git

from harness.audit import leaks
from harness.audit.card import Leak
from harness.audit.leaks import row_leaks
from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

BUGGY = "def discount(price):\n    return price\n"
SOLVED = "def discount(price):\n    lowered = price * (1 - seasonal_rate(price))\n    return round_half_even(lowered)\n"
TEST = "from shop import discount\n\n\ndef test_discount_is_rounded():\n    assert discount(10) == 9\n"
OTHER = "def unrelated(price):\n    return price * 2 - seasonal(price)\n"


class Searched:
    """A tree that an agent works on, and what a search from it finds."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.packages, self.elsewhere = folder / "tree", folder / "site", folder / "other"
        for path in (self.tree / "pkg", self.packages, self.elsewhere):
            path.mkdir(parents=True)
        (self.tree / "pkg" / "shop.py").write_text(BUGGY)
        before = CodebaseState(take_snapshot(self.tree, folder / "trees"))
        tests = {"tests/test_shop.py": FileEntry(TEST.encode())}
        after = before.replace({"pkg/shop.py": FileEntry(SOLVED.encode()), **tests})
        self.request: dict[str, Any] = {
            "root": str(self.tree),
            "itself": True,
            "elsewhere": [str(self.elsewhere)],
            "files": leaks._solved_files(before, after, ["pkg/shop.py"]),
            "tests": leaks._test_files(before, after, list(tests)),
        }

    def found(self) -> list[str]:
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.packages)}
        done = subprocess.run(
            [sys.executable, "-c", leaks._SOURCE.decode()],
            input=json.dumps(self.request).encode(),
            stdout=subprocess.PIPE,
            env=env,
            cwd=self.elsewhere,
            check=True,
        )
        return [str(leak) for leak in leaks._leaks(done.stdout)]


@pytest.fixture
def searched(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def compiled(source: Path, text: str, target: Path) -> None:
    source.write_text(text)
    py_compile.compile(str(source), cfile=str(target), doraise=True)


def test_nothing_is_found_in_what_only_looks_similar(searched: Searched):
    (searched.packages / "shop.py").write_text(OTHER)
    half = SOLVED.splitlines()[1]
    (searched.elsewhere / "notes.txt").write_text(f"{BUGGY}{OTHER}{half}")
    compiled(searched.elsewhere / "shop.py", OTHER, searched.tree / "pkg" / "__pycache__" / "shop.cpython-311.pyc")
    git(searched.tree, "init", "-q")
    git(searched.tree, "add", "pkg/shop.py")
    git(searched.tree, "commit", "-q", "-m", "first")
    assert searched.found() == []


def test_a_later_commit_is_found_even_if_nothing_names_it(searched: Searched):
    git(searched.tree, "init", "-q")
    git(searched.tree, "add", "-A")
    git(searched.tree, "commit", "-q", "-m", "first")
    (searched.tree / "pkg" / "shop.py").write_text(SOLVED)
    git(searched.tree, "commit", "-q", "-a", "-m", "later")
    git(searched.tree, "reset", "-q", "--hard", "HEAD~")
    git(searched.tree, "reflog", "expire", "--expire=now", "--all")
    assert searched.found() == ["git-history"]


def test_a_later_commit_with_more_than_the_solution_is_found(searched: Searched):
    git(searched.tree, "init", "-q")
    git(searched.tree, "add", "-A")
    git(searched.tree, "commit", "-q", "-m", "first")
    (searched.tree / "pkg" / "shop.py").write_text(SOLVED + OTHER)
    git(searched.tree, "commit", "-q", "-a", "-m", "later")
    git(searched.tree, "tag", "v2")
    git(searched.tree, "reset", "-q", "--hard", "HEAD~")
    assert searched.found() == ["git-history"]


def test_a_compiled_solution_is_found(searched: Searched):
    compiled(searched.elsewhere / "a.txt", SOLVED, searched.tree / "pkg" / "__pycache__" / "shop.cpython-311.pyc")
    (searched.elsewhere / "a.txt").unlink()
    assert searched.found() == ["cache"]


def test_an_installed_copy_is_found(searched: Searched):
    (searched.packages / "pkg").mkdir()
    (searched.packages / "pkg" / "shop.py").write_text(SOLVED)
    assert searched.found() == ["installed-copy"]


def test_a_solution_and_tests_elsewhere_are_found(searched: Searched):
    (searched.elsewhere / "solution.patch").write_text("".join(f"+{line}\n" for line in SOLVED.splitlines()))
    assert searched.found() == ["solution-in-image"]
    (searched.tree / "hidden.txt").write_text(TEST)
    assert searched.found() == ["solution-in-image", "tests-in-image"]


def test_a_tree_that_begins_solved_is_no_leak_of_its_own(searched: Searched):
    (searched.tree / "pkg" / "shop.py").write_text(SOLVED)
    assert searched.found() == ["solution-in-image"]
    searched.request["itself"] = False
    assert searched.found() == []


def test_output_that_is_no_answer_is_no_leak():
    assert leaks._leaks(b"") == leaks._leaks(b"Traceback\nKeyError") == leaks._leaks(b'["unknown"]') == ()
    assert leaks._leaks(b'printed\n["cache"]\n') == (Leak.CACHE,)


@pytest.mark.docker
@pytest.mark.long
def test_the_history_in_the_image_of_a_row_is_found(tmp_path: Path):
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-leaks") as images:
        image = DockerProvider(images["conda"])
        command = ["git", "-c", "safe.directory=*", "-C", "/testbed", "rev-parse", "HEAD"]
        commit = image.exec_in_image(command, limits=Limits()).stdout.decode().strip()
        image.close()
        row = {
            "repo": "acme/built",
            "instance_id": "acme__built-1",
            "base_commit": commit,
            "image_name": images["conda"],
            "patch": "--- a/shop/core.py\n+++ b/shop/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n",
            "test_patch": (
                "--- /dev/null\n+++ b/test_core.py\n@@ -0,0 +1,5 @@\n+from shop.core import add\n+\n+\n"
                "+def test_add():\n+    assert add(1, 2) == 3\n"
            ),
            "FAIL_TO_PASS": '["test_core.py::test_add"]',
            "PASS_TO_PASS": "[]",
        }
        store = Store(tmp_path / "store")
        grader = Grader(
            store,
            Repositories(store, images="docker"),
            Environments(store, None),
            RuleSettings(),
            sandbox="docker",
            images="docker",
        )
        try:
            assert row_leaks(grader.task(read_row(row, "row"))) == (Leak.GIT_HISTORY,)
        finally:
            grader.close()
    provider.close()
