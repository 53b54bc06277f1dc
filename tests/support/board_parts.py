"""Write runs for leaderboard tests: folders as `ssr run` writes them, and stores as `ssr play` does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.evaluation.reports import write_run
from harness.leaderboard.board import Board, make_board
from harness.leaderboard.loading import read_runs
from harness.leaderboard.settings import RankSettings
from harness.records.attempt import Attempt, Status
from harness.records.episode import Episode
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.storage.store import Store

HOSTILE = '=HYPERLINK("x")<img src=x onerror=alert(1)>|`*_[a](javascript:b)\u202e\x1b[31m$x_{$\n</script>&amp;'
AS_TOLD = Reason(ReasonCode.TESTS_FAIL, "as told")
LETTERS = {"r": Status.RESOLVED, "u": Status.UNRESOLVED, "i": Status.INFRA, "e": Status.EMPTY}


class RunFiles:
    """Patches and logs of evaluation results."""

    def patch(self, outcome: Attempt) -> str:
        return "" if outcome.status is Status.EMPTY else f"diff of {outcome.task} {outcome.attempt}\n"

    def trajectory(self, outcome: Attempt) -> Mapping[str, Any] | None:
        return {"messages": []} if outcome.id else None

    def native(self, outcome: Attempt) -> Mapping[str, Any] | None:
        return None

    def log(self, outcome: Attempt) -> str:
        return "log\n"


def outcomes(
    model: str, letters_by_instance: Mapping[str, str], *, seed: str = "", repos: int = 0, **values: Any
) -> list[Attempt]:
    """Return evaluation results: `letters_by_instance` maps each instance to a letter for each attempt.

    repos: number of repositories; 0 for one repository for each instance.
    """
    results = []
    for n, (instance, letters) in enumerate(letters_by_instance.items()):
        repo = f"org/repo{n % repos if repos else n}"
        for attempt, letter in enumerate(letters):
            key = hashlib.sha256(f"{model}{instance}{attempt}{seed}".encode("utf-8", "replace")).hexdigest()[:24]
            shape = {"id": key, "cost_usd": 0.5, "tokens": 1000, "steps": 10, "seconds": 30.0, **values}
            status = LETTERS[letter]
            verdict = None if status is Status.INFRA else status is Status.RESOLVED
            digest = "" if status is Status.EMPTY else "0" * 64
            shape = {"resolved": verdict, "tests": verdict, "patch_sha256": digest, **shape}
            results.append(Attempt(instance, model, AS_TOLD, attempt=attempt, repo=repo, **shape))
    return results


def run_folder(folder: Path, results: Iterable[Attempt], *, wanted: int = 0, instances: Iterable[str] = ()) -> Path:
    """Write a run's folder as `ssr run` does; instances: the selected ones in addition to those with a result."""
    rows = list(results)
    selected = sorted({o.task for o in rows} | set(instances))
    about = {"dataset": "rows.jsonl", "split": "test"}
    write_run(folder, "ssr", RunFiles(), rows, wanted=wanted or len(rows), instances=selected, about=about)
    return folder


def results_only(folder: Path, results: Iterable[Attempt]) -> Path:
    """Write only the results of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(o.to_json()) + "\n" for o in results))
    return folder


def rollout(artifact: str, attempt: int, solver: str, resolved: bool | None, **values: Any) -> Attempt:
    key = hashlib.sha256(f"{artifact}{attempt}{solver}".encode()).hexdigest()[:24]
    shape = {
        "reason": AS_TOLD,
        "tests": resolved,
        "exit_reason": "submitted",
        "ending": "completed",
        "patch_sha256": "0" * 64,
        "tokens": 100,
        "steps": 3,
        "seconds": 2.0,
        **values,
    }
    return Attempt(artifact, solver, attempt=attempt, id=key, resolved=resolved, **shape)


def episode(number: int, *, valid: bool = True, solvers: Mapping[str, str] | None = None, **values: Any) -> Episode:
    """Return the episode of one bug; solvers: by solver, a letter for each attempt."""
    artifact = values.pop("artifact_id", f"bug{number:03d}") if valid else ""
    grades = {"r": True, "u": False, "i": None}
    rollouts = [
        rollout(artifact, n, solver, grades[letter])
        for solver, letters in (solvers or {}).items()
        for n, letter in enumerate(letters)
    ]
    shape: dict[str, Any] = {
        "project": f"project{number % 3}",
        "round": 1,
        "order": 1,
        "parent": "",
        "strategy": "mutation",
        "operator": "compare",
        "path": f"m{number}.py",
        "scope": "f",
        "lines": 2,
        "fail_to_pass": 1,
        "check": "" if valid else "bug-validity",
        "reason": None if valid else CheckReason(CheckCode.TOO_FEW_BREAK, {"count": 0, "required": 1}),
        "change": f"change{number}",
        "seconds": 1.0,
        **values,
    }
    return Episode(artifact_id=artifact, valid=valid, rollouts=tuple(rollouts), **shape)


def store(folder: Path, *rounds: list[Episode], run: str = "abc") -> Path:
    """Write the rounds of one run into a store as `ssr play` does."""
    target = Store(folder)
    for number, episodes in enumerate(rounds, 1):
        target.put_record(f"episodes/{run}", f"round-{number:03d}-001", {"episodes": [e.to_json() for e in episodes]})
    return folder


def board(*runs: Path | str, by: str = "auto", **settings: Any) -> Board:
    return make_board(read_runs([str(r) for r in runs], by=by), RankSettings(**settings))
