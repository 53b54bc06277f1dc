"""Run the commands of a job in processes of their own, and follow what they print.

What they print goes to files, which outlive both sides: a command never waits for its worker, nor a worker for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.job_reports import JobReport
from harness.service.jobs import JOB_ENVIRONMENT, Plan
from pytest_ssr.sandbox.counting import VARIABLE as SANDBOX_COUNTS
from pytest_ssr.sandbox.counting import counts_in
from pytest_ssr.sandbox.supervision.supervisor import die_with_parent

_FOLDER = "ssr-job-"
_MAX_OUTPUT_BYTES = 256 << 20
_MOST_AT_ONCE = 1 << 20
"""Bytes of reports that are read at once."""
_MOST_KEPT = 64 << 20
"""Bytes of reports after which those that were read are removed from the disk."""


def remove_left_over() -> None:
    """Remove the folders of jobs whose workers were killed on this machine."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        pid = path.name.removeprefix(_FOLDER).partition("-")[0]
        if not pid.isdigit() or Path("/proc", pid).exists() or path.is_symlink():
            continue
        with contextlib.suppress(OSError):
            # A worker in another container may have the folder and a number that this one does not know.
            held = _locked(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _locked(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder; raises OSError if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class JobProcess:
    """The processes of a job, one after another. Start it in the main thread: they end with the thread."""

    def __init__(self, plan: Plan) -> None:
        """Start the first command; raises OSError if it does not start."""
        self.plan = plan
        self._waiting = [*plan.before, plan.argv]
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
        """The folder that the commands run in, which is removed at the end."""
        self._lock = _locked(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupted = False
        self._started = 0
        """How many of the commands have begun."""
        self._read_command, self._read_to = 0, 0
        try:
            # A command reads the nearest one: without it, that of a folder above, which others may be able to write.
            (self.folder / "pyproject.toml").touch()
            for name, text in plan.files.items():
                (self.folder / name).write_text(text, encoding="utf-8")
            self._clear_checkout()
            if plan.checkout is not None:
                plan.checkout.mkdir(parents=True)
            self._start_next()
        except OSError:
            self.remove()
            raise

    @property
    def is_fetching(self) -> bool:
        """Whether the command that runs, or ran last, fetches the project."""
        return bool(self._waiting)

    def poll(self) -> int | None:
        """Return the exit code of the job, negative for a signal; None while it runs."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return None
        # What it may have left running must not go on beside another attempt.
        self._signal_group(signal.SIGKILL)
        if code == 0 and self._waiting and not self._interrupted:
            self._start_next()
            return None
        return code

    def reports(self, *, is_over: bool = False) -> list[JobReport]:
        """Return what the commands have reported since the last call; of very much, only the end.

        is_over: they have ended, so that a line without an end is complete, too.
        """
        found: list[JobReport] = []
        for command in range(self._read_command, self._started):
            is_last = command == self._started - 1
            lines = self._new_lines(command, is_over=is_over or not is_last)
            # What git says comes from a server of somebody else, which is no command of ours.
            is_own = command == len(self.plan.before)
            found += [JobReport.from_line(line) if is_own else JobReport(line=line) for line in lines]
            if not is_last:
                self._read_command, self._read_to = command + 1, 0
        return found

    def _new_lines(self, command: int, *, is_over: bool) -> list[str]:
        path = self._errors_of(command)
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._read_to, size - _MOST_AT_ONCE))
                start, data = file.tell(), file.read(_MOST_AT_ONCE)
            # At its end alone: other characters that Python takes for ends of lines may be part of what is quoted.
            complete = data if is_over else data[: data.rfind(b"\n") + 1]
            self._read_to = start + len(complete)
            if size > _MOST_KEPT:
                # The command appends, so that it goes on at the beginning.
                os.truncate(path, 0)
                self._read_to = 0
        except OSError:
            return []
        lines = (line.strip() for line in complete.decode("utf-8", "backslashreplace").split("\n"))
        return [line for line in lines if line]

    def _errors_of(self, command: int) -> Path:
        return self.folder / f"stderr-{command}"

    def output(self) -> Mapping[str, Any]:
        """Return the JSON object that the command has printed, empty if it has printed something else."""
        path = self.folder / "stdout"
        try:
            if path.stat().st_size > _MAX_OUTPUT_BYTES:
                return {}
            data = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def sandboxes(self) -> Mapping[str, int]:
        """Return how many sandboxes the commands have started, and how many did not start."""
        return counts_in(self.folder)

    def interrupt(self) -> None:
        """Ask the command to end; it keeps what is finished."""
        self._interrupted = True
        if self._process is not None and self._process.poll() is None:
            # Not SIGINT, which a process that a shell started in the background ignores, and its children as well.
            self._process.terminate()

    def kill(self) -> None:
        """End the command and what it has started, and wait for it."""
        self._interrupted = True
        if self._process is not None and self._process.poll() is None:
            self._signal_group(signal.SIGKILL)
            self._process.wait()

    def remove(self) -> None:
        """Remove the temporary files; the command has ended."""
        self._clear_checkout()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _start_next(self) -> None:
        argv = self._waiting.pop(0)
        self._process = self._start(argv)
        self._started += 1

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if name not in self.plan.unset}
        with (self.folder / "stdout").open("wb") as out, self._errors_of(self._started).open("ab") as err:
            return subprocess.Popen(
                [*die_with_parent(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # A folder without settings of anybody.
                cwd=self.folder,
                env={**inherited, **JOB_ENVIRONMENT, SANDBOX_COUNTS: str(self.folder)},
                start_new_session=True,
            )

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        # It leads its group, whose number stays taken as long as one of its processes runs.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _clear_checkout(self) -> None:
        if self.plan.checkout is not None:
            shutil.rmtree(self.plan.checkout, ignore_errors=True)
