"""The tool `editor`: view, create, replace, insert and undo in the project's files, without running their code."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace
from pytest_ssr.errors import SandboxError

_MAX_BYTES = 8 * 1024**2
_CONTEXT_LINES = 4
COMMANDS = ("view", "create", "str_replace", "insert", "undo_edit")


class Editor:
    """Edits text files, and keeps their previous contents for undo."""

    name = "editor"
    description = (
        "Look at and change text files. `view` shows a file with line numbers, or the part `view_range`; `create` "
        "writes `file_text`; `str_replace` puts `new_str` in the place of `old_str`, which must be there exactly once; "
        "`insert` puts `new_str` after line `insert_line`; `undo_edit` takes back the last change of the file."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(COMMANDS)},
            "path": {"type": "string", "description": "absolute, or relative to the project's top directory"},
            "file_text": {"type": "string"},
            "old_str": {"type": "string"},
            "new_str": {"type": "string"},
            "insert_line": {"type": "integer", "description": "0 is before the first line"},
            "view_range": {"type": "array", "items": {"type": "integer"}, "description": "first and last line"},
        },
        "required": ["command", "path"],
    }

    def __init__(self) -> None:
        self._history: dict[str, list[bytes | None]] = {}

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Run an editor command; a mistake of the model becomes an observation."""
        path = posixpath.normpath(posixpath.join(workspace.sandbox.root, arguments["path"]))
        try:
            text = getattr(self, f"_{arguments['command']}")(path, arguments, workspace)
        except FileNotFoundError:
            return Observation(f"{arguments['path']} is not a file", 1)
        except UnicodeDecodeError:
            return Observation(f"{arguments['path']} is not a text file in UTF-8", 1)
        except KeyError as error:
            return Observation(f"`{arguments['command']}` needs the argument {error}", 1)
        except (ValueError, OSError) as error:
            return Observation(str(error), 1)
        except SandboxError as error:
            # A path outside the sandbox or a file that is too large. If the sandbox broke, this command raises.
            workspace.sandbox.exec(["true"], limits=workspace.limits)
            return Observation(str(error), 1)
        return Observation(text, 0)

    def _view(self, path: str, arguments: Mapping[str, Any], workspace: Workspace) -> str:
        lines = _read(path, workspace).decode().split("\n")
        first, last = 1, len(lines)
        if view_range := arguments.get("view_range"):
            if len(view_range) != 2 or not all(isinstance(n, int) for n in view_range):
                raise ValueError("`view_range` must be a first and a last line")
            first, last = max(1, view_range[0]), len(lines) if view_range[1] == -1 else min(len(lines), view_range[1])
            if first > last:
                raise ValueError(f"`view_range` {view_range} is outside of the file's {len(lines)} lines")
        return _numbered(lines, first, last)

    def _create(self, path: str, arguments: Mapping[str, Any], workspace: Workspace) -> str:
        return self._write_with_undo(path, arguments["file_text"].encode(), workspace)

    def _str_replace(self, path: str, arguments: Mapping[str, Any], workspace: Workspace) -> str:
        text, old, new = _read(path, workspace).decode(), arguments["old_str"], arguments.get("new_str", "")
        count = text.count(old) if old else 0
        if count != 1:
            raise ValueError(f"`old_str` occurs {count} times; it must occur exactly once")
        index = text.index(old)
        changed = text[:index] + new + text[index + len(old) :]
        summary = self._write_with_undo(path, changed.encode(), workspace)
        line = text.count("\n", 0, index) + 1
        lines = changed.split("\n")
        last = min(len(lines), line + new.count("\n") + _CONTEXT_LINES)
        return f"{summary}\n{_numbered(lines, max(1, line - _CONTEXT_LINES), last)}"

    def _insert(self, path: str, arguments: Mapping[str, Any], workspace: Workspace) -> str:
        lines, index = _read(path, workspace).decode().split("\n"), arguments["insert_line"]
        if not 0 <= index <= len(lines):
            raise ValueError(f"`insert_line` is {index}; the file has {len(lines)} lines")
        new = arguments["new_str"].removesuffix("\n").split("\n")
        lines[index:index] = new
        summary = self._write_with_undo(path, "\n".join(lines).encode(), workspace)
        last = min(len(lines), index + len(new) + _CONTEXT_LINES)
        return f"{summary}\n{_numbered(lines, max(1, index + 1 - _CONTEXT_LINES), last)}"

    def _undo_edit(self, path: str, arguments: Mapping[str, Any], workspace: Workspace) -> str:
        if not self._history.get(path):
            raise ValueError(f"there is nothing to undo in {path}")
        data = self._history[path].pop()
        if data is None:
            workspace.sandbox.remove(path)
            return f"{path} is removed again"
        _write(path, data, workspace)
        return f"the last change of {path} is undone"

    def _write_with_undo(self, path: str, data: bytes, workspace: Workspace) -> str:
        try:
            before: bytes | None = _read(path, workspace)
        except FileNotFoundError:
            before = None
        _write(path, data, workspace)
        self._history.setdefault(path, []).append(before)
        return f"{path} is written"


def _read(path: str, workspace: Workspace) -> bytes:
    return workspace.sandbox.read(path, max_bytes=_MAX_BYTES)


def _write(path: str, data: bytes, workspace: Workspace) -> None:
    executable = workspace.sandbox.exec(["test", "-f", path, "-a", "-x", path], limits=workspace.limits).exit_code == 0
    workspace.sandbox.write(path, data, executable=executable)


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{n:6}\t{lines[n - 1]}" for n in range(first, last + 1))
