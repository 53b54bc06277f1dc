"""`ssr serve` as a process: tokens, bodies without end, workers, logs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_ssr.storage.store import Store

COMMAND = [sys.executable, "-m", "harness.cli"]
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
GIB = 1 << 30


def ssr(*argv: object) -> tuple[int, dict[str, Any]]:
    """Run a command and return its exit code and its JSON."""
    done = subprocess.run([*COMMAND, *map(str, argv), "--json"], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@contextlib.contextmanager
def served(store: Path, *argv: object, log: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address of a service and its process, which is ended by an interrupt."""
    command = [*COMMAND, "serve", str(store), "--port", "0", *map(str, argv), "--json"]
    with (log or Path(os.devnull)).open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=_take_interrupts
        )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with httpx.Client(transport=httpx.HTTPTransport(retries=20)) as client:
            client.get(f"{url}/health")
        yield url.replace("0.0.0.0", "127.0.0.1"), process
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _take_interrupts() -> None:
    # A shell that runs the tests in the background ignores them, and so would the service.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_tokens_are_created_listed_and_revoked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    code, created = ssr("serve", "token", "create", "laptop", "--scope", "run", "--days", "3", "--store", store)
    assert (code, created["scope"]) == (0, "run")
    code, listed = ssr("serve", "token", "list", "--store", store)
    assert [(token["id"], token["name"]) for token in listed["tokens"]] == [(created["id"], "laptop")]
    assert created["token"] not in json.dumps(listed)
    assert created["token"].encode() not in b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    assert ssr("serve", "token", "revoke", created["id"], "--store", store) == (
        0,
        {"id": created["id"], "revoked": True},
    )
    assert ssr("serve", "token", "revoke", created["id"], "--store", store)[0] == 1


@pytest.mark.parametrize(
    ("argv", "option"),
    [(["--host", "0.0.0.0"], "host"), (["--host", "no.such.host."], "host"), (["--port", "70000"], "port")],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, argv: Sequence[str], option: str) -> None:
    code, answer = ssr("serve", tmp_path / "store", *argv)
    assert (code, answer["kind"]) == (2, "SettingsError")
    assert f"--{option}" in answer["error"]
    if option == "host" and argv[1] == "0.0.0.0":
        assert not (tmp_path / "store").exists()


def test_a_folder_with_a_store_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / ".ssr")
    done = subprocess.run(
        [*COMMAND, "serve", str(tmp_path), "--port", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert str(tmp_path / ".ssr") in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".ssr"], "no other store is made"


def test_other_machines_need_a_token_and_the_log_has_no_secret(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    secret = ssr("serve", "token", "create", "laptop", "--store", store)[1]["token"]
    with (
        served(store, "--host", "0.0.0.0", "--workers", "0", log=log) as (url, _),
        httpx.Client(base_url=url) as client,
    ):
        assert client.get("/api/v1/runs").status_code == 401
        headers = {"Authorization": f"Bearer {secret}", "X-Request-ID": "mine"}
        assert client.get("/api/v1/runs", headers=headers).status_code == 200
        answer = client.post("/login", data={"token": secret})
        session = answer.cookies["ssr_session"]
        assert client.get("/").status_code == 200
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    mine = next(line for line in lines if line.get("request_id") == "mine")
    assert (mine["event"], mine["path"], mine["status"]) == ("request", "/api/v1/runs", 200)
    assert secret not in text
    assert session not in text


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_body_of_a_gibibyte_is_refused(tmp_path: Path, is_announced: bool) -> None:
    with served(tmp_path / "store") as (url, process):
        before, (host, _, port) = memory(process.pid), url.removeprefix("http://").partition(":")
        size = f"Content-Length: {GIB}" if is_announced else "Transfer-Encoding: chunked"
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{size}\r\n\r\n"
        sent, answer = 0, b""
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(head.encode())
            # The connection is reset while the client still sends, and the answer can get lost.
            with contextlib.suppress(OSError):
                while sent < GIB:
                    connection.sendall(CHUNK)
                    sent += len(CHUNK)
            with contextlib.suppress(OSError):
                answer = connection.recv(100)
        assert sent < GIB // 10
        assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
        assert memory(process.pid) - before < 64 << 20
        assert httpx.get(f"{url}/health").status_code == 200


def memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_workers_are_processes_that_end_with_the_service(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with served(store, "--workers", "2") as (url, process):
        workers = waited(lambda: httpx.get(f"{url}/api/v1/workers").json(), 2)
        assert {worker["status"] for worker in workers} == {"idle"}
        assert process.pid not in {worker["pid"] for worker in workers}
        os.kill(workers[0]["pid"], signal.SIGKILL)
        assert len(waited(lambda: httpx.get(f"{url}/api/v1/workers").json(), 3)) == 3
    for worker in workers:
        assert not Path(f"/proc/{worker['pid']}").exists()


def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    with served(tmp_path / "store", "--workers", "1") as (url, _):
        with httpx.Client(base_url=f"{url}/api/v1") as client:
            job = client.post("/jobs", json={"kind": "leaderboard"}).json()
            done = waited(lambda: [j for j in [client.get(f"/jobs/{job['id']}").json()] if j["ended_at"]], 1)[0]
        assert done["status"] in ("succeeded", "failed")
        assert "ssr_jobs{" in httpx.get(f"{url}/metrics").text


def waited(read: Any, count: int) -> Any:
    """Return what is read, once it has enough items."""
    end = time.monotonic() + 60
    while len(found := read()) < count:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


@pytest.mark.browser
def test_people_log_in_with_a_browser(tmp_path: Path, browser: Any) -> None:
    from axe_core_python.sync_playwright import Axe

    store = tmp_path / "store"
    secret = ssr("serve", "token", "create", "laptop", "--store", store)[1]["token"]
    with served(store, "--host", "0.0.0.0") as (url, _):
        page, problems = browser.new_page(), []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{url}/models")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        checked = browser.new_context(bypass_csp=True).new_page()
        checked.goto(f"{url}/login")
        assert [v["id"] for v in Axe().run(checked)["violations"] if v["impact"] in ("serious", "critical")] == []
        checked.context.close()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/models")
        # The stream of events has the cookie, too.
        with page.expect_response(lambda answer: "/events" in answer.url) as stream:
            page.goto(url)
        assert stream.value.status == 200
        page.get_by_role("button", name="Log out").click()
        page.goto(f"{url}/models")
        assert page.url.startswith(f"{url}/login")
        page.close()
        assert problems == []


def test_a_service_raises_a_low_limit_of_open_files() -> None:
    code = (
        "import resource; limit = resource.RLIMIT_NOFILE; hard = resource.getrlimit(limit)[1]\n"
        "resource.setrlimit(limit, (256, hard))\n"
        "from harness.service.server import allow_open_files; allow_open_files()\n"
        "print(*resource.getrlimit(limit), hard)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    soft, hard, before = map(int, done.stdout.split())
    assert hard == before
    assert soft >= 2_048
