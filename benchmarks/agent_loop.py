"""Drive `ssr mcp` as a coding agent does, without a model: review, suggest, verify, write, review again.

Run: `python benchmarks/agent_loop.py CLONE=REV... --python PATH --out benchmarks/results/NAME.md`. CLONE is a git
repository whose tests PATH can run; the functions that have changed since REV are reviewed. It is copied; for each
remark, the server is asked for a test, the test is verified by a second call and written into the copy, as an agent
would do that agrees with what the code does. The second review tries the same changes. Every tool also gets hostile
arguments: paths, shell commands, long and binary text; each has to be refused in one line, and no file may appear.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

_HOSTILE = ("../../etc/passwd", "$(touch stolen)", "; touch stolen", "--output=stolen", "a\0b", "x" * 100_000)
_REVIEW_S = 60.0


@dataclass(slots=True)
class Loop:
    """What one loop has shown."""

    project: str
    survivors: list[int]
    """Changes that no test noticed, without equivalent ones, before and after."""
    tried: list[int]
    remarks: list[int]
    suggested: int = 0
    verified: int = 0
    refused: int = 0
    """Hostile calls that were refused, of `asked`."""
    asked: int = 0
    planted: int = 0
    """Files that appeared by hostile calls."""


def main() -> int:
    """Run the loops, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", metavar="CLONE=REV")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    loops = []
    for clone in arguments.clones:
        path, _, revision = clone.partition("=")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / Path(path).name
            subprocess.run(["git", "clone", "-q", path, str(copy)], check=True)
            loop = Loop(copy.name, [], [], [])
            anyio.run(_run, copy, revision, arguments.python, loop)
            loops.append(loop)
            print(loop, flush=True)
    arguments.out.write_text(_page(loops), encoding="utf-8")
    return 0


async def _run(copy: Path, revision: str, python: Path, loop: Loop) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "harness.cli", "mcp", str(copy), "--python", str(python)], cwd=copy.parent
    )
    async with Client(stdio_client(server)) as client:
        first = await _review(client, revision, loop)
        for remark in first["remarks"]:
            suggested = await _call(client, "suggest_test", id=remark["id"])
            if not suggested["found"]:
                continue
            loop.suggested += 1
            content = suggested["content"]
            verified = await _call(client, "verify_test", id=remark["id"], content=content)
            if verified["verified"]:
                loop.verified += 1
                with (copy / suggested["file"]).open("a", encoding="utf-8") as file:
                    file.write(f"\n\n{content}")
        before = _files(copy.parent)
        for tool, names in (
            ("review", ["rev"]),
            ("explain_survivor", ["id"]),
            ("suggest_test", ["id"]),
            ("verify_test", ["id", "content"]),
            ("accept", ["id", "reason"]),
        ):
            for text in _HOSTILE:
                loop.asked += 1
                result = await client.call_tool(tool, dict.fromkeys(names, text))
                shown = "".join(part.text for part in result.content)
                loop.refused += result.is_error and "\n" not in shown and "Traceback" not in shown
        loop.planted = len(_files(copy.parent) - before)
        await _review(client, revision, loop)


async def _review(client: Client, revision: str, loop: Loop) -> dict[str, Any]:
    found = await _call(client, "review", rev=revision, time=_REVIEW_S)
    loop.survivors.append(len(found["remarks"]) + found["more"])
    loop.tried.append(found["tried"])
    loop.remarks.append(len(found["remarks"]))
    return found


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    if result.is_error or result.structured_content is None:
        raise SystemExit(f"{tool}: {result.content}")
    return result.structured_content


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".ssr" not in path.parts and ".git" not in path.parts}


def _page(loops: list[Loop]) -> str:
    rows = [
        f"| {x.project} | {x.survivors[0]} of {x.tried[0]} | {x.remarks[0]} | {x.suggested} | {x.verified} | "
        f"{x.survivors[-1]} of {x.tried[-1]} | {x.remarks[-1]} | {x.refused} of {x.asked} | {x.planted} |"
        for x in loops
    ]
    head = (
        "| project | survivors before | remarks | tests suggested | verified and written | survivors after | remarks "
        "after | hostile calls refused | files by them |"
    )
    return "\n".join(
        [f"# {__doc__.splitlines()[0]}", "", *__doc__.splitlines()[2:], "", head, "|---" * 9 + "|", *rows, ""]
    )


if __name__ == "__main__":
    sys.exit(main())
