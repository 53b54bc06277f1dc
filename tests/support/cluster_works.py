"""Works whose units show how a cluster treats them; their classes are sent to the nodes by value."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.executors.node import Node
from harness.executors.protocol import Cluster
from pytest_ssr.errors import SandboxError, SandboxUnavailableError
from pytest_ssr.interrupts import pause
from pytest_ssr.records.reasons import Reason


@dataclass(frozen=True)
class Probe:
    """A work whose units do what their argument says, and leave a line in a file."""

    trace: Path

    def stored(self, argument: str) -> str | None:
        return "stored" if argument == "stored" else None

    def place(self, argument: str) -> str:
        return argument if argument.startswith("image:") else ""

    def ahead(self, argument: str) -> Callable[[Node], object] | None:
        return partial(self.fetch, argument) if argument.startswith("image:") else None

    def fetch(self, argument: str, node: Node) -> None:
        self.note(f"fetch-{argument}")

    def send(self, argument: str, cluster: Cluster) -> str:
        return argument

    def recipe(self, cluster: Cluster) -> Any:
        return ProbeRecipe(self)

    def note(self, event: str) -> str:
        """Add a line about an event, and return the node."""
        node = Path(os.environ["SSR_NODE_CACHE"]).parent.name
        with self.trace.open("a") as file:
            file.write(f"{event} {node}\n")
        return node

    def run(self, argument: str) -> str:
        node = self.note(argument)
        kind, _, rest = argument.partition(":")
        begun = self.trace.read_text().count(f"{argument} ")
        if kind == "die" and begun <= int(rest or 99):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "clock":
            time.sleep(0.5)
            return f"{argument} {time.time()}"
        if kind == "freeze" and begun <= int(rest):
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "full" and begun <= int(rest):
            raise OSError(errno.ENOSPC, "No space left on device")
        if kind == "fault" and begun <= int(rest or 99):
            raise SandboxError("this machine has no sandbox")
        if kind == "error":
            raise KeyError(rest)
        if kind == "wait":
            pause(float(rest))
        if kind == "sleep":
            time.sleep(float(rest))
        return f"{argument} {node}"

    def fault(self, result: str) -> Reason | None:
        return None

    def close(self) -> None:
        pass

    def begun(self, argument: str) -> list[str]:
        """Return the nodes on which a unit was begun."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        return [line.split()[1] for line in lines if line.startswith(f"{argument} ")]


@dataclass(frozen=True)
class ProbeRecipe:
    """Opens the work on a node."""

    work: Probe

    def __call__(self, node: Node) -> OpenProbe:
        if lacking := os.environ.get("SSR_TEST_LACKS"):
            raise SandboxUnavailableError(f"{lacking} is not installed")
        return OpenProbe(self.work, node)


@dataclass(frozen=True)
class OpenProbe:
    """The work on a node: every unit stores a record."""

    work: Probe
    node: Node

    def run(self, argument: str) -> str:
        result = self.work.run(argument)
        self.node.store.put_record("attempts/probe", argument.replace(":", "-"), {"result": result})
        return result

    def fault(self, result: str) -> Reason | None:
        return None

    def close(self) -> None:
        pass
