"""Define the blind tests of one artifact, with copies that have other inputs, and run them on a state."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from pytest_ssr.execution.copy_bound import CopyBound
from pytest_ssr.execution.plain_run import AGAIN, Checkpoint, PlainCase, Surroundings
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.moved_tests import move_tests
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import Limit, RunStatus, SuiteRun

COPY_S = 2.0
"""CPU seconds after which a test with other inputs is ended."""
_BETWEEN_S = 0.03
"""CPU seconds for which tests are repeated without pytest: code may be right for a number of calls."""
_FILE_MODE = 0o100644
_HEAD = FileEntry(b"ref: refs/heads/main\n", _FILE_MODE)
"""Of a repository, which is missing in other runs."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A test file with other inputs."""

    path: str
    text: bytes
    targets: tuple[str, ...]
    """The ids of its tests."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The modules and data files that it reads in place of the tests' own, by path."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "path": self.path,
            "text": _to_text(self.text),
            "targets": self.targets,
            "files": {path: _to_text(data) for path, data in self.files.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Copy:
        """Read plain data back; raises KeyError, TypeError, ValueError or AttributeError if it is damaged."""
        files = {path: _to_bytes(text) for path, text in data["files"].items()}
        return cls(data["path"], _to_bytes(data["text"]), tuple(data["targets"]), files)


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
    tests: int = 0
    """The number of tests of a whole run, which share the space for values."""

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
        targets = [] if only_copies else list(self.files)
        for copy in self.copies:
            targets += copy.targets if self.selects_tests else (copy.path,)
        changed = state.replace(self._all_entries())
        bound = CopyBound(self.token, copy_s, self.tests)
        return runner.values(changed, targets, hash_seed=hash_seed, like_s=self.like_s, bound=bound)

    def _all_entries(self) -> dict[str, FileEntry]:
        """Return the rewritten files, and those of the copies."""
        texts = {path: text for copy in self.copies for path, text in {copy.path: copy.text, **copy.files}.items()}
        return {**self.entries, **{path: FileEntry(text, _FILE_MODE) for path, text in texts.items()}}

    def ran(self, run: SuiteRun) -> Collection[str]:
        """Return the ids of the tests that ran."""
        return run.results.keys()

    def without_function(self, node_id: str) -> Self:
        """Return a suite in which no copy has the function of a copy's test; without that copy if it is run whole."""
        if not self.selects_tests:
            return self.without([node_id])
        function = self.source_case(node_id.partition("[")[0])
        return self.without([t for c in self.copies for t in c.targets if self.source_case(t) == function])

    def without(self, targets: Collection[str]) -> Self:
        """Return a suite without some tests of copies; without those copies if they are run whole."""
        if not self.selects_tests:
            paths = {t.partition("::")[0] for t in targets}
            return replace(self, copies=tuple(c for c in self.copies if c.path not in paths))
        remaining = [replace(c, targets=tuple(t for t in c.targets if t not in targets)) for c in self.copies]
        return replace(self, copies=tuple(c for c in remaining if c.targets))

    def holds(self, node_id: str) -> bool:
        """Return whether a test is one of the files, or one that a copy is run for."""
        path, function = node_id.partition("::")[0], node_id.partition("[")[0]
        targets = (copy.targets for copy in self.copies if copy.path == path)
        return not self.is_copy(node_id) or any(not self.selects_tests or function in each for each in targets)

    def is_copy(self, node_id: str) -> bool:
        """Return whether a test belongs to a copy."""
        return self.token in node_id.partition("::")[0]

    def source_case(self, node_id: str) -> str:
        """Return the id of a copy's test in the file that the copy was made of."""
        path, _, rest = node_id.partition("::")
        mark = f"_{self.token}"
        return f"{path.rpartition(mark)[0]}.py::{rest.replace(mark, '')}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "files": self.files,
            "entries": {path: [_to_text(entry.data), entry.mode] for path, entry in self.entries.items()},
            "token": self.token,
            "like_s": self.like_s,
            "copies": [copy.to_json() for copy in self.copies],
            "selects_tests": self.selects_tests,
            "tests": self.tests,
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
            tests=int(data["tests"]),
        )


@dataclass(frozen=True, slots=True)
class PlainSuite(BlindSuite):
    """Blind tests that run without pytest in charge, in other surroundings than the tests have otherwise.

    Code that is right only under pytest, under the names of the tests, in their folder, or for a while is wrong there.
    """

    cases: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The ids of the tests and of their copies, with the row that the value of each parameter comes from."""
    repeated: frozenset[str] = frozenset()
    """The ids of the tests that run at first and at last, and many times between."""
    folder: str = ""
    """The name of the folder to which the tests are moved; empty if they must stay where they are."""
    ahead_s: int = 0
    """Seconds by which the clocks are ahead."""

    def only(self, functions: Collection[str]) -> PlainSuite:
        """Return a suite of some test functions alone, by their ids in the files, and of their copies."""
        unwanted = [t for copy in self.copies for t in copy.targets if self.source_case(t) not in functions]
        cases = {c: r for c, r in self.cases.items() if self._source(c).partition("[")[0] in functions}
        return replace(self.without(unwanted), cases=cases, repeated=self.repeated & cases.keys())

    def _source(self, case: str) -> str:
        return self.source_case(case) if self.is_copy(case) else case

    def run(
        self,
        runner: Runner,
        state: CodebaseState,
        *,
        hash_seed: int = 0,
        only_copies: bool = False,
        copy_s: float = COPY_S,
        goes_on: Callable[[list[str]], bool] | None = None,
    ) -> tuple[list[str] | None, SuiteRun]:
        """Run the tests on a state as `BlindSuite` does.

        goes_on: called with the lines written so far when each repeated test has run once; False ends the run.
        """
        changed = state.replace({**self._all_entries(), ".git/HEAD": _HEAD})
        wanted = [c for c in self.cases if self.holds(c) and not (only_copies and not self.is_copy(c))]
        files = {case.partition("::")[0] for case in wanted}
        changed, paths = move_tests(changed, files, self.folder) if self.folder else (changed, {})
        cases = [
            PlainCase(c, self.cases[c], paths.get(c.partition("::")[0], ""), rounds=2 if c in self.repeated else 1)
            for c in wanted
        ]
        between_s = _BETWEEN_S if self.repeated and not only_copies else 0.0
        surroundings = Surroundings(hash_seed, False, self.ahead_s, secrets.randbelow(1000), between_s)
        bound = CopyBound(self.token, copy_s, self.tests)
        # Repeated tests come first.
        checkpoint = Checkpoint(sum(c in self.repeated for c in wanted), goes_on) if goes_on is not None else None
        started = time.monotonic()
        lines, limit = runner.plain_values(
            changed, cases, surroundings, like_s=self.like_s, bound=bound, checkpoint=checkpoint
        )
        status = {None: RunStatus.COMPLETED, Limit.WALL_TIME: RunStatus.TIMED_OUT}.get(limit, RunStatus.LIMIT_EXCEEDED)
        return lines, SuiteRun(status, seconds=time.monotonic() - started, limit=limit)

    def ran(self, run: SuiteRun) -> Collection[str]:
        """Return the ids of the tests that ran: all, since one that ends the process does not reach its end."""
        return [case + ending for case in self.cases for ending in ("", AGAIN)]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        cases = {case: dict(rows) for case, rows in self.cases.items()}
        more = {"cases": cases, "repeated": sorted(self.repeated), "folder": self.folder, "ahead_s": self.ahead_s}
        return {**BlindSuite.to_json(self), **more}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlainSuite:
        """Read plain data back; raises KeyError, TypeError, ValueError or AttributeError if it is damaged."""
        suite = BlindSuite.from_json(data)
        own = {f.name: getattr(suite, f.name) for f in fields(suite)}
        repeated, ahead_s = frozenset(data["repeated"]), int(data["ahead_s"])
        return cls(**own, cases=dict(data["cases"]), repeated=repeated, folder=data["folder"], ahead_s=ahead_s)


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
