"""Find new files that shadow modules imported by tests, and drop or reject them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks import SEVEN, ValidationContext
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading.grade import repaired_state
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.file_roles import is_test_surface, shadows
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

FILES = ("shop/__init__.py", "shop/price.py", "src/calendar/__init__.py", "tools/run.py", "token.py", "tests/test_a.py")


@pytest.mark.parametrize(
    "path",
    [
        "statistics.py",
        "src/statistics.py",
        "tools/statistics.py",
        "json/__init__.py",
        "json.cpython-311-x86_64-linux-gnu.so",
        "calendar.py",
        "pluggy/__init__.py",
        "pytest_extra.py",
        "helping.py",
    ],
)
def test_a_module_that_shadows_an_imported_one(path: str) -> None:
    assert shadows([path], FILES, ["helping", "shop"]) == {path}


@pytest.mark.parametrize(
    "path",
    [
        "shop/statistics.py",
        "shop/new/json/__init__.py",
        "json/data.py",
        "json.toml",
        "token.py",
        "token/__init__.py",
        "src/calendar/__main__.py",
        "src/calendar.py",
        "shop/more.py",
        "shop.py",
        "more.py",
    ],
)
def test_a_module_that_shadows_nothing(path: str) -> None:
    assert shadows([path], FILES, ["helping", "shop"]) == frozenset()


@pytest.mark.parametrize("path", ["shop/tests.py", "shop/test.py"])
def test_files_with_the_names_that_django_uses_are_tests(path: str) -> None:
    assert is_test_surface(path)


def test_a_shadow_is_dropped_from_a_patch_and_rejected_in_a_bug(tmp_path: Path) -> None:
    files = {
        "fees.py": "def fee(a):\n    return a * 3 + 1\n",
        "test_fees.py": "from ujson import loads\nfrom fees import fee\n\n\ndef test_fee():\n    assert fee(7) == 22\n",
    }
    (tmp_path / "project").mkdir()
    for name, text in files.items():
        (tmp_path / "project" / name).write_text(text)
    runner = open_runner(tmp_path / "project", Store(tmp_path / "store"), settings=RuleSettings(), sandbox="process")
    buggy = runner.original.replace({"fees.py": FileEntry(files["fees.py"].replace(" + 1", "").encode())})
    shadow = buggy.replace({name: FileEntry(b"loads = dumps = mean = str\n") for name in ("statistics.py", "ujson.py")})

    def artifact(bug: Patch) -> BugArtifact:
        script = default_script(["test_fees.py"], options=())
        return BugArtifact(script, ("test_fees.py",), default_parser(), bug, Patch.parse(b""))

    bug = artifact(buggy.patch_from(runner.original))
    state, dropped = repaired_state(runner, bug, shadow.patch_from(buggy))
    assert dropped == ("statistics.py", "ujson.py")
    assert state.changes == buggy.changes
    bad = artifact(shadow.patch_from(runner.original))
    finding = dict(SEVEN)["bug-scope"](ValidationContext(bad, runner.scoped()))
    assert finding.reason == CheckReason(CheckCode.MODULE_SHADOWED, {"file": "statistics.py"})
