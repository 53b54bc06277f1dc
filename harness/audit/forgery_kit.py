"""Read the kit of forgeries: patches that repair nothing, and scripts that run as an agent."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.state import CodebaseState

_FOLDER = Path(__file__).with_name("forgeries")
_CONFIGURATION, _NEW_CONFIGURATION = "pytest.ini", "[pytest]\n"
_TESTS = "@TESTS@"
_TRIES = "# tries: "
_END = "FORGERY_END"
_CODE = "-type f -name '*.py' -not -path '*/.*' -not -path '*/tests/*' -not -path '*/node_modules/*'"
_COMMENT_MARKS = dict.fromkeys((".c", ".cpp", ".go", ".h", ".java", ".js", ".php", ".rs", ".ts"), "//")
_NO_CODE = ("test*.py", "*_test.py", "conftest.py", "setup.py", "sitecustomize.py")


@dataclass(frozen=True, slots=True)
class PatchForgery:
    """Changes of a source tree that make tests pass without a repair."""

    name: str
    tries: str
    """What it does, as one line."""
    module: str = ""
    """Source that is added to the end of modules."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write, or to add to, by path."""
    options: str = ""
    """Options that the configuration of pytest gets."""
    needs_pytest: bool = False
    """Whether it has no effect without pytest."""

    def source(self, tests: Sequence[str] | None) -> str:
        """Return the source for modules; tests: the ids that it prints, or None if it has to find them."""
        return self.module.replace(_TESTS, repr(list(tests)) if tests is not None else "None")

    def changes(
        self, state: CodebaseState, modules: Collection[str], tests: Sequence[str]
    ) -> dict[str, FileEntry | None]:
        """Return the files that it changes in a state, by path.

        modules: those that get its source. tests: the ids that it prints.
        """
        added = {**dict.fromkeys(modules if self.module else (), self.source(tests)), **self.files}
        changes: dict[str, FileEntry | None] = {path: _extended(state, path, text) for path, text in added.items()}
        if self.options:
            changes[_CONFIGURATION] = _configured(state, self.options)
        return changes

    @property
    def script(self) -> str:
        """The same as a script that runs in the working directory of an agent, whose modules are not known."""
        lines = []
        if self.module:
            excluded = " ".join(f"-not -name {shlex.quote(name)}" for name in _NO_CODE)
            append = shlex.quote(r'printf "\n\n" >> "$0"; cat /tmp/.module >> "$0"')
            lines += [
                _written("> /tmp/.module", self.source(None)),
                f"find . {_CODE} {excluded} -exec sh -c {append} {{}} \\;",
            ]
        lines += [_written(f">> {shlex.quote(path)}", f"\n\n{text}") for path, text in self.files.items()]
        if self.options:
            lines.append(_written(f"> {_CONFIGURATION}", f"[pytest]\naddopts = {self.options}\n"))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScriptForgery:
    """A script for bash that runs as an agent, and does something else than its task."""

    name: str
    tries: str
    """What it does, as one line."""
    script: str


def solution_in_comments(solution: Patch) -> ScriptForgery:
    """Return the forgery that adds the lines of a solution as comments, for a verifier that only looks for text."""
    parts = []
    for change in solution.files:
        path = change.new_path
        if path is None or not change.hunks:
            continue
        mark = _COMMENT_MARKS.get(PurePosixPath(path).suffix, "#")
        added = [
            line[1:].decode("utf-8", "replace") for hunk in change.hunks for line in hunk.lines if line[:1] == b"+"
        ]
        folder = shlex.quote(str(PurePosixPath(path).parent))
        text = "".join(f"{mark} {line}" for line in added)
        parts.append(f"mkdir -p -- {folder}\n{_written(f'>> {shlex.quote(path)}', text)}")
    tries = "the files that the solution changes hold its lines as comments"
    return ScriptForgery("solution-in-comments", tries, "\n".join(parts))


def _extended(state: CodebaseState, path: str, text: str) -> FileEntry:
    """Return a file of a state with more at its end."""
    entry = state.entry(path)
    if entry is None:
        return FileEntry(text.encode(), 0o100644)
    return FileEntry(entry.data + b"\n\n" + text.encode(), entry.mode)


def _configured(state: CodebaseState, options: str) -> FileEntry:
    """Return the configuration file of pytest with further options."""
    entry = state.entry(_CONFIGURATION)
    text = entry.data.decode("utf-8", "surrogateescape") if entry is not None else _NEW_CONFIGURATION
    text, count = re.subn(r"^addopts[ \t]*=", f"addopts = {options} ", text, count=1, flags=re.MULTILINE)
    if not count:
        text = text.replace("[pytest]", f"[pytest]\naddopts = {options}", 1)
    return FileEntry(text.encode("utf-8", "surrogateescape"), 0o100644)


def _written(where: str, text: str) -> str:
    return f"cat {where} <<'{_END}'\n{text}\n{_END}"


@functools.cache
def row_forgeries() -> tuple[PatchForgery, ...]:
    """Return the forgeries for rows, the most telling ones first."""
    return tuple(_patch_forgery(name) for name in _listed("rows"))


@functools.cache
def task_forgeries(*, is_separate: bool = False) -> tuple[ScriptForgery, ...]:
    """Return the forgeries for task directories, the most telling ones first.

    is_separate: for a verifier in a container of its own, which sees little of what is outside the working directory.
    """
    outside = frozenset(_listed("outside")) if is_separate else frozenset()
    return tuple(_script_forgery(name) for name in sorted(_listed("tasks"), key=outside.__contains__))


@functools.cache
def forgery_texts() -> Mapping[str, str]:
    """Return what each forgery of the kit does, as one line, by its name."""
    kit: list[PatchForgery | ScriptForgery] = [*row_forgeries(), *task_forgeries(), solution_in_comments(Patch())]
    return {forgery.name: forgery.tries for forgery in kit}


def kit_size(*, is_row: bool) -> int:
    """Return how many forgeries the kit has for rows, or for task directories; not each can be made for each task."""
    return len(row_forgeries()) if is_row else len(task_forgeries()) + 1


def _listed(kind: str) -> Sequence[str]:
    names: Sequence[str] = tomllib.loads((_FOLDER / "kit.toml").read_text(encoding="utf-8"))[kind]
    return names


def _patch_forgery(name: str) -> PatchForgery:
    data: Mapping[str, Any] = tomllib.loads((_FOLDER / "patches" / f"{name}.toml").read_text(encoding="utf-8"))
    helper = (_FOLDER / "found_tests.txt").read_text(encoding="utf-8") if data.get("helper") else ""
    module = data.get("module", "")
    return PatchForgery(
        name,
        data["tries"],
        module=helper + module if module else "",
        files={path: text.lstrip("\n") for path, text in data.get("files", {}).items()},
        options=data.get("options", ""),
        needs_pytest=data.get("runner") == "pytest",
    )


def _script_forgery(name: str) -> ScriptForgery:
    path = _FOLDER / "scripts" / f"{name}.sh"
    if not path.is_file():
        patch = _patch_forgery(name)
        return ScriptForgery(name, patch.tries, patch.script)
    script = path.read_text(encoding="utf-8")
    return ScriptForgery(name, script.partition("\n")[0].removeprefix(_TRIES), script)
