"""Define what an audit finds out about one task: its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.rate_interval import interval
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.suggested_test import NoSuggestion

SCHEMA_VERSION = 1
TESTS, SHARED, SEPARATE = "tests", "shared", "separate"
"""What verifiers are: the tests of a row; one in the agent's container, or in its own."""


class Condition(StrEnum):
    """The surroundings of one repeat of the reference runs."""

    PLAIN = "plain"
    HASH_SEED = "hash-seed"
    """Another seed of Python's hashes."""
    ORDER = "order"
    """The tests in another order."""
    CLOCK = "clock"
    """A date years ahead."""
    TIME_ZONE = "time-zone"
    AGAIN = "again"
    """A second run in the same sandbox, which finds what the first one has left."""


class Cause(StrEnum):
    """Why a test does not give the same outcome each time."""

    FLICKERS = "flickers"
    """It differs between runs in the same surroundings."""
    HASH_SEED = "hash-seed"
    ORDER = "order"
    CLOCK = "clock"
    TIME_ZONE = "time-zone"
    LEFTOVERS = "leftovers"
    """It depends on what an earlier run has left."""
    NETWORK = "network"
    """It does not pass without a network, and looks for one."""


class Unsound(StrEnum):
    """Why a task is not sound."""

    REFERENCE_FAILS = "reference-fails"
    """The reference solution does not resolve it."""
    EMPTY_RESOLVES = "empty-resolves"
    """It is resolved without any work."""
    UNSTEADY = "unsteady"
    """A test that decides does not give the same outcome each time."""


@dataclass(frozen=True, slots=True)
class UnsteadyTest:
    """A test that decides, or should decide, and does not give the same outcome each time."""

    test: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Soundness:
    """Whether the reference solution resolves a task, and nothing at all does not, each time."""

    problems: tuple[Unsound, ...] = ()
    unsteady: tuple[UnsteadyTest, ...] = ()
    """A test that depends on the order alone is named, but does not make the task unsound."""
    conditions: tuple[Condition, ...] = ()
    """The surroundings in which it was tried."""
    set_aside: tuple[str, ...] = ()
    """PASS_TO_PASS tests that do not pass with the reference solution here, and do not decide."""
    is_cut: bool = False
    """Whether the time was over, or a limit ended the runs, before all surroundings were tried."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing makes it unsound."""
        return not self.problems

    @property
    def untried(self) -> tuple[Condition, ...]:
        """The surroundings in which it was not tried: the time was over, or nothing here can vary them."""
        return tuple(condition for condition in Condition if condition not in self.conditions)


class ChangeStatus(StrEnum):
    """What became of a change of the solution."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    """The tests run it, and pass."""
    NOT_REACHED = "not-reached"
    """No test that decides runs it."""
    EQUIVALENT = "equivalent"
    """It is proven, or seems, to do the same as before."""
    UNDECIDED = "undecided"
    """It could not be tried, or not with a clear outcome."""


@dataclass(frozen=True, slots=True)
class SolutionChange:
    """A change of the solution, which is wrong unless it is equivalent, and what the tests say of it."""

    status: ChangeStatus
    operator: str
    path: str
    line: int
    """1-based line in the solved tree."""
    scope: str
    detail: str
    diff: str
    sign: str = ""
    """Why it is equivalent, or probably so."""
    test: str = ""
    """The source of a test that passes on the solution and fails with the change: the proof of a survivor."""
    test_file: str = ""
    """An existing test file of the folder in which that test was verified."""
    shown_by: str = ""
    """What that test shows, as one line."""
    is_own: bool = False
    """Whether it is on a line that the solution adds, or of the solution as a whole."""
    no_proof: NoSuggestion | None = None
    """Why a survivor has no proof, if one was looked for."""

    @property
    def is_proven(self) -> bool:
        """Whether it is a survivor with a proof that it is wrong."""
        return bool(self.test) and self.status in (ChangeStatus.SURVIVED, ChangeStatus.NOT_REACHED)


@dataclass(frozen=True, slots=True)
class Sharpness:
    """The share of changes of the solution that the tests notice."""

    changes: tuple[SolutionChange, ...] = ()
    planned: int = 0
    """How many changes there are; more than were tried if the time was over."""
    problem: Reason | None = None
    """Why none could be tried."""

    def count(self, status: ChangeStatus) -> int:
        """Return how many changes have a status."""
        return sum(change.status is status for change in self.changes)

    @property
    def survivors(self) -> tuple[SolutionChange, ...]:
        """The changes that no test notices, those with a proof first."""
        found = [c for c in self.changes if c.status in (ChangeStatus.SURVIVED, ChangeStatus.NOT_REACHED)]
        return tuple(sorted(found, key=lambda change: not change.is_proven))

    @property
    def is_cut(self) -> bool:
        """Whether the time was over before all changes were tried."""
        is_late = self.problem is not None and self.problem.code is ReasonCode.OUT_OF_TIME
        return is_late or self.planned > len(self.changes)

    @property
    def noticed(self) -> int:
        """How many changes the tests notice."""
        return self.count(ChangeStatus.NOTICED)

    @property
    def counted(self) -> int:
        """How many changes count: all that are noticed or survive; none that is equivalent or undecided."""
        return self.noticed + self.count(ChangeStatus.SURVIVED) + self.count(ChangeStatus.NOT_REACHED)

    @property
    def rate(self) -> float | None:
        """The share that is noticed; None if no change counts."""
        return self.noticed / self.counted if self.counted else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return interval(self.noticed, self.counted)

    @property
    def proven(self) -> int:
        """How many survivors are proven to be wrong."""
        return sum(change.is_proven for change in self.changes)


class TokenKind(StrEnum):
    """What a token in tests is."""

    NAME = "name"
    """An identifier."""
    TEXT = "text"
    """A string, such as a message."""


@dataclass(frozen=True, slots=True)
class UnknownToken:
    """A name or text that tests and the solution share, and that nobody could know."""

    kind: TokenKind
    text: str
    tests: tuple[str, ...]
    """The tests, or the files of tests, that use it."""


@dataclass(frozen=True, slots=True)
class Narrowness:
    """What the tests demand that neither the statement nor the repository says."""

    tokens: tuple[UnknownToken, ...] = ()
    is_known: bool = True
    """Whether it could be found out: the task has a statement, and tests and a solution as text."""


class Leak(StrEnum):
    """Where an agent may find the tests or the solution."""

    TESTS_IN_IMAGE = "tests-in-image"
    SOLUTION_IN_IMAGE = "solution-in-image"
    GIT_HISTORY = "git-history"
    CACHE = "cache"
    INSTALLED_COPY = "installed-copy"


@dataclass(frozen=True, slots=True)
class ForgeryResult:
    """What verifiers say of one forgery, none of which repairs anything."""

    forgery: str
    """The name of the forgery in the kit."""
    own: bool | None
    """Whether the task's own verifier accepts it; None if it gave no grade."""
    ours: bool | None
    """Whether this package's grade accepts it; None if it gave no grade."""


@dataclass(frozen=True, slots=True)
class Sealing:
    """Which forgeries are accepted, and what can be read."""

    forgeries: tuple[ForgeryResult, ...] = ()
    leaks: tuple[Leak, ...] = ()
    verifier: str = ""
    """What the task's own verifier is: `tests` of a row, or one of a task directory, `shared` or `separate`."""
    problem: Reason | None = None
    """Why nothing could be tried."""

    @property
    def accepted(self) -> tuple[str, ...]:
        """The forgeries that the task's own verifier accepts."""
        return tuple(result.forgery for result in self.forgeries if result.own)

    @property
    def tried(self) -> int:
        """How many forgeries the task's own verifier has graded."""
        return sum(result.own is not None for result in self.forgeries)

    @property
    def is_searched(self) -> bool:
        """Whether it is known what leaks: that is looked for first, and on a row only if there is time for it."""
        if self.leaks or self.forgeries:
            return True
        if self.problem is not None:
            return self.problem.code is ReasonCode.OTHER_LANGUAGE
        return self.verifier in (SHARED, SEPARATE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one grade costs."""

    grade_s: float = 0.0
    """Seconds of the reference run of the tests that decide."""
    memory_mib: float | None = None
    """The most memory that this run used; None if it was not measured."""
    tree_mib: float = 0.0
    """The size of the task's files."""
    audit_cpu_s: float = 0.0
    """CPU seconds of the audit; 0 if they are unknown, as in containers."""
    audit_s: float = 0.0
    """Wall seconds of the whole audit."""


@dataclass(frozen=True, slots=True)
class Card:
    """What an audit has found out about one task."""

    task: str
    """The id of the task."""
    repo: str = ""
    family: str = ""
    problem: Reason | None = None
    """Why there is no audit: the row cannot be read, its solution does not resolve it, its image is missing."""
    sound: Soundness | None = None
    sharp: Sharpness | None = None
    narrow: Narrowness | None = None
    sealed: Sealing | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def is_audited(self) -> bool:
        """Whether it is known whether the task is sound."""
        return self.sound is not None

    @property
    def is_sound(self) -> bool:
        """Whether the task was audited, and is sound."""
        return self.sound is not None and self.sound.is_sound

    @property
    def sharpness(self) -> float | None:
        """The share of changes of the solution that the tests notice; None if it is not known."""
        return self.sharp.rate if self.sharp is not None else None

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON, with the figures that follow from it."""
        data = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        data["problem"] = self.problem.to_json() if self.problem is not None else None
        data["is_sound"] = self.is_sound
        data["sharpness"] = self.sharpness
        if self.sharp is not None:
            low, high = self.sharp.interval
            own = {"noticed": self.sharp.noticed, "counted": self.sharp.counted, "interval": [low, high]}
            problem = self.sharp.problem.to_json() if self.sharp.problem is not None else None
            data["sharp"] = {**data["sharp"], **own, "proven": self.sharp.proven, "problem": problem}
        if self.sealed is not None:
            problem = self.sealed.problem.to_json() if self.sealed.problem is not None else None
            data["sealed"] = {**data["sealed"], "accepted": list(self.sealed.accepted), "problem": problem}
        return data

    @classmethod
    def read(cls, data: Mapping[str, Any] | None) -> Card:
        """Return the card that `to_json` wrote; raises StoreError for other data."""
        return decode(cls, data, version=SCHEMA_VERSION)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Card | None:
        """Return the card that `to_json` wrote, or None if it is damaged; the audit is then repeated."""
        try:
            return cls.read(data)
        except StoreError:
            return None
