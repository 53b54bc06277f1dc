"""Self-play without chance and without waiting: bugs in a fixed order, a solver that hands in what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.messages import Message, Usage
from harness.selfplay import PlaySettings, SelfPlay, Watch
from harness.solvers.protocol import Solution, SolverTask
from harness.trajectory import ExitReason, Journal, ModelCall
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.store import Store

BUGS = (
    ("add", "return a + b", "return a - b"),
    ("clamp", "return low", "return high"),
    ("clamp", "return high", "return low"),
)


class Ordered:
    """Offers the same bugs in the same order, whatever the seed."""

    name = "ordered"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        text = tree.read("calc.py").decode()
        for scope, old, new in BUGS:
            yield Candidate(
                "mutation", f"op-{scope}", {"calc.py": text.replace(old, new, 1).encode()}, "calc.py", 1, scope
            )


@dataclass
class Told:
    """A solver that does what a function says; counts how often it is asked."""

    does: Callable[[int], ExitReason] = lambda attempt: ExitReason.STEP_LIMIT
    name: str = "told"
    asked: list[tuple[str, int]] = field(default_factory=list)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        attempt = journal.trajectory.attempt
        self.asked.append((task.id, attempt))
        place = journal.message(Message("assistant", "hm"))
        journal.call(ModelCall(0, (), place, "stop", Usage(10, 5), None, 0.0, "", None, None, None))
        return Solution(None, journal.end(self.does(attempt), "as told"))


def selfplay(project: Path, store: Store, solver: Any, watch: Watch | None = None, **settings: Any) -> SelfPlay:
    wanted = {"count": 1, "attempts": 2, "higher_order": 0, "adaptive": False, **settings}
    return SelfPlay([project], store, solver, PlaySettings(**wanted), injectors=[Ordered()], watch=watch)
