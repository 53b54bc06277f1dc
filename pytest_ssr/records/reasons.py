"""Define the reasons and flags of grades: codes for programs, with messages for people that no program parses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class Rule(StrEnum):
    """The verdict of a grade that decides rewards, leaderboards and exit codes."""

    STRICT = "strict"
    """`resolved`: the recorded tests pass, and the evidence for that holds."""
    TESTS = "tests"
    """`tests`: the recorded tests pass on the restored test files, as in the paper and in SWE-bench."""

    def verdict(self, *, resolved: bool | None, tests: bool | None) -> bool | None:
        """Return the deciding verdict; None without a grade."""
        return resolved if self is Rule.STRICT else tests


class ReasonCode(StrEnum):
    """The reason for a grade, or for how an attempt ended."""

    RESOLVED = "resolved"
    # The patch was not run.
    NO_PATCH = "no-patch"
    PATCH_UNREADABLE = "patch-unreadable"
    PATCH_DOES_NOT_APPLY = "patch-does-not-apply"
    ADDS_COMPILED_CODE = "adds-compiled-code"
    CHANGES_TESTS = "changes-tests"
    REFUSED = "refused"
    # The tests do not pass.
    TESTS_FAIL = "tests-fail"
    TIMED_OUT = "timed-out"
    MEMORY_EXCEEDED = "memory-exceeded"
    LIMIT_EXCEEDED = "limit-exceeded"
    RUN_FAILED = "run-failed"
    SCRIPT_FAILED = "script-failed"
    # The tests pass, and the evidence does not hold.
    SCRIPT_CONTRADICTS = "script-contradicts"
    TESTS_DIFFER = "collected-tests-differ"
    EXIT_STATUS_CONTRADICTS = "exit-status-contradicts"
    FORGED = "forged"
    NOT_REPAIRED = "not-repaired"
    REGRESSION = "regression"
    # There is no grade.
    SANDBOX_FAILED = "sandbox-failed"
    OUT_OF_MEMORY = "out-of-memory"
    INSTANCE_UNUSABLE = "instance-unusable"
    INVALID_ROW = "invalid-row"
    OTHER_LANGUAGE = "other-language"
    UNSUPPORTED_TASK = "unsupported-task"
    ATTEMPT_ABORTED = "attempt-aborted"
    NOT_GRADED = "not-graded"
    WORKER_LOST = "worker-lost"
    INTERNAL_ERROR = "internal-error"
    # There is nothing to measure.
    NO_CODE_CHANGED = "no-code-changed"
    OUT_OF_TIME = "out-of-time"


_TEXTS: Mapping[ReasonCode, str] = {
    ReasonCode.RESOLVED: "all recorded tests pass",
    ReasonCode.NO_PATCH: "no patch",
    ReasonCode.PATCH_UNREADABLE: "the patch cannot be read",
    ReasonCode.PATCH_DOES_NOT_APPLY: "the patch does not apply",
    ReasonCode.ADDS_COMPILED_CODE: "the patch adds code that cannot be read as source",
    ReasonCode.CHANGES_TESTS: "the patch changes tests in the code",
    ReasonCode.REFUSED: "refused, because the patch changes tests",
    ReasonCode.TESTS_FAIL: "tests do not pass",
    ReasonCode.TIMED_OUT: "the time limit ended a run",
    ReasonCode.MEMORY_EXCEEDED: "the memory limit ended a run",
    ReasonCode.LIMIT_EXCEEDED: "a limit ended a run",
    ReasonCode.RUN_FAILED: "the run of the tests proves nothing",
    ReasonCode.SCRIPT_FAILED: "the artifact's script or parser failed",
    ReasonCode.SCRIPT_CONTRADICTS: "exit status and results of the artifact's script contradict each other",
    ReasonCode.TESTS_DIFFER: "not the tests of the original were collected",
    ReasonCode.EXIT_STATUS_CONTRADICTS: "exit status and results of the tests contradict each other",
    ReasonCode.FORGED: "forged",
    ReasonCode.NOT_REPAIRED: "not repaired",
    ReasonCode.REGRESSION: "tests of other files, which reach what the patch changed, fail",
    ReasonCode.SANDBOX_FAILED: "the sandbox failed",
    ReasonCode.OUT_OF_MEMORY: "the machine ran out of memory",
    ReasonCode.INSTANCE_UNUSABLE: "the instance cannot be used",
    ReasonCode.INVALID_ROW: "the row cannot be read",
    ReasonCode.OTHER_LANGUAGE: "the row is of another language, and nothing here runs its tests",
    ReasonCode.UNSUPPORTED_TASK: "the task directory cannot be used here",
    ReasonCode.ATTEMPT_ABORTED: "the attempt was aborted",
    ReasonCode.NOT_GRADED: "the attempt was cut off before it was graded",
    ReasonCode.WORKER_LOST: "the worker was lost",
    ReasonCode.INTERNAL_ERROR: "an unforeseen error",
    ReasonCode.NO_CODE_CHANGED: "the solution changes no Python code that the tests import",
    ReasonCode.OUT_OF_TIME: "the time for the task was over",
}


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """The reason for a grade."""

    code: ReasonCode
    detail: str = ""
    """Details of this instance: tests, paths, an error. For people only; no decision depends on it."""
    recorded: str = ""
    """The whole sentence, if an earlier release recorded no separate detail."""

    @property
    def text(self) -> str:
        """The reason as one sentence."""
        if self.recorded:
            return self.recorded
        return f"{_TEXTS[self.code]}: {self.detail}" if self.detail else _TEXTS[self.code]

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_json(self) -> dict[str, str]:
        """Return plain data for JSON."""
        data = {"code": str(self.code), "text": self.text}
        return data if self.recorded else {**data, "detail": self.detail}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read plain data back; raises TypeError for other data and for an unknown code.

        Earlier releases recorded no detail: the text is then kept as it is.
        """
        try:
            code, text, detail = ReasonCode(data["code"]), data["text"], data.get("detail", "")
        except (AttributeError, KeyError, ValueError, TypeError):
            raise TypeError("a reason has no known code and text") from None
        if not isinstance(text, str) or not isinstance(detail, str):
            raise TypeError("the text or the detail of a reason is not a string")
        return cls(code, detail) if "detail" in data else cls(code, recorded=text)


class FlagCode(StrEnum):
    """A notable property of a grade that does not decide it."""

    TESTS_RESTORED = "tests-restored"
    """The patch changed files of the test surface; they were graded as in the original."""
    UNCHECKED = "unchecked"
    """The values of some tests were not compared."""
    UNSPECIFIED = "unspecified"
    """Some values of tests differ from the original's with other inputs, in fewer than half of them."""
    UNVARIED = "unvaried"
    """No other input of some FAIL_TO_PASS tests changes a value on the original: they were compared with theirs."""
    UNMOVED = "unmoved"
    """No FAIL_TO_PASS test runs without pytest: code that is right only under pytest would pass."""
    REPLACES = "replaces"
    """It replaces functions of libraries, names that tests import, or built-in types by its own."""
    ONE_SIDED = "one-sided"
    """A condition that it adds was always true, or always false, or a part of its code never ran."""
    LOG_DIFFERS = "log-differs"
    """SWE-bench's rule, applied to the printed log, gives another verdict."""
    TESTS_SET_ASIDE = "tests-set-aside"
    """PASS_TO_PASS tests of a row that do not hold on this machine with its reference solution."""
    LOG_EVIDENCE = "log-evidence"
    """The outcomes were read from what the tests printed, which the patched code can print as well."""
    NO_REFERENCE = "no-reference"
    """The task has no reference solution that would show that its verifier works here."""
    TESTS_SHOWN = "tests-shown"
    """The agent's image holds the tests that decide."""
    PATCH_REWRITTEN = "patch-rewritten"
    """The submission is no strict git diff of the tree; it was applied as SWE-bench's harness applies it."""
    FILES_LEFT_OUT = "files-left-out"
    """Binary files without their content in the submission, and symlinks, were not applied; the rest was."""


UNCERTAIN = frozenset(
    (
        FlagCode.UNCHECKED,
        FlagCode.UNSPECIFIED,
        FlagCode.UNVARIED,
        FlagCode.UNMOVED,
        FlagCode.REPLACES,
        FlagCode.ONE_SIDED,
        FlagCode.LOG_DIFFERS,
        FlagCode.TESTS_SET_ASIDE,
        FlagCode.LOG_EVIDENCE,
        FlagCode.NO_REFERENCE,
        FlagCode.TESTS_SHOWN,
    )
)
"""Flags about the certainty of the grade; the others are about the patch."""

_MOST_SHOWN = 5
_FLAG_TEXTS: Mapping[FlagCode, str] = {
    FlagCode.TESTS_RESTORED: "changed and restored",
    FlagCode.UNCHECKED: "less certain, because no value was compared in",
    FlagCode.UNSPECIFIED: "less certain, because with other inputs some values differ from the original's in",
    FlagCode.UNVARIED: "less certain, because other inputs change no value in",
    FlagCode.UNMOVED: "less certain, because only pytest can run",
    FlagCode.REPLACES: "less certain, because it replaces what tests use:",
    FlagCode.ONE_SIDED: "less certain, because no run shows the other side of:",
    FlagCode.LOG_DIFFERS: "by SWE-bench's rule its log says",
    FlagCode.TESTS_SET_ASIDE: "PASS_TO_PASS tests that do not pass here with the reference solution",
    FlagCode.LOG_EVIDENCE: "less certain, because the outcomes come from a log, read by",
    FlagCode.NO_REFERENCE: "less certain, because the task has no reference solution",
    FlagCode.TESTS_SHOWN: "less certain, because the image shows the tests to the solver",
    FlagCode.PATCH_REWRITTEN: "applied as by SWE-bench's harness",
    FlagCode.FILES_LEFT_OUT: "left out, because they are symlinks or binary files without content",
}


@dataclass(frozen=True, slots=True, order=True)
class Flag:
    """A notable property of a grade."""

    code: FlagCode
    details: tuple[str, ...] = ()
    """Paths, test ids or lines of code, for people."""

    @property
    def text(self) -> str:
        """The flag as one line, with the first details."""
        more = f" and {len(self.details) - _MOST_SHOWN} more" if len(self.details) > _MOST_SHOWN else ""
        shown = ", ".join(self.details[:_MOST_SHOWN]) + more
        return ": ".join(filter(None, (_FLAG_TEXTS[self.code], shown)))

    def __str__(self) -> str:
        """Return the text."""
        return self.text


def flags_to_json(flags: Iterable[Flag]) -> dict[str, Any]:
    """Return flags as two record fields: `flags`, their codes, and `flag_details` by code."""
    flags = list(flags)
    return {
        "flags": [str(f.code) for f in flags],
        "flag_details": {str(f.code): list(f.details) for f in flags if f.details},
    }


def flags_from_json(data: Mapping[str, Any]) -> tuple[Flag, ...]:
    """Read the two fields back; raises KeyError if one is missing, TypeError for other data."""
    codes, details = data["flags"], data["flag_details"]
    if not isinstance(codes, list) or not isinstance(details, dict):
        raise TypeError("flags are not a list of codes with details by code")
    if not all(isinstance(d, list) and all(isinstance(text, str) for text in d) for d in details.values()):
        raise TypeError("the details of a flag are not a list of strings")
    try:
        return tuple(Flag(FlagCode(code), tuple(details.get(code, ()))) for code in codes)
    except ValueError as error:
        raise TypeError(f"an unknown flag: {error}") from None
