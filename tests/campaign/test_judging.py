"""A campaign that only judges finds out which changes the tests notice, and proves no bug."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.score import LeftOut, score_of
from pytest_ssr.execution.screening import Screening
from pytest_ssr.injectors.protocol import identities
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, code_hash, key_of

CODE = "def double(x):\n    return x * 2\n\n\ndef unchecked(x):\n    return x + 1\n"
TESTS = (
    "import calc\n\n\ndef test_double():\n    assert calc.double(3) == 6\n\n\ndef test_double_too():\n"
    "    assert calc.double(4) == 8\n\n\ndef test_unchecked():\n    calc.unchecked(1)\n"
) + "".join(f"\n\ndef test_{number}():\n    assert calc\n" for number in range(6))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text(CODE)
    (folder / "test_calc.py").write_text(TESTS)
    return folder


@pytest.fixture
def judging(project: Path, tmp_path: Path) -> Iterator[Campaign]:
    campaign = opened(project, Store(tmp_path / "store"), judges_only=True)
    yield campaign
    campaign.close()


def opened(project: Path, store: Store, *, judges_only: bool) -> Campaign:
    return open_campaign(
        project, store, settings=RuleSettings(), injectors="mutation", python=plain_python(), judges_only=judges_only
    )


def all_results(campaign: Campaign) -> list[CandidateResult]:
    results = []
    while (result := campaign.attempt(len(results))) is not None:
        results.append(result)
    return results


def test_the_key_depends_on_the_conditions_in_a_fixed_order(judging: Campaign) -> None:
    """Another key would lose the results of earlier runs."""
    runner, injectors = judging.runner, identities(judging.injectors, judging.snapshot)
    where = (judging.snapshot.tree_hash, runner.interpreter.environment_hash, runner.provider.name)
    expected = key_of(code_hash(), *where, runner.settings.key(), injectors, 0, [], (), [], "judges only")
    assert judging.key == expected


def test_what_is_noticed_is_what_gives_bugs_and_nothing_is_stored(
    judging: Campaign, project: Path, tmp_path: Path
) -> None:
    judged = all_results(judging)
    assert {r.status for r in judged} == {CandidateStatus.NOTICED, CandidateStatus.SURVIVED}
    assert not list((judging.store.root / "artifacts").rglob("*.diff"))
    assert not list((judging.store.root / "spare").rglob("*.diff"))
    score = score_of(judged, judging.snapshot.read, Goal(1, len(judged)), is_complete=True)
    proving = opened(project, Store(tmp_path / "other"), judges_only=False)
    try:
        proven = all_results(proving)
        assert proving.key != judging.key
        assert score_of(proven, proving.snapshot.read, Goal(1, len(proven)), is_complete=True) == score
    finally:
        proving.close()
    noticed = {r.index for r in judged if r.status is CandidateStatus.NOTICED}
    assert noticed == {r.index for r in proven if r.status is CandidateStatus.VALID}
    by_index = {r.index: r.runs for r in proven}
    assert all(r.runs < by_index[r.index] for r in judged if r.index in noticed)


def test_a_failure_that_does_not_repeat_does_not_count(judging: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screening, "again", lambda *_, **__: frozenset())
    judged = all_results(judging)
    doubtful = [r for r in judged if r.status is CandidateStatus.REJECTED]
    assert doubtful
    assert {r.reason.code for r in doubtful if r.reason is not None} == {CheckCode.OUTCOMES_DIFFER}
    score = score_of(judged, judging.snapshot.read, Goal(1, len(judged)))
    assert score.left_out[LeftOut.UNCERTAIN] == len(doubtful)
    assert score.noticed == 0


def test_tests_that_were_set_aside_do_not_count(judging: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = "test_calc.py::test_double"
    monkeypatch.setattr(Campaign, "set_aside", property(lambda _: frozenset((alone,))))
    assert CandidateStatus.NOTICED in {r.status for r in all_results(judging)}, "the other test notices it, too"
    both = frozenset((alone, f"{alone}_too"))
    monkeypatch.setattr(Campaign, "set_aside", property(lambda _: both))
    fresh = opened(judging.snapshot.origin, Store(judging.store.root.parent / "second"), judges_only=True)
    try:
        assert CandidateStatus.NOTICED not in {r.status for r in all_results(fresh)}
    finally:
        fresh.close()
