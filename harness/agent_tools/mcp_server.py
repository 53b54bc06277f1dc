"""Serve the tools of a project by the Model Context Protocol; the only module that imports its SDK.

Each call works in a thread of its own, which stops if the client cancels the call; one call works at a time, because
all of them share a store. Standard output belongs to the protocol: while the server runs, the SDK lets everything else
that is written there go to standard error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError

from harness.agent_tools.answers import (
    AcceptanceAnswer,
    ReviewAnswer,
    SuggestionAnswer,
    SurvivorAnswer,
    VerificationAnswer,
)
from harness.agent_tools.project_tools import ProjectTools, Report
from pytest_ssr import __version__
from pytest_ssr.errors import SsrError
from pytest_ssr.escaping import escaped_line
from pytest_ssr.interrupts import background

_T = TypeVar("_T")
_POLL_S = 0.1
_MOST_ERROR = 1000
INSTRUCTIONS = (
    "pytest-ssr shows what the tests of this project would not notice: it changes the code in a sandbox and runs the "
    "tests. Call review after you have changed code, then suggest_test or verify_test for each remark, write the tests "
    "into the project, and review again."
)


class _Server(MCPServer):
    """Answers each mistake by one line."""

    async def call_tool(self, name: str, arguments: dict[str, Any], *others: Any, **named: Any) -> Any:
        """Call a tool; see MCPServer."""
        try:
            return await super().call_tool(name, arguments, *others, **named)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            raise ToolError(_in_one_line(error)) from error.__cause__


def _in_one_line(error: ToolError) -> str:
    errors = getattr(error.__cause__, "errors", None)
    text = str(error)
    if errors is not None:
        # What was passed is not repeated: it may be large.
        faults: Sequence[Any] = errors(include_url=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
    text = escaped_line(text)
    return text if len(text) <= _MOST_ERROR else f"{text[:_MOST_ERROR]}..."


class Calls:
    """The tools as the SDK wants them; their docstrings are what an agent reads."""

    def __init__(self, tools: ProjectTools) -> None:
        self._tools, self._lock = tools, anyio.Lock()

    async def review(self, ctx: Context, rev: str = "", time: float = 60) -> ReviewAnswer:
        """Find out what no test would notice in changed code.

        rev: a git revision; functions that have changed since it are reviewed (default: since the branch left the main
        one). time: seconds for changes and tests, after the project's tests have been measured.
        """
        return await self._call(ctx, lambda report: self._tools.review(rev, time, report))

    async def explain_survivor(self, ctx: Context, id: str) -> SurvivorAnswer:
        """Show one surviving change of the last review: its diff, whether a test runs it, whether it is accepted."""
        return await self._call(ctx, lambda report: self._tools.explain_survivor(id))

    async def suggest_test(self, ctx: Context, id: str) -> SuggestionAnswer:
        """Return a verified test that notices a surviving change, or the reason that none was found."""
        return await self._call(ctx, lambda report: self._tools.suggest_test(id, report))

    async def verify_test(self, ctx: Context, id: str, content: str) -> VerificationAnswer:
        """Run a test file on the original, on which it must pass, and with a surviving change, with which it must fail.

        It runs in a sandbox, several times; nothing is written into the project.
        """
        return await self._call(ctx, lambda report: self._tools.verify_test(id, content, report))

    async def accept(
        self, ctx: Context, id: str, reason: str, kind: Literal["accepted", "equivalent", "not-useful"] = "accepted"
    ) -> AcceptanceAnswer:
        """Record in .ssr-accepted.toml that the team wants no test for a surviving change; ask the developer first.

        kind: accepted; equivalent: the changed code does the same; not-useful: nobody wants to see changes by this
        operator.
        """
        return await self._call(ctx, lambda report: self._tools.accept(id, reason, kind))

    async def _call(self, ctx: Context, work: Callable[[Report], _T]) -> _T:
        async with self._lock:
            start, shown = time.monotonic(), ""
            lines = [""]
            task = background(lambda: work(lambda line: lines.__setitem__(0, line)), name="tool")
            try:
                while not task.is_done:
                    await anyio.sleep(_POLL_S)
                    if lines[0] != shown:
                        shown = lines[0]
                        await ctx.report_progress(time.monotonic() - start, message=escaped_line(shown))
            finally:
                task.request_stop()
                with anyio.CancelScope(shield=True):
                    while not task.is_done:
                        await anyio.sleep(_POLL_S)
            try:
                return task.result()
            except SsrError as error:
                raise ToolError(escaped_line(str(error))) from None
            except KeyboardInterrupt:
                raise ToolError("the call was stopped; what is finished is kept") from None


def server_of(tools: ProjectTools) -> MCPServer:
    """Return the server of a project's tools."""
    # At the default level, the SDK writes a line on standard error for each request.
    server = _Server("pytest-ssr", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    calls = Calls(tools)
    for call in (calls.review, calls.explain_survivor, calls.suggest_test, calls.verify_test, calls.accept):
        server.add_tool(call, structured_output=True)
    return server


def serve(tools: ProjectTools) -> None:
    """Serve the tools over standard streams until the client closes them."""
    server_of(tools).run()
