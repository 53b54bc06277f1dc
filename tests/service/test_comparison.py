"""Two runs are compared by their sums, by what rejected their bugs, and by the bugs that both have."""

from __future__ import annotations

from pathlib import Path

import pytest
from board_parts import episode
from fastapi.testclient import TestClient

from harness.database.records import DatabaseRecords
from harness.service.app import create_app
from harness.service.dashboard.comparison import ComparisonPage, comparison_page
from harness.service.dashboard.reading import Reads
from pytest_ssr.storage.store import Store

LEFT, RIGHT = "a" * 24, "b" * 24


@pytest.fixture
def page(records: DatabaseRecords, tmp_path: Path) -> ComparisonPage:
    store = Store(tmp_path / "store")
    rounds = {
        LEFT: [episode(1, solvers={"s": "uu"}), episode(2, solvers={"s": "ru"}), episode(3, valid=False)],
        RIGHT: [episode(1, solvers={"s": "rr"}), episode(2, solvers={"s": "ru"}), episode(4, solvers={"s": "uuuu"})],
    }
    for run, episodes in rounds.items():
        store.put_record(f"episodes/{run}", "round-001-001", {"episodes": [e.to_json() for e in episodes]})
    found = comparison_page(Reads(records), LEFT, RIGHT)
    assert found is not None
    return found


def test_sums_are_beside_each_other_with_their_difference(page: ComparisonPage) -> None:
    rows = {row.title: row for row in page.rows}
    assert (rows["Episodes"].left, rows["Episodes"].right) == ("3", "3")
    rate = rows["Solve rate"]
    assert (rate.left, rate.right) == ("25.0 % of 4", "37.5 % of 8")
    assert rate.difference.startswith("+12.5 (")
    assert rows["Valid bugs"].difference.startswith("+33.3 (")
    assert [(row.title, row.left, row.right) for row in page.checks] == [("bug-validity", "1", "0")]


def test_bugs_of_both_are_shown_with_the_largest_difference_first(page: ComparisonPage) -> None:
    shared = [(bug.artifact_id, bug.left, bug.right, bug.tone) for bug in page.shared]
    assert shared == [("bug001", "0 of 2", "2 of 2", "good"), ("bug002", "1 of 2", "1 of 2", "")]


def test_the_page_is_reached_from_the_list_of_runs(records: DatabaseRecords, page: ComparisonPage) -> None:
    with TestClient(create_app(records), base_url="http://127.0.0.1") as client:
        assert f'<option value="{LEFT}"' in client.get("/runs").text
        assert client.get("/comparison", params={"left": LEFT, "right": RIGHT}).status_code == 200
        assert client.get("/comparison", params={"left": LEFT, "right": "none"}).status_code == 404
