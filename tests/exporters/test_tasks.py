"""Rows made from artifacts, in the form that their readers expect; `tests/peers/swesmith_peer.py` runs SWE-smith."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.exporters.formats import FORMATS
from harness.exporters.protocol import Choices, Task
from harness.exporters.skipped import SkippedError
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import BugArtifact

BUG = b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


def smith(fail: list[str], keep: list[str], strategy: str = "mutation") -> dict[str, Any]:
    """Return the SWE-smith row of an artifact with these tests."""
    info = {"FAIL_TO_PASS": fail, "PASS_TO_PASS": keep}
    artifact = BugArtifact(b"", ("t.py",), b"", Patch.parse(BUG), Patch.parse(b""), info)
    task = Task("0123456789ab", "my shop", "f" * 40, strategy, "op", "", 1, None, 0, Path(), Path(), lambda: artifact)
    group: Any = SimpleNamespace(task=task)
    (row,) = FORMATS["swe-smith"].rows(group, Choices())
    return dict(row)


def test_names_follow_the_profiles_of_swe_smith() -> None:
    row = smith(["t.py::a"], ["t.py::b"], "model v1.2")
    assert row["repo"] == "swesmith/ssr__my-shop.ffffffff"
    # The part before the last dot is the repository.
    assert row["instance_id"] == "ssr__my-shop.ffffffff.model-v1-2__01234567"
    assert row["image_name"] == "swebench/swesmith.x86_64.ssr_1776_my-shop.ffffffff"
    assert row["patch"] == BUG.decode()


def test_swe_smith_gets_only_tests_that_its_parser_recognises() -> None:
    row = smith(["t.py::a[x y]", "t.py::a[x]"], ["t.py::b", "t.py::b[\u2003]"])
    assert (row["FAIL_TO_PASS"], row["PASS_TO_PASS"]) == (["t.py::a[x]"], ["t.py::b"])


@pytest.mark.parametrize(("fail", "keep"), [(["t.py::a[x y]"], ["t.py::b"]), (["t.py::a"], ["t.py::b[x y]"])])
def test_an_artifact_without_recognised_tests_is_skipped(fail: list[str], keep: list[str]) -> None:
    with pytest.raises(SkippedError, match="without a space in its id"):
        smith(fail, keep)
