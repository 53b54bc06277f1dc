"""Find out what an agent can read of the solution and the tests of a task: only through sandboxes and containers."""

from __future__ import annotations

import builtins
import hashlib
import json
import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from harness.audit.card import Leak
from harness.datasets.instance_task import InstanceTask
from harness.evaluation.harbor_grading import OpenTask
from harness.harbor.containers import Container
from pytest_ssr.grading import unsolved_state
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.protocol import MIB, Limits, WithImage

_SOURCE = Path(__file__).with_name("leak_search.py").read_bytes()
_LIMITS = Limits(wall_s=180, output_bytes=MIB)
_ELSEWHERE = (
    "/tmp",
    "/root",
    "/home",
    "/opt",
    "/srv",
    "/mnt",
    "/var/tmp",
    "/solution",
    "/tests",
    "/oracle",
    "/workspace",
)
"""Folders of an image in which somebody may have left something."""
_LEAST_LINE, _LEAST_WORD, _LONG_WORD, _LONG_LINE = 12, 5, 10, 30
_TRIVIAL = re.compile(r"(#|import\s|from\s|return\s+\w+$|def __\w+__\(|@\w+$|\"\"\"|else:|try:|pass$)")
_TEST_NAME = re.compile(r"(^|[^a-z])tests?($|[^a-z])|spec", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w+")
_COMMON = frozenset((*keyword.kwlist, *dir(builtins)))
_REQUEST, _SEARCH = "ssr-leaks.json", "ssr-leaks.py"


Searched = Mapping[str, Any]
"""What `leak_search` gets of one file: `path`, `lines`, and of a solved one `added`, `words` and `blob`."""


def row_leaks(task: InstanceTask) -> tuple[Leak, ...]:
    """Return what a solver of a row can read, in its image if the sandbox shows one, else in the tree that solvers get.

    Raises SandboxError if the sandbox fails.
    """
    runner, instance = task.runner, task.instance
    before = unsolved_state(runner, task.artifact)
    request: dict[str, Any] = {
        "files": _solved_files(before, runner.original, task.artifact.bug.paths),
        "tests": _test_files(before, runner.original, task.artifact.test_files),
    }
    argv = [str(runner.interpreter.executable), "-c", _SOURCE.decode()]
    provider = runner.provider
    if isinstance(provider, WithImage) and provider.image:
        # A commit that begins solved is changed before the agent begins; what its history shows stays.
        own = {"root": instance.folder_in_image, "itself": not instance.begins_solved, "elsewhere": _ELSEWHERE}
        done = provider.exec_in_image(argv, limits=_LIMITS, stdin=json.dumps({**request, **own}).encode())
        return _leaks(done.stdout)
    with runner.open(before) as sandbox:
        own = {"root": sandbox.root, "itself": True, "elsewhere": ()}
        done = sandbox.exec(argv, limits=_LIMITS, stdin=json.dumps({**request, **own}).encode(), cwd=sandbox.scratch)
    return _leaks(done.stdout)


def task_leaks(opened: OpenTask) -> tuple[Leak, ...]:
    """Return what an agent can read in its container; raises SandboxError if that fails.

    Without a Python in the image, only the folders that Harbor uses itself are looked at.
    """
    trial = opened.trial
    found = [Leak.TESTS_IN_IMAGE] if trial.shows_tests() else []
    with trial.begun() as container:
        with container.archive("/solution", max_bytes=_LIMITS.file_bytes) as archive:
            if archive is not None and any(not member.isdir() for member in archive):
                found.append(Leak.SOLUTION_IN_IMAGE)
        found += _searched(opened, container)
    found += [Leak.TESTS_IN_IMAGE] if _has_all_tests(opened) else []
    return tuple(sorted(set(found)))


def _searched(opened: OpenTask, container: Container) -> Sequence[Leak]:
    original = CodebaseState(opened.first.snapshot).replace(
        {path: opened.original.entry(path) for path in {*opened.first.snapshot.files, *opened.original.snapshot.files}}
    )
    steps = opened.trial.task.steps
    solutions = [step.solution for step in steps if step.solution is not None]
    request = {
        "root": container.workdir,
        "itself": True,
        "elsewhere": _ELSEWHERE,
        "files": [*_solved_files(opened.first, original, original.changes), *_listed_files(solutions)],
        "tests": _hidden_tests(opened),
    }
    files = {_SEARCH: FileEntry(_SOURCE), _REQUEST: FileEntry(json.dumps(request).encode())}
    container.put_files("/run", files, owner_of=(0, 0))
    command = f"python3 /run/{_SEARCH} /run/{_REQUEST}"
    return _leaks(container.exec(command, seconds=_LIMITS.wall_s, user="0").output.encode())


def _has_all_tests(opened: OpenTask) -> bool:
    """Return whether the agent's tree has each file with tests that the verifier brings."""
    shown = {hashlib.sha256(_data(opened.first, path)).hexdigest() for path in opened.first.snapshot.files}
    tests = [path for path in _verifier_files(opened) if _TEST_NAME.search(path.stem) and path.suffix != ".sh"]
    return bool(tests) and all(hashlib.sha256(path.read_bytes()).hexdigest() in shown for path in tests)


def _hidden_tests(opened: OpenTask) -> list[Searched]:
    """Return what to search for from the verifier's files: lines that no file of that name in the agent's tree has."""
    names = {PurePosixPath(path).name: path for path in opened.first.snapshot.files}
    files: list[Searched] = []
    for path in _verifier_files(opened):
        data = path.read_bytes()
        if len(data) <= MIB:
            shown = opened.first.entry(names[path.name]) if path.name in names else None
            files.append({"path": path.name, "lines": _telling(_added(FileEntry(data), shown))})
    return [f for f in files if f["lines"]]


def _verifier_files(opened: OpenTask) -> list[Path]:
    folders = {folder for step in opened.trial.task.steps for folder in step.verification.tests}
    return sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})


def _data(state: CodebaseState, path: str) -> bytes:
    entry = state.entry(path)
    return entry.data if entry is not None else b""


def _leaks(output: bytes) -> tuple[Leak, ...]:
    """Return the leaks that a search has printed; none if it could not run."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    try:
        return tuple(sorted(Leak(code) for code in json.loads(lines[-1])))
    except (IndexError, TypeError, ValueError):
        return ()


def _solved_files(before: CodebaseState, after: CodebaseState, paths: Iterable[str]) -> list[Searched]:
    """Return what to search for from each file that the solution changes."""
    files: list[Searched] = []
    for path in sorted(paths):
        new, old = after.entry(path), before.entry(path)
        if new is None or is_test_surface(path) or new == old:
            continue
        added = _added(new, old)
        lines = _telling(added)
        words = _new_words(lines, _text(old))
        files.append({"path": path, "lines": lines, "added": added, "words": words, "blob": _blob(new.data)})
    return files


def _test_files(before: CodebaseState, after: CodebaseState, paths: Iterable[str]) -> list[Searched]:
    """Return what to search for from each test file that solvers do not get."""
    pairs = {path: (after.entry(path), before.entry(path)) for path in sorted(paths)}
    files = {path: _telling(_added(new, old)) for path, (new, old) in pairs.items() if new is not None and new != old}
    return [{"path": path, "lines": lines} for path, lines in files.items() if lines]


def _added(new: FileEntry, old: FileEntry | None) -> list[str]:
    """Return the lines that a file has and an earlier one does not, without indentation and empty ones."""
    before = set(map(str.strip, _text(old).splitlines()))
    return sorted({line.strip() for line in _text(new).splitlines()} - before - {""})


def _listed_files(folders: Iterable[Path]) -> list[Searched]:
    """Return what to search for from the files of some folders of a task."""
    files: list[Searched] = []
    for path in sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()}):
        data = path.read_bytes()
        if len(data) <= MIB:
            lines = _telling(data.decode("utf-8", "replace").splitlines())
            files.append({"path": path.name, "lines": lines, "added": [], "words": [], "blob": ""})
    return [f for f in files if f["lines"]]


def _telling(lines: Iterable[str]) -> list[str]:
    """Return the lines that hardly occur by chance; none if they are too few to tell."""
    stripped = {line.strip() for line in lines}
    kept = sorted(line for line in stripped if len(line) >= _LEAST_LINE and not _TRIVIAL.match(line))
    return kept if len(kept) > 1 or any(len(line) >= _LONG_LINE for line in kept) else []


def _new_words(lines: Collection[str], before: str) -> list[str]:
    """Return the names that lines bring into a file; none if they are too few to tell."""
    known = set(_WORD.findall(before))
    code = " ".join(re.sub(r"#.*", "", line) for line in lines)
    words = sorted({w for w in _WORD.findall(code) if len(w) >= _LEAST_WORD} - known - _COMMON)
    return words if len(words) > 1 or any(len(word) >= _LONG_WORD for word in words) else []


def _text(entry: FileEntry | None) -> str:
    return entry.data.decode("utf-8", "replace") if entry is not None else ""


def _blob(data: bytes) -> str:
    """Return the id that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
