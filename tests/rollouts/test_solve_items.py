"""Test `pytest --ssr-solve` as users run it, in a separate process: each attempt is an item."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.rollouts.pytest_backend import PytestBackend
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks.validator import validate
from pytest_ssr.errors import ArtifactError
from pytest_ssr.extensions import Extensions
from pytest_ssr.records.artifact import write_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import Verdicts

pytestmark = pytest.mark.long

COMMENTS = [("bash", {"command": "echo '# better' >> calc.py"}), ("submit", {})]


def solve(proven: Proven, store: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    artifact = proven.store.root / "artifacts" / proven.verdict.artifact_id
    # Plugins that are installed only for the tests of this package take half of the start-up time.
    command = [sys.executable, "-m", "pytest", "-p", "no:anyio", "-p", "no:hypothesispytest"]
    command += ["--ssr-sandbox", "process", f"--ssr-python={plain_python()}"]
    command += ["--ssr-solve", str(artifact), "--ssr-store", str(store), *argv]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV"))}
    return subprocess.run(
        command, cwd=proven.project, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def scripted(path: Path, calls: list[tuple[str, dict[str, str]]]) -> str:
    replies = [{"content": "", "tool_calls": [{"name": name, "arguments": given}]} for name, given in calls]
    path.write_text(json.dumps(replies))
    return f"scripted:{path}"


def test_attempts_are_distributed_and_none_is_repeated(proven: Proven, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    store = Store(tmp_path / "s")
    runner = open_runner(
        proven.project, store, settings=RuleSettings(), sandbox="process", python=plain_python(), compiled=False
    )
    Verdicts(store, runner).put(proven.verdict)
    done = solve(proven, tmp_path / "s", "--ssr-attempts", "3", "-n", "2", "-v", "-W", "ignore")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert re.search(r"PASSED \S+/bug_inject.diff::attempt-3", done.stdout)
    assert "3 of 3 attempts resolved, 100% (95 % interval 44% to 100%)" in done.stdout
    assert {re.search(r"\[gw(\d)\]", line)[1] for line in done.stdout.splitlines() if "PASSED" in line} == {"0", "1"}
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "s" / "rollouts").rglob("rollout.json")}
    assert len(kept) == 3
    again = solve(proven, tmp_path / "s", "--ssr-attempts", "3")
    assert "3 passed" in again.stdout
    assert {p: p.stat().st_mtime_ns for p in kept} == kept


def test_an_unresolved_attempt_fails_and_an_ungraded_one_is_an_error(proven: Proven, tmp_path: Path) -> None:
    argv = ["--ssr-solver", scripted(tmp_path / "comments.json", COMMENTS), "--ssr-attempts", "1"]
    done = solve(proven, tmp_path / "s", *argv)
    assert done.returncode == 1
    assert "1 of 7: tests/test_calc.py::test_add; 6 were not run" in done.stdout, done.stdout
    assert "0 of 1 attempts resolved" in done.stdout
    replay = ["--ssr-solver", f"replay:{tmp_path / 's' / 'rollouts'}", "--ssr-attempts", "2"]
    done = solve(proven, tmp_path / "t", *replay)
    assert "1 failed, 1 error" in done.stdout
    assert "contains no attempt 2 at" in done.stdout
    assert "0 of 1 attempts resolved, 0% (95 % interval 0% to 79%), 1 without a grade" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_budget_of_a_run_and_the_steps_of_an_attempt_are_limited(proven: Proven, tmp_path: Path) -> None:
    solver = ["--ssr-solver", scripted(tmp_path / "comments.json", COMMENTS), "--ssr-attempts", "3"]
    done = solve(proven, tmp_path / "s", *solver, "--ssr-budget-calls", "3")
    assert "1 failed, 2 errors" in done.stdout, done.stdout
    assert "the budget of 3 calls is spent" in done.stdout
    done = solve(proven, tmp_path / "t", *solver, "--ssr-steps", "1", "--ssr-rollout-tokens", "9000")
    assert "the attempt ended by step_limit: 1 replies" in done.stdout


@pytest.mark.parametrize(("workers", "calls"), [(1, 5), (2, 2)])
def test_workers_share_a_budget(proven: Proven, tmp_path: Path, workers: int, calls: int) -> None:
    limits = {"budget_usd": 3.0, "budget_calls": 5, "steps": 7}
    backend = make_backend(proven, Store(tmp_path / "s"), tmp_path, limits=limits, workers=workers)
    budget, solver = backend._players.budget, backend._solver
    backend.close()
    assert (budget.usd, budget.calls, budget.tokens) == (3.0 / workers, calls, None)
    assert getattr(solver, "limits", None) == RolloutLimits(steps=7)


def test_an_invalid_artifact_is_validated_once(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    write_artifact(bad, replace(proven.artifact, bug=proven.artifact.weaken))
    validations: list[object] = []
    monkeypatch.setattr(
        "harness.rollouts.runner.validate", lambda *of, **more: validations.append(of) or validate(*of, **more)
    )
    backend = make_backend(proven, Store(tmp_path / "s"), tmp_path)
    for number in range(3):
        with pytest.raises(ArtifactError, match="the artifact is not valid"):
            backend.attempt(bad, number)
    backend.close()
    assert len(validations) == 1


def make_backend(proven: Proven, store: Store, folder: Path, **settings: Any) -> PytestBackend:
    runner_arguments = {"settings": RuleSettings(), "sandbox": "process", "python": plain_python()}
    arguments: dict[str, Any] = {"limits": {}, "workers": 1, "extensions": Extensions(), **settings}
    solver = scripted(folder / "comments.json", COMMENTS)
    return PytestBackend(
        proven.project, store, [], solver=solver, seed=0, runner_arguments=runner_arguments, **arguments
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--ssr-solver", "oracle"],
            "there is no solver 'oracle'",
        ),
        (["--ssr-budget-usd", "1"], "--ssr-budget-usd is for a model, not for search"),
        (["--ssr-steps", "few"], "--ssr-steps takes a whole number, not 'few'"),
        (["--ssr-solver", "scripted:x", "--ssr-rollout-usd", "0"], "--ssr-rollout-usd must be more than 0, not 0"),
        (
            ["--ssr-solver", "scripted:x", "--ssr-budget-calls", "1", "-n", "2"],
            "is less than one for each of 2 workers",
        ),
        (["--ssr-attempts", "0"], "--ssr-attempts must be at least 1, not 0"),
        (["--ssr-solve", "nowhere"], "nowhere does not exist; name an artifact's directory"),
        (["--ssr-inject"], "--ssr-inject and --ssr-solve are 2 jobs; give one of them"),
    ],
)
def test_a_usage_error_is_one_message(proven: Proven, tmp_path: Path, argv: list[str], message: str) -> None:
    done = solve(proven, tmp_path / "s", *argv)
    assert done.returncode == 4
    assert message in done.stderr
    assert "Traceback" not in done.stderr
