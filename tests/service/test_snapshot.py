"""The pages of a store in one file, read as text and in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dashboard_store import ARTIFACT, HOSTILE, RUN, dashboard_store

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.database.records import records_of
from harness.database.schema import episodes, rollouts, rounds
from harness.database.sharing import share_store
from harness.service.dashboard import snapshot as snapshots
from harness.service.dashboard.reading import Reads
from harness.service.dashboard.rendering import cost
from harness.service.dashboard.snapshot import snapshot
from harness.service.dashboard.summaries import overview
from pytest_ssr.project.report_marks import PAGE

LISTS = ("overview", "runs", "episodes", "artifacts", "attempts", "models", "gaps")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A filled store."""
    from harness.database.engine import close_engines

    yield dashboard_store(tmp_path_factory.mktemp("reported") / "store")
    close_engines()


def test_every_link_leads_to_something_in_the_file(records):
    made = snapshot(records, title="All")
    ids = re.findall(r'\sid="([^"]+)"', made.html)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="([^"]*)"', made.html))
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {*LISTS, f"artifact-{ARTIFACT}"} <= set(ids)
    assert made.left_out == 0
    assert made.html.startswith(PAGE)


def blank(table: sa.Table) -> dict[str, Any]:
    """Return a row of a table that says nothing."""
    return {column.name: "" if isinstance(column.type, sa.String) else 0 for column in table.columns}


@pytest.mark.usefixtures("records")
def test_the_overview_has_the_tokens_of_attempts_outside_of_rounds(tmp_path: Path):
    attempts = [
        ("1", ARTIFACT, "solver"),
        ("i", "", "injector"),
        ("2", "acme__shop-1", "solver"),
        ("j", "", "injector"),
    ]
    own = records_of(share_store(tmp_path / "store").root)
    with own.engine.begin() as connection:
        connection.execute(sa.insert(rounds).values({**blank(rounds), "path": "p", "tokens": 5, "cost_usd": 0.5}))
        played = {"number": 1, "artifact_id": ARTIFACT, "injection": "i"}
        connection.execute(sa.insert(episodes).values({**blank(episodes), **played}))
        for name, artifact, role in attempts:
            values = {"id": name, "artifact_id": artifact, "role": role, "tokens": 100, "cost_usd": 1.0}
            connection.execute(sa.insert(rollouts).values({**blank(rollouts), **values}))
    cards = dict(overview(Reads(own)).cards)
    assert (cards["Attempts"], cards["Tokens"], cards["Cost"]) == ("4", "205", cost(2.5))


def test_everything_is_escaped(records):
    html = snapshot(records, title=f"All {HOSTILE}").html
    assert HOSTILE not in html
    assert "<script>alert" not in html
    assert not re.search(r"\u202e|\x1b|\son\w+=|\sstyle=|\ssrc=|\shx-", html)


def test_a_run_has_only_what_belongs_to_it(records):
    made = snapshot(records, title="Run", run=RUN)
    assert 'id="runs"' not in made.html
    assert f'id="artifact-{ARTIFACT}"' in made.html
    other = snapshot(records, title="Run", run="5" * 24)
    assert f'id="artifact-{ARTIFACT}"' not in other.html
    assert other.pages == len(LISTS) - 1


def test_pages_that_are_left_out_are_counted_and_not_linked(records, monkeypatch):
    everything = snapshot(records, title="All").pages - len(LISTS)
    monkeypatch.setattr(snapshots, "_MOST_PAGES", 10)
    made = snapshot(records, title="All")
    assert made.pages == len(LISTS) + 10
    assert made.left_out == everything - 10
    linked = set(re.findall(r'href="#((?:artifact|attempt)-[^"]+)"', made.html))
    assert linked <= set(re.findall(r'\sid="([^"]+)"', made.html))


@pytest.mark.browser
@pytest.mark.parametrize("place", [*LISTS, f"artifact-{ARTIFACT}", f"attempt-{0:024x}", "main", "gap-0"])
def test_one_page_is_shown_without_any_request(records, browser, tmp_path, place):
    path = tmp_path / "report.html"
    path.write_text(snapshot(records, title="All").html)
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page, requests, problems = context.new_page(), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{path.as_uri()}#{place}")
        visible = "[...document.querySelectorAll('.page')].filter(e => e.checkVisibility()).map(e => e.id)"
        assert page.evaluate(visible) == [{"main": "overview", "gap-0": "gaps"}.get(place, place)]
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert [url.partition("#")[0] for url in requests] == [path.as_uri()]
    assert problems == []


def test_a_folder_without_a_database_is_not_changed(tmp_path, capsys):
    from pytest_ssr.storage.store import Store

    store = Store(tmp_path / "store")
    store.put_record("attempts/one", "00000", {"index": 0})
    before = {path: path.stat().st_mtime_ns for path in _files(store.root)}
    target = tmp_path / "new" / "report.html"
    assert main(["report", str(store.root), "--html", str(target), "--json"]) == ExitCode.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == target.stat().st_size
    assert {path: path.stat().st_mtime_ns for path in _files(store.root)} == before


def test_a_run_is_named_by_the_beginning_of_its_id(records, tmp_path, capsys):
    store, target = str(records.blobs.url).removesuffix("/blobs"), tmp_path / "report.html"
    assert main(["report", store, "--run", RUN[:4], "--html", str(target)]) == ExitCode.DONE
    assert f"<title>Run {RUN[:12]}" in target.read_text()
    target.unlink()
    for wrong in ("zz", "%"):
        assert main(["report", store, "--run", wrong, "--html", str(target)]) == ExitCode.USAGE
    assert not target.exists()


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
