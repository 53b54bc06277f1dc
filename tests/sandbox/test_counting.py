"""Starts of sandboxes are counted for a program that watches."""

from __future__ import annotations

import pytest

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.counting import VARIABLE, counted, counts_in


def test_starts_and_failures_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for _ in range(3):
        with counted():
            pass
    with pytest.raises(SandboxError), counted():
        raise SandboxError("no")
    assert counts_in(tmp_path) == {"starts": 3, "failures": 1}


def test_nothing_is_counted_or_breaks_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with counted():
        pass
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    with counted():
        pass
    assert counts_in(tmp_path / "missing") == {"starts": 0, "failures": 0}
