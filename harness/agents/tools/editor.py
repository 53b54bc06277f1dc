"""The tool `editor`: view, create, replace, insert and undo, on files of the project; nothing runs in the sandbox."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from harness.agents.desk import Desk
from harness.agents.tools.protocol import Observation
from pytest_ssr.errors import SandboxError

_MOST_BYTES = 8 * 1024**2
_AROUND = 4
COMMANDS = ("view", "create", "str_replace", "insert", "undo_edit")


class Editor:
    """Edits text files; remembers what each was, for undo."""

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
        self._before: dict[str, list[bytes | None]] = {}

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Do it; what cannot be done is said."""
        path = posixpath.normpath(posixpath.join(desk.sandbox.root, arguments["path"]))
        try:
            text = getattr(self, f"_{arguments['command']}")(path, arguments, desk)
        except FileNotFoundError:
            return Observation(f"{arguments['path']} is no file", 1)
        except UnicodeDecodeError:
            return Observation(f"{arguments['path']} is no text in UTF-8", 1)
        except KeyError as error:
            return Observation(f"`{arguments['command']}` needs the argument {error}", 1)
        except (ValueError, OSError) as error:
            return Observation(str(error), 1)
        except SandboxError as error:
            # A path outside, a file that is too large: told from a sandbox that broke by a command.
            desk.sandbox.exec(["true"], limits=desk.limits)
            return Observation(str(error), 1)
        return Observation(text, 0)

    def _view(self, path: str, arguments: Mapping[str, Any], desk: Desk) -> str:
        lines = _read(path, desk).decode().split("\n")
        first, last = 1, len(lines)
        if wanted := arguments.get("view_range"):
            if len(wanted) != 2 or not all(isinstance(n, int) for n in wanted):
                raise ValueError("`view_range` has a first and a last line")
            first, last = max(1, wanted[0]), len(lines) if wanted[1] == -1 else min(len(lines), wanted[1])
            if first > last:
                raise ValueError(f"`view_range` {wanted} lies outside of the file's {len(lines)} lines")
        return _numbered(lines, first, last)

    def _create(self, path: str, arguments: Mapping[str, Any], desk: Desk) -> str:
        return self._written(path, arguments["file_text"].encode(), desk)

    def _str_replace(self, path: str, arguments: Mapping[str, Any], desk: Desk) -> str:
        text, old, new = _read(path, desk).decode(), arguments["old_str"], arguments.get("new_str", "")
        found = text.count(old) if old else 0
        if found != 1:
            raise ValueError(f"`old_str` is there {found} times; it must be there exactly once")
        place = text.index(old)
        changed = text[:place] + new + text[place + len(old) :]
        said = self._written(path, changed.encode(), desk)
        line = text.count("\n", 0, place) + 1
        lines = changed.split("\n")
        last = min(len(lines), line + new.count("\n") + _AROUND)
        return f"{said}\n{_numbered(lines, max(1, line - _AROUND), last)}"

    def _insert(self, path: str, arguments: Mapping[str, Any], desk: Desk) -> str:
        lines, place = _read(path, desk).decode().split("\n"), arguments["insert_line"]
        if not 0 <= place <= len(lines):
            raise ValueError(f"`insert_line` is {place}; the file has {len(lines)} lines")
        new = arguments["new_str"].removesuffix("\n").split("\n")
        lines[place:place] = new
        said = self._written(path, "\n".join(lines).encode(), desk)
        last = min(len(lines), place + len(new) + _AROUND)
        return f"{said}\n{_numbered(lines, max(1, place + 1 - _AROUND), last)}"

    def _undo_edit(self, path: str, arguments: Mapping[str, Any], desk: Desk) -> str:
        if not self._before.get(path):
            raise ValueError(f"nothing to undo in {path}")
        data = self._before[path].pop()
        if data is None:
            desk.sandbox.remove(path)
            return f"{path} is gone again"
        _write(path, data, desk)
        return f"{path} is as it was before the last change"

    def _written(self, path: str, data: bytes, desk: Desk) -> str:
        try:
            before: bytes | None = _read(path, desk)
        except FileNotFoundError:
            before = None
        _write(path, data, desk)
        self._before.setdefault(path, []).append(before)
        return f"{path} is written"


def _read(path: str, desk: Desk) -> bytes:
    return desk.sandbox.read(path, max_bytes=_MOST_BYTES)


def _write(path: str, data: bytes, desk: Desk) -> None:
    executable = desk.sandbox.exec(["test", "-f", path, "-a", "-x", path], limits=desk.limits).exit_code == 0
    desk.sandbox.write(path, data, executable=executable)


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{n:6}\t{lines[n - 1]}" for n in range(first, last + 1))
