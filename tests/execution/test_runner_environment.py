"""The environment of a test runner reaches the tests, in our own runs and in generated scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.script_template import default_parser, is_generated, script_of
from pytest_ssr.execution.test_runners import PYTEST, PYTEST_ADDOPTS, UNITTEST
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

FILE = "test_shop.py"
TESTS = """\
import os
import sys
import unittest
import warnings


class Shop(unittest.TestCase):
    def test_variable(self):
        self.assertEqual(os.environ["SHOP"], "a 'b'")

    def test_development_mode(self):
        self.assertTrue(sys.flags.dev_mode)

    def test_path(self):
        self.assertNotEqual(os.environ["PATH"], "/nowhere")
"""
STRICT = (
    ("PATH", "/nowhere"),
    ("PYTHONDEVMODE", "1"),
    ("PYTHONWARNDEFAULTENCODING", "1"),
    ("PYTHONWARNINGS", "error"),
    ("SHOP", "a 'b'"),
)
IDS = [f"{FILE}::Shop::{name}" for name in ("test_development_mode", "test_path", "test_variable")]


@pytest.mark.parametrize("test_runner", [PYTEST, UNITTEST], ids=lambda runner: runner.name)
def test_strict_environment(tmp_path: Path, test_runner):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / FILE).write_text(TESTS)
    (tmp_path / "p" / "pytest.ini").write_text("[pytest]\n")
    test_runner = replace(test_runner, environment=STRICT)
    runner = open_runner(
        tmp_path / "p",
        Store(tmp_path / "store"),
        settings=RuleSettings(),
        sandbox="process",
        python=plain_python(),
        test_runner=test_runner,
    )
    run, _ = runner.suite(runner.original, [FILE])
    assert run.fault == ""
    assert sorted(run.passing) == IDS

    # The interpreter of a script is found by PATH.
    exported = replace(test_runner, environment=STRICT[1:])
    script = script_of(exported, [FILE], options=())
    assert is_generated(script, default_parser(), exported, [FILE])
    assert not is_generated(script, default_parser(), replace(exported, environment=()), [FILE])
    artifact = BugArtifact(script, (FILE,), default_parser(), Patch.parse(b""), Patch.parse(b""))
    statuses, _ = runner.script(runner.original, artifact)
    assert sorted(statuses.passing) == IDS


def test_options_in_the_environment_are_the_projects_own(tmp_path: Path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / FILE).write_text("def test_a():\n    pass\n\n\ndef test_b():\n    pass\n")
    runner = open_runner(
        tmp_path / "p",
        Store(tmp_path / "store"),
        settings=RuleSettings(),
        sandbox="process",
        python=plain_python(),
        test_runner=replace(PYTEST, environment=((PYTEST_ADDOPTS, "-n4 --cov=shop -x -k test_b"),)),
    )
    run, _ = runner.suite(runner.original, [FILE])
    assert list(run.passing) == [f"{FILE}::test_b"]
    assert run.addopts == ("-k", "test_b")
