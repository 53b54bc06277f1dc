"""The SDK's own client drives `ssr mcp` over standard streams. `tox -e mcp` runs these tests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from plain import plain_python
from reviewed_project import git, make_project

from harness.agent_tools import mcp_server
from harness.agent_tools.answers import SurvivorAnswer
from harness.cli.commands import agent_tools
from harness.cli.exit_code import ExitCode
from harness.cli.main import main as run_command
from pytest_ssr.interrupts import pause

pytestmark = pytest.mark.bubblewrap
SUSPICIOUS = ("../../etc/passwd", "$(touch stolen)", "; touch stolen", "a\0b", "x" * 100_000)
Conversation = Callable[[Client], Awaitable[None]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.fixture
def talk(project: Path, tmp_path: Path) -> Callable[[Conversation], str]:
    """Return a function that lets a client talk to a new server, and returns the server's standard error."""

    def run(conversation: Conversation) -> str:
        async def main() -> None:
            arguments = ["-m", "harness.cli", "mcp", str(project), "--python", str(plain_python())]
            server = StdioServerParameters(command=sys.executable, args=arguments, cwd=tmp_path)
            with (tmp_path / "stderr").open("w") as errors:
                async with Client(stdio_client(server, errors)) as client:
                    await conversation(client)

        anyio.run(main)
        return (tmp_path / "stderr").read_text()

    return run


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    text: str = content.text
    assert "\n" not in text
    assert len(text) < 2000
    assert "Traceback" not in text
    return text


def test_an_agent_reviews_and_adds_a_test(project: Path, talk: Callable[[Conversation], str]) -> None:
    lines: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message)

    async def conversation(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"review", "explain_survivor", "suggest_test", "verify_test", "accept"}
        assert all(tool.output_schema for tool in tools)

        result = await client.call_tool("review", {}, progress_callback=heard)
        assert not result.is_error, result.content
        review = result.structured_content
        assert review is not None
        remark = next(r for r in review["remarks"] if r["has_test"])
        assert remark["function"] == "clamp"
        assert lines

        survivor = await call(client, "explain_survivor", id=remark["id"])
        assert survivor["diff"].startswith("diff --git")
        suggestion = await call(client, "suggest_test", id=remark["id"])
        assert suggestion["found"]
        assert suggestion["folder"] == "tests"
        verified = await call(client, "verify_test", id=remark["id"], content=suggestion["content"])
        assert verified["verified"]
        assert not list(project.glob("**/test_suggested*")), "nothing is written into the project"

        (project / "tests" / "test_clamp.py").write_text(suggestion["content"])
        again = await call(client, "review")
        assert remark["id"] not in [r["id"] for r in again["remarks"]]
        assert len(again["remarks"]) + again["more"] < len(review["remarks"]) + review["more"]

        (project / "tests" / "test_clamp.py").unlink()
        await call(client, "review")
        accepted = await call(client, "accept", id=remark["id"], reason="a sketch")
        assert accepted["file"] == ".ssr-accepted.toml"
        assert remark["id"] in (project / ".ssr-accepted.toml").read_text()
        assert remark["id"] not in [r["id"] for r in (await call(client, "review"))["remarks"]]

    assert not talk(conversation)


def test_hostile_arguments_are_refused(project: Path, tmp_path: Path, talk: Callable[[Conversation], str]) -> None:
    async def conversation(client: Client) -> None:
        assert await refusal(client, "explain_survivor", id="abc")
        review = await call(client, "review")
        for text in SUSPICIOUS:
            await refusal(client, "explain_survivor", id=text)
            await refusal(client, "suggest_test", id=text)
            await refusal(client, "verify_test", id=text, content="def test_a(): pass\n")
            await refusal(client, "accept", id=text, reason="why")
            await refusal(client, "review", rev=text)
        survivor = review["remarks"][0]["id"]
        await refusal(client, "verify_test", id=survivor, content="def test_a(:\n")
        await refusal(client, "verify_test", id=survivor, content="#" * 10_000_000)
        await refusal(client, "verify_test", id=survivor, content=7)
        await refusal(client, "accept", id=survivor, reason="why", kind="other")
        await refusal(client, "accept", id="", reason="why")
        await refusal(client, "accept", id=survivor, reason=" ")
        await refusal(client, "review", rev="--output=stolen")
        await refusal(client, "review", time=-1)
        await refusal(client, "review", time="soon")
        await refusal(client, "review", time=1e9)
        await refusal(client, "explain_survivor", id=7)
        await refusal(client, "explain_survivor", id=["a"] * 10_000)
        await refusal(client, "explain_survivor")
        await refusal(client, "no_such_tool")

    assert not talk(conversation)
    assert not list(tmp_path.rglob("stolen"))
    assert not (project / ".ssr-accepted.toml").exists()


def test_without_changes_there_is_nothing_to_review(project: Path, talk: Callable[[Conversation], str]) -> None:
    async def conversation(client: Client) -> None:
        review = await call(client, "review", rev="HEAD")
        assert (review["remarks"], review["tried"]) == ([], 0)

    git(project, "checkout", "main")
    assert not talk(conversation)


def test_a_signal_ends_the_server(project: Path) -> None:
    command = [sys.executable, "-m", "harness.cli", "mcp", str(project)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "pytest-ssr"
        server.terminate()
        assert server.wait(60) == ExitCode.BROKEN
        assert not server.stdout.read()


class SlowTools:
    """Tools that work until they are stopped or released."""

    def __init__(self) -> None:
        self.started, self.released, self.stopped = threading.Event(), threading.Event(), threading.Event()
        self.running, self.most = 0, 0

    def review(self, rev: str, time_s: float, report: Callable[[str], None]) -> None:
        report("working")
        try:
            pause(30)
        except KeyboardInterrupt:
            self.stopped.set()
            raise

    def explain_survivor(self, id: str) -> SurvivorAnswer:
        self.running += 1
        self.most = max(self.most, self.running)
        self.released.wait()
        self.running -= 1
        return SurvivorAnswer(id, "a.py", 1, "f", "", "", True, "", "", "")


def test_a_call_that_is_cancelled_stops_its_work() -> None:
    tools = SlowTools()
    tools.released.set()

    async def main() -> None:
        async with Client(mcp_server.server_of(tools)) as client:  # type: ignore[arg-type]
            with anyio.CancelScope() as scope:

                async def heard(progress: float, total: float | None, message: str | None) -> None:
                    scope.cancel()

                await client.call_tool("review", {}, progress_callback=heard)
            assert (await call(client, "explain_survivor", id="a"))["id"] == "a"

    anyio.run(main)
    assert tools.stopped.is_set()


def test_one_call_works_at_a_time() -> None:
    tools = SlowTools()

    async def main() -> None:
        calls = mcp_server.Calls(tools)  # type: ignore[arg-type]
        async with anyio.create_task_group() as group:
            for name in ("a", "b"):
                group.start_soon(calls.explain_survivor, None, name)
            # Both get as far as they can.
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            tools.released.set()

    anyio.run(main)
    assert tools.most == 1


def test_what_plugins_print_does_not_reach_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_tools, "extensions_of_sources", lambda *_, **__: print("hello"))
    monkeypatch.setattr(mcp_server, "serve", lambda tools: None)
    assert run_command(["mcp", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert not captured.out
    assert "hello" in captured.err
