"""Turn the lines of a trajectory into steps that a page shows: what was said, what was done, what came back."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from harness.service.dashboard.highlighting import HighlightedDiff, highlighted_code, highlighted_diff

MOST_TURNS = 5_000
"""A page with more steps would be slow to load."""
_CALL = '{"event": "call",'
"""The beginning of a line that a page does not need: with all calls, a long trajectory takes long to read."""
_MOST_TEXT = 20_000
_FOLDED = ("system", "user")


@dataclass(slots=True)
class Action:
    """A call of a tool, with what came back."""

    tool: str
    code: Markup | None = None
    diff: HighlightedDiff | None = None
    """The change that the call makes."""
    output: str = ""
    exit_code: int | None = None


@dataclass(slots=True)
class Turn:
    """A message, with the calls of tools that it makes."""

    title: str
    text: str = ""
    note: str = ""
    is_folded: bool = False
    actions: list[Action] = field(default_factory=list)


@dataclass(slots=True)
class Transcript:
    """The steps of a trajectory."""

    turns: list[Turn] = field(default_factory=list)
    left_out: int = 0
    ending: Mapping[str, Any] = field(default_factory=dict)
    """The last line; empty while the attempt runs."""
    replies: int = 0
    """How many turns are replies of the model."""


def read_transcript(text: str) -> Transcript:
    """Return the steps of a trajectory; lines that cannot be read are left out, as is one that is being written."""
    transcript = Transcript()
    calls: dict[str, Action] = {}
    outputs: dict[int, Action] = {}
    messages = 0
    for line in _parsed(text):
        kind = line.get("event")
        if kind == "message":
            action = _add_message(transcript, line, calls)
            if action is not None:
                outputs[messages] = action
            messages += 1
        elif kind == "step":
            _add_step(transcript, line, outputs)
        elif kind == "end":
            transcript.ending = line
    transcript.left_out = max(0, len(transcript.turns) - MOST_TURNS)
    del transcript.turns[MOST_TURNS:]
    return transcript


def _parsed(text: str) -> Iterator[Mapping[str, Any]]:
    for line in text.splitlines():
        if line.startswith(_CALL):
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            yield data


def _add_message(transcript: Transcript, line: Mapping[str, Any], calls: dict[str, Action]) -> Action | None:
    """Add a message; the observation of a call goes to the call, which is returned."""
    role, text = str(line.get("role", "")), _text(line.get("content"))
    if role == "tool":
        action = calls.get(str(line.get("tool_call_id", "")))
        if action is not None:
            action.output = text
            return action
    # A model without tool calls gets the output of its commands as a message.
    is_output = role == "user" and transcript.replies > 0
    title = "Output" if is_output else _title(role, transcript)
    turn = Turn(title, text, is_folded=role in _FOLDED and not is_output)
    if role == "assistant" and _text(line.get("reasoning_content")):
        turn.text = f"{_text(line.get('reasoning_content'))}\n\n{text}".strip()
    for call in _items(line.get("tool_calls")):
        action = _action(str(call.get("name", "")), call.get("arguments"), _text(call.get("raw")))
        calls[str(call.get("id", ""))] = action
        turn.actions.append(action)
    transcript.turns.append(turn)
    return None


def _add_step(transcript: Transcript, line: Mapping[str, Any], outputs: Mapping[int, Action]) -> None:
    index = line.get("observation_index")
    action = outputs.get(index) if isinstance(index, int) else None
    if action is not None:
        code = line.get("exit_code")
        action.exit_code = code if isinstance(code, int) else None
        return
    if line.get("tool") and index == -1:
        made = _action(str(line["tool"]), line.get("arguments"), "")
        transcript.turns.append(Turn(_title("step", transcript), actions=[made]))


def _title(role: str, transcript: Transcript) -> str:
    if role in _FOLDED:
        first = len(transcript.turns) < len(_FOLDED)
        return {"system": "Instructions", "user": "Task"}[role] if first else "Message"
    if role not in ("assistant", "step"):
        return role
    # A reply can take several steps, or none; the search shows in more replies than steps how it would be done.
    transcript.replies += 1
    return f"Reply {transcript.replies}"


def _action(tool: str, arguments: object, raw: str) -> Action:
    given: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
    command = given.get("command")
    if tool == "bash" and isinstance(command, str):
        return Action(tool, highlighted_code(_text(command), "command.sh"))
    path = given.get("path")
    if tool == "editor" and isinstance(command, str) and isinstance(path, str):
        change = _change(given, path)
        return Action(f"{tool}: {command} {path}", None if change or command == "view" else _json(given), change)
    return Action(tool, _json(given) if given else highlighted_code(_text(raw), "arguments.json") if raw else None)


def _change(given: Mapping[str, Any], path: str) -> HighlightedDiff | None:
    """Return the change that a call of the editor makes, as a diff of the part that it names."""
    old, new = given.get("old_str", ""), given.get("new_str", given.get("file_text", ""))
    if not isinstance(old, str) or not isinstance(new, str) or not (old or new):
        return None
    lines = difflib.unified_diff(
        _text(old).splitlines(), _text(new).splitlines(), f"a/{path}", f"b/{path}", n=3, lineterm=""
    )
    return highlighted_diff("\n".join(lines))


def _json(given: Mapping[str, Any]) -> Markup:
    return highlighted_code(_text(json.dumps(dict(given), indent=1, ensure_ascii=False)), "arguments.json")


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    if len(value) <= _MOST_TEXT:
        return value
    return f"{value[:_MOST_TEXT]}\n[{len(value) - _MOST_TEXT} more characters are not shown]"
