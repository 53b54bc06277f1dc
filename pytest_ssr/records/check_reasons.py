"""Define what a check, or an earlier step of a trial, found: a code and details for programs, rendered as a sentence.

The texts of all codes are in this module. No decision depends on a text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from pytest_ssr.records.test_run import abbreviate

Detail = str | int | float | tuple[str, ...]

_MOST_ITEMS = 50
"""Items of a list that a reason keeps: a parser can report 200,000 tests."""
_COUNT = "_count"
"""The suffix of the detail with the length of a list that was cut."""


class CheckCode(StrEnum):
    """What a check found, or why there is no artifact to check."""

    # The check passed.
    FILES_LISTED = "files-listed"
    OUTPUT_PARSED = "output-parsed"
    ORIGINAL_PASSES = "original-passes"
    CODE_CHANGED = "code-changed"
    TESTS_BREAK = "tests-break"
    FAILURES_HIDDEN = "failures-hidden"
    PARTS_MATTER = "parts-matter"
    GRADED_AS_EXPECTED = "graded-as-expected"
    SAME_OUTCOMES = "same-outcomes"
    # The check did not run.
    NOT_RUN = "not-run"
    # A run of the artifact's script, or of pytest, proves nothing.
    SCRIPT_LIMIT = "script-limit"
    SCRIPT_SIGNAL = "script-signal"
    PARSER_LIMIT = "parser-limit"
    PARSER_FAILED = "parser-failed"
    OUTPUT_NOT_JSON = "output-not-json"
    OUTPUT_NOT_OBJECT = "output-not-object"
    UNKNOWN_STATUS = "unknown-status"
    EXIT_STATUS_CONTRADICTS = "exit-status-contradicts"
    SUITE_FAILED = "suite-failed"
    RUNS_DISAGREE = "runs-disagree"
    # test-files
    NO_FILE_LISTED = "no-file-listed"
    FILE_MISSING = "file-missing"
    FILE_NOT_LISTED = "file-not-listed"
    NO_TEST_IN_FILE = "no-test-in-file"
    # test-parser
    TOO_MANY_IDS = "too-many-ids"
    NO_TEST_PARSED = "no-test-parsed"
    PARSER_NOT_STABLE = "parser-not-stable"
    TEST_INVENTED = "test-invented"
    TEST_INVENTED_FROM_HALF = "test-invented-from-half"
    # test-script
    TEST_NOT_COLLECTED = "test-not-collected"
    TOO_FEW_PASS = "too-few-pass"
    SCRIPT_TOO_SLOW = "script-too-slow"
    # bug-scope
    TOO_FEW_FILES = "too-few-files"
    MODULE_SHADOWED = "module-shadowed"
    TEST_SURFACE_CHANGED = "test-surface-changed"
    NOT_CODE = "not-code"
    NOT_PARSABLE = "not-parsable"
    NOTHING_CHANGED = "nothing-changed"
    EXCLUDED_CHANGED = "excluded-changed"
    FORBIDDEN_USE = "forbidden-use"
    UNDEFINED_NAME = "undefined-name"
    # bug-validity
    TOO_FEW_BREAK = "too-few-break"
    IDS_CHANGE = "ids-change"
    TOO_MANY_BREAK = "too-many-break"
    FAILURES_UNREPORTED = "failures-unreported"
    FAILURES_PRETENDED = "failures-pretended"
    # test-weakening
    WEAKENING_EMPTY = "weakening-empty"
    NO_TEST_PASSES = "no-test-passes"
    NOTHING_HIDDEN = "nothing-hidden"
    WEAKENED_FAILS = "weakened-fails"
    WEAKENED_EXIT_STATUS = "weakened-exit-status"
    WEAKENED_NOT_COLLECTED = "weakened-not-collected"
    WEAKENED_NEEDS_BUG = "weakened-needs-bug"
    # inverse-mutation, and combined bugs in the screening
    NOTHING_REVIVED = "nothing-revived"
    REVERT_PROVES_NOTHING = "revert-proves-nothing"
    # The controls and the repeats
    NOT_RESOLVED = "not-resolved"
    RESOLVED_WITHOUT_REPAIR = "resolved-without-repair"
    OUTCOMES_DIFFER = "outcomes-differ"
    REPEAT_FAILED = "repeat-failed"
    # Any step
    DOES_NOT_APPLY = "does-not-apply"
    # Before the checks
    UNREADABLE = "unreadable"
    NOTHING_SUBMITTED = "nothing-submitted"
    NO_RECORDING = "no-recording"
    BAD_RECORDING = "bad-recording"
    NOT_EXERCISED = "not-exercised"
    REACHED_BY_SET_ASIDE = "reached-by-set-aside"
    NOT_NOTICED = "not-noticed"
    NOT_REACHED = "not-reached"
    NOT_WEAKENABLE = "not-weakenable"
    # There is only a text.
    OTHER = "other"
    """A check of another plugin gave a text."""
    UNKNOWN = "unknown"
    """Another release recorded the text."""


_TEXTS: Mapping[CheckCode, str] = {
    CheckCode.FILES_LISTED: "{count} test files exist and cover the weakening",
    CheckCode.OUTPUT_PARSED: "{count} tests read from the output, twice the same",
    CheckCode.ORIGINAL_PASSES: "{count} tests pass on the original, {excluded} set aside",
    CheckCode.CODE_CHANGED: "{count} code files changed",
    CheckCode.TESTS_BREAK: "{count} of {total} passing tests break: {tests}",
    CheckCode.FAILURES_HIDDEN: "{hidden} failures hidden, {removed} of them by removal; {passing} tests pass",
    CheckCode.PARTS_MATTER: "each of {count} {unit}s, reverted alone, revives a failing test",
    CheckCode.GRADED_AS_EXPECTED: "{cause}",
    CheckCode.SAME_OUTCOMES: "{count} tests give the same outcomes in 2 more runs",
    CheckCode.NOT_RUN: "not run: an earlier step failed",
    CheckCode.SCRIPT_LIMIT: "the {limit} limit ended the script after {seconds:.0f} s",
    CheckCode.SCRIPT_SIGNAL: "signal {signal} ended the script",
    CheckCode.PARSER_LIMIT: "the {limit} limit ended the parser",
    CheckCode.PARSER_FAILED: "the parser ended with status {status}: {error}",
    CheckCode.OUTPUT_NOT_JSON: "the parser's output is not one JSON object: {error}",
    CheckCode.OUTPUT_NOT_OBJECT: "the parser's output is a {type}, not an object",
    CheckCode.UNKNOWN_STATUS: "{test} has the status {status}; only passed and failed are known",
    CheckCode.EXIT_STATUS_CONTRADICTS: "the script ended with status 0 although {test} failed",
    CheckCode.SUITE_FAILED: "{runner} itself: {status}: {cause}",
    CheckCode.RUNS_DISAGREE: "script and {runner} disagree about {tests}",
    CheckCode.NO_FILE_LISTED: "test_files.txt lists no file",
    CheckCode.FILE_MISSING: "{files} does not exist in the original",
    CheckCode.FILE_NOT_LISTED: "test_weaken.diff touches {files}, which test_files.txt does not list",
    CheckCode.NO_TEST_IN_FILE: "{file} is listed as a test file, but {runner} collects no test in it",
    CheckCode.TOO_MANY_IDS: "the parser returns {count} ids, the longest of {longest} characters",
    CheckCode.NO_TEST_PARSED: "the parser finds no test in the script's output",
    CheckCode.PARSER_NOT_STABLE: "the parser returns different bytes for the same output on its second run",
    CheckCode.TEST_INVENTED: "the parser reports {test!r}, which the output does not hold",
    CheckCode.TEST_INVENTED_FROM_HALF: (
        "from half of the output the parser reports {test!r}, which that half does not hold"
    ),
    CheckCode.TEST_NOT_COLLECTED: "{tests}: no such test is collected by {runner} in the listed files",
    CheckCode.TOO_FEW_PASS: "{count} tests pass, {required} are required; {excluded} set aside",
    CheckCode.SCRIPT_TOO_SLOW: "the script takes {seconds:.0f} s, at most {most:g} s are allowed",
    CheckCode.TOO_FEW_FILES: "bug_inject.diff changes {count} files, {required} are required",
    CheckCode.MODULE_SHADOWED: "bug_inject.diff adds {file}, which takes the place of a module that tests import",
    CheckCode.TEST_SURFACE_CHANGED: "bug_inject.diff touches {file}, which belongs to the test surface",
    CheckCode.NOT_CODE: "bug_inject.diff touches {file}, which is not a code file",
    CheckCode.NOT_PARSABLE: "with the bug, {file} cannot be parsed, or has more than 500,000 bytes",
    CheckCode.NOTHING_CHANGED: "bug_inject.diff changes nothing",
    CheckCode.EXCLUDED_CHANGED: (
        "bug_inject.diff changes what a comment `# ssr: skip` excludes, from line {line} of {file}"
    ),
    CheckCode.FORBIDDEN_USE: "with the bug {use}: it could come and go, or fail tests without breaking code",
    CheckCode.UNDEFINED_NAME: "with the bug, {name}, a name that nothing binds",
    CheckCode.TOO_FEW_BREAK: "{count} tests go from pass to fail, {required} are required",
    CheckCode.IDS_CHANGE: "with the bug, {runner} collects {tests} under ids that depend on the code's text",
    CheckCode.TOO_MANY_BREAK: "{share:.0%} of the passing tests break, at most {most:.0%} may",
    CheckCode.FAILURES_UNREPORTED: "the parser leaves out failing tests: {tests}",
    CheckCode.FAILURES_PRETENDED: (
        "{count} of {total} failing tests pass without {runner} and without their expected values: {tests}"
    ),
    CheckCode.WEAKENING_EMPTY: "test_weaken.diff is empty",
    CheckCode.NO_TEST_PASSES: "no test passes",
    CheckCode.NOTHING_HIDDEN: "{tests} still fails after the weakening",
    CheckCode.WEAKENED_FAILS: "the weakened suite does not pass: {tests} fails",
    CheckCode.WEAKENED_EXIT_STATUS: "the weakened suite does not pass: the script ended with status {status}",
    CheckCode.WEAKENED_NOT_COLLECTED: "the weakened suite cannot be collected: {cause}",
    CheckCode.WEAKENED_NEEDS_BUG: "{tests} of the weakened suite pass with the bug and fail on the original",
    CheckCode.NOTHING_REVIVED: "reverting {part} alone makes no failing test pass",
    CheckCode.REVERT_PROVES_NOTHING: "the run with {part} alone reverted proves nothing: {cause}",
    CheckCode.NOT_RESOLVED: "the exact reverse of the bug does not resolve it: {cause}",
    CheckCode.RESOLVED_WITHOUT_REPAIR: "resolved without a repair: {cause}",
    CheckCode.OUTCOMES_DIFFER: "non-deterministic: {run}, run again, differs in {tests}",
    CheckCode.REPEAT_FAILED: "non-deterministic: {run}, run again: {cause}",
    CheckCode.DOES_NOT_APPLY: "{error}",
    CheckCode.UNREADABLE: "{error}",
    CheckCode.NOTHING_SUBMITTED: "nothing was submitted: {exit_reason} {cause}",
    CheckCode.NO_RECORDING: "{path} contains no attempt {attempt} at this tree",
    CheckCode.BAD_RECORDING: "{path}: {error}",
    CheckCode.REACHED_BY_SET_ASIDE: "no other test fails, but {tests} run the changed code and were set aside",
    CheckCode.NOT_EXERCISED: "nothing proves that the tests run the changed {files}",
    CheckCode.NOT_NOTICED: "no test notices it",
    CheckCode.NOT_REACHED: "no test reaches it",
    CheckCode.NOT_WEAKENABLE: "{error}",
    CheckCode.OTHER: "{text}",
    CheckCode.UNKNOWN: "{text}",
}

_DEFAULT_RUNNER = "pytest"
"""The test runner of a reason whose details name none."""
_STATES = {"original": "on the original", "paraphrased": "on the paraphrased original"}


@dataclass(frozen=True, slots=True)
class CheckReason:
    """The reason for the result of a check, a control, a repeat or an earlier step."""

    code: CheckCode
    details: Mapping[str, Detail] = field(default_factory=dict)
    """Files, tests and counts by name. `state`, if there, is the codebase state on which it was found."""

    @classmethod
    def of(cls, code: CheckCode, **details: str | int | float | Collection[str]) -> Self:
        """Return a reason whose lists are sorted and cut to the first 50 items; `NAME_count` is then their length."""
        kept: dict[str, Detail] = {}
        for name, value in details.items():
            if isinstance(value, str | int | float):
                kept[name] = value
                continue
            kept[name] = tuple(sorted(value)[:_MOST_ITEMS])
            if len(value) > _MOST_ITEMS:
                kept[name + _COUNT] = len(value)
        return cls(code, kept)

    def on(self, state: str) -> CheckReason:
        """Return the reason with the codebase state on which it was found."""
        return CheckReason(self.code, {**self.details, "state": state})

    @property
    def text(self) -> str:
        """The reason as one sentence."""
        details = {"runner": _DEFAULT_RUNNER, **self.details}
        shown = {name: self._shown(name, value) for name, value in details.items()}
        text = _TEXTS[self.code].format(**shown).strip()
        state = self.details.get("state")
        return text if state is None else f"{_STATES.get(str(state), f'on the {state} state')}: {text}"

    def _shown(self, name: str, value: Detail) -> str | int | float:
        if not isinstance(value, tuple):
            return value
        count = self.details.get(name + _COUNT)
        return abbreviate(value, total=count if isinstance(count, int) else None)

    def __str__(self) -> str:
        """Return the text."""
        return self.text


UNSTATED = CheckReason(CheckCode.UNKNOWN, {"text": ""})


def explained(check: str, reason: CheckReason | None) -> str:
    """Return the name of a check, if there is one, and the reason, if there is one, as one line."""
    return ": ".join(filter(None, (check, str(reason or ""))))


def reason_to_json(reason: CheckReason | None) -> dict[str, Any]:
    """Return the three fields of a record: `reason`, the sentence, and `code` and `details`; empty for None."""
    if reason is None:
        return {"reason": "", "code": "", "details": {}}
    return {"reason": reason.text, "code": str(reason.code), "details": dict(reason.details)}


def reason_from_json(data: Mapping[str, Any]) -> CheckReason | None:
    """Read the three fields back; None if they are empty.

    A record of another release has no code, or a code or details unknown here: it gets the code `unknown` and keeps
    its text. Raises KeyError if `reason` is missing, and TypeError if it is not a string.
    """
    text = data["reason"]
    if not isinstance(text, str):
        raise TypeError("the reason is not a string")
    if not text and not data.get("code"):
        return None
    unknown = CheckReason(CheckCode.UNKNOWN, {"text": text})
    try:
        details = {str(name): _detail(value) for name, value in data["details"].items()}
        reason = CheckReason(CheckCode(data["code"]), details)
        return reason if reason.text else unknown
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return unknown


def _detail(value: object) -> Detail:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, str | int | float):
        return value
    raise TypeError("a detail of a reason is neither a string, a number nor a list of strings")
