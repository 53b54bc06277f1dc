"""Act out a repair that a search has found, with the prompts and tools of a model that solves: data without a model.

The repair becomes replies: view the code around it, edit each place, run the tests that the specification names,
submit. They go through the same loop as those of a model, so every observation is what the tools really returned.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.agents.tools.protocol import Observation, schema_of
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message, ToolCall
from harness.records.trajectory import ExitReason, Journal, Trajectory
from harness.solvers.model import ModelSolver, solver_system, solver_tools, submit_tree
from harness.solvers.protocol import SolverTask, render_task
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState

_CONTEXT_LINES = 20
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MAX_REJECTED = 4
EDIT = 1
"""The number of the call that makes the first edit."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One `str_replace` of the editor."""

    path: str
    old: str
    """Occurs exactly once in the file."""
    new: str

    def reply(self, call_id: str) -> Message:
        """Return the reply that makes it."""
        arguments = {"command": "str_replace", "path": self.path, "old_str": self.old, "new_str": self.new}
        return _reply(call_id, "editor", arguments)


def open_conversation(task: SolverTask, journal: Journal) -> None:
    """Record the tools and the first prompt that a model would get."""
    tools = [schema_of(tool) for tool in solver_tools(submit_tree(lambda _: Observation("", 0)))]
    journal.describe(tools=tools, sampling={})
    journal.message(Message(SYSTEM, solver_system()))
    journal.message(Message(USER, render_task(task)))


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A repair, made by the tools of a model."""

    record: Trajectory
    first: Replacement
    """The first edit, which the call `EDIT` makes."""
    shown: range
    """The 1-based numbers of the lines that the first call shows."""

    def rejected(self, start: CodebaseState, failed: Sequence[CodebaseState]) -> Iterator[Message]:
        """Yield replies that make failed candidates in place of the first edit, if they are one edit of shown lines."""
        path, count, seen = self.first.path, 0, {self.first}
        for state in failed:
            edits = replacements(path, start, state) if state.changes.keys() == {path} else []
            if len(edits) != 1 or edits[0] in seen:
                continue
            seen.add(edits[0])
            ((begin, end, _),) = _changed_ranges(_lines(start, path), _lines(state, path))
            if self.shown.start <= begin + 1 and end < self.shown.stop:
                count += 1
                yield edits[0].reply(f"rejected-{count}")
            if count == _MAX_REJECTED:
                return


def demonstrate(task: SolverTask, patch: Patch, start: CodebaseState, *, runs_tests: bool) -> Demonstration | None:
    """Act out a patch of the state `start`; return None if the tools cannot make this patch.

    runs_tests: run the specification's tests before submitting. Raises SandboxError.
    """
    repaired = start.apply(patch)
    edits = [edit for path in patch.paths for edit in replacements(path, start, repaired) or (None,)]
    if not edits or None in edits:
        return None
    first = edits[0]
    assert first is not None
    view, shown = _view(first.path, start, repaired)
    replies = [_reply("view", "editor", view)]
    replies += [edit.reply(f"edit-{n}") for n, edit in enumerate(edits) if edit is not None]
    tests = [p for p in task.specification.paths if p.endswith(".py") and start.entry(p) is not None]
    if runs_tests and tests:
        replies.append(_reply("tests", "bash", {"command": task.test_runner.shown_command(tests, brief=True)}))
    replies.append(_reply("submit", "submit", {}))
    journal = Journal(Trajectory("", task.id, "solver", 0, "search"))
    solution = ModelSolver(ScriptedModel("search", replies)).solve(task, seed=0, journal=journal)
    record = solution.trajectory
    if record.exit_reason is not ExitReason.SUBMITTED or solution.patch is None:
        return None
    if start.apply(solution.patch).tree_hash != repaired.tree_hash:
        return None
    return Demonstration(record, first, shown)


def replacements(path: str, old_state: CodebaseState, new_state: CodebaseState) -> list[Replacement]:
    """Return the edits that turn one version of a file into another, in order; empty if the editor cannot make them."""
    old_entry, new_entry = old_state.entry(path), new_state.entry(path)
    if old_entry is None or new_entry is None or old_entry.mode != new_entry.mode:
        return []
    try:
        old, new = (_LINE.findall(e.data.decode()) for e in (old_entry, new_entry))
    except UnicodeDecodeError:
        return []
    edits, current = [], old
    for first, last, lines in _changed_ranges(old, new):
        edit = _unique(path, current, first, last, lines)
        if edit is None:
            return []
        edits.append(edit)
        current = [*current[:first], *lines, *current[last:]]
    return edits


def _changed_ranges(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Yield the changed ranges of lines, from the last to the first, so that earlier ones keep their numbers."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, new_first, new_last in reversed(matcher.get_opcodes()):
        if tag != "equal":
            yield first, last, new[new_first:new_last]


def _unique(path: str, lines: Sequence[str], first: int, last: int, new: Sequence[str]) -> Replacement | None:
    """Return the replacement of a range of lines, with as much context as makes it unique in its file."""
    text = "".join(lines)
    before, after = first, last
    # Occurrences may overlap, which `count` does not see.
    while not (old := "".join(lines[before:after])) or text.find(old) != text.rfind(old):
        if (before, after) == (0, len(lines)):
            return None
        before, after = max(0, before - 1), min(len(lines), after + 1)
    return Replacement(path, old, "".join((*lines[before:first], *new, *lines[last:after])))


def _view(path: str, old_state: CodebaseState, new_state: CodebaseState) -> tuple[dict[str, object], range]:
    """Return the arguments of a view of the lines around all changes of a file, and the numbers of these lines."""
    old, new = (_lines(state, path) for state in (old_state, new_state))
    changed = list(_changed_ranges(old, new))
    first = max(1, changed[-1][0] + 1 - _CONTEXT_LINES)
    last = min(len(old), changed[0][1] + _CONTEXT_LINES)
    return {"command": "view", "path": path, "view_range": [first, last]}, range(first, last + 1)


def _lines(state: CodebaseState, path: str) -> list[str]:
    entry = state.entry(path)
    assert entry is not None
    lines: list[str] = _LINE.findall(entry.data.decode("utf-8", "replace"))
    return lines


def _reply(call_id: str, tool: str, arguments: Mapping[str, object]) -> Message:
    raw = json.dumps(arguments)
    return Message(ASSISTANT, "", (ToolCall(call_id, tool, dict(arguments), raw),))
