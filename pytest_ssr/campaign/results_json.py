"""Turn the results of a campaign into one JSON object, for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ssr.campaign.acceptances import NO_ACCEPTANCES, Acceptances
from pytest_ssr.campaign.ending import Cut, Ending
from pytest_ssr.campaign.facts import CampaignFacts
from pytest_ssr.campaign.report import rejections
from pytest_ssr.campaign.score import Score
from pytest_ssr.campaign.survivors import Survivor, ranked
from pytest_ssr.project.report_marks import GENERATOR
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.shard import Shard
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.source.equivalence import is_proven
from pytest_ssr.storage.synced_files import write_synced

_COSTS = ("seconds", "runs", "forks")
"""What an attempt took."""


def results_json(
    campaign: CampaignFacts,
    goal: Goal,
    results: Sequence[CandidateResult],
    score: Score,
    *,
    read: Callable[[str], bytes],
    ending: Ending,
    fail_under: float | None,
    seconds: float,
    store: Path,
    shard: Shard | None = None,
    suggestions: Sequence[SuggestedTest] = (),
    acceptances: Acceptances = NO_ACCEPTANCES,
) -> dict[str, Any]:
    """Return plain data: the run, its artifacts, the survivors that matter most first, the score, and all attempts.

    All of it is the same text for each run with the same results, except `run`: it says where the run was, and what it
    took, which depends on the machine and on the changes that the same process has tried before.

    read: returns the original content of a file. seconds: wall time of the run. suggestions: what was found for
    survivors.
    """
    valid = [a for a in results if a.status is CandidateStatus.VALID]
    return {
        # First, so that snapshots recognise the file; see `project.report_marks`.
        "generator": GENERATOR,
        "wanted": goal.count,
        "valid": [a.artifact_id for a in valid],
        "artifacts": [{"id": a.artifact_id, **_change(a), "fail_to_pass": a.fail_to_pass} for a in valid],
        "survivors": [_survivor(s) for s in ranked(results, read, acceptances)],
        "suggested_tests": [s.to_json() for s in suggestions],
        "score": score.to_json(fail_under),
        "skipped": _sorted(campaign.skipped),
        "time_is_up": ending.cut is Cut.TIME,
        "ending": ending.to_json(),
        "campaign": campaign.key,
        "tree_hash": campaign.tree_hash,
        "sandbox": campaign.sandbox,
        "test_runner": campaign.test_runner,
        "scope": list(campaign.scope),
        "baseline": {
            "collected": campaign.collected,
            "stable": campaign.stable,
            "set_aside": _sorted(campaign.set_aside),
            "refused": {mode: _sorted(campaign.refused[mode]) for mode in sorted(campaign.refused)},
        },
        "rejected": dict(rejections(results)),
        "attempts": [_outcome(a) for a in results],
        "run": {
            "seconds": round(seconds, 3),
            "baseline_seconds": campaign.baseline_seconds,
            "attempts": {str(a.index): {name: getattr(a, name) for name in _COSTS} for a in results},
            "store": str(store),
            "shard": str(shard) if shard is not None else None,
        },
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object into a file, replacing an existing one; raises OSError."""
    data = json.dumps(content, indent=1).encode() + b"\n"
    write_synced(path, data, staging=path.with_name(f".{path.name}.{os.getpid()}.part"))


def without_results(goal: Goal, **why: str | bool) -> dict[str, Any]:
    """Return plain data for a run that has tried nothing. why: the reason, under its key."""
    return {"generator": GENERATOR, "wanted": goal.count, "valid": [], **why}


def _outcome(result: CandidateResult) -> dict[str, Any]:
    data = {name: value for name, value in result.to_json().items() if name not in _COSTS}
    return {**data, "details": _sorted(data["details"])}


def _sorted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as records keep it, so that those from a store and those of the run are the same text."""
    return {key: data[key] for key in sorted(data)}


def _change(result: CandidateResult) -> dict[str, Any]:
    return {
        "path": result.path,
        "line": result.line,
        "scope": result.scope,
        "strategy": result.strategy,
        "operator": result.operator,
        "detail": result.detail,
        "diff": result.diff,
    }


def _survivor(survivor: Survivor) -> dict[str, Any]:
    equivalence, accepted = survivor.equivalence, survivor.acceptance
    return {
        "id": survivor.result.identity,
        **_change(survivor.result),
        "index": survivor.result.index,
        "equivalence": str(equivalence) if equivalence is not None else None,
        "proven_equivalent": is_proven(equivalence),
        "weight": round(survivor.weight, 4),
        "accepted": {"kind": str(accepted.kind), "reason": accepted.reason} if accepted is not None else None,
    }
