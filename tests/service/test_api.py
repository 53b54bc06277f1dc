"""The API: lists, problems, access, entity tags, metrics, and its own description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_store import ARTIFACT, ATTEMPT, RUN
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

from harness.database.records import DatabaseRecords
from harness.database.sharing import share_store
from harness.service.access import AccessRules, Buckets, is_loopback
from harness.service.app import ServiceSettings, create_app
from harness.service.cursors import decode_cursor, encode_cursor
from harness.service.tokens import Scope, Tokens, hash_of
from pytest_ssr.errors import SettingsError, StoreError

schemathesis = pytest.importorskip("schemathesis")

LOCAL = "http://127.0.0.1:8700"
MAX_BODY = 1_000


def service(records: DatabaseRecords, **rules: Any) -> TestClient:
    """Return a client of a service."""
    access = AccessRules(Tokens(records.engine), **rules)
    app = create_app(ServiceSettings(records, access, max_body_bytes=MAX_BODY))
    return TestClient(app, base_url=LOCAL, raise_server_exceptions=False)


@pytest.fixture
def client(records: DatabaseRecords) -> Iterator[TestClient]:
    with service(records) as found:
        yield found


def code_of(response: Any) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return str(response.json()["code"])


LISTS = {"runs": "run", "episodes": "number", "artifacts": "id", "rollouts": "id", "candidates": "path"}


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
    resolved = client.get("/api/v1/rollouts", params={"resolved": "true", "player": "search"}).json()["items"]
    assert {(item["player"], item["resolved"]) for item in resolved} == {("search", True)}
    assert client.get("/api/v1/episodes", params={"run": "' OR 1=1 --"}).json() == {"items": [], "next": ""}


def test_one_of_each_kind(client: TestClient) -> None:
    number = client.get("/api/v1/episodes").json()["items"][0]["number"]
    paths = (
        f"runs/{RUN}", f"runs/{RUN}/rounds", f"episodes/{number}", f"artifacts/{ARTIFACT}",
        f"artifacts/{ARTIFACT}/verdict", f"artifacts/{ARTIFACT}/files", f"rollouts/{ATTEMPT}",
        f"rollouts/{ATTEMPT}/files", "models", "workers", "statistics/validity", "statistics/solve-rates",
        "statistics/difficulty", "statistics/gaps", "leaderboards", "exports",
    )  # fmt: skip
    assert {path: client.get(f"/api/v1/{path}").status_code for path in paths} == dict.fromkeys(paths, 200)
    assert client.get(f"/api/v1/rollouts/{ATTEMPT}/trajectory").text.startswith("{")


def test_a_file_is_sent_as_a_download_and_only_once(client: TestClient) -> None:
    path = f"/api/v1/artifacts/{ARTIFACT}/files/bug_inject.diff"
    first = client.get(path)
    assert first.text.startswith("diff --git")
    assert first.headers["content-disposition"] == "attachment"
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_list_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/api/v1/models").headers["etag"]
    assert client.get("/api/v1/models", headers={"If-None-Match": etag}).status_code == 304
    assert client.get("/api/v1/models", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/artifacts/none", "not-found"),
        ("/api/v1/rollouts/none/trajectory", "not-found"),
        ("/api/v1/nothing", "not-found"),
        ("/api/v1/artifacts/..%2F..%2Fetc", "not-found"),
        ("/api/v1/rollouts/none/files/../../secret", "not-found"),
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


def test_other_methods_are_refused(client: TestClient) -> None:
    assert code_of(client.post("/api/v1/runs", json={})) == "method-not-allowed"


def test_bodies_are_bounded(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(MAX_BODY):
            yield b"x" * 10

    assert code_of(client.post("/api/v1/runs", content=b"x" * (MAX_BODY + 1))) == "too-large"
    # A route that reads no body answers before the body has ended.
    assert client.post("/api/v1/runs", content=parts()).status_code in (405, 413)


def test_pages_and_answers_are_protected(client: TestClient) -> None:
    for path in ("/", "/api/v1/runs", "/api/v1/nothing", "/health"):
        headers = client.get(path, headers={"Accept": "text/html"}).headers
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    cookie = client.get("/", headers={"Accept": "text/html"}).headers.get("set-cookie", "HttpOnly; SameSite=Strict")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8700", ""])
def test_a_foreign_host_is_refused_on_this_machine(client: TestClient, host: str) -> None:
    assert code_of(client.get("/api/v1/runs", headers={"Host": host})) == "foreign-host"


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_what_another_site_sends_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert code_of(client.post("/api/v1/runs", headers=headers)) == "foreign-origin"
    assert code_of(client.post("/api/v1/runs", headers={"Origin": LOCAL})) == "method-not-allowed"


def test_without_a_token_others_are_refused(records: DatabaseRecords) -> None:
    tokens = Tokens(records.engine)
    token, secret = tokens.create("test", Scope.READ)
    with service(records, is_loopback=False) as client:
        client.base_url = "http://service.example"  # type: ignore[assignment]
        assert client.get("/health").status_code == 200
        for path in ("/", "/metrics", "/openapi.json", "/api/v1/runs", "/api/v1/events"):
            assert code_of(client.get(path)) == "unauthorized"
        good = {"Authorization": f"Bearer {secret}"}
        assert client.get("/api/v1/runs", headers=good).status_code == 200
        assert client.get("/api/v1/runs", auth=("anyone", secret)).status_code == 200
        for bad in ("Bearer nothing", "Bearer ", "Basic %%%", "Digest x", f"Bearer {hash_of(secret)}"):
            assert code_of(client.get("/api/v1/runs", headers={"Authorization": bad})) == "unauthorized"
        assert tokens.revoke(token.id)
        assert not tokens.revoke(token.id)
        assert code_of(client.get("/api/v1/runs", headers=good)) == "unauthorized"


def test_the_secret_of_a_token_is_stored_nowhere(records: DatabaseRecords) -> None:
    token, secret = Tokens(records.engine).create("secret", Scope.ADMIN, expires_at=1.0)
    stored = str(Tokens(records.engine).list())
    assert token.id in stored
    assert secret not in stored
    assert Tokens(records.engine).check(secret) is None


def test_scopes_include_the_previous_ones() -> None:
    order = [Scope.READ, Scope.RUN, Scope.ADMIN]
    assert [[a.includes(b) for b in order] for a in order] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_requests_are_limited_by_client() -> None:
    now = 0.0
    buckets = Buckets(5, lambda: now)
    assert [buckets.take("a") > 0 for _ in range(11)] == [False] * 10 + [True]
    assert buckets.take("b") == 0
    now = 0.2
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(0.2)


def test_too_many_requests_are_refused(records: DatabaseRecords) -> None:
    with service(records, requests_per_s=1.0) as client:
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
    episodes = sum(float(value) for name, value in lines.items() if name.startswith("ssr_episodes_total"))
    assert episodes == float(lines["ssr_episode_seconds_count"]) >= 130
    assert lines["ssr_database_up"] == "1.0"
    assert 'ssr_http_request_seconds_count{method="GET",route="/metrics",status="200"}' in client.get("/metrics").text


def test_without_a_database_the_service_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSR_DATABASE", raising=False)
    shared = share_store(tmp_path / "s").shared
    assert isinstance(shared, DatabaseRecords)
    with service(shared) as client:
        assert client.get("/ready").status_code == 200

        def fail(*_: object) -> None:
            raise StoreError("the database postgresql://user@server cannot be used")

        monkeypatch.setattr("harness.service.queries.Queries._rows", fail)
        answer = client.get("/ready")
        assert (answer.status_code, code_of(answer)) == (503, "unavailable")
        assert "server" not in answer.text
        assert client.get("/health").status_code == 200


def test_the_service_is_as_its_description_says(records: DatabaseRecords) -> None:
    with service(records) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app, headers={"Host": "127.0.0.1"})

        for result in schema.exclude(path_regex="/events$").get_all_operations():
            operation = result.ok()
            _check(operation.as_strategy())


def _check(cases: Any) -> None:
    @given(case=cases)
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def check(case: Any) -> None:
        case.call_and_validate(headers={"Host": "127.0.0.1"})

    check()
