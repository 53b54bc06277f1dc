"""The API: lists, problems, access, entity tags, metrics, and its own description."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import sqlite3
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from dashboard_store import ARTIFACT, ATTEMPT, RUN, dashboard_store
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from harness.database.engine import close_engines
from harness.database.records import DatabaseRecords, records_of
from harness.database.sharing import share_store
from harness.records.episode import Episode
from harness.records.job_reports import JobReport
from harness.service import app as app_module
from harness.service.access import AccessRules, is_loopback
from harness.service.api.parts import UNKNOWN_PARAMETER
from harness.service.app import ServiceSettings, create_app
from harness.service.dashboard.reading import Reads
from harness.service.job import JobErrorCode, JobKind, JobStatus, Outcome, Progress
from harness.service.logs import set_up_logging
from harness.service.queries import Queries, decode_cursor, encode_cursor
from harness.service.queue import JobQueue
from harness.service.rates import Buckets
from harness.service.sessions import Sessions
from harness.service.tokens import Scope, Tokens, hash_of
from pytest_ssr.errors import SettingsError, StoreError
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason

schemathesis = pytest.importorskip("schemathesis")

LOCAL = "http://127.0.0.1:8700"
ELSEWHERE = "http://service.example"
MAX_BODY = 10_000


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseRecords]:
    """The records of a store with something of everything, on each kind of database."""
    database = "sqlite"
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE filled")
        database = f"{url}/filled"
    yield dashboard_store(tmp_path_factory.mktemp("filled") / "store", database=database)
    close_engines()


@contextlib.contextmanager
def service(
    records: DatabaseRecords, *, base_url: str = LOCAL, roots: Sequence[Path] = (), **rules: Any
) -> Iterator[TestClient]:
    """Yield a client of a service."""
    settings = ServiceSettings(AccessRules(**rules), roots=roots, max_body_bytes=MAX_BODY)
    with TestClient(create_app(records, settings), base_url=base_url, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(filled: DatabaseRecords) -> Iterator[TestClient]:
    with service(filled) as found:
        yield found


def token_of(records: DatabaseRecords, scope: Scope = Scope.READ) -> dict[str, str]:
    """Return the headers of a request with a new token."""
    return {"Authorization": f"Bearer {Tokens(records.engine).create('test', scope)[1]}"}


def code_of(response: Any) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return str(response.json()["code"])


@pytest.mark.parametrize(
    ("method", "path", "instead"),
    [
        ("GET", "/api/v1/environments", "/api/v1/projects"),
        ("DELETE", "/api/v1/environments/7", "/api/v1/projects/ID"),
        ("POST", "/api/v1/episodes/7/cancel", "/api/v1/jobs/ID/cancel"),
        ("GET", "/api/v1/episodes/7/validation", "/api/v1/artifacts/ID/verdict"),
        ("GET", "/api/v1/nothing", None),
    ],
)
def test_an_address_of_another_system_names_the_one_here(
    client: TestClient, method: str, path: str, instead: str | None
) -> None:
    response = client.request(method, path)
    assert code_of(response) == "not-found"
    assert response.json().get("instead") == instead


def test_a_locked_database_is_waited_for_only_briefly(tmp_path: Path) -> None:
    records = records_of(share_store(tmp_path / "store").root)
    settings = ServiceSettings(database_wait_s=0.2)
    with TestClient(create_app(records, settings), base_url=LOCAL, raise_server_exceptions=False) as client:
        held = sqlite3.connect(tmp_path / "store" / "ssr.db", isolation_level=None, check_same_thread=False)
        held.execute("BEGIN IMMEDIATE")
        # A request that waits for it would succeed in the end.
        watchdog = threading.Timer(20, held.rollback)
        watchdog.start()
        answer = client.post("/api/v1/jobs", json={"kind": "leaderboard"})
        assert code_of(answer) == "unavailable"
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/api/v1/jobs").json()["items"] == [], "what only reads goes on"
        watchdog.cancel()
        held.rollback()
        held.close()
        assert client.post("/api/v1/jobs", json={"kind": "leaderboard"}).status_code == 201
    close_engines()


LISTS = {"runs": "run", "episodes": "number", "artifacts": "id", "attempts": "id", "candidates": "path"}


@pytest.mark.parametrize("name", LISTS)
def test_the_pages_of_a_list_have_every_item_once(client: TestClient, name: str) -> None:
    key, whole = LISTS[name], []
    after = ""
    for _ in range(200):
        page = client.get(f"/api/v1/{name}", params={"after": after, "limit": 7}).json()
        assert len(page["items"]) <= 7
        whole += [item[key] for item in page["items"]]
        after = page["next"]
        if not after:
            break
    assert not after
    assert len(whole) == len(set(whole)) > 0
    first = client.get(f"/api/v1/{name}", params={"limit": 200}).json()
    assert [item[key] for item in first["items"]] == whole[:200]
    exact = client.get(f"/api/v1/{name}", params={"limit": min(200, len(whole))}).json()
    assert bool(exact["next"]) is (len(whole) > 200)


def test_lists_are_filtered(client: TestClient) -> None:
    valid = client.get("/api/v1/episodes", params={"valid": "true", "limit": 200}).json()["items"]
    rejected = client.get("/api/v1/episodes", params={"valid": "false", "limit": 200}).json()["items"]
    assert {item["valid"] for item in valid} == {True}
    assert {item["valid"] for item in rejected} == {False}
    resolved = client.get("/api/v1/attempts", params={"resolved": "true", "player": "search"}).json()["items"]
    assert {(item["player"], item["resolved"]) for item in resolved} == {("search", True)}
    assert client.get("/api/v1/episodes", params={"run": "' OR 1=1 --"}).json() == {"items": [], "next": ""}


def test_one_of_each_kind(client: TestClient) -> None:
    number = client.get("/api/v1/episodes").json()["items"][0]["number"]
    paths = (
        f"runs/{RUN}", f"runs/{RUN}/rounds", f"episodes/{number}", f"artifacts/{ARTIFACT}",
        f"artifacts/{ARTIFACT}/verdict", f"artifacts/{ARTIFACT}/files", f"attempts/{ATTEMPT}",
        f"attempts/{ATTEMPT}/files", "models", "workers", "statistics/validity", "statistics/rounds",
        "statistics/difficulty", "statistics/gaps", "leaderboards", "exports", "projects", "jobs",
    )  # fmt: skip
    assert {path: client.get(f"/api/v1/{path}").status_code for path in paths} == dict.fromkeys(paths, 200)
    assert client.get(f"/api/v1/attempts/{ATTEMPT}/trajectory").text.startswith("{")
    assert client.get(f"/api/v1/artifacts/{ARTIFACT}/verdict").json()["artifact_id"] == ARTIFACT


def test_lines_of_a_trajectory_are_found(client: TestClient) -> None:
    path = f"/api/v1/attempts/{ATTEMPT}/trajectory"
    whole = client.get(path).text.splitlines()
    found = [json.loads(line) for line in client.get(path, params={"search": "The TESTS"}).text.splitlines()]
    assert 0 < len(found) < len(whole)
    assert [{"line": each["line"], **json.loads(whole[each["line"] - 1])} for each in found] == found
    assert all("the tests" in str(list(each.values())).lower() for each in found)
    assert client.get(path, params={"search": "nothing like it"}).text == ""
    assert client.get(path, params={"search": "rollout_id"}).text == "", "the names of fields are not searched"
    assert code_of(client.get("/api/v1/attempts/none/trajectory", params={"search": "x"})) == "not-found"


def test_what_jobs_made_can_be_read(filled: DatabaseRecords, client: TestClient) -> None:
    filled.put({"boards/0a.json": b'{"solvers": []}', "exports/0b/train/part-0.jsonl": b"{}\n"})
    assert [file["name"] for file in client.get("/api/v1/leaderboards").json()] == ["0a.json"]
    assert client.get("/api/v1/leaderboards/0a").json() == {"solvers": []}
    assert [file["name"] for file in client.get("/api/v1/exports").json()] == ["0b/train/part-0.jsonl"]
    assert [file["name"] for file in client.get("/api/v1/exports/0b").json()] == ["train/part-0.jsonl"]
    assert code_of(client.get("/api/v1/exports/none")) == "not-found"
    assert client.get("/api/v1/exports/0b/train/part-0.jsonl").text == "{}\n"
    assert code_of(client.get("/api/v1/exports/..%2Fboards/0a.json")) in ("invalid-request", "not-found")


def test_a_file_is_sent_as_a_download_and_only_once(client: TestClient) -> None:
    path = f"/api/v1/artifacts/{ARTIFACT}/files/bug_inject.diff"
    first = client.get(path)
    assert first.text.startswith("diff --git")
    assert first.headers["content-disposition"] == "attachment"
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_files_of_an_artifact_are_sent_as_one_archive(client: TestClient) -> None:
    answer = client.get(f"/api/v1/artifacts/{ARTIFACT}/files.tar")
    names = [file["name"] for file in client.get(f"/api/v1/artifacts/{ARTIFACT}/files").json()]
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert archive.getnames() == [f"{ARTIFACT}/{name}" for name in names]
        diff = archive.extractfile(f"{ARTIFACT}/bug_inject.diff")
        assert diff is not None
        assert diff.read() == client.get(f"/api/v1/artifacts/{ARTIFACT}/files/bug_inject.diff").content
    assert client.get(f"/api/v1/artifacts/{ARTIFACT}/files.tar").content == answer.content
    assert code_of(client.get("/api/v1/artifacts/none/files.tar")) == "not-found"


@pytest.mark.parametrize(
    ("path", "known"),
    [("episodes", {"run", "after", "limit"}), ("attempts", {"player"}), ("models", set()), ("jobs", {"kind"})],
)
def test_a_parameter_that_an_operation_does_not_have_is_named(client: TestClient, path: str, known: set[str]) -> None:
    answer = client.get(f"/api/v1/{path}", params={"banana": "1"})
    assert (answer.status_code, code_of(answer)) == (422, "invalid-request")
    assert answer.json()["errors"] == [{"location": ["query", "banana"], "code": UNKNOWN_PARAMETER}]
    assert all(name in answer.json()["detail"] for name in known)
    assert all(client.get(f"/api/v1/{path}", params={name: ""}).status_code in (200, 422) for name in known)


def test_an_episode_has_its_record_and_its_job(tmp_path: Path) -> None:
    records, run = records_of(share_store(tmp_path / "store").root), "e" * 24
    records.put({f"episodes/{run}/round-000-001.json": json.dumps({"episodes": [rejected_episode()]}).encode()})
    queue = JobQueue(records.engine)
    job = queue.submit(JobKind.PLAY, {})
    claim = queue.claim("w")
    assert claim is not None
    queue.report(claim, Progress(about={"run": run}))
    with service(records) as client:
        (listed,) = client.get("/api/v1/episodes", params={"run": run}).json()["items"]
        episode = client.get(f"/api/v1/episodes/{listed['number']}").json()
        assert (episode["injection"], episode["job_id"], episode["check"]) == ("c" * 24, job.id, "unreadable")
        assert episode["record"]["code"] == "unreadable"
        page = client.get(f"/episodes/{listed['number']}")
        assert page.status_code == 200
        assert f'href="/jobs/{job.id}"' in page.text
        assert "the reply is no diff" in page.text
        assert client.get(f"/episodes/{listed['number']}0000").status_code == 404
        assert client.get("/episodes/x").status_code == 404
        assert f'href="/episodes/{listed["number"]}"' in client.get(f"/jobs/{job.id}").text


def rejected_episode() -> dict[str, Any]:
    """Return the record of an episode whose bug a model has not written as an artifact."""
    reason = CheckReason.of(CheckCode.UNREADABLE, error="the reply is no diff")
    return Episode(
        project="shop", artifact_id="", round=1, order=1, parent="", strategy="direct", operator="tiny", path="",
        scope="", lines=0, fail_to_pass=0, valid=False, reason=reason, injection="c" * 24,
    ).to_json()  # fmt: skip


def test_only_bugs_that_reached_a_check_count_in_the_validity(tmp_path: Path) -> None:
    records = records_of(share_store(tmp_path / "store").root)
    of_checks = [{**rejected_episode(), "check": check} for check in ("screening", "weakening", "bug-validity", "own")]
    episodes = {"episodes": [rejected_episode(), *of_checks]}
    records.put({f"episodes/{RUN}/round-000-001.json": json.dumps(episodes).encode()})
    with service(records) as client:
        counts = client.get("/api/v1/statistics/validity").json()
    assert counts == [{"check": "bug-validity", "bugs": 1}, {"check": "own", "bugs": 1}]


def test_what_tests_miss_is_not_asked_of_campaigns_of_models(tmp_path: Path) -> None:
    records = records_of(share_store(tmp_path / "store").root)
    tried = CandidateResult(
        index=0, status=CandidateStatus.VALID, strategy="direct", operator="tiny", path="shop/cart.py", line=1,
        scope="", detail="", diff="",
    )  # fmt: skip
    records.put({f"attempts/model-{'f' * 24}/00000.json": json.dumps(tried.to_json()).encode()})
    with service(records) as client:
        assert client.get("/api/v1/statistics/gaps").json() == []
        assert '<option value="model-' not in client.get("/gaps").text
    assert Reads(records).gap_counts() == (0, 0)


def test_a_list_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/api/v1/models").headers["etag"]
    assert client.get("/api/v1/models", headers={"If-None-Match": etag}).status_code == 304
    assert client.get("/api/v1/models", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/artifacts/none", "not-found"),
        ("/api/v1/attempts/none/trajectory", "not-found"),
        ("/api/v1/nothing", "not-found"),
        ("/api/v1/artifacts/..%2F..%2Fetc", "not-found"),
        ("/api/v1/attempts/none/files/../../secret", "not-found"),
        ("/api/v1/episodes/0", "invalid-request"),
        ("/api/v1/episodes/99999999999999999999", "invalid-request"),
        ("/api/v1/episodes?limit=1000", "invalid-request"),
        ("/api/v1/episodes?after=zz", "invalid-request"),
        ("/api/v1/episodes?run=%00", "invalid-request"),
        ("/api/v1/artifacts?after=WzFd", "invalid-request"),
    ],
)
def test_problems_have_codes(client: TestClient, path: str, code: str) -> None:
    assert code_of(client.get(path)) == code


def test_no_job_brings_a_nul_to_the_database(client: TestClient) -> None:
    assert code_of(client.post("/api/v1/jobs", json={"kind": "play", "project_id": "\0"})) == "invalid-request"


def test_other_methods_are_refused(client: TestClient) -> None:
    assert code_of(client.post("/api/v1/runs", json={})) == "method-not-allowed"


def test_bodies_are_bounded(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(MAX_BODY):
            yield b"x" * 10

    assert code_of(client.post("/api/v1/jobs", content=b"x" * (MAX_BODY + 1))) == "too-large"
    assert code_of(client.post("/api/v1/jobs", content=parts())) == "too-large"


def test_pages_and_answers_are_protected(client: TestClient) -> None:
    for path in ("/", "/api/v1/runs", "/api/v1/nothing", "/health", "/login"):
        headers = client.get(path).headers
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-request-id"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8700", ""])
def test_a_foreign_host_is_refused_on_this_machine(client: TestClient, host: str) -> None:
    assert code_of(client.get("/api/v1/runs", headers={"Host": host})) == "foreign-host"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_what_another_site_sends_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert code_of(client.post("/api/v1/runs", headers=headers)) == "foreign-origin"
    assert code_of(client.post("/api/v1/runs", headers={"Origin": LOCAL})) == "method-not-allowed"


@pytest.mark.parametrize("path", ["/", "/events", "/api/v1/runs", "/metrics"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_embeds_and_fetches_nothing(client: TestClient, path: str, site: str) -> None:
    for mode in ("cors", "no-cors"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert code_of(client.get(path, headers=headers)) == "foreign-origin"
    # A link is followed to a page of ours.
    assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_without_a_token_others_are_refused(filled: DatabaseRecords) -> None:
    tokens = Tokens(filled.engine)
    token, secret = tokens.create("test", Scope.READ)
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        assert client.get("/health").status_code == 200
        for path in ("/", "/metrics", "/openapi.json", "/events", "/api/v1/runs", "/api/v1/events"):
            assert code_of(client.get(path)) == "unauthorized"
        good = {"Authorization": f"Bearer {secret}"}
        assert client.get("/api/v1/runs", headers=good).status_code == 200
        for bad in ("Bearer nothing", "Bearer ", "Basic %%%", "Digest x", f"Bearer {hash_of(secret)}"):
            assert code_of(client.get("/api/v1/runs", headers={"Authorization": bad})) == "unauthorized"
        assert tokens.revoke(token.id)
        assert not tokens.revoke(token.id)
        assert code_of(client.get("/api/v1/runs", headers=good)) == "unauthorized"


def test_who_sends_wrong_tokens_has_to_wait_and_nobody_else(
    filled: DatabaseRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock stands still: on a busy machine, the wait is over before the next request.
    monkeypatch.setattr(app_module, "failed_logins", lambda: Buckets(0.2, 20.0, clock=lambda: 0.0))
    _, secret = Tokens(filled.engine).create("test", Scope.READ)
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        wrong = {"Authorization": "Bearer wrong"}
        codes = [code_of(client.get("/api/v1/runs", headers=wrong)) for _ in range(22)]
        assert codes[:20] == ["unauthorized"] * 20
        assert codes[-1] == "rate-limited"
        assert code_of(client.post("/login", data={"token": "wrong"})) == "rate-limited"
        assert code_of(client.get("/api/v1/runs")) == "unauthorized"
        # Behind a proxy, all clients have the same address.
        assert client.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
        assert client.post("/login", data={"token": secret}, follow_redirects=False).status_code == 303


def test_a_browser_logs_in_with_a_token(filled: DatabaseRecords) -> None:
    tokens = Tokens(filled.engine)
    token, secret = tokens.create("browser", Scope.READ)
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        page = {"Accept": "text/html"}
        answer = client.get("/attempts?after=1", headers=page, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fattempts%3Fafter%3D1")
        assert client.post("/login", data={"token": "wrong"}).status_code == 401
        sent = {"token": secret, "next": "/attempts?after=1"}
        answer = client.post("/login", data=sent, follow_redirects=False)
        assert answer.headers["location"] == "/attempts?after=1"
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert secret not in cookie
        assert client.get("/attempts", headers=page).url.path == "/attempts"
        assert client.get("/api/v1/runs").status_code == 200
        # What another site makes the browser send is refused, with the cookie or without.
        forged = {"Origin": "https://evil.example"}
        assert code_of(client.post("/logout", headers=forged)) == "foreign-origin"
        assert code_of(client.post("/api/v1/jobs", json={"kind": "leaderboard"})) == "scope-missing"
        client.post("/logout")
        assert client.get("/attempts", headers=page).url.path == "/login"
        client.post("/login", data=sent)
        assert tokens.revoke(token.id)
        assert client.get("/attempts", headers=page).url.path == "/login"


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nX: y", ""])
def test_a_login_leads_nowhere_else(filled: DatabaseRecords, target: str) -> None:
    secret = Tokens(filled.engine).create("browser", Scope.READ)[1]
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        answer = client.post("/login", data={"token": secret, "next": target}, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_a_login_with_many_fields_is_not_read(filled: DatabaseRecords) -> None:
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        secret = token_of(filled)["Authorization"].removeprefix("Bearer ")
        for more, status in (("", 303), ("&a=1" * 50, 401)):
            content, kind = f"token={secret}{more}", "application/x-www-form-urlencoded"
            answer = client.post("/login", content=content, headers={"Content-Type": kind}, follow_redirects=False)
            assert answer.status_code == status


def test_sessions_are_signed_and_expire() -> None:
    now = 1_000.0
    sessions = Sessions(lambda: now)
    cookie = sessions.cookie("abc")
    assert sessions.token_id(cookie) == "abc"
    assert sessions.token_id(cookie.replace("abc", "abx")) == ""
    assert Sessions(lambda: now).token_id(cookie) == ""
    for forged in ("", ".", "abc.9999999999.", "é"):
        assert sessions.token_id(forged) == ""
    now += 13 * 3600
    assert sessions.token_id(cookie) == ""


def test_the_secret_of_a_token_is_stored_nowhere(filled: DatabaseRecords) -> None:
    token, secret = Tokens(filled.engine).create("secret", Scope.ADMIN, expires_at=1.0)
    stored = str(Tokens(filled.engine).list())
    assert token.id in stored
    assert secret not in stored
    assert Tokens(filled.engine).check(secret) is None


def test_scopes_include_the_previous_ones() -> None:
    order = [Scope.READ, Scope.RUN, Scope.ADMIN]
    assert [[a.includes(b) for b in order] for a in order] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_requests_are_limited_by_client() -> None:
    now = 0.0
    buckets = Buckets(5, 10, lambda: now)
    assert [buckets.take("a") > 0 for _ in range(11)] == [False] * 10 + [True]
    assert buckets.take("b") == 0
    now = 0.2
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(0.2)


def test_too_many_requests_are_refused(filled: DatabaseRecords) -> None:
    with service(filled, requests_per_s=1.0) as client:
        answers = [client.get("/api/v1/models") for _ in range(4)]
    assert code_of(answers[-1]) == "rate-limited"
    assert int(answers[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.8.8.8", True), ("::1", True), ("a.localhost", True), ("0.0.0.0", False), ("", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_positions_come_back_as_they_were() -> None:
    assert decode_cursor(encode_cursor((1.5, "é/~x")), (float, str)) == [1.5, "é/~x"]
    for text in ("", "é", "W10", encode_cursor((True,)), encode_cursor((2**70,)), "A" * 2_000):
        with pytest.raises(SettingsError):
            decode_cursor(text, (int,))


def test_metrics_count_the_store(client: TestClient) -> None:
    text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def total(name: str) -> float:
        return sum(float(value) for line, value in lines.items() if line.split("{")[0] == name)

    assert total("ssr_episodes_total") == total("ssr_episode_seconds_count") == 130
    assert total("ssr_episodes_rejected_total") == float(lines['ssr_episodes_total{verdict="rejected"}'])
    assert total("ssr_attempts_total") == total("ssr_attempt_seconds_count") == 121
    assert 0 < total("ssr_attempts_solved_total") < total("ssr_attempts_graded_total")
    assert total("ssr_injector_rewards_total") == 130
    models = {row["player"]: row for row in client.get("/api/v1/models").json()}
    small = models["model-small"]
    assert float(lines['ssr_tokens_total{model="model-small",role="solver"}']) == small["tokens"]
    assert float(lines['ssr_cost_usd_total{model="model-small",role="solver"}']) == pytest.approx(small["cost_usd"])
    assert total("ssr_queue_length") == len(client.get("/api/v1/jobs?status=queued&limit=200").json()["items"])
    assert lines["ssr_database_up"] == "1.0"
    assert client.get("/models").status_code == 200
    text = client.get("/metrics").text
    for route in ("/metrics", "/models", "/api/v1/models"):
        assert f'ssr_http_request_seconds_count{{method="GET",route="{route}",status="200"}} 1.0' in text


def test_without_a_database_the_service_is_not_ready(filled: DatabaseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(filled) as client:
        assert client.get("/ready").status_code == 200

        def fail(*_: object) -> None:
            raise StoreError("the database postgresql://user@server cannot be used")

        monkeypatch.setattr(Queries, "last_event", fail)
        answer = client.get("/ready")
        assert (answer.status_code, code_of(answer)) == (503, "unavailable")
        assert "server" not in answer.text
        assert client.get("/health").status_code == 200


def test_a_service_whose_disk_is_full_is_not_ready_and_says_so(
    filled: DatabaseRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(filled) as client:
        assert client.get("/ready").json() == {"status": "ready", "troubles": []}
        assert metric(client, 'ssr_degraded{trouble="disk-full"}') == 0
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))  # type: ignore[attr-defined]
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["troubles"]) == (503, ["disk-full"])
        page = client.get("/", headers={"accept": "text/html"})
        assert (page.status_code, 'role="status"' in page.text) == (200, True)


def test_jobs_that_wait_after_a_fault_are_shown_but_the_service_is_ready(filled: DatabaseRecords) -> None:
    queue = JobQueue(filled.engine)
    queue.submit(JobKind.LEADERBOARD, {})
    claim = queue.claim("w")
    assert claim is not None
    queue.put_back(claim, Outcome(status=JobStatus.FAILED, error_code=JobErrorCode.STORE, is_fault=True))
    with service(filled) as client:
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()) == (200, {"status": "degraded", "troubles": ["jobs-wait"]})
        assert metric(client, 'ssr_degraded{trouble="jobs-wait"}') == 1
    queue.cancel(claim.job.id)


def metric(client: TestClient, name: str) -> float:
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])


def test_a_browser_gets_problems_as_pages_and_a_program_as_details(
    filled: DatabaseRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the database postgresql://user@server cannot be used")

    page = {"accept": "text/html"}
    with service(filled) as client:
        for path, status in (("/nowhere", 404), ("/jobs/none/cancel", 405)):
            answer = client.get(path, headers=page)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert "Content-Security-Policy" in answer.headers
            assert answer.headers["X-Request-ID"] in answer.text
        monkeypatch.setattr(Queries, "last_event", fail)
        answer = client.get("/", headers=page)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert 'http-equiv="refresh"' in answer.text
        assert "server" not in answer.text
        assert client.get("/api/v1/jobs/none", headers=page).headers["content-type"] == "application/problem+json"
        assert client.get("/").headers["content-type"] == "application/problem+json"


def test_an_episode_is_one_request_and_its_progress_another(filled: DatabaseRecords, tmp_path: Path) -> None:
    queue = JobQueue(filled.engine)
    (tmp_path / "shop").mkdir()
    with service(filled, roots=[tmp_path]) as client:
        project = client.post("/api/v1/projects", json={"name": "an-episode", "source": str(tmp_path / "shop")}).json()
        answer = client.post("/api/v1/episodes", json={"project_id": project["id"], "attempts": 3, "solver": "search"})
        assert answer.status_code == 201
        episode = answer.json()
        job = queue.get(episode["id"])
        assert job is not None
        assert (job.kind, job.settings) == (JobKind.PLAY, {"attempts": 3, "count": 1, "higher_order": 0})
        assert (episode["status"], episode["stage"], episode["run"], episode["episodes"]) == ("queued", "", "", [])
        claim = queue.claim("w")
        assert claim is not None
        assert claim.job.id == job.id
        progress = Progress("2 of 8", about={"run": RUN}, stages=[("measure", 1.0), ("inject", 2.0)])
        queue.report(claim, progress)
        shown = client.get(f"/api/v1/episodes/{job.id}/progress").json()
        assert (shown["status"], shown["stage"], shown["doing"]) == ("running", "inject", "2 of 8")
        own, *rejected = shown["episodes"]
        assert own["valid"]
        assert (shown["graded"], shown["solved"], shown["reward"]) == (own["graded"], own["solved"], own["reward"])
        assert {item["round"] for item in shown["episodes"]} == {1}
        assert shown["tokens"] == own["tokens"] + sum(item["tokens"] for item in rejected)
        assert code_of(client.get("/api/v1/episodes/none/progress")) == "not-found"
        for wrong in ({"attempts": 0}, {"solver": "rm -rf /"}, {"url": "http://x"}):
            answer = client.post("/api/v1/episodes", json={"project_id": project["id"], **wrong})
            assert code_of(answer) == "invalid-request"
        queue.cancel(job.id)
        client.delete(f"/api/v1/projects/{project['id']}")


def test_models_are_registered_by_administrators_and_used_by_name(filled: DatabaseRecords) -> None:
    path = "/api/v1/registered-models"
    new = {"model": "vllm:http://gpu:8000", "key": "TEAM_KEY", "context": 4096, "input": 1.0, "output": 2.0}
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        read, run, admin = (token_of(filled, scope) for scope in (Scope.READ, Scope.RUN, Scope.ADMIN))
        assert code_of(client.put(f"{path}/small", headers=run, json=new)) == "scope-missing"
        assert client.put(f"{path}/small", headers=admin, json=new).status_code == 200
        assert client.put(f"{path}/small", headers=admin, json={**new, "context": 8192}).status_code == 200
        (listed,) = client.get(path, headers=run).json()
        known = {"name": "small", "context": 8192, "input": 1.0, "output": 2.0, "cached": None}
        assert listed == {**known, "model": "", "url": "", "key": ""}
        (shown,) = client.get(path, headers=admin).json()
        assert shown == {**known, "model": new["model"], "url": "", "key": "TEAM_KEY"}
        assert code_of(client.get(path, headers=read)) == "scope-missing"
        for wrong in ({"model": "no"}, {"model": "model:small"}, {"model": "openai/m", "key": "sk-1"}, {"output": 1}):
            assert code_of(client.put(f"{path}/bad", headers=admin, json={"model": "openai/m", **wrong})) == (
                "invalid-request"
            )
        assert code_of(client.put(f"{path}/..", headers=admin, json=new)) in ("not-found", "method-not-allowed")
        pages = {
            name: client.get("/models", headers=headers).text for name, headers in (("run", run), ("admin", admin))
        }
        assert ["gpu:8000" in pages[name] for name in ("run", "admin")] == [False, True]
        form = {"name": "forms", "model": "openai/m", "input": "x"}
        assert client.post("/models", headers=admin, data=form).status_code == 422
        form |= {"input": "0.5", "output": "1"}
        assert client.post("/models", headers=admin, data=form, follow_redirects=False).status_code == 303
        assert {row["name"] for row in client.get(path, headers=run).json()} == {"small", "forms"}
        for name in ("small", "forms"):
            assert client.delete(f"{path}/{name}", headers=admin).status_code == 204
        assert code_of(client.delete(f"{path}/small", headers=admin)) == "not-found"


def test_the_log_of_a_job_is_for_those_who_may_run_jobs(filled: DatabaseRecords) -> None:
    queue = JobQueue(filled.engine)
    job_id = queue.submit(JobKind.LEADERBOARD, {}).id
    claim = queue.claim("w")
    assert claim is not None
    queue.report(claim, Progress(lines=[JobReport(line="in /a/folder", kind="bad")]))
    with service(filled, base_url=ELSEWHERE, is_loopback=False) as client:
        for scope, status in ((Scope.READ, 403), (Scope.RUN, 200)):
            headers = token_of(filled, scope)
            answer = client.get(f"/api/v1/jobs/{job_id}/log", headers=headers)
            assert answer.status_code == status
            page_text = client.get(f"/jobs/{job_id}", headers=headers).text
            assert ("in /a/folder" in page_text) is (status == 200)
        assert [line["text"] for line in answer.json()] == ["in /a/folder"]
        (number,) = (line["number"] for line in answer.json())
        later = client.get(f"/api/v1/jobs/{job_id}/log", params={"after": number}, headers=headers)
        assert later.json() == []


def test_an_unexpected_failure_is_a_problem_with_the_id_of_its_log_line(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("postgresql://user:password@server")

    monkeypatch.setattr(Queries, "models", fail)
    with capture_logs() as logs:
        answer = client.get("/api/v1/models", headers={"X-Request-ID": "mine"})
    assert (answer.status_code, code_of(answer)) == (500, "internal")
    assert answer.headers["x-request-id"] == "mine"
    assert "password" not in answer.text
    assert [log["event"] for log in logs] == ["request-failed", "request"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_log_of_a_failure_has_no_values_and_nothing_that_a_terminal_obeys(
    filled: DatabaseRecords, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("\x1b[2J")

    root = logging.getLogger()
    for name in ("handlers", "level"):
        monkeypatch.setattr(root, name, getattr(root, name))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    set_up_logging()
    monkeypatch.setattr(Queries, "models", fail)
    headers = token_of(filled)
    try:
        with service(filled) as client:
            assert client.get("/api/v1/models", headers=headers).status_code == 500
        root.error("of a library", exc_info=RuntimeError("\x1b[2J"))
    finally:
        structlog.reset_defaults()
    text = capsys.readouterr().err
    assert "request-failed" in text
    assert "of a library" in text
    assert headers["Authorization"].removeprefix("Bearer ") not in text
    assert "\x1b[2J" not in text


def test_a_project_and_its_jobs(filled: DatabaseRecords, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    with service(filled, roots=[tmp_path]) as client:
        new = {"name": f"shop-{filled.engine.dialect.name}", "source": str(folder)}
        project = client.post("/api/v1/projects", json=new).json()
        assert code_of(client.post("/api/v1/projects", json=new)) == "conflict"
        assert client.get(f"/api/v1/projects/{project['id']}").json() == project
        assert project in client.get("/api/v1/projects").json()
        refused = client.post("/api/v1/projects", json={"name": "other", "source": str(tmp_path.parent)}).json()
        assert refused["errors"] == [{"location": ["body", "source"], "code": "source"}]

        wanted = {"kind": "play", "project_id": project["id"], "settings": {"rounds": 2, "tries": 15}}
        key = {"Idempotency-Key": "first"}
        answer = client.post("/api/v1/jobs", json=wanted, headers=key)
        job = answer.json()
        assert (answer.status_code, job["status"], job["settings"]) == (201, "queued", wanted["settings"])
        assert client.post("/api/v1/jobs", json=wanted, headers=key).json()["id"] == job["id"]
        assert client.post("/api/v1/jobs", json=wanted).json()["id"] != job["id"]
        assert code_of(client.post("/api/v1/jobs", json={"kind": "leaderboard"}, headers=key)) == "conflict"
        found = client.get("/api/v1/jobs", params={"project_id": project["id"], "status": "queued"}).json()["items"]
        assert [len(found), found[-1]["id"]] == [2, job["id"]]

        path = f"/api/v1/jobs/{job['id']}"
        assert code_of(client.post(f"{path}/retry")) == "conflict"
        assert client.post(f"{path}/cancel").json()["status"] == "cancelled"
        assert client.post(f"{path}/retry").json()["status"] == "queued"
        assert client.get(path).json()["status"] == "queued"
        assert client.delete(f"/api/v1/projects/{project['id']}").status_code == 204
        assert code_of(client.delete(f"/api/v1/projects/{project['id']}")) == "not-found"


@pytest.mark.parametrize(
    "wanted",
    [
        {"kind": "play"},
        {"kind": "play", "project_id": "none"},
        {"kind": "leaderboard", "project_id": "none"},
        {"kind": "leaderboard", "settings": {"rounds": 1}},
        {"kind": "leaderboard", "settings": {"seed": "1; rm"}},
        {"kind": "train"},
        {"kind": "leaderboard", "argv": []},
    ],
)
def test_jobs_that_cannot_be_are_refused(client: TestClient, wanted: dict[str, Any]) -> None:
    assert code_of(client.post("/api/v1/jobs", json=wanted)) == "invalid-request"


@pytest.mark.parametrize("source", ["/etc", "ssh://host/x", "https://user:secret@host/x", "file:///etc", "../shop"])
def test_projects_of_other_places_are_refused(filled: DatabaseRecords, tmp_path: Path, source: str) -> None:
    with service(filled, roots=[tmp_path]) as client:
        answer = client.post("/api/v1/projects", json={"name": "other", "source": source})
    assert code_of(answer) == "invalid-request"
    assert "secret" not in answer.text


def test_a_key_belongs_to_the_token_that_sent_it(filled: DatabaseRecords) -> None:
    key, wanted = {"Idempotency-Key": "shared"}, {"kind": "leaderboard"}
    with service(filled) as client:
        ids = {
            client.post("/api/v1/jobs", json=wanted, headers={**key, **token_of(filled, Scope.RUN)}).json()["id"]
            for _ in range(2)
        }
    assert len(ids) == 2


def test_scopes_are_required(filled: DatabaseRecords) -> None:
    with service(filled) as client:
        for scope, job, project in (
            (Scope.READ, "scope-missing", "scope-missing"),
            (Scope.RUN, "invalid-request", "scope-missing"),
            (Scope.ADMIN, "invalid-request", "invalid-request"),
        ):
            headers = token_of(filled, scope)
            assert client.get("/api/v1/jobs", headers=headers).status_code == 200
            assert code_of(client.post("/api/v1/jobs", headers=headers, json={"kind": "play"})) == job
            sent = {"name": "x", "source": "x"}
            assert code_of(client.post("/api/v1/projects", headers=headers, json=sent)) == project


def test_a_form_of_another_content_type_starts_nothing(client: TestClient) -> None:
    """Browsers send such forms for any site, without asking the service first."""
    answer = client.post("/api/v1/jobs", content='{"kind": "leaderboard"}', headers={"Content-Type": "text/plain"})
    assert code_of(answer) == "invalid-request"


def test_the_service_is_as_its_description_says(filled: DatabaseRecords) -> None:
    with service(filled) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app, headers={"Host": "127.0.0.1"})
        for result in schema.exclude(path_regex="/events$").get_all_operations():
            _check(result.ok().as_strategy())


def _check(cases: Any) -> None:
    @given(case=cases)
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    def check(case: Any) -> None:
        case.call_and_validate(headers={"Host": "127.0.0.1"})

    check()
