"""Run whole suites in fresh processes with a plain pytest: the reference that the fast path is compared with.

Given a project of `projects.py` and the files of a change, it returns which tests passed, how the run ended, and proof
that the changed files were the ones imported. pytest-ssr is not involved: the tree is copied, the change written into
the copy, its compiled files are removed, and `python -m pytest` runs on it under the project's own interpreter and with
the project's own options. A mount namespace (bubblewrap) shows the copy at the path of the project, so that an editable
install imports the copy; the rest of the system is read-only there, and the only network is the loopback device.
Results are cached in a file, as they depend on the change, the tree and the environment only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from projects import fetch, plain_environment, suite_command

from pytest_ssr.records.decoding import decode

FAILS, PASSES, NO_END, CRASH = "fails", "passes", "no end", "crash"
BASE_RUNS = 3
_RECORDER = Path(__file__).with_name("plain_recorder.py")
_LIMITED = ("prlimit", f"--as={8 * 1024**3}", f"--fsize={1024**3}", "--")
"""Limits on the memory and the size of a file that a change can use, in bytes."""
_LIMIT_FACTOR, _LIMIT_FLOOR_S = 5.0, 20.0
_EXIT_STATUSES = (0, 1, 2, 5)
"""Pytest's exit statuses other than an internal error and a usage error."""
_COUNTS = re.compile(r"\b\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed)\b")


@dataclass(frozen=True, slots=True)
class PlainRun:
    """One run of the whole suite with a plain pytest."""

    exit_code: int | None
    """None if the time limit ended it."""
    ended: bool
    """Whether pytest reported the end of the session."""
    passed: frozenset[str]
    """Ids of tests that passed in every phase."""
    loaded: frozenset[str]
    """Relative paths of changed files from which a module was loaded, and which still held the change at the end."""
    counts: tuple[str, ...]
    """The counts in pytest's last line."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Reference:
    """The effect of a change on the whole suite."""

    verdict: str
    """fails, passes, no end or crash."""
    failing: frozenset[str]
    """Tests that pass every time on the unchanged tree and did not pass here."""
    proven: bool
    """Whether every changed file was loaded by the process that ran the tests."""
    seconds: float
    note: str = ""
    """What a reader should know about the verdict."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "failing": sorted(self.failing)}


@dataclass
class PlainSuite:
    """The suite of one project, run plainly on its tree and on changed copies of it."""

    name: str
    source: Path
    python: Path
    cache: Path
    """The file in which results are cached."""
    stable: frozenset[str] = frozenset()
    """Tests that pass in each of the runs on the unchanged tree."""
    seconds: float = 0.0
    """The longest of these runs."""
    counts: tuple[str, ...] = ()
    _references: dict[str, Reference] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, name: str, folder: Path) -> PlainSuite:
        """Run the suite on the unchanged tree, unless that is cached; raise SystemExit if no test passes."""
        source, python = fetch(name, folder / name)
        suite = cls(name, source, python, folder / name / f"reference-{environment_key(source, python)}.jsonl")
        suite._read()
        if not suite.seconds:
            runs = [suite.run({}, limit_s=1800) for _ in range(BASE_RUNS)]
            suite.stable = frozenset.intersection(*(run.passed for run in runs))
            suite.seconds, suite.counts = max(run.seconds for run in runs), runs[0].counts
            base = {"stable": sorted(suite.stable), "seconds": suite.seconds, "counts": suite.counts}
            suite._append({"base": base})
        if not suite.stable:
            raise SystemExit(f"{name}: no test passes in a plain run")
        return suite

    def judge(self, changes: Mapping[str, bytes | None], *, again: bool = False) -> Reference:
        """Return the effect of a change; run the suite if that is not cached, or if `again` is true."""
        key = change_key(changes)
        if key in self._references and not again:
            return self._references[key]
        run = self.run(changes, limit_s=_LIMIT_FLOOR_S + _LIMIT_FACTOR * self.seconds)
        reference = self._reference(run, changes)
        if not again:
            self._references[key] = reference
            self._append({"change": key, "reference": reference.to_json()})
        return reference

    def _reference(self, run: PlainRun, changes: Mapping[str, bytes | None]) -> Reference:
        failing, note = self.stable - run.passed, ""
        if run.exit_code is None:
            verdict, failing, note = NO_END, frozenset(), "ended at the time limit"
        elif failing and run.exit_code == 0 and run.counts == self.counts:
            # A change to code that pytest itself uses can keep reports from a plugin while all tests pass.
            verdict, failing, note = PASSES, frozenset(), "not all tests were reported; judged by pytest's summary"
        elif not run.ended or run.exit_code not in _EXIT_STATUSES:
            verdict, failing, note = CRASH, frozenset(), f"pytest broke down, exit status {run.exit_code}"
        else:
            verdict = FAILS if failing else PASSES
        written = {path for path, data in changes.items() if data is not None}
        return Reference(verdict, failing, run.loaded >= written, run.seconds, note)

    def run(self, changes: Mapping[str, bytes | None], *, limit_s: float) -> PlainRun:
        """Run the suite once on a copy of the tree with some files changed."""
        with tempfile.TemporaryDirectory(prefix="plain-", ignore_cleanup_errors=True) as work:
            tree, side = Path(work) / "tree", Path(work) / "side"
            shutil.copytree(self.source, tree, symlinks=True)
            write_changes(tree, changes)
            side.mkdir()
            shutil.copy(_RECORDER, side)
            out = side / "reports"
            out.touch()
            watched = [str(self.source / path) for path in changes]
            (side / "plain_recorder.json").write_text(json.dumps({"out": str(out), "watched": watched}))
            begin = time.perf_counter()
            exit_code, text = self._run_pytest(tree, side, limit_s)
            seconds = time.perf_counter() - begin
            return self._read_run(out, changes, exit_code, text, seconds)

    def _run_pytest(self, tree: Path, side: Path, limit_s: float) -> tuple[int | None, str]:
        """Run pytest in a mount namespace; return its exit status (None: the time limit) and the end of its output."""
        view = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        view += ["--ro-bind", str(self.source.parent.parent), str(self.source.parent.parent)]
        view += ["--bind", str(tree), str(self.source), "--bind", str(side), str(side)]
        view += ["--unshare-pid", "--unshare-net", "--die-with-parent", "--chdir", str(self.source), "--"]
        command = suite_command(self.name, self.python)
        command += ["-p", "plain_recorder", "--continue-on-collection-errors"]
        env = plain_environment(self.name, self.source) | {"PYTHONDONTWRITEBYTECODE": "1"}
        env["PYTHONPATH"] = ":".join(filter(None, [env.get("PYTHONPATH", ""), str(side)]))
        printed = side / "printed"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                [*_LIMITED, *view, *command], stdout=output, stderr=output, env=env, start_new_session=True
            )
            try:
                exit_code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                exit_code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with printed.open("rb") as output:
            output.seek(max(0, printed.stat().st_size - 4096))
            return exit_code, output.read().decode(errors="replace")

    def _read_run(
        self, out: Path, changes: Mapping[str, bytes | None], exit_code: int | None, text: str, seconds: float
    ) -> PlainRun:
        passed: dict[str, bool] = {}
        loaded: set[str] = set()
        hashes: dict[str, str] | None = None
        for line in out.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record["kind"] == "report":
                # An expected failure and a skipped test did not pass.
                has_passed = record["outcome"] == "passed"
                passed[record["id"]] = passed.get(record["id"], True) and has_passed
            elif record["kind"] == "loaded":
                loaded.update(record["paths"])
            elif record["kind"] == "end":
                hashes = record["hashes"]
        proven = {
            path
            for path, data in changes.items()
            if data is not None
            and str(self.source / path) in loaded
            and hashes is not None
            and hashes.get(str(self.source / path)) == hashlib.sha256(data).hexdigest()
        }
        lines = text.strip().splitlines()
        counts = tuple(_COUNTS.findall(lines[-1])) if lines else ()
        good_ids = frozenset(i for i, has_passed in passed.items() if has_passed)
        return PlainRun(exit_code, hashes is not None, good_ids, frozenset(proven), counts, seconds)

    def _read(self) -> None:
        lines = self.cache.read_text().splitlines() if self.cache.exists() else []
        for record in map(json.loads, filter(None, lines)):
            if "base" in record:
                self.stable, self.seconds = frozenset(record["base"]["stable"]), record["base"]["seconds"]
                self.counts = tuple(record["base"]["counts"])
            else:
                self._references[record["change"]] = decode(Reference, record["reference"])

    def _append(self, record: Mapping[str, Any]) -> None:
        with self._lock, self.cache.open("a") as out:
            out.write(json.dumps(record) + "\n")


def write_changes(tree: Path, changes: Mapping[str, bytes | None]) -> None:
    """Write changed files into a tree and remove their compiled files."""
    for path, data in changes.items():
        file = tree / path
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        if data is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def change_key(changes: Mapping[str, bytes | None]) -> str:
    """Return a key for a change: the same files with the same content have the same key."""
    digest = hashlib.sha256()
    for path in sorted(changes):
        data = changes[path]
        digest.update(path.encode() + b"\0" + (b"-" if data is None else hashlib.sha256(data).digest()) + b"\0")
    return digest.hexdigest()[:24]


def environment_key(source: Path, python: Path) -> str:
    """Return a hash of the tree's name and of every distribution in the environment."""
    frozen = subprocess.run([str(python), "-m", "pip", "freeze", "--all"], capture_output=True, check=True).stdout
    return hashlib.sha256(source.name.encode() + frozen).hexdigest()[:12]
