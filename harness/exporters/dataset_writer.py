"""Write the files of an export into a staging folder, and move them to the destination when they are complete.

A full disk or a kill leaves nothing under the final name; the next export removes what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from harness.exporters.protocol import CONTAINERS, FOLDERS, TARS, Row
from harness.exporters.skipped import damaged, require_plain
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.processes import is_running
from pytest_ssr.records.decoding import json_bytes

CARD = "README.md"
MARK = "<!-- exported by ssr -->"
"""The line of a card that marks a folder as an export, which may be overwritten."""
_EXTRAS = {"fsspec": "export", "zstandard": "export", "pyarrow": "parquet"}


JSON_LINES = ("jsonl", "jsonl.zst")
"""The kinds of files that `JsonlSink` writes."""


class Sink(Protocol):
    """A writer of rows."""

    def write(self, row: Row) -> None:
        """Add a row; raises SkippedError for one that cannot be written."""

    def close(self) -> None:
        """Write what is buffered and close the file."""

    def abandon(self) -> None:
        """Close the file without completing it."""


def json_line(row: Row) -> bytes:
    """Return a row as a line of JSON in UTF-8; raises SkippedError for one that JSON does not have."""
    try:
        line = json_bytes(row)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(f"it is not valid JSON: {error}") from None
    if b"null" in line:
        # NaN and infinity become null.
        require_plain(row, "the row")
    return line + b"\n"


class JsonlSink:
    """Write rows as lines of JSON, in UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, row: Row) -> None:
        """Add a row."""
        self._file.write(json_line(row))

    def write_lines(self, lines: bytes) -> None:
        """Add rows that `json_line` made."""
        self._file.write(lines)

    def close(self) -> None:
        """Write what is buffered and close the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with contextlib.suppress(OSError):
            self._file.close()


class TarSink:
    """Write the `files` of rows, which are pairs of a path and a FileEntry, as tar members without times or owners."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - see close

    def write(self, row: Row) -> None:
        """Add the files of a task."""
        for path, entry in row["files"]:
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(entry.data), entry.mode & 0o777
            self._tar.addfile(member, io.BytesIO(entry.data))

    def close(self) -> None:
        """Write the end of the archive."""
        self._tar.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with contextlib.suppress(OSError):
            self._file.close()


class FolderSink:
    """Write the `files` of rows into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, row: Row) -> None:
        """Write the files of a task."""
        for path, entry in row["files"]:
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
            target.chmod(entry.mode & 0o777)

    def close(self) -> None:
        """Do nothing: the files are complete."""

    def abandon(self) -> None:
        """Do nothing: the files of a staging folder are removed with it."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of an export: one file, or a folder with a card and a file for each part."""

    out: str
    """A path, or a URL that fsspec supports."""
    container: str
    is_file: bool

    @classmethod
    def parse(cls, out: str, container: str, *, allowed: Sequence[str] = CONTAINERS) -> Destination:
        """Return the destination that the options describe.

        container: the kind of a folder's files; if empty, that of the name, else the first allowed. Raises
        SettingsError for options that contradict each other, MissingExtraError if a package is not installed.
        """
        if not out.strip("/"):
            raise SettingsError(f"--out {out!r} is not a path; name a folder or a file")
        by_name = next((c for c in sorted((*CONTAINERS, *TARS), key=len, reverse=True) if out.endswith(f".{c}")), "")
        chosen = container or by_name or allowed[0]
        if by_name and chosen != by_name:
            raise SettingsError(f"--out {out} and --as {chosen} contradict each other")
        if chosen not in allowed:
            raise SettingsError(f"this format is written as {', '.join(allowed)}, not as {chosen}", option="as")
        needed = {"zstandard": chosen.endswith(".zst"), "pyarrow": chosen == "parquet", "fsspec": "://" in out}
        for package, is_needed in needed.items():
            if is_needed and importlib.util.find_spec(package) is None:
                raise MissingExtraError(package, _EXTRAS[package])
        return cls(out, chosen, bool(by_name))

    @property
    def is_remote(self) -> bool:
        """Whether the destination is a URL."""
        return "://" in self.out

    @property
    def card(self) -> str:
        """The file name of the card."""
        return f"{Path(self.out).name}.md" if self.is_file else CARD

    def name_of(self, part: str) -> str:
        """Return the name of a part's file, relative to the export, or of the folder of its tasks."""
        if self.container == FOLDERS:
            return part
        return Path(self.out).name if self.is_file else f"data/{part}.{self.container}"

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary folder to write into, on the disk of the destination; it is removed afterwards.

        Raises StoreWriteError if the destination cannot be written, SettingsError if something else is there.
        """
        target = Path(self.out)
        with self.reporting():
            if self.is_remote:
                folder = Path(tempfile.mkdtemp(prefix="ssr-export-"))
            else:
                self._require_free(target)
                target.parent.mkdir(parents=True, exist_ok=True)
                _sweep(target)
                folder = target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}"
                folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def require_apart(self, sources: Iterable[Path]) -> None:
        """Raise SettingsError if the destination overlaps a source: sources are only read."""
        target: Path | None = Path(self.out)
        if self.is_remote:
            target = importlib.import_module("harness.exporters.remote").local_path(self.out)
        if target is None:
            return
        targets = [p.resolve() for p in ((target, target.parent / self.card) if self.is_file else (target,))]
        for source in sources:
            source_path = source.resolve()
            if any(
                source_path.is_relative_to(target_path) or target_path.is_relative_to(source_path)
                for target_path in targets
            ):
                raise SettingsError(f"--out {self.out} and the source {source} overlap; choose another destination")

    def _require_free(self, target: Path) -> None:
        if self.is_file and target.is_dir():
            raise SettingsError(f"--out {target} is a folder, but its name is that of a file")
        if self.is_file:
            card = target.parent / self.card
            if (target.exists() or card.exists()) and not _is_ours(card):
                raise SettingsError(f"--out {target} exists and is not an export; choose another path, or remove it")
        if not self.is_file and target.exists():
            card = target / CARD
            if not target.is_dir():
                raise SettingsError(f"--out {target} is a file; name a folder, or a file with a known suffix")
            if any(target.iterdir()) and not _is_ours(card):
                raise SettingsError(f"--out {target} exists and is not an export; choose another path, or remove it")

    def sink(self, path: Path, columns: Mapping[str, str]) -> Sink:
        """Return a sink that writes rows to a new file. columns: the kind of each column, by name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.container == FOLDERS:
            return FolderSink(path)
        if self.container == "parquet":
            parquet: Any = importlib.import_module("harness.exporters.parquet")
            sink: Sink = parquet.ParquetSink(path, columns)
            return sink
        file: Any = path.open("xb")
        if self.container.endswith(".zst"):
            file = importlib.import_module("harness.exporters.zstd").ZstdFile(file)
        return TarSink(file) if self.container in TARS else JsonlSink(file)

    def publish(self, folder: Path) -> None:
        """Move the files from the staging folder to the destination: rows first, the card last."""
        names = sorted((str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()), key=self._order)
        with self.reporting():
            if self.is_remote:
                base = self.out.rpartition("/")[0] if self.is_file else self.out.rstrip("/")
                remote = importlib.import_module("harness.exporters.remote")
                remote.require_free(f"{base}/{self.card}", MARK, [f"{base}/{n}" for n in names] if self.is_file else [])
                remote.upload([(folder / name, f"{base}/{name}") for name in names])
                if not self.is_file:
                    remote.keep_only(f"{base}/data", {Path(name).name for name in names})
                return
            for name in names:
                _sync(folder / name)
            target = Path(self.out)
            if self.is_file:
                for name in names:
                    os.replace(folder / name, target.parent / name)
            else:
                _swap(folder, target)
            _sync(target.parent)

    def _order(self, name: str) -> tuple[bool, str]:
        return (name == self.card, name)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Raise OSErrors as StoreWriteErrors with advice."""
        try:
            yield
        except OSError as error:
            reason = os_error_advice(error, option="--out")
            raise StoreWriteError(f"cannot write {self.out}: {reason} (nothing was written under that name)") from None


def _is_ours(card: Path) -> bool:
    return card.is_file() and MARK in card.read_text("utf-8", "replace")


def _swap(folder: Path, target: Path) -> None:
    """Replace a folder with another; the old one is kept under another name until the new one is in place."""
    aside = folder.with_name(f"{folder.name}-old")
    if target.exists():
        target.rename(aside)
    try:
        folder.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    """Remove a folder, or a link to one but not its target."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(target: Path) -> None:
    """Remove the staging folders of killed exports, and restore an old export that one of them had set aside."""
    for path in sorted(target.parent.iterdir()):
        match = re.fullmatch(rf"\.{re.escape(target.name)}\.(\d+)-[0-9a-f]{{8}}(-old)?", path.name)
        if match is None or is_running(int(match[1])):
            continue
        if path.name.endswith("-old") and not target.exists():
            path.rename(target)
        else:
            _remove(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
