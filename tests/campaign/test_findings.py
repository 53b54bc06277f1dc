"""What a store has about a campaign, as it is after a run that was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from findings_parts import campaign_of, change
from small_artifact import ARTIFACT

from pytest_ssr.campaign.findings import RECORDS, stored_findings
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.storage.store import Store


def put(store, campaign, *results):
    store.put_record(RECORDS, campaign.key, campaign.to_json())
    for result in results:
        store.put_record(f"attempts/{campaign.key}", f"{result.index:05d}", result.to_json())


def test_finished_results_are_found_in_order(tmp_path):
    store = Store(tmp_path / "store")
    campaign = campaign_of(("shop/cart.py",))
    put(store, campaign, change(4, 7, ""), change(1, 7, "x"))
    store.put_file(f"attempts/{campaign.key}", "00005.json", b"{")
    findings = stored_findings(store)
    assert [result.index for result in findings.results] == [1, 4]
    assert findings.campaign == replace(campaign, files=["shop/cart.py"])
    assert findings.source("shop/cart.py") is None
    source = store.trees / campaign.tree_hash / "tree" / "shop" / "cart.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    assert findings.source("shop/cart.py") == "x = 1\n"
    assert findings.source("../../secret") is None


def test_the_campaign_that_started_last_in_the_project_is_taken(tmp_path):
    store = Store(tmp_path / "store")
    first = replace(campaign_of(()), key="1" * 24, folder=str(tmp_path), started_at=10.0)
    second = replace(first, key="2" * 24, started_at=20.0)
    put(store, first, change(0, 7, ""))
    put(store, second, change(0, 7, "x"))
    put(store, replace(first, key="3" * 24, folder="/other", started_at=1e12))
    store.put_record(RECORDS, "4" * 24, {"schema_version": 99})
    assert stored_findings(store, tmp_path).campaign.key == second.key
    put(store, replace(first, started_at=30.0))
    assert stored_findings(store, tmp_path).campaign.key == first.key


def test_a_store_without_a_campaign_is_an_error(tmp_path):
    with pytest.raises(SettingsError):
        stored_findings(Store(tmp_path / "store"))


def test_a_bug_that_is_set_aside_has_its_tests(tmp_path):
    store = Store(tmp_path / "store")
    store.put_artifact("a" * 20, ARTIFACT)
    store.make_spare("a" * 20)
    valid = {"status": CandidateStatus.VALID, "reason": None}
    put(
        store,
        campaign_of(()),
        change(0, 7, "", artifact_id="a" * 20, **valid),
        change(1, 7, "x", artifact_id="b" * 20, **valid),
    )
    found, lost = stored_findings(store).bugs
    assert found.fail_to_pass == ("t",)
    assert Path(store.root / "spare" / ("a" * 20)).is_dir()
    assert lost.fail_to_pass == ()
    assert lost.diff == lost.result.diff
