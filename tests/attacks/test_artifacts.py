"""Artifacts that prove no bug: each file of `artifacts` states its attack (`tries`) and the check that rejects it."""

from __future__ import annotations

import tomllib

import pytest

pytestmark = pytest.mark.long


def test_a_hostile_artifact_is_rejected(chosen, path):
    attack = tomllib.loads(path.read_text())
    parts = {name: attack[name] for name in ("bug", "parser", "weaken") if name in attack}
    rejection = chosen.judge(**parts).rejection
    assert rejection is not None, attack["tries"]
    assert rejection.name == attack["check"], rejection
    reasons = attack["reason"] if isinstance(attack["reason"], list) else [attack["reason"]]
    assert any(reason in rejection.reason for reason in reasons)


test_a_hostile_artifact_is_rejected.attacks = "artifacts"
