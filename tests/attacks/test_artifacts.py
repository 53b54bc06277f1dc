"""Artifacts that are no proof of a bug: each file of `artifacts` says what it tries, and which check rejects it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ARTIFACTS = sorted(Path(__file__).with_name("artifacts").glob("*.toml"))


@pytest.mark.parametrize("path", ARTIFACTS, ids=lambda path: path.stem)
def test_a_hostile_artifact_is_rejected(arena, path):
    attack = tomllib.loads(path.read_text())
    parts = {name: attack[name] for name in ("bug", "parser") if name in attack}
    rejection = arena.judge(**parts).rejection
    assert rejection is not None, attack["tries"]
    assert rejection.name == attack["check"], rejection
    reasons = attack["reason"] if isinstance(attack["reason"], list) else [attack["reason"]]
    assert any(reason in rejection.reason for reason in reasons)
