"""Define the blind tests of one artifact, with copies that have other inputs, and run them on a state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.execution.copy_bound import CopyBound
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

COPY_S = 2.0
"""CPU seconds after which a test with other inputs is ended."""
_FILE_MODE = 0o100644


@dataclass(frozen=True, slots=True)
class Copy:
    """A test file with other inputs."""

    path: str
    text: bytes
    unchanged: frozenset[int]
    """The numbers of the assertions that still have the tests' own inputs."""
    targets: tuple[str, ...]
    """The ids of its tests."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The modules and data files that it reads in place of the tests' own, by path."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "path": self.path,
            "text": _to_text(self.text),
            "unchanged": sorted(self.unchanged),
            "targets": self.targets,
            "files": {path: _to_text(data) for path, data in self.files.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Copy:
        """Read plain data back; raises KeyError, TypeError, ValueError or AttributeError if it is damaged."""
        files = {path: _to_bytes(text) for path, text in data["files"].items()}
        return cls(data["path"], _to_bytes(data["text"]), frozenset(data["unchanged"]), tuple(data["targets"]), files)


@dataclass(frozen=True, slots=True)
class BlindSuite:
    """Blind test files and the copies of them, ready to run."""

    files: tuple[str, ...]
    """The test files that pytest is given."""
    entries: Mapping[str, FileEntry]
    """The rewritten files by path, with the test modules that they import."""
    token: str
    """A random part of the names of all copies."""
    like_s: float
    """Seconds of a run on the original, from which the time limit follows."""
    copies: tuple[Copy, ...] = ()
    selects_tests: bool = True
    """Whether the tests of copies are selected by their ids; False: each copy is run whole."""

    def run(
        self,
        runner: Runner,
        state: CodebaseState,
        *,
        hash_seed: int = 0,
        only_copies: bool = False,
        copy_s: float = COPY_S,
    ) -> tuple[list[str] | None, SuiteRun]:
        """Run the tests on a state; return the lines that they write, None if there are too many. Raises SandboxError.

        only_copies: leave the tests with their own inputs out. copy_s: CPU seconds after which a test with other inputs
        is ended.
        """
        entries: dict[str, FileEntry | None] = {**self.entries}
        targets = [] if only_copies else list(self.files)
        for copy in self.copies:
            texts = {copy.path: copy.text, **copy.files}
            entries |= {path: FileEntry(text, _FILE_MODE) for path, text in texts.items()}
            targets += copy.targets if self.selects_tests else (copy.path,)
        changed = state.replace(entries)
        bound = CopyBound(self.token, copy_s)
        return runner.values(changed, targets, hash_seed=hash_seed, like_s=self.like_s, bound=bound)

    def without_function(self, node_id: str) -> BlindSuite:
        """Return a suite in which no copy has the function of a copy's test; without that copy if it is run whole."""
        if not self.selects_tests:
            return self.without([node_id])
        function = self.source_case(node_id.partition("[")[0])
        return self.without([t for c in self.copies for t in c.targets if self.source_case(t) == function])

    def without(self, targets: Collection[str]) -> BlindSuite:
        """Return a suite without some tests of copies; without those copies if they are run whole."""
        if not self.selects_tests:
            paths = {t.partition("::")[0] for t in targets}
            return replace(self, copies=tuple(c for c in self.copies if c.path not in paths))
        remaining = [replace(c, targets=tuple(t for t in c.targets if t not in targets)) for c in self.copies]
        return replace(self, copies=tuple(c for c in remaining if c.targets))

    def is_copy(self, node_id: str) -> bool:
        """Return whether a test belongs to a copy."""
        return self.token in node_id.partition("::")[0]

    def source_file(self, path: str) -> str:
        """Return the file that a copy was made of."""
        posix = PurePosixPath(path)
        return str(posix.with_name(posix.stem.rpartition(f"_{self.token}")[0] + ".py"))

    def source_case(self, node_id: str) -> str:
        """Return the id of a copy's test in the file that the copy was made of."""
        path, _, rest = node_id.partition("::")
        return f"{self.source_file(path)}::{rest}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "files": self.files,
            "entries": {path: [_to_text(entry.data), entry.mode] for path, entry in self.entries.items()},
            "token": self.token,
            "like_s": self.like_s,
            "copies": [copy.to_json() for copy in self.copies],
            "selects_tests": self.selects_tests,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlindSuite:
        """Read plain data back; raises KeyError, TypeError, ValueError or AttributeError if it is damaged."""
        return cls(
            files=tuple(data["files"]),
            entries={path: FileEntry(_to_bytes(text), mode) for path, (text, mode) in data["entries"].items()},
            token=data["token"],
            like_s=float(data["like_s"]),
            copies=tuple(map(Copy.from_json, data["copies"])),
            selects_tests=data["selects_tests"],
        )


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
