"""Build measured durations, and stores that have them, for tests of plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.capacity.durations import Measured, Unit, Work
from harness.records.attempt import Attempt, Status
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.storage.store import Store

_REASON = Reason(ReasonCode.TESTS_FAIL, "as told")


def measured(seconds: Sequence[float], *, counts: int | None = None, **more: float) -> Measured:
    """Return measured attempts; counts: how many of them have a grade, all by default."""
    graded = len(seconds) if counts is None else counts
    units = (Unit(s, n < graded, "resolved" if n < graded else "no-grade") for n, s in enumerate(seconds))
    return Measured(Work.ATTEMPTS, tuple((unit,) for unit in units), **more)  # type: ignore[arg-type]


def add_candidate(store: Store, index: int, seconds: float, status: CandidateStatus = CandidateStatus.VALID) -> None:
    result = CandidateResult(
        index, status, "mutation", "negate", "a.py", 1, "f", "", "", reason=None, seconds=seconds, runs=1
    )
    store.put_record("attempts/campaign", f"{index:05d}", result.to_json())


def add_attempt(
    store: Store, name: str, seconds: float, grading_s: float, resolved: bool | None, *, task: str, ending: str
) -> None:
    rollout = Attempt(
        task,
        "m",
        _REASON,
        id=name,
        seed=1,
        resolved=resolved,
        tests=resolved,
        exit_reason="submitted",
        ending=ending,
        seconds=seconds,
        grading_s=grading_s,
    )
    store.put_record(f"rollouts/{name}", "rollout", rollout.to_json())
    header = json.dumps({"event": "rollout", "task_id": task})
    store.put_file(f"rollouts/{name}", "trajectory.jsonl", f"{header}\n".encode())


def add_prediction(store: Store, instance: str, model: str, grading_s: float, status: Status) -> None:
    verdict = None if status is Status.INFRA else status is Status.RESOLVED
    result = Attempt(
        instance,
        model,
        _REASON,
        repo="a/b",
        resolved=verdict,
        tests=verdict,
        patch_sha256="" if status is Status.EMPTY else "0" * 64,
        grading_s=grading_s,
    )
    store.put_record("outcomes", f"{instance}-{model}", result.to_json())


def add_tree(store: Store, name: str, content: bytes) -> None:
    folder = store.trees / name / "tree"
    folder.mkdir(parents=True)
    (folder / "a.py").write_bytes(content)
    (folder.parent / "manifest.json").write_bytes(b"{}")


def bug_store(root: Path, *, valid: int = 8, rejected: int = 2) -> Store:
    """Return a store in which each valid bug took 4 seconds, and each rejected one took 1."""
    store = Store(root)
    for n in range(valid + rejected):
        is_valid = n < valid
        status = CandidateStatus.VALID if is_valid else CandidateStatus.SURVIVED
        add_candidate(store, n, 4.0 if is_valid else 1.0, status)
    return store
