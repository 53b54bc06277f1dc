"""Turn the results of a campaign into one JSON object, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.report import rejections
from pytest_ssr.campaign.score import Score
from pytest_ssr.campaign.survivors import Survivor, ranked
from pytest_ssr.project.report_marks import GENERATOR
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.source.equivalence import is_proven


def results_json(
    campaign: Campaign,
    goal: Goal,
    results: Sequence[CandidateResult],
    score: Score,
    *,
    fail_under: float | None,
    seconds: float,
    time_is_up: bool,
    suggestions: Sequence[SuggestedTest] = (),
) -> dict[str, Any]:
    """Return plain data: the run, its artifacts, the survivors that matter most first, the score, and all attempts.

    seconds: wall time of the run. time_is_up: whether the time budget ended it. suggestions: what was found for
    survivors.
    """
    baseline, server = campaign.baseline, campaign.runner.fork_server
    refusals = server.refusals if server is not None else {}
    valid = [a for a in results if a.status is CandidateStatus.VALID]
    return {
        # First, so that snapshots recognise the file; see `project.report_marks`.
        "generator": GENERATOR,
        "wanted": goal.count,
        "valid": [a.artifact_id for a in valid],
        "artifacts": [{"id": a.artifact_id, **_change(a), "fail_to_pass": a.fail_to_pass} for a in valid],
        "survivors": [_survivor(s) for s in ranked(results, campaign.snapshot.read)],
        "suggested_tests": [s.to_json() for s in suggestions],
        "score": score.to_json(fail_under),
        "skipped": campaign.skipped_counts(),
        "seconds": round(seconds, 3),
        "time_is_up": time_is_up,
        "store": str(campaign.store.root),
        "campaign": campaign.key,
        "tree_hash": campaign.snapshot.tree_hash,
        "sandbox": campaign.runner.provider.name,
        "test_runner": campaign.runner.test_runner.name,
        "scope": list(campaign.runner.test_runner.scope),
        "baseline": {
            "collected": len(baseline.collected),
            "stable": len(baseline.stable),
            "set_aside": dict(baseline.set_aside),
            "seconds": baseline.seconds,
            "refused": {mode: refusal.to_json() for mode, refusal in refusals.items()},
        },
        "rejected": dict(rejections(results)),
        "attempts": [a.to_json() for a in results],
    }


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
    equivalence = survivor.equivalence
    return {
        **_change(survivor.result),
        "index": survivor.result.index,
        "equivalence": str(equivalence) if equivalence is not None else None,
        "proven_equivalent": is_proven(equivalence),
        "weight": round(survivor.weight, 4),
    }
