"""Read and write the bug artifact of the SSR paper (arXiv 2512.18552, section 2.3): five files in a directory.

The content of an artifact is untrusted: reading it checks names, sizes and encoding, follows no symlinks and runs
nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import Patch

SCRIPT, TEST_FILES, PARSER = "test_script.sh", "test_files.txt", "test_parser.py"
BUG, WEAKEN, INFO = "bug_inject.diff", "test_weaken.diff", "artifact.json"
FIVE_FILES = (SCRIPT, TEST_FILES, PARSER, BUG, WEAKEN)
OTHER_NAMES = {"parse_test_output.py": PARSER, "bug_patch.diff": BUG, "test_patch.diff": WEAKEN}
PROMPT_NAMES = {ours: theirs for theirs, ours in OTHER_NAMES.items()}
MAX_FILE_BYTES = 16 * 1024**2
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class BugArtifact:
    """The five files of an artifact, and its metadata."""

    script: bytes
    """`test_script.sh`."""
    test_files: tuple[str, ...]
    """Oracle test files, relative paths."""
    parser: bytes
    """`test_parser.py`."""
    bug: Patch
    """`bug_inject.diff`."""
    weaken: Patch
    """`test_weaken.diff`."""
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """`artifact.json`, or empty; claims, not evidence."""

    def content_id(self, tree_hash: str) -> str:
        """Return the id: a hash of the five files and the tree, so that the same bug has the same id everywhere."""
        digest = hashlib.sha256(tree_hash.encode())
        for name, data in self.contents().items():
            digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()[:20]

    def contents(self) -> dict[str, bytes]:
        """Return the five files by their names."""
        return {
            SCRIPT: self.script,
            TEST_FILES: "".join(f"{p}\n" for p in self.test_files).encode("utf-8", "surrogateescape"),
            PARSER: self.parser,
            BUG: self.bug.data,
            WEAKEN: self.weaken.data,
        }

    def sizes(self) -> dict[str, int]:
        """Return the numbers of files, hunks and lines that the bug changes, and of oracle test files."""
        return {
            "files": len(self.bug.files),
            "hunks": sum(len(f.hunks) for f in self.bug.files),
            "lines_added": sum(f.added for f in self.bug.files),
            "lines_removed": sum(f.removed for f in self.bug.files),
            "test_files": len(self.test_files),
        }


def is_artifact_directory(path: Path) -> bool:
    """Return whether a directory looks like an artifact: it has a bug diff and a script or parser, in either naming."""
    try:
        names = {OTHER_NAMES.get(n, n) for n in os.listdir(path)}
    except OSError:
        return False
    return BUG in names and bool(names & {SCRIPT, PARSER})


def find_artifacts(path: Path) -> list[Path]:
    """Return the artifact directories at or below a path, sorted; raises ArtifactError if there are none."""
    if not path.exists():
        raise ArtifactError(f"{path} does not exist; name an artifact's directory or one that holds some")
    if path.is_file():
        path = path.parent
    if is_artifact_directory(path):
        return [path]
    directories = sorted(Path(d) for d, _, _ in os.walk(path) if is_artifact_directory(Path(d)))
    if not directories:
        raise ArtifactError(f"{path} holds no artifact: no directory in it has {BUG} and {SCRIPT}")
    return directories


def read_artifact(directory: Path) -> BugArtifact:
    """Read an artifact in either naming scheme; raises ArtifactError with the invalid file and the reason."""
    try:
        entries = sorted(os.listdir(directory))
    except OSError as error:
        raise ArtifactError(f"{directory}: cannot be listed: {error.strerror}") from None
    if not any(OTHER_NAMES.get(e, e) in FIVE_FILES for e in entries):
        raise ArtifactError(f"{directory} is not an artifact: it contains none of {', '.join(FIVE_FILES)}")
    data: dict[str, bytes] = {}
    for entry in entries:
        name = OTHER_NAMES.get(entry, entry)
        if name not in (*FIVE_FILES, INFO):
            raise ArtifactError(f"{directory}: {entry!r} does not belong to an artifact; remove it")
        if name in data:
            raise ArtifactError(f"{directory}: {name} exists under both of its names; keep one")
        data[name] = read_regular_file(directory / entry)
    missing = [n for n in FIVE_FILES if n not in data]
    if missing:
        raise ArtifactError(f"{directory}: {', '.join(missing)} missing; an artifact needs {', '.join(FIVE_FILES)}")
    for name in (SCRIPT, PARSER, TEST_FILES):
        _require_text(directory / name, data[name])
    return BugArtifact(
        script=data[SCRIPT],
        test_files=_paths(directory, data[TEST_FILES].decode()),
        parser=data[PARSER],
        bug=_diff(directory / BUG, data[BUG]),
        weaken=_diff(directory / WEAKEN, data[WEAKEN]),
        info=_info(directory / INFO, data.get(INFO)),
    )


def write_artifact(directory: Path, artifact: BugArtifact, *, prompt_names: bool = False) -> None:
    """Write the five files, and `artifact.json` if there is one, into an existing empty directory.

    prompt_names: use the names of the paper's prompts (`bug_patch.diff`) instead of those of its main text.
    """
    contents = artifact.contents()
    if artifact.info:
        text = json.dumps(artifact.info, indent=2, sort_keys=True, ensure_ascii=False)
        contents[INFO] = text.encode("utf-8", "surrogateescape") + b"\n"
    for name, data in contents.items():
        target = directory / (PROMPT_NAMES.get(name, name) if prompt_names else name)
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        target.chmod(0o755 if name == SCRIPT else 0o644)


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file; raises ArtifactError for a link, a pipe, or one that is too large."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ArtifactError(f"{path} is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ArtifactError(f"{path} is a symbolic link; replace it by the file") from None
        raise ArtifactError(f"{path} is not a readable regular file: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ArtifactError(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return data


def _require_text(path: Path, data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise ArtifactError(f"{path} holds a NUL character")


def _paths(directory: Path, text: str) -> tuple[str, ...]:
    paths: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        path = line.strip()
        if not path:
            continue
        parts = PurePosixPath(path).parts
        if path.startswith("/") or ".." in parts or ".git" in parts or str(PurePosixPath(path)) != path:
            raise ArtifactError(f"{directory / TEST_FILES}: line {number}: {path!r} is not a plain relative path")
        if path in paths:
            raise ArtifactError(f"{directory / TEST_FILES}: line {number}: {path!r} is listed twice")
        paths.append(path)
    return tuple(paths)


def _diff(path: Path, data: bytes) -> Patch:
    try:
        return Patch.parse(data)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def _info(path: Path, data: bytes | None) -> Mapping[str, Any]:
    if data is None:
        return {}
    try:
        info = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not JSON: {error}"[:300]) from None
    if not isinstance(info, dict) or info.get("schema_version") != SCHEMA_VERSION:
        version = info.get("schema_version") if isinstance(info, dict) else type(info).__name__
        raise ArtifactError(f"{path} has schema version {version!r}; this release reads {SCHEMA_VERSION}")
    return info
