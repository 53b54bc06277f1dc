"""Rows with a clone in bubblewrap, a grader for them, and a browser, which CI has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harbor_tasks import write_task
from images import images_of
from plain import plain_python
from planted_verifiers import ENVIRONMENT
from real_browser import real_browser
from rows import FIXED, diff, write_project

from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.instance import Instance
from harness.datasets.loading import read_instances
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.evaluation.harbor_grading import OpenTask, open_harbor_task
from harness.harbor.containers import Engine
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


class Rows:
    """Rows of a small repository: a bug to fix, a function to write, and the bug with tests of unittest and of a shell.

    The last one is of another language.
    """

    def __init__(self, folder: Path) -> None:
        clones, rows = write_project(folder)
        store = Store(folder / "store")
        environments = Environments(store, plain_python())
        repository = clones / "acme__shop"
        rows.append({**rows[0], **unittest_row(repository)})
        rows.append({**rows[0], **command_row(repository)})
        rows.append({**rows[0], **command_row(repository), **other_row(repository)})
        self.instances: list[Instance] = [read_row(row, "row") for row in rows]
        self.grader = Grader(
            store, Repositories(store, clones), environments, RuleSettings(time_limit_s=60), sandbox="bubblewrap"
        )


def unittest_row(repository: Path) -> dict[str, str]:
    """Return what a row has in place of pytest's tests."""
    methods = ("test_add", "self.assertEqual(add(1, 2), 3)"), ("test_shout", 'self.assertEqual(shout("a"), "A")')
    head = "import unittest\n\nfrom shop import add, shout\n\n\nclass ShopTest(unittest.TestCase):\n"
    text = head + "".join(f"    def {name}(self):\n        {line}\n\n" for name, line in methods)
    failing, passing = (f"{name} (tests.test_old.ShopTest)" for name, _ in methods)
    return {
        "instance_id": "acme__shop-3",
        "patch": diff(repository, {"shop.py": FIXED}),
        "test_patch": diff(repository, {"tests/__init__.py": "", "tests/test_old.py": text}),
        "FAIL_TO_PASS": json.dumps([failing]),
        "PASS_TO_PASS": json.dumps([passing]),
    }


CHECKS = """\
failed=0
check() {
    if [ "$($2)" = "$3" ]; then echo "PASS: $1"; else echo "FAIL: $1"; failed=1; fi
}
shop() { python3 -c "from shop import *; print($1)"; }
"""
SCRIPT = ": '>>>>> Start Test Output'\nbash checks/run.sh\n: '>>>>> End Test Output'\n"


def command_row(repository: Path) -> dict[str, Any]:
    """Return what a row has whose tests only its own command runs."""
    checks = CHECKS + "check adds 'shop add(1,2)' 3\ncheck shouts 'shop shout(\"a\")' A\nexit $failed\n"
    return {
        "instance_id": "acme__shop-4",
        "test_patch": diff(repository, {"checks/run.sh": checks}),
        "FAIL_TO_PASS": ["adds"],
        "PASS_TO_PASS": ["shouts"],
        "eval_script": SCRIPT,
        "log_parser": "parse_log_jq",
    }


def other_row(repository: Path) -> dict[str, str]:
    """Return what such a row has if its code is a shell's."""
    checks = CHECKS + "check adds 'sh add.sh' 3\ncheck shouts 'shop shout(\"a\")' A\nexit $failed\n"
    return {
        "instance_id": "acme__shop-5",
        "patch": diff(repository, {"add.sh": "echo $((1 + 2))\n"}),
        "test_patch": diff(repository, {"checks/run.sh": checks}),
    }


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    project = Rows(tmp_path_factory.mktemp("audited"))
    yield project
    project.grader.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    with real_browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The image of task directories."""
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-planted") as images:
        yield images["plain"]
    provider.close()


@pytest.fixture
def opening(tmp_path: Path, image: str) -> Iterator[Callable[..., OpenTask]]:
    """A function that opens a task directory of a kind with other files."""
    with ExitStack() as stack:

        def opened(kind: str, files: Mapping[str, str | None]) -> OpenTask:
            (instance,) = read_instances(str(write_task(tmp_path, kind, image, {**ENVIRONMENT, **files})))
            engine = Engine()
            stack.callback(engine.close)
            return open_harbor_task(instance, engine, Store(tmp_path / "store"))

        yield opened
