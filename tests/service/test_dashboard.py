"""The pages of a filled store over HTTP and in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from dashboard_store import ARTIFACT, ATTEMPT, HOSTILE, RUN

PAGES = (
    *("/", "/runs", "/episodes", "/artifacts", "/attempts", "/models", "/gaps", "/docs"),
    *(f"/comparison?left={RUN}&right={RUN}", f"/runs/{RUN}", f"/artifacts/{ARTIFACT}", f"/attempts/{ATTEMPT}"),
)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_escapes_everything_and_runs_only_its_own_scripts(served, path):
    address, _ = served
    answer = httpx.get(address + path)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text
    assert "\x1b" not in answer.text
    assert not re.search(r"<script(?! src=\"/static/)|<style|\son\w+=|\sstyle=", answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_hostile_names_are_shown(served):
    pages = [httpx.get(served[0] + path).text for path in PAGES]
    assert any("&lt;script&gt;alert(1)" in page for page in pages)
    assert HOSTILE not in "".join(pages)


@pytest.mark.parametrize("path", ["/runs/none", "/artifacts/../../etc/passwd", "/artifacts/%2e%2e", "/attempts/'--"])
def test_what_does_not_exist_is_404(served, path):
    assert httpx.get(served[0] + path).status_code == 404


@pytest.mark.parametrize("path", ["/runs/a%00", "/static/a%00", "/runs?after=%00", "/episodes?project=a%00"])
def test_a_nul_is_404(served, path):
    assert httpx.get(served[0] + path).status_code == 404


@pytest.mark.parametrize("after", ["x", "-1", "9" * 40, "1e999~a", "nan~"])
def test_nonsense_positions_are_no_errors(served, after):
    for path in ("/runs", "/episodes", "/artifacts", "/attempts", "/events"):
        with httpx.stream("GET", served[0] + path, params={"after": after}) as answer:
            assert answer.status_code == 200


def test_pages_lead_through_all_episodes(served):
    address, numbers, path = served[0], [], "/episodes"
    while path:
        text = httpx.get(address + path).text
        numbers += re.findall(r'<td class="n"><a href="/episodes/(\d+)">', text)
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = f"/episodes{following[1]}" if following else ""
    assert len(numbers) == len(set(numbers)) == 130


def test_a_name_that_is_not_of_this_machine_is_refused(served):
    assert httpx.get(served[0], headers={"Host": "attacker.example"}).status_code == 400


def test_nothing_can_be_changed(served):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert httpx.request(method, served[0] + "/runs").status_code == 405


def test_events_are_resumed_after_the_last_one(served):
    address, _ = served
    first = _events(address, {"after": "0"}, 2)
    resumed = _events(address, {}, 1, {"Last-Event-ID": first[0]["id"]})
    assert resumed[0]["id"] == first[1]["id"]


def _events(address: str, params: dict, count: int, headers: dict | None = None) -> list[dict]:
    found: list[dict] = []
    with httpx.stream("GET", f"{address}/events", params=params, headers=headers, timeout=30) as answer:
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                found.append({"id": value})
            elif name == "data":
                found[-1]["data"] = json.loads(value)
                if len(found) == count:
                    return found
    return found


def test_a_damaged_database_is_a_problem_not_a_traceback(served, monkeypatch):
    from harness.service.dashboard.reading import Reads
    from pytest_ssr.errors import StoreError

    def broken(_):
        raise StoreError("the database cannot be used")

    monkeypatch.setattr(Reads, "last_event", broken)
    answer = httpx.get(served[0] + "/ready")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_pages_in_a_browser(served, browser, width, scheme):
    from axe_core_python.sync_playwright import Axe

    address, _ = served
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    for path in PAGES:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    # The check is a script of the test's own, which the policy of the pages would refuse.
    bypass = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    checked = bypass.new_page()
    for path in PAGES:
        checked.goto(address + path)
        found = Axe().run(checked)["violations"]
        serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == [], path
    context.close()
    bypass.close()
    assert problems == []


@pytest.mark.browser
def test_steps_are_searched_in_a_browser(served, browser):
    address, records = served
    folder, count = "rollouts/" + "c" * 24, 2_000
    header = {"event": "rollout", "task_id": ARTIFACT, "role": "solver", "attempt": 1, "model": "long"}
    lines = [header, {"event": "message", "role": "system", "content": "Repair."}]
    for n in range(count):
        call = {"id": str(n), "name": "bash", "arguments": {"command": f"cat file-{n}.py"}, "raw": ""}
        lines += [
            {"event": "message", "role": "assistant", "content": f"I read file {n}.", "tool_calls": [call]},
            {"event": "call", "sent": list(range(n))},
            {"event": "message", "role": "tool", "content": f"{n} " * 500 + f"Needle{n}.", "tool_call_id": str(n)},
        ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    records.put({f"{folder}/trajectory.jsonl": text.encode()})
    page, problems = browser.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/attempts/{'c' * 24}")
    steps = page.locator(".steps > li")
    assert steps.count() == count + 1
    for sought, numbers in (
        ("needle1234.", [1234]),
        ("i read file 199", [199, *range(1990, 2000)]),
        ("FILE-19.PY", [19]),
    ):
        page.get_by_label("Search in the steps").fill(sought)
        page.locator(".step-search output", has_text=re.compile(f"^{len(numbers)} of {count + 1} ")).wait_for()
        shown = steps.evaluate_all("all => all.filter(each => !each.hidden).map(each => each.textContent)")
        assert [f"I read file {n}." in text for n, text in zip(numbers, shown, strict=True)] == [True] * len(numbers)
    page.get_by_label("Search in the steps").fill("Needle7.")
    page.locator(".steps > li:not([hidden]) details[open]", has_text="Needle7.").locator("pre").wait_for()
    page.get_by_label("Search in the steps").fill("")
    page.locator(".steps > li[hidden]").first.wait_for(state="detached")
    page.close()
    assert problems == []


@pytest.mark.browser
def test_an_open_page_shows_what_happens(served, browser):
    address, records = served
    page = browser.new_page()
    page.goto(address)
    before = page.locator("dl.cards").first.inner_text()
    info = {"repository": "new", "injector": {"strategy": "removal"}}
    # Nothing on the page shows that its stream has opened, so that the first of these may come too early.
    for number in range(60):
        records.put({f"artifacts/new-{number}/artifact.json": json.dumps(info).encode()})
        page.wait_for_timeout(500)
        if page.locator("dl.cards").first.inner_text() != before:
            break
    else:
        pytest.fail("the page stays as it was")
    page.close()


def test_the_command_serves_a_new_store_and_ends(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "harness.cli", "serve", str(tmp_path / "store"), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    lines = [process.stdout.readline(), process.stdout.readline()]
    assert str(port) in lines[1]
    # The socket listens once the server has started.
    transport = httpx.HTTPTransport(retries=20)
    with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        assert client.get("/").status_code == 200
        with client.stream("GET", "/events") as stream:
            next(stream.iter_lines())
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
    assert process.returncode == 0
