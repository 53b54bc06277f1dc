"""Run a project's suite in fresh processes with a diff applied to a copy of the project.

This is what a person does who doubts a result: copy the project, `patch -p1`, `pytest`. Nothing of pytest-ssr takes
part (its plugin is switched off), except that `plain_recorder.py` notes the outcome of each test and proves that the
changed files were imported from the copy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_RECORDER = Path(__file__).with_name("plain_recorder.py")
_LEFT_OUT = shutil.ignore_patterns(".venv", ".ssr", "__pycache__", "*.pyc")
_REPEATS = 2


class DiffRefusedError(Exception):
    """`patch -p1` did not accept a diff."""


@dataclass(frozen=True, slots=True)
class ColdRun:
    """One run of the whole suite in a fresh process."""

    exit_status: int | None
    """Pytest's exit status; None if the run did not end in time."""
    failed: frozenset[str]
    """Tests and collectors of which something failed: setup, call, teardown or a subtest."""
    loaded: frozenset[str]
    """The changed files that were imported from the copy, relative to it."""


@dataclass(frozen=True, slots=True)
class ColdVerdict:
    """What plain pytest reports on a change."""

    noticed: tuple[str, ...]
    """Tests and collectors that fail each time with the change and never without it, or `exit status N`."""
    flaky: tuple[str, ...]
    """Tests that failed with the change, but not each time."""
    proven: bool
    """Whether the changed files were imported, so that a passing run means something."""


def user_environment(source: Path) -> dict[str, str]:
    """Return the environment of a user who has activated the project's `.venv`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV_"))}
    environment["VIRTUAL_ENV"] = str(source / ".venv")
    environment["PATH"] = f"{source / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    return environment


class ColdProject:
    """A project whose suite is run on copies of it."""

    def __init__(self, source: Path, arguments: Sequence[str], work: Path, *, timeout_s: float) -> None:
        """Measure which tests fail without a change, twice.

        arguments: what the user adds to `pytest`; work: a folder for the copies; timeout_s: limit for one run.
        """
        self._source = source
        self._arguments = arguments
        self._work = work
        self._timeout_s = timeout_s
        runs = [self._run("", ()) for _ in range(_REPEATS)]
        self._failing_before = frozenset.union(*(run.failed for run in runs))
        self._exit_statuses = {run.exit_status for run in runs}

    def verdict(self, diff: str) -> ColdVerdict:
        """Apply a diff and run the suite; a failure counts only if it repeats.

        Raises:
            DiffRefusedError: If the diff does not apply.
        """
        paths = tuple(dict.fromkeys(re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)))
        failures: list[frozenset[str]] = []
        for _ in range(_REPEATS):
            run = self._run(diff, paths)
            failures.append(self._failures(run))
            if not failures[-1]:
                break
        noticed = frozenset.intersection(*failures)
        flaky = frozenset.union(*failures) - noticed
        return ColdVerdict(tuple(sorted(noticed)), tuple(sorted(flaky)), proven=run.loaded == set(paths))

    def _failures(self, run: ColdRun) -> frozenset[str]:
        # A test that is only missing has not failed: its id may contain what the change moves, such as a line number.
        failing = run.failed - self._failing_before
        if not failing and run.exit_status not in self._exit_statuses:
            return frozenset({f"exit status {run.exit_status}"})
        return failing

    def _run(self, diff: str, paths: Sequence[str]) -> ColdRun:
        """Run the suite on a fresh copy."""
        copy, side = self._work / self._source.name, self._work / "side"
        for folder in (copy, side):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._source, copy, symlinks=True, ignore=_LEFT_OUT)
        if diff:
            patch = subprocess.run(["patch", "-p1"], cwd=copy, input=diff.encode(), capture_output=True, check=False)
            if patch.returncode:
                raise DiffRefusedError(patch.stdout.decode(errors="replace"))
        side.mkdir(parents=True)
        shutil.copy(_RECORDER, side)
        out = side / "out.jsonl"
        out.touch()
        settings = {"out": str(out), "watched": [str(copy / path) for path in paths]}
        (side / "plain_recorder.json").write_text(json.dumps(settings))
        # In front of what an editable install adds, so that the copy is imported.
        roots = [side, *([copy / "src"] if (copy / "src").is_dir() else []), copy]
        environment = user_environment(self._source)
        environment |= {"PYTHONPATH": os.pathsep.join(map(str, roots)), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(self._source / ".venv" / "bin" / "pytest"), "-q", "-p", "no:cacheprovider", "-p", "no:ssr"]
        command += ["-p", "plain_recorder", *self._arguments]
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, timeout=self._timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return _read(out, None, copy)
        return _read(out, done.returncode, copy)


def _read(out: Path, exit_status: int | None, copy: Path) -> ColdRun:
    """Read what the recorder wrote."""
    failed: set[str] = set()
    loaded: set[str] = set()
    for line in out.read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "loaded":
            loaded.update(os.path.relpath(path, copy) for path in entry["paths"])
        elif entry["kind"] == "collect-error" or (entry["kind"] == "report" and entry["outcome"] == "failed"):
            failed.add(entry["id"])
    return ColdRun(exit_status, frozenset(failed), frozenset(loaded))
