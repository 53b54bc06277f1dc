"""Open the executor that `--ray` or `SSR_EXECUTOR` names, and show what its nodes do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness.cli.terminal import Terminal
from harness.executors.local import LocalExecutor
from harness.executors.node import NodeState
from harness.executors.protocol import Executor, is_remote
from pytest_ssr.errors import MissingExtraError
from pytest_ssr.storage.store import Store

_SCHEME = "ray://"


@contextmanager
def open_executor(address: str, jobs: int, store: Store, terminal: Terminal) -> Iterator[Executor]:
    """Yield the executor: threads of this process, or a cluster, whose nodes are shown in the terminal.

    address: that of the cluster's head, with or without `ray://`; `auto` for the cluster of this machine. jobs: threads
    of this process; a cluster has as many workers as its nodes have slots.
    Raises MissingExtraError without Ray, SettingsError if there is no cluster, SandboxError if it has no slots.
    """
    if not is_remote(address):
        yield LocalExecutor(jobs)
        return
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Ray", "ray")
    from harness.executors.ray_executor import RayExecutor

    terminal.status(f"connecting to the cluster {address}")
    with RayExecutor(address.removeprefix(_SCHEME), store, notify=terminal.note) as executor:
        terminal.suffix = lambda: f"; {executor.summary()}"
        try:
            yield executor
        finally:
            terminal.suffix = lambda: ""
            for line in node_lines(executor.nodes):
                terminal.note(line)


def node_lines(nodes: Sequence[NodeState]) -> list[str]:
    """Return a table of what each node did."""
    width = max((len(n.name) for n in nodes), default=0)
    lines = [f"{'node':{width}}  slots  units  lost  faults  seconds/unit"]
    for node in nodes:
        seconds = f"{node.seconds / node.done:.1f}" if node.done else "-"
        note = f"  no more work: {node.drained}" if node.drained else "  left" if node.has_left else ""
        counts = f"{node.slots:5}  {node.done:5}  {node.lost:4}  {node.faults:6}"
        lines.append(f"{node.name:{width}}  {counts}  {seconds:>12}{note}")
    return lines
