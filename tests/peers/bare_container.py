"""A bare process in a folder, in the place of a Docker container: what swebench and SWE-smith ask of one.

Both make a container of an image that holds the project in /testbed, copy a patch and a script into it, and run them.
Here /testbed is a folder, commands have its path in the place of the container's, and nothing is isolated: only what
these packages do between container and verdict is theirs.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import posixpath
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TESTBED = "/testbed"
_PLACES = {TESTBED: "testbed", "/tmp/patch.diff": "patch.diff", "/eval.sh": "eval.sh"}


@dataclass(slots=True)
class BareContainer:
    """A folder that holds `testbed`, and the processes that run there."""

    folder: Path
    python: Path
    """The interpreter whose environment runs the tests."""
    name: str = "bare"
    id: str = "bare"
    _commands: dict[str, list[str]] = field(default_factory=dict)
    _groups: list[int] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def of(cls, repository: Path, commit: str, folder: Path, python: Path) -> BareContainer:
        """Check a commit of a repository out, as an image would hold it."""
        git = ["git", "-c", "advice.detachedHead=false"]
        testbed = folder / "testbed"
        subprocess.run([*git, "clone", "-q", "--shared", "-n", str(repository), str(testbed)], check=True)
        done = subprocess.run([*git, "-C", str(testbed), "checkout", "-q", commit], capture_output=True, text=True)
        if done.returncode:
            raise FileNotFoundError(f"{commit}: {done.stderr.strip()}")
        return cls(folder, python)

    def start(self) -> None:
        """Nothing: what is not run costs nothing."""

    def _here(self, text: str) -> str:
        for there, name in _PLACES.items():
            text = text.replace(there, str(self.folder / name))
        return text

    def _environment(self) -> Mapping[str, str]:
        testbed = self.folder / "testbed"
        kept = {k: v for k, v in os.environ.items() if k in ("LANG", "LC_ALL", "TMPDIR", "TERM")}
        return {
            **kept,
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONPATH": f"{testbed / 'src'}:{testbed}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _started(self, command: str | list[str], workdir: str) -> subprocess.Popen[bytes]:
        argv = ["bash", "-c", command] if isinstance(command, str) else command
        process = subprocess.Popen(
            [self._here(w) for w in argv],
            cwd=self._here(workdir),
            env=dict(self._environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        return process

    def exec_run(self, cmd: str | list[str], workdir: str = TESTBED, **_: Any) -> SimpleNamespace:
        """Run a command to its end."""
        process = self._started(cmd, workdir)
        output, _none = process.communicate()
        return SimpleNamespace(exit_code=process.returncode, output=output)

    def put_archive(self, path: str, data: bytes) -> None:
        """Take files; a script has the paths of here."""
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                member_file = archive.extractfile(member)
                assert member_file is not None
                target = Path(self._here(posixpath.join(path, member.name)))
                text = member_file.read()
                target.write_bytes(self._here(text.decode()).encode() if target.suffix == ".sh" else text)

    @property
    def client(self) -> SimpleNamespace:
        """What is asked of a container's client."""
        return SimpleNamespace(api=self)

    def exec_create(self, _container: str, cmd: str) -> dict[str, str]:
        """Prepare a command that is run with a time limit."""
        name = str(next(self._numbers))
        self._commands[name] = [cmd]
        return {"Id": name}

    def exec_start(self, name: str, *, stream: bool) -> Iterator[bytes]:
        """Run it, and yield what it prints."""
        process = self._started(self._commands[name][0], TESTBED)
        self._commands[name].append(str(process.pid))
        assert stream
        assert process.stdout is not None
        with process.stdout as output:
            yield from iter(lambda: output.read1(65536), b"")  # type: ignore[attr-defined]
        process.wait()

    def exec_inspect(self, name: str) -> dict[str, int]:
        """Return its process."""
        return {"Pid": int(self._commands[name][1])}

    def remove(self, **_: Any) -> None:
        """End all processes, and leave nothing."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
