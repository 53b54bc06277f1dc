"""A campaign that ends in the middle of a candidate."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_ssr.attempt import AttemptStatus
from pytest_ssr.campaign import Trial
from pytest_ssr.opening import open_campaign
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store


def test_a_candidate_that_is_no_longer_wanted_stops_and_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def double(x):\n    return x * 2\n")
    (project / "test_calc.py").write_text(
        "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc\n"
    )
    store = Store(tmp_path / "store")
    campaign = open_campaign(project, store, settings=RuleSettings(), python=Path(sys.executable), seed=0)
    try:
        begun: list[str] = []
        result = Trial.result

        def first_only(trial: Trial, name: str) -> object:
            begun.append(name)
            campaign.ending.set()
            return result(trial, name)

        with monkeypatch.context() as patched:
            patched.setattr(Trial, "result", first_only)
            assert campaign.attempt(0) is None
        assert len(begun) == 1
        assert campaign.known(0) is None
        campaign.ending.clear()
        attempt = campaign.attempt(0)
        assert attempt is not None
        assert attempt.status is AttemptStatus.VALID, attempt.reason
    finally:
        campaign.close()
