"""Define the result of a test run: the outcome of each node id, and the status of the whole run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from pytest_ssr.escaping import escaped_line


class Outcome(StrEnum):
    """The outcome of one test over all of its phases."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"

    @property
    def is_pass(self) -> bool:
        """Whether the outcome counts as passing: passed, or passed although expected to fail."""
        return self in (Outcome.PASSED, Outcome.XPASSED)


class SetAside(StrEnum):
    """Why a test does not count."""

    FAILED = "failed"
    """It fails on the original."""
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    NOT_RUN = "not-run"
    FLICKERS = "flickers"
    """It passes on the original in some runs only: its result depends on the order of tests or on the hash seed."""
    UNSTEADY = "unsteady"
    """It sometimes fails in a separate process: it depends on timing or on other tests."""
    UNKNOWN = "unknown"
    """Another release recorded something else."""

    @property
    def could_notice(self) -> bool:
        """Whether the test may pass elsewhere, so that it might notice a change that the other tests do not."""
        return self not in (SetAside.SKIPPED, SetAside.XFAILED, SetAside.NOT_RUN)

    @property
    def text(self) -> str:
        """The reason for people."""
        return _SET_ASIDE_TEXTS.get(self, str(self))


_SET_ASIDE_TEXTS = {
    SetAside.NOT_RUN: "did not run",
    SetAside.FLICKERS: "flickers with the order of tests or the hash seed",
    SetAside.UNSTEADY: "sometimes fails in a separate process: it depends on timing or on other tests",
}


class RunStatus(StrEnum):
    """How a run of a test suite ended, as observed from outside."""

    COMPLETED = "completed"
    COLLECTION_ERROR = "collection-error"
    NO_TESTS = "no-tests"
    USAGE_ERROR = "usage-error"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    LIMIT_EXCEEDED = "limit-exceeded"
    SILENT = "silent"


class Limit(StrEnum):
    """The limit that ended a command."""

    WALL_TIME = "wall time"
    MEMORY = "memory"
    MACHINE_MEMORY = "machine's memory"
    """The command stayed within its limit, but the kernel killed one of its processes as the machine ran out."""
    PROCESSES = "processes"
    OUTPUT = "output"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one test."""

    outcome: Outcome
    """All phases together: a failing setup or teardown is an error."""
    duration_s: float = 0.0
    """Seconds over all phases."""
    setup_s: float = 0.0
    """Seconds of the setup phase."""
    message: str = field(default="", compare=False)
    """The first line of its failure; empty if it passed, or if it ran in a fork."""


@dataclass(frozen=True)
class SuiteRun:
    """One run of a set of tests."""

    status: RunStatus
    """How the run ended."""
    results: Mapping[str, CaseResult] = field(default_factory=dict)
    """Node id to result, for tests that finished."""
    unfinished: str = ""
    """Node id of the test that was running when the process ended."""
    collected: tuple[str, ...] = ()
    """Node ids in the order of collection."""
    reason: str = ""
    """Why the status is not `completed`: the signal, the limit, the file that failed to import."""
    seconds: float = 0.0
    """Wall time in seconds."""
    exit_code: int | None = None
    """The exit status of the process; negative for a signal; None if it was killed at a limit."""
    sources: tuple[str, ...] = ()
    """Files under the tree that were imported, relative, in sorted order."""
    surface: tuple[str, ...] = ()
    """Files under the tree that pytest loaded as plugins or as modules for tests, relative, in sorted order."""
    foreign: tuple[str, ...] = ()
    """Modules whose source the tree holds and that were imported from elsewhere, as `name (file)`."""
    exercised: frozenset[str] = frozenset()
    """The changed files whose changed source the process provably ran, relative."""
    before_selection: tuple[str, ...] = ()
    """Node ids as collected before a selection of tests, if the selection asked for them."""
    by_position: tuple[str, ...] = ()
    """Functions whose parameter sets have other ids in each process, and are named by position."""
    parametrized: tuple[str, ...] = ()
    """Node ids of all parametrized tests before any selection, if the run only collected the tests."""
    by_collectors: frozenset[str] = frozenset()
    """The collected tests that are neither functions nor doctests, but made by other collectors."""
    doctests: frozenset[str] = frozenset()
    """The collected tests that are doctests."""
    parameters: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Node id to (argument name, index of its parameter set), for parametrized tests."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node id to what the project's own test runner calls a test in its output; empty if pytest runs it."""
    addopts: tuple[str, ...] = ()
    """The project's own pytest options that are kept in runs."""
    modules: tuple[str, ...] = ()
    """Modules imported from outside the tree by the end of collection, in order."""
    taken: int = 0
    """Number of results that were copied from the baseline, for tests that the change cannot reach."""
    limit: Limit | None = None
    """The limit that ended the run."""
    log_parser: str = ""
    """The parser that read the results from what the tests printed; empty if a reporter of ours reported them."""
    output: bytes = field(default=b"", repr=False, compare=False)
    """What pytest wrote, if the run was verbose."""

    @cached_property
    def passing(self) -> frozenset[str]:
        """Ids of the tests that passed."""
        return frozenset(i for i, r in self.results.items() if r.outcome.is_pass)

    @property
    def fault(self) -> str:
        """Why the run proves nothing about its tests; empty if pytest ended normally."""
        if self.status in (RunStatus.COMPLETED, RunStatus.COLLECTION_ERROR, RunStatus.NO_TESTS):
            return ""
        return f"{self.status}: {self.reason}"


def abbreviate(ids: Collection[str], *, most: int = 3, total: int | None = None) -> str:
    """Return the first few ids in sorted order and the number of the others, with unprintable characters escaped.

    total: the number of all ids if `ids` are only the first of them.
    """
    ordered = sorted(ids)
    count = len(ordered) if total is None else total
    more = f" and {count - most} more" if count > most else ""
    return ", ".join(map(escaped_line, ordered[:most])) + more
