"""A baseline that is updated after an edit equals a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

FILES = {
    "pkg/__init__.py": "",
    "pkg/sub.py": "X = 1\n",
    "pkg/core.py": """\
KEPT = []


def text():
    if not KEPT:
        with open("NOTES.md") as file:
            KEPT.append(file.read())
    return KEPT[0]
""",
    "NOTES.md": "a word\n",
    "tests/test_a.py": "import pkg.sub\n\n\ndef test_a():\n    assert True\n",
    "tests/test_b.py": """\
import pkg.core


def test_fills():
    assert pkg.core.text()


def test_finds():
    assert "word" in pkg.core.text()


def test_fills_in_the_other_order():
    assert pkg.core.text()


def test_needs_an_import_of_others():
    assert pkg.sub.X == 1
"""
    + "".join(f"\n\ndef test_{i}():\n    assert True\n" for i in range(6)),
}


def stable(project: Path, store: Path) -> frozenset[str]:
    campaign = open_campaign(project, Store(store), settings=RuleSettings(), python=plain_python(), seed=0)
    try:
        return campaign.baseline.stable - set(campaign.verifying.result().set_aside)
    finally:
        campaign.close()


@pytest.mark.parametrize(
    ("path", "text", "lost"),
    [
        ("NOTES.md", "nothing\n", "test_finds"),
        ("tests/test_a.py", "def test_a():\n    assert True\n", "test_needs_an_import_of_others"),
    ],
    ids=["a document kept by an earlier test", "an import that other test files rely on"],
)
def test_a_test_that_the_edit_breaks_is_noticed(tmp_path: Path, path: str, text: str, lost: str) -> None:
    project = tmp_path / "project"
    for name, content in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content)
    before = stable(project, tmp_path / "store")
    (project / path).write_text(text)
    assert before - stable(project, tmp_path / "store") == {f"tests/test_b.py::{lost}"}
