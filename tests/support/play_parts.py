"""Set up fast, deterministic self-play: bugs in a fixed order, and a solver with scripted results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.injectors.model import ModelInjector
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message, Reply, ToolCall, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project
from harness.selfplay.project_play import Watch
from harness.selfplay.rounds import SelfPlay
from harness.solvers.protocol import Solution, SolverTask
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage.store import Store

BUGS = (
    ("add", "return a + b", "return a - b"),
    ("clamp", "return low", "return high"),
    ("clamp", "return high", "return low"),
)


class Ordered:
    """Offers the same bugs in the same order for every seed."""

    name = "ordered"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        text = tree.read("calc.py").decode()
        for scope, old, new in BUGS:
            yield Candidate(
                "mutation", f"op-{scope}", {"calc.py": text.replace(old, new, 1).encode()}, "calc.py", 1, scope
            )


class Writing(ScriptedModel):
    """Submits the same artifact for every prompt; both of its replies report token usage."""

    def __init__(self, artifact: BugArtifact) -> None:
        target = "/scratch/artifact"
        files = enumerate(artifact.contents().items())
        write = "\n".join(f"cat > {target}/{name} <<'END{n}'\n{data.decode()}END{n}" for n, (name, data) in files)
        calls = ("bash", {"command": f"mkdir -p {target}\n{write}"}), ("submit", {})
        tool_calls = (ToolCall.parse(name, name, json.dumps(arguments)) for name, arguments in calls)
        super().__init__("writing", [Message(ASSISTANT, "", (call,)) for call in tool_calls])
        self._artifact = artifact

    def session(self, rollout: str) -> ScriptedModel:
        return Writing(self._artifact)

    def reply(self, messages: Any, *, tools: Any, sampling: Any) -> Reply:
        return replace(super().reply(messages, tools=tools, sampling=sampling), usage=Usage(100, 10))


@dataclass
class Told:
    """A solver whose results are given by a function; records its calls."""

    does: Callable[[int], ExitReason] = lambda attempt: ExitReason.STEP_LIMIT
    name: str = "told"
    asked: list[tuple[str, int]] = field(default_factory=list)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        attempt = journal.trajectory.attempt
        self.asked.append((task.id, attempt))
        index = journal.message(Message("assistant", "hm"))
        journal.call(ModelCall(0, (), index, "stop", Usage(10, 5), None, 0.0, "", None, None, None))
        return Solution(None, journal.end(self.does(attempt), "as told"))


def selfplay(
    project: Path,
    store: Store,
    solver: Any,
    watch: Watch | None = None,
    model: ScriptedModel | None = None,
    extensions: Extensions | None = None,
    **settings: Any,
) -> SelfPlay:
    """model: injects bugs instead of `Ordered`."""
    values = {"count": 1, "attempts": 2, "higher_order": 0, "adaptive": False, **settings}
    by_model = model and ModelInjector(model, "direct", rejections=0)
    return SelfPlay(
        [Project(project)],
        store,
        solver,
        PlaySettings(**values),
        injectors=[Ordered()],
        model=by_model,
        watch=watch,
        extensions=extensions,
    )
