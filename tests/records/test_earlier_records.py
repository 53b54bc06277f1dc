"""Records that a release without codes wrote are still read; their reasons keep the text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.attempt import Attempt, Status
from harness.records.episode import Episode, Refusal, RefusalCode
from pytest_ssr.errors import StoreError
from pytest_ssr.records.candidate_result import CandidateResult
from pytest_ssr.records.check_reasons import CheckCode, CheckReason, reason_from_json
from pytest_ssr.records.fallback import Fallback, FallbackCode
from pytest_ssr.records.reasons import ReasonCode, Rule
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.records.verdict import Verdict


def earlier(name: str) -> Any:
    return json.loads((Path(__file__).with_name("earlier") / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ["verdict_valid", "verdict_rejected"])
def test_a_verdict_keeps_its_texts(name: str) -> None:
    data = earlier(name)
    verdict = Verdict.from_json(data)
    assert verdict.valid is data["valid"]
    assert verdict.fault is None
    assert verdict.set_aside == {"tests/test_adding.py::test_never": SetAside.FAILED}
    recorded = [r for kind in ("checks", "controls", "repeats") for r in data[kind]]
    assert [r.reason.text for r in verdict.results] == [r["reason"] for r in recorded]
    assert {r.reason.code for r in verdict.results} == {CheckCode.UNKNOWN}
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_a_rejection_keeps_its_text() -> None:
    verdict = Verdict.from_json(earlier("verdict_rejected"))
    assert verdict.explanation == "test-weakening: test_weaken.diff is empty"


def test_a_verdict_of_an_artifact_that_cannot_be_read_keeps_its_text() -> None:
    verdict = Verdict.from_json({**earlier("verdict_rejected"), "checks": [], "fault": "it is not an artifact"})
    assert verdict.reason == CheckReason(CheckCode.UNKNOWN, {"text": "it is not an artifact"})


def test_a_candidate_result_keeps_its_text() -> None:
    data = earlier("candidate_result")
    result = CandidateResult.from_json(data)
    assert result is not None
    assert result.reason is None
    rejected = CandidateResult.from_json({**data, "status": "rejected", "check": "bug-scope", "reason": "no code"})
    assert rejected is not None
    assert rejected.explanation == "bug-scope: no code"
    assert CandidateResult.from_json(json.loads(json.dumps(rejected.to_json()))) == rejected


def test_the_result_of_an_evaluation_is_an_attempt() -> None:
    attempt = Attempt.read(earlier("evaluation_result"))
    assert (attempt.task, attempt.solver, attempt.repo, attempt.id) == ("acme__shop-1", "m", "acme/shop", "a" * 24)
    assert (attempt.status, attempt.verdict, attempt.log_resolved) == (Status.UNRESOLVED, False, True)
    assert (attempt.seconds, attempt.grading_s, attempt.reason.code) == (2.5, 1.5, ReasonCode.NOT_REPAIRED)
    assert attempt.by(Rule.TESTS).status is Status.RESOLVED
    assert Attempt.read(json.loads(json.dumps(attempt.to_json()))) == attempt


def test_a_rollout_is_an_attempt() -> None:
    attempt = Attempt.read(earlier("rollout"))
    assert (attempt.task, attempt.solver, attempt.id, attempt.seed) == ("", "m", "b" * 24, 7)
    assert (attempt.status, attempt.ending, attempt.reward, attempt.score) == (Status.RESOLVED, "completed", 0.75, 0.5)
    assert (attempt.seconds, attempt.grading_s, attempt.steps) == (3.5, 4.5, 4)
    assert Attempt.read(json.loads(json.dumps(attempt.to_json()))) == attempt


@pytest.mark.parametrize("version", [1, 2, 3, 5, None])
def test_a_record_of_another_version_is_no_attempt(version: int | None) -> None:
    data = Attempt.read(earlier("rollout")).to_json()
    del data["seed"]
    with pytest.raises(StoreError, match="Attempt cannot be read"):
        Attempt.read({**data, "schema_version": version})


def test_an_episode_keeps_its_texts() -> None:
    data = earlier("episode")
    valid = Episode.from_json(data)
    assert valid is not None
    assert (valid.reason, valid.rejected_by) == (None, "")
    assert [r.reason.text for r in valid.rollouts] == [r["reason"]["text"] for r in data["rollouts"]]
    assert all(isinstance(r.reason.code, ReasonCode) for r in valid.rollouts)
    rejected = Episode.from_json({**data, "valid": False, "reason": "bug-scope: no code", "rollouts": []})
    assert rejected is not None
    assert rejected.rejected_by == "unknown"
    assert rejected.to_json()["reason"] == "bug-scope: no code"
    assert Episode.from_json(json.loads(json.dumps(rejected.to_json()))) == rejected


@pytest.mark.parametrize(
    "data",
    [
        {"code": "of-a-later-release", "details": {}},
        {"code": "file-missing", "details": {}},
        {"code": "file-missing", "details": {"files": [1]}},
        {"code": "too-many-break", "details": {"share": "x", "most": 1.0}},
        {"code": "file-missing", "details": None},
        {"code": ["file-missing"], "details": {}},
    ],
)
def test_a_reason_that_this_release_cannot_render_keeps_its_text(data: dict[str, Any]) -> None:
    reason = reason_from_json({"reason": "as it was", **data})
    assert reason == CheckReason(CheckCode.UNKNOWN, {"text": "as it was"})


def test_a_text_about_a_fresh_process_is_kept() -> None:
    data = earlier("candidate_result")
    assert CandidateResult.from_json(data).fallback is None  # type: ignore[union-attr]
    result = CandidateResult.from_json({**data, "fallback": "as it was"})
    assert result is not None
    assert result.fallback == Fallback(FallbackCode.UNKNOWN, "as it was")
    again = replace(result, fallback=Fallback(FallbackCode.SERVER_LOST, "it ended"))
    assert CandidateResult.from_json(json.loads(json.dumps(again.to_json()))) == again
    for damaged in (1, {}, {"code": "server-lost"}, {"code": "x", "detail": ""}, {"code": "server-lost", "detail": 1}):
        assert CandidateResult.from_json({**data, "fallback": damaged}) is None


def test_a_text_about_a_refused_task_is_kept() -> None:
    data = earlier("episode")
    assert Episode.from_json(data).refused is None  # type: ignore[union-attr]
    episode = Episode.from_json({**data, "refused": "as it was"})
    assert episode is not None
    assert episode.refused == Refusal(RefusalCode.UNKNOWN, "as it was")
    again = replace(episode, refused=Refusal(RefusalCode.FIX_READABLE, "in lib"))
    assert Episode.from_json(json.loads(json.dumps(again.to_json()))) == again
    for damaged in (1, {}, {"code": "x", "text": ""}, {"code": "fix-readable", "text": 1}):
        assert Episode.from_json({**data, "refused": damaged}) is None
