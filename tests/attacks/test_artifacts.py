"""Artifacts that prove no bug: each file of `artifacts` states its attack (`tries`), the check that rejects it, and the code."""

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
    codes = attack["code"] if isinstance(attack["code"], list) else [attack["code"]]
    assert rejection.reason.code in codes
    for name, value in attack.get("details", {}).items():
        assert value in str(rejection.reason.details[name])


test_a_hostile_artifact_is_rejected.attacks = "artifacts"
