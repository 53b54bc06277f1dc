"""The result of all checks on one artifact, as a record that reads back equal from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_ssr.errors import StoreError

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


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run that a check made or shared."""

    kind: str
    """script, parser or suite."""
    state: str
    """The codebase state it ran on, in words."""
    outcome: str
    """How it ended and what it counted."""
    seconds: float = 0.0
    """Wall time; 0 when an earlier check had made it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check, control or repeat found."""

    name: str
    """As node ids show it."""
    passed: bool | None
    """None: not run, because an earlier one failed."""
    reason: str = ""
    """One sentence that names the file or the test."""
    seconds: float = 0.0
    """Wall time of the check with its runs."""
    runs: tuple[RunRecord, ...] = ()
    """The runs it asked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about one artifact."""

    artifact_id: str
    """The content id; empty for an artifact that could not be read."""
    tree_hash: str
    """The snapshot it was judged on."""
    checks: tuple[CheckResult, ...] = ()
    """The seven checks, in order."""
    controls: tuple[CheckResult, ...] = ()
    """Empty patch, exact reverse, weakening alone."""
    repeats: tuple[CheckResult, ...] = ()
    """The original and the buggy state again."""
    fail_to_pass: tuple[str, ...] = ()
    """Ids that the bug breaks, sorted."""
    pass_to_pass: tuple[str, ...] = ()
    """Ids that pass with and without it, sorted."""
    set_aside: Mapping[str, str] = field(default_factory=dict)
    """Id to why it does not count: fails on the original, flickers."""
    files_control: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File (or hunk) of the bug to the failing tests that pass once it is reverted."""
    fault: str = ""
    """Why the artifact could not be judged at all."""
    certified: str = "full"
    """full: every run was one of whole files. selected: in runs of pytest itself, tests that the bug cannot touch
    counted as in the baseline; the artifact's own script ran whole files."""

    original_s: float = 0.0
    """Seconds that the oracle tests take on the original, from which time limits of grades follow; 0: not known."""

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """Checks, controls and repeats, in the order in which they are made."""
        return (*self.checks, *self.controls, *self.repeats)

    @property
    def valid(self) -> bool:
        """True when all checks, controls and repeats were made and passed."""
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

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema_version": SCHEMA_VERSION, "valid": self.valid, **asdict(self)}

    def without_times(self) -> dict[str, Any]:
        """Return plain data that is the same for the same artifact every time: no seconds."""
        data = self.to_json()
        del data["original_s"]
        for result in (*data["checks"], *data["controls"], *data["repeats"]):
            del result["seconds"]
            for run in result["runs"]:
                del run["seconds"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Read plain data back; raises StoreError for another schema version or a missing key."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise StoreError(
                f"a verdict has schema version {data.get('schema_version')}, this release reads {SCHEMA_VERSION}"
            )
        try:
            return cls(
                artifact_id=data["artifact_id"],
                tree_hash=data["tree_hash"],
                checks=tuple(_result(r) for r in data["checks"]),
                controls=tuple(_result(r) for r in data["controls"]),
                repeats=tuple(_result(r) for r in data["repeats"]),
                fail_to_pass=tuple(data["fail_to_pass"]),
                pass_to_pass=tuple(data["pass_to_pass"]),
                set_aside=dict(data["set_aside"]),
                files_control={p: tuple(ids) for p, ids in data["files_control"].items()},
                fault=data["fault"],
                certified=data["certified"],
                original_s=float(data.get("original_s", 0.0)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"a verdict lacks {error}; delete it and validate again") from None


def _result(data: Mapping[str, Any]) -> CheckResult:
    return CheckResult(
        data["name"],
        data["passed"],
        data["reason"],
        data.get("seconds", 0.0),
        tuple(RunRecord(r["kind"], r["state"], r["outcome"], r.get("seconds", 0.0)) for r in data["runs"]),
    )
