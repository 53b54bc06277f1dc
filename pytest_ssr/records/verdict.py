"""Define the record of all checks on one artifact; it reads back equal from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_ssr.records.check_reasons import UNSTATED, CheckReason, explained, reason_from_json, reason_to_json
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.test_run import SetAside

SCHEMA_VERSION = 1
CHECK_NAMES = (
    "test-files",
    "test-parser",
    "test-script",
    "bug-scope",
    "bug-validity",
    "test-weakening",
    "inverse-mutation",
)
CONTROL_NAMES = ("empty-patch", "reverse-patch", "weakening-only")
REPEAT_NAMES = ("original-repeats", "buggy-repeats")
_EARLIER_SET_ASIDE: Mapping[str, str] = {
    "fails on the original": SetAside.FAILED,
    "flickers on the original": SetAside.FLICKERS,
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run that a check made or shared."""

    kind: str
    """script, parser or suite."""
    state: str
    """Name of the codebase state it ran on."""
    outcome: str
    """How it ended, with its counts."""
    seconds: float = 0.0
    """Wall time in seconds; 0 if an earlier check made the run."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check, control or repeat."""

    name: str
    """Its name, as in node ids."""
    passed: bool | None
    """None if it was not run because an earlier one failed."""
    reason: CheckReason = UNSTATED
    """What it found, with the file or the test."""
    seconds: float = 0.0
    """Wall time of the check with its runs, in seconds."""
    runs: tuple[RunRecord, ...] = ()
    """The runs it used."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of all checks on one artifact."""

    artifact_id: str
    """The content id; empty if the artifact could not be read."""
    tree_hash: str
    """Hash of the snapshot it was validated on."""
    checks: tuple[CheckResult, ...] = ()
    """The seven checks, in order."""
    controls: tuple[CheckResult, ...] = ()
    """Empty patch, exact reverse, weakening alone."""
    repeats: tuple[CheckResult, ...] = ()
    """The original and the buggy state again."""
    fail_to_pass: tuple[str, ...] = ()
    """Ids that the bug breaks, sorted."""
    pass_to_pass: tuple[str, ...] = ()
    """Ids that pass with and without the bug, sorted."""
    set_aside: Mapping[str, SetAside] = field(default_factory=dict)
    """Id to the reason why it does not count: it fails on the original, or is flaky."""
    files_control: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File (or hunk) of the bug to the failing tests that pass once it is reverted."""
    fault: CheckReason | None = None
    """Why the artifact could not be validated at all."""
    certified: str = "full"
    """full: every run ran whole files. selected: in runs of pytest itself, tests that the bug cannot reach counted as
    in the baseline; the artifact's own script ran whole files. script: the artifact's own script and parser alone say
    which tests pass."""

    surface: tuple[str, ...] = ()
    """Files that pytest loads for the tests, besides those whose names show it; grades restore them."""

    original_s: float = 0.0
    """Seconds that the oracle tests take on the original, the basis of time limits in grading; 0 if not known."""

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """Checks, controls and repeats, in the order in which they run."""
        return (*self.checks, *self.controls, *self.repeats)

    @property
    def valid(self) -> bool:
        """Whether all checks, controls and repeats ran and passed."""
        names = {r.name for r in self.results if r.passed}
        return (
            not self.fault
            and names.issuperset((*CHECK_NAMES, *CONTROL_NAMES, *REPEAT_NAMES))
            and all(r.passed for r in self.results)
        )

    @property
    def rejection(self) -> CheckResult | None:
        """The first result that failed, or None."""
        return next((r for r in self.results if r.passed is False), None)

    @property
    def reason(self) -> CheckReason | None:
        """Why the artifact is not valid; None if no result failed."""
        if self.fault is not None:
            return self.fault
        return self.rejection.reason if self.rejection is not None else None

    @property
    def rejected_by(self) -> str:
        """The name of the first result that failed; empty if none did."""
        return self.rejection.name if self.rejection is not None else ""

    @property
    def explanation(self) -> str:
        """The name of the first result that failed, and the reason, as one line; empty if none failed."""
        return explained(self.rejected_by, self.reason)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        fault = reason_to_json(self.fault)
        return {
            "schema_version": SCHEMA_VERSION,
            "valid": self.valid,
            **asdict(self),
            "checks": [_result_to_json(r) for r in self.checks],
            "controls": [_result_to_json(r) for r in self.controls],
            "repeats": [_result_to_json(r) for r in self.repeats],
            "set_aside": {i: str(reason) for i, reason in self.set_aside.items()},
            "fault": fault["reason"],
            "fault_code": fault["code"],
            "fault_details": fault["details"],
        }

    def without_times(self) -> dict[str, Any]:
        """Return plain data without times, which is equal for equal artifacts."""
        data = self.to_json()
        del data["original_s"]
        for result in (*data["checks"], *data["controls"], *data["repeats"]):
            del result["seconds"]
            for run in result["runs"]:
                del run["seconds"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Read plain data back; raises StoreError for another schema version or missing data."""
        own: dict[str, Any] = {}
        try:
            for name in data.keys() & {"checks", "controls", "repeats"}:
                own[name] = [_with_reason(result) for result in data[name]]
            if "set_aside" in data:
                own["set_aside"] = {test: _set_aside(reason) for test, reason in data["set_aside"].items()}
            if "fault" in data:
                own["fault"] = reason_from_json(
                    {
                        "reason": data["fault"],
                        "code": data.get("fault_code"),
                        "details": data.get("fault_details"),
                    }
                )
        except (AttributeError, KeyError, TypeError):
            # The data is damaged; `decode` names the field.
            own = {}
        return decode(cls, {"original_s": 0.0, "surface": (), **data, **own}, version=SCHEMA_VERSION, is_complete=True)


def _result_to_json(result: CheckResult) -> dict[str, Any]:
    return {**asdict(result), **reason_to_json(result.reason)}


def _set_aside(recorded: str) -> SetAside:
    """Return the code that a verdict holds, or the code for one of the two sentences of earlier releases."""
    recorded = _EARLIER_SET_ASIDE.get(recorded, recorded)
    return SetAside(recorded) if recorded in set(SetAside) else SetAside.UNKNOWN


def _with_reason(result: Mapping[str, Any]) -> dict[str, Any]:
    return {**result, "reason": reason_from_json(result) or UNSTATED}
