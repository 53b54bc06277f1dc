"""The pages of jobs and projects: their forms over HTTP, and a run that is started and cancelled in a real browser."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from service_jobs import worker_of

from harness.executors.node import NodeState
from harness.service.access import AccessRules
from harness.service.app import ServiceSettings, create_app
from harness.service.dashboard.job_page import listed
from harness.service.job import JobKind, JobStatus, Outcome
from harness.service.queue import JobQueue
from harness.service.tokens import Scope, Tokens

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "projects" / "shop"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def client(records: Any, folder: Path) -> Iterator[TestClient]:
    app = create_app(records, ServiceSettings(roots=[folder.parent]))
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as made:
        yield made


def add_shop(client: TestClient, folder: Path) -> str:
    """Add the project by the form, and return its id."""
    answer = client.post("/projects", data={"name": "shop", "source": str(folder)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/projects")
    return re.search(r"/projects/([0-9a-f]+)/remove", client.get("/projects").text)[1]


def key_of(page: str) -> str:
    return re.search(r'name="key" value="([^"]+)"', page)[1]


def test_a_form_that_is_sent_twice_starts_one_job(client, folder, records):
    project = add_shop(client, folder)
    key = key_of(client.get("/jobs").text)
    sent = {"kind": "play", "key": key, "project": project, "rounds": "2", "attempts": "", "tries": "30"}
    first, second = (client.post("/jobs", data=sent) for _ in range(2))
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]
    job = JobQueue(records.engine).get(first.headers["location"].removeprefix("/jobs/"))
    assert (job.kind, job.settings) == (JobKind.PLAY, {"rounds": 2, "tries": 30})
    assert client.get(first.headers["location"]).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": "many"},
        {"rounds": "0"},
        {"injector": "replay:/etc/passwd"},
        {"solver": HOSTILE},
        {"project": ""},
        {"project": "0" * 32},
        {"kind": "shell"},
        {"key": "short"},
    ],
)
def test_a_wrong_form_is_shown_again_with_what_was_entered(client, folder, records, wrong):
    project = add_shop(client, folder)
    sent = {"kind": "play", "key": "k" * 20, "project": project, "count": "7", **wrong}
    answer = client.post("/jobs", data=sent)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert 'name="count" value="7"' in answer.text
    assert HOSTILE not in answer.text
    assert not JobQueue(records.engine)._has_work()


@pytest.mark.parametrize("nul", ["%00", "\0", "%%0000"])
def test_no_form_brings_a_nul_to_the_database(client, nul):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    sent = f"kind=leaderboard&key={'k' * 20}{nul}"
    assert client.post("/jobs", content=sent, headers=headers).status_code == 303
    sent = f"kind=play&key={'k' * 20}&project=a{nul}"
    assert client.post("/jobs", content=sent, headers=headers).status_code == 422


def test_every_kind_of_job_has_a_form_with_its_settings(client, folder):
    add_shop(client, folder)
    for kind in JobKind:
        page = client.get("/jobs", params={"kind": kind}).text
        assert f'name="kind" value="{kind}"' in page
    assert '<select name="format">' in client.get("/jobs?kind=export").text
    assert 'name="per_hunk" value="yes"' in client.get("/jobs?kind=inject").text


def test_jobs_are_cancelled_and_put_into_the_queue_again(client, records):
    queue = JobQueue(records.engine)
    job_id = queue.submit(JobKind.LEADERBOARD, {}).id
    assert f"/jobs/{job_id}/cancel" in client.get("/jobs").text
    assert client.post(f"/jobs/{job_id}/cancel").status_code == 303
    assert queue.get(job_id).status is JobStatus.CANCELLED
    assert f"/jobs/{job_id}/cancel" not in client.get("/jobs?status=cancelled").text
    assert client.post(f"/jobs/{job_id}/retry").status_code == 303
    assert client.post(f"/jobs/{job_id}/retry").status_code == 409
    assert client.post("/jobs/none/cancel").status_code == 404
    assert client.get("/jobs/none").status_code == 404


def test_a_job_on_a_cluster_shows_its_nodes(client, records):
    queue = JobQueue(records.engine)
    queue.submit(JobKind.LEADERBOARD, {})
    claim = queue.claim("0" * 32)
    node = NodeState("0a1b", "n1:0a1b", 4, done=3, lost=2, faults=1, drained=HOSTILE).to_json()
    assert queue.finish(claim, Outcome(status=JobStatus.SUCCEEDED, result={"nodes": [node, "damaged"]}))
    page = client.get(f"/jobs/{claim.job.id}").text
    rows = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert rows[:6] == ["n1:0a1b", "4", "3", "2", "1", "0.25"]
    assert HOSTILE not in page


def test_the_form_stays_open_when_a_kind_was_chosen(client, records):
    JobQueue(records.engine).submit(JobKind.LEADERBOARD, {})
    assert "<details open><summary>Start a job" in client.get("/jobs?kind=inject").text
    assert "<details><summary>Start a job" in client.get("/jobs").text


@pytest.mark.parametrize(
    ("kind", "settings", "result", "has_remark"),
    [
        (JobKind.PLAY, {}, {"exit_code": 1}, True),
        (JobKind.INJECT, {}, {"exit_code": 1, "valid": []}, True),
        (JobKind.INJECT, {}, {"exit_code": 1, "valid": ["a"]}, True),
        (JobKind.PLAY, {}, {"exit_code": 0}, False),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_negative_result_is_named_beside_the_status(client, records, kind, settings, result, has_remark):
    queue = JobQueue(records.engine)
    queue.submit(kind, settings)
    claim = queue.claim("0" * 32)
    assert queue.finish(claim, Outcome(status=JobStatus.SUCCEEDED, result=result))
    assert bool(listed(queue.get(claim.job.id), {}).remark) is has_remark
    for path in ("/jobs", f"/jobs/{claim.job.id}"):
        shown = re.search(r'<span class="state good">succeeded</span>(: <span class="busy">)?', client.get(path).text)
        assert bool(shown[1]) is has_remark


def test_the_files_of_an_export_are_linked(client, records):
    queue = JobQueue(records.engine)
    job = queue.submit(JobKind.EXPORT, {"format": "artifacts"})
    records.put({f"exports/{job.id}/data/rows.jsonl": b"{}\n"})
    address = f"/api/v1/exports/{job.id}/data/rows.jsonl"
    assert f'href="{address}"' in client.get(f"/jobs/{job.id}").text
    assert client.get(address).content == b"{}\n"


def test_a_refused_folder_names_one_that_is_allowed(client, folder):
    answer = client.post("/api/v1/projects", json={"name": "shop", "source": "shop"})
    assert answer.json()["code"] == "invalid-request"
    assert str(folder.parent) in answer.json()["detail"]


@pytest.mark.parametrize("source", ["/etc", "file:///etc", "projects", "--upload-pack=touch x", "ssh://a/b"])
def test_a_project_elsewhere_is_refused(client, source):
    answer = client.post("/projects", data={"name": "shop", "source": source})
    assert answer.status_code == 422
    assert 'value="shop"' in answer.text


def test_a_project_is_removed(client, folder):
    project = add_shop(client, folder)
    assert client.post(f"/projects/{project}/remove").status_code == 303
    assert client.post(f"/projects/{project}/remove").status_code == 404


@pytest.mark.parametrize(("scope", "may_run", "may_add"), [("read", False, False), ("run", True, False)])
def test_forms_are_shown_and_accepted_by_scope(records, folder, scope, may_run, may_add):
    _, secret = Tokens(records.engine).create("somebody", Scope(scope))
    app = create_app(records, ServiceSettings(AccessRules(is_loopback=False), roots=[folder.parent]))
    with TestClient(app, headers={"Authorization": f"Bearer {secret}"}, follow_redirects=False) as client:
        assert ('name="key"' in client.get("/jobs?kind=leaderboard").text) is may_run
        sent = {"kind": "leaderboard", "key": "k" * 20}
        assert client.post("/jobs", data=sent).status_code == (303 if may_run else 403)
        assert ('name="source"' in client.get("/projects").text) is may_add
        assert client.post("/projects", data={"name": "a", "source": str(folder)}).status_code == 403


def test_the_form_of_an_episode_begins_with_one_bug(client, folder):
    add_shop(client, folder)
    page = client.get("/jobs?kind=play&episode=true").text
    assert re.search(r'name="count"[^>]* value="1"', page)
    assert re.search(r'name="higher_order"[^>]* value="0"', page)


def test_an_empty_store_says_what_to_do_first(client):
    page = client.get("/").text
    assert 'href="/projects"' in page
    assert 'href="/jobs?kind=play&amp;episode=true"' in page


def test_another_site_can_start_nothing(client):
    for headers in ({"Origin": "http://attacker.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/jobs", data={"kind": "leaderboard", "key": "k" * 20}, headers=headers).status_code == 403


@pytest.mark.browser
def test_a_run_is_started_followed_and_cancelled_in_a_browser(served, browser, tmp_path):
    address, records = served
    root, stopped = Path(records.blobs.url).parents[0], threading.Event()
    worker = worker_of(
        records, root, "import sys, time; print('round 1', file=sys.stderr, flush=True); time.sleep(600)"
    )

    def work() -> None:
        while not stopped.is_set():
            worker.turn()
            time.sleep(0.05)
        worker.shut_down()

    thread = threading.Thread(target=work)
    with browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark") as context:
        page, problems = context.new_page(), []
        page.on("console", lambda message: problems.append(message.text))
        page.goto(f"{address}/jobs?kind=leaderboard")
        assert not [v for v in Axe().run(page)["violations"] if v["impact"] in ("serious", "critical")]
        page.get_by_role("button", name="Start").click()
        page.wait_for_url(re.compile("/jobs/[0-9a-f]{32}"))
        page.get_by_text("queued", exact=True).wait_for()
        thread.start()
        try:
            page.get_by_text("running", exact=True).wait_for(timeout=10_000)
            page.get_by_role("cell", name="round 1").wait_for(timeout=10_000)
            page.get_by_role("heading", name="Stages").wait_for()
            page.clock.install()
            page.reload()
            elapsed = page.locator("dd [data-elapsed]")
            before = elapsed.text_content()
            page.clock.run_for(5_000)
            assert elapsed.text_content() != before
            page.clock.resume()
            assert not [v for v in Axe().run(page)["violations"] if v["impact"] in ("serious", "critical")]
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            page.get_by_role("button", name="Cancel").click()
            page.get_by_text("cancelled", exact=True).wait_for(timeout=20_000)
        finally:
            stopped.set()
            thread.join()
        assert not [v for v in Axe().run(page)["violations"] if v["impact"] in ("serious", "critical")]
        page.goto(f"{address}/jobs")
        page.get_by_role("heading", name="Workers").wait_for()
    assert problems == []
