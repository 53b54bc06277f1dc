"""The folder of a training: what it depends on, its data, metrics, checkpoints, model and report.

A checkpoint counts once it is marked complete, after all its files are on the disk. Everything else is written
atomically, or is a file of lines that is cut back to the checkpoint from which a run continues. So a run that is
killed at any point continues from its last checkpoint and leaves the same files, except for measured times.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.storage.atomic_write import UNFINISHED, write_text
from pytest_ssr.errors import SettingsError

_COMPLETE = "complete"
_PREFIX = "checkpoint-"
_LENGTH = frozenset({"optimization.epochs", "optimization.updates"})
_SETTINGS = "settings.json"
_FIRST = frozenset({_SETTINGS, "data.jsonl", "checkpoints", "counts.jsonl", "rollouts.jsonl", "trajectories"})
"""What a folder contains before the first update."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one training."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The folder of the trained model or adapter, and its tokenizer."""
        return self.path / "model"

    @property
    def merged(self) -> Path:
        """The folder of the model with the trained adapter merged into its weights."""
        return self.path / "merged"

    @property
    def metrics(self) -> Path:
        """The file of metrics: a JSON object for each update that is logged."""
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """The file of sampled rollouts."""
        return self.path / "rollouts.jsonl"

    @property
    def counts(self) -> Path:
        """The file of counts of rollouts: a JSON object for each update."""
        return self.path / "counts.jsonl"

    @property
    def has_begun(self) -> bool:
        """Whether an update was logged or a checkpoint written: from then on, settings and data are fixed."""
        return self.metrics.exists() or any(self.checkpoints.glob(f"{_PREFIX}*"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder, which is created if it is missing; raises SettingsError if another training holds it.

        Of the processes of one training, the first holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if os.environ.get("RANK", "0") != "0":
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise SettingsError(
                f"another process trains in --out {self.path}; wait for its end", option="out"
            ) from None
        except OSError:
            pass  # The file system has no locks.
        try:
            yield
        finally:
            os.close(descriptor)

    def require_same(self, identity: Mapping[str, Any]) -> None:
        """Raise SettingsError if the folder has a training with other settings, or other files."""
        if not self.has_begun:
            names = {p.name for p in self.path.iterdir()} if self.path.is_dir() else set()
            names = {name for name in names if not name.startswith(UNFINISHED)}
            # The settings are written first, so without them nothing here is of a training.
            if names - _FIRST or (names and _SETTINGS not in names):
                raise SettingsError(f"--out {self.path} has other files; choose an empty folder", option="out")
            return
        file = self.path / _SETTINGS
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise SettingsError(f"{file} is damaged; choose another folder with --out", option="out") from None
        different = _differences(known, identity)
        if different and _LENGTH.issuperset(different):
            raise SettingsError(
                f"--out {self.path} has a training of another length ({', '.join(different)}), and its learning rates "
                f"are for that one. Once it has finished, train on in another folder with --model {self.model}",
                option="out",
            )
        if different:
            raise SettingsError(
                f"--out {self.path} has a training with other settings ({', '.join(different)}); choose another folder",
                option="out",
            )

    def report(self) -> dict[str, Any] | None:
        """Return the report of a finished training; None if it has not finished."""
        try:
            report: dict[str, Any] = json.loads((self.path / "report.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return report

    def finish(self, report: Mapping[str, Any]) -> None:
        """Write the report, which ends the training."""
        write_text(self.path / "report.json", json.dumps(report, indent=1))

    def begin(
        self, identity: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], left_out: list[dict[str, Any]]
    ) -> None:
        """Keep the settings and the rows: a run that continues has the same data though the store has grown."""
        write_text(self.path / _SETTINGS, json.dumps(identity, indent=1, sort_keys=True))
        lines = [json.dumps({"left_out": left_out}), *map(json.dumps, rows)]
        write_text(self.path / "data.jsonl", "".join(f"{line}\n" for line in lines))

    def data(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        """Return the kept rows, and what was left out when they were read; None if the training has not begun."""
        if not self.has_begun:
            return None
        try:
            with (self.path / "data.jsonl").open(encoding="utf-8") as file:
                head, *rows = map(json.loads, file)
        except (FileNotFoundError, ValueError):
            raise SettingsError(f"{self.path / 'data.jsonl'} is damaged; choose another folder", option="out") from None
        return rows, head["left_out"]

    def last_checkpoint(self) -> Path | None:
        """Return the newest complete checkpoint, and remove incomplete ones; None before the first."""
        complete = []
        for folder in self.checkpoints.glob(f"{_PREFIX}*"):
            if (folder / _COMPLETE).is_file():
                complete.append(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        return max(complete, key=_step, default=None)

    def mark_complete(self, step: int, keep: int) -> None:
        """Mark a checkpoint whose files are written as complete, and remove all but the newest ones."""
        folder = self.checkpoints / f"{_PREFIX}{step}"
        for path in folder.rglob("*"):
            if path.is_file():
                _sync(path)
        write_text(folder / _COMPLETE, "")
        _sync(folder)
        complete = [f for f in self.checkpoints.glob(f"{_PREFIX}*") if (f / _COMPLETE).is_file()]
        for old in sorted(complete, key=_step)[:-keep]:
            (old / _COMPLETE).unlink()
            shutil.rmtree(old, ignore_errors=True)

    def drop_checkpoint(self, step: int) -> None:
        """Remove a checkpoint that could not be written."""
        shutil.rmtree(self.checkpoints / f"{_PREFIX}{step}", ignore_errors=True)

    def cut_back(self, step: int) -> None:
        """Remove the lines of updates after a step from the metrics, the counts and the sampled rollouts."""
        for file in (self.metrics, self.counts, self.rollouts):
            if file.exists():
                kept = [json.dumps(line) for line in read_lines(file) if line.get("step", 0) <= step]
                write_text(file, "".join(f"{line}\n" for line in kept))

    def append(self, file: Path, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines to a file of the folder."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(text)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file; one that was cut off by a kill is left out."""
    with file.open(encoding="utf-8", errors="replace") as opened:
        return [json.loads(line) for line in opened if line.endswith("\n")]


def step_of(checkpoint: Path | None) -> int:
    """Return the number of updates before a checkpoint."""
    return 0 if checkpoint is None else _step(checkpoint)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix(_PREFIX))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _differences(known: Mapping[str, Any], wanted: Mapping[str, Any], above: str = "") -> list[str]:
    """Return the dotted names of values that differ."""
    names: list[str] = []
    for name in sorted({*known, *wanted}):
        a, b = known.get(name), wanted.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            names += _differences(a, b, f"{above}{name}.")
        elif a != b:
            names.append(f"{above}{name}")
    return names
