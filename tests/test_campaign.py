"""A campaign that ends in the middle of a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.attempt import AttemptStatus
from pytest_ssr.execution import workbench
from pytest_ssr.opening import open_campaign
from pytest_ssr.sandbox.protocol import Sandbox
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store
from pytest_ssr.trial import Trial


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
    campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
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


def test_scripts_on_the_original_are_run_once_for_all_campaigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def double(x):\n    return x * 2\n\n\ndef half(x):\n    return x // 2\n")
    (project / "test_calc.py").write_text(
        "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc.half(9) == 4\n"
    )
    made: list[bool] = []
    run = workbench.run_script

    def counted(sandbox: Sandbox, *words: object, **more: object) -> object:
        made.append(sandbox.read("calc.py") == (project / "calc.py").read_bytes())
        return run(sandbox, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(workbench, "run_script", counted)
    store, seen = Store(tmp_path / "store"), []
    for damaged in (False, False, True):
        if damaged:
            for path in store.root.glob("baselines/scripts-*/*.json"):
                path.write_text('{"statuses": {}, "outputs": ["no", "packed text"], "exit_code": 0, "seconds": 1}')
        made.clear()
        campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=len(seen))
        try:
            attempts = [campaign.attempt(index) for index in range(2)]
        finally:
            campaign.close()
        seen.append(made.count(True))
        assert any(a is not None and a.status is AttemptStatus.VALID for a in attempts)
        assert made.count(False) >= 2, "what is changed is run each time"
    assert seen == [1, 0, 1]
