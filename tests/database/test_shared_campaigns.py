"""Machines that share a store can write the page of a campaign that only one of them has run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from findings_parts import SOURCE, change
from shared_stores import records_of

from harness.cli.main import main
from harness.database.migrate import check, migrate
from harness.database.sharing import share_store
from pytest_ssr.campaign.findings import SUGGESTIONS, campaign_findings, record_start, stored_findings
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.storage.store import Store

KEY = "5c07" * 6


def run_campaign(store: Store, project: Path) -> None:
    """Store what a campaign with one survivor stores, and a test for it."""
    (project / "shop").mkdir(parents=True)
    (project / "shop" / "cart.py").write_text(SOURCE)
    taken = take_snapshot(project, store.trees)
    snapshot = SimpleNamespace(
        project_name=taken.project_name, origin=project, tree_hash=taken.tree_hash, allowed=["shop/cart.py"]
    )
    baseline = SimpleNamespace(stable=["a"], seconds=1.0, python="3.11")
    runner = SimpleNamespace(provider=SimpleNamespace(name="process"))
    campaign: Any = SimpleNamespace(key=KEY, store=store, snapshot=snapshot, baseline=baseline, runner=runner, seed=0)
    record_start(campaign)
    survivor = change(0, 7, "    if rate >= 0:")
    store.put_record(f"attempts/{KEY}", "00000", survivor.to_json())
    text = "def test_rate():\n    assert total([], 0) == 0\n"
    test = SuggestedTest(0, survivor.path, survivor.line, survivor.scope, text)
    store.put_record(f"{SUGGESTIONS}/{KEY}", "00000", test.to_json())


def test_a_machine_without_the_project_has_all_findings(shared: list[Store], tmp_path: Path) -> None:
    one, other = shared
    run_campaign(one, tmp_path / "shop")
    findings = campaign_findings(other, KEY[:4])
    assert findings is not None
    assert findings.source("shop/cart.py") == SOURCE
    assert [s.result.index for s in findings.survivors] == [0]
    assert "def test_rate" in findings.suggestions[0].test
    (tmp_path / "elsewhere" / "shop").mkdir(parents=True)
    assert stored_findings(other, tmp_path / "elsewhere" / "shop").campaign == findings.campaign
    assert campaign_findings(other, "6") is None


def test_the_page_is_written_from_the_database_alone(shared: list[Store], tmp_path: Path) -> None:
    one, other = shared
    run_campaign(one, tmp_path / "shop")
    assert main(["report", str(other.root), "--run", KEY[:8], "--html", str(tmp_path / "page")]) == 0
    html = (tmp_path / "page" / "index.html").read_text()
    assert 'class="source"' in html
    assert "test_rate" in html


def test_campaigns_of_a_folder_are_taken_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run_campaign(store, tmp_path / "shop")
    records = records_of(share_store(store.root, database="sqlite"))
    unshared = check(store.root, records, progress=str).unshared
    assert {path.partition("/")[0] for path in unshared} == {"campaigns", "attempts", "suggestions", "trees"}
    done = migrate(store.root, records, progress=str)
    assert (done.files, done.trees) == (3, 1)
    found = check(store.root, records, progress=str)
    assert (found.missing, found.damaged, found.unshared) == ((), (), ())
