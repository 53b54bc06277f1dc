"""Run the ```console blocks of a page of the documentation, and compare what they print."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_END = "-- end of output --"


def part(page: Path, title: str) -> str:
    """Return the text of a page before its first section, and its section of this title."""
    first, *others = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    by_title = {title: text for title, _, text in (other.partition("\n") for other in others)}
    return f"{first}\n{by_title[title]}"


def free_port() -> str:
    """Return a port of this machine that nothing uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of the console blocks, each with the output that is printed below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *lines = entry.splitlines()
            count = next((n for n, line in enumerate(lines) if line != ">" and not line.startswith("> ")), len(lines))
            more = [line.removeprefix(">").removeprefix(" ") for line in lines[:count]]
            yield "\n".join((first, *more)), "\n".join(lines[count:])


def run_commands(text: str, folder: Path, variables: Mapping[str, str] = {}, *, timeout_s: float = 900) -> None:
    """Run the commands of the console blocks in one shell; each has to succeed and print what the page shows.

    In the page's output, `...` stands for any text of a line, or as a line for any number of lines.
    """
    wanted = list(commands(text))
    script = "".join(f"{command}\nprintf '%s\\n' '{_END}'\n" for command, _ in wanted)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SSR_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryFile("w+") as stdout:
        # A file, because servers that the commands start keep a pipe open.
        shell = subprocess.Popen(
            ["bash", "-ec", script], cwd=folder, env=clean | {"PATH": path} | variables,
            stdout=stdout, start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        stdout.seek(0)
        printed = stdout.read().split(f"{_END}\n")
    for (command, shown), output in zip(wanted, printed, strict=False):
        assert re.fullmatch(_pattern(shown), "".join(f"{line}\n" for line in output.splitlines())), (command, output)
    assert (code, len(printed)) == (0, len(wanted) + 1), printed[-1]


def _pattern(shown: str) -> str:
    lines = shown.splitlines()
    return "".join(r"(?:.*\n)*" if e == "..." else ".*".join(map(re.escape, e.split("..."))) + r"\n" for e in lines)
