"""Runs for leaderboards: folders as `ssr run` leaves them, and stores as `ssr play` does, by their own records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.episode import Episode, Rollout
from harness.evaluation.outcome import Outcome, Status
from harness.evaluation.reports import write_run
from harness.leaderboard.board import Board, make_board
from harness.leaderboard.reading import read_runs
from harness.leaderboard.settings import RankSettings
from pytest_ssr.reasons import Reason, ReasonCode
from pytest_ssr.store import Store

HOSTILE = '=HYPERLINK("x")<img src=x onerror=alert(1)>|`*_[a](javascript:b)\u202e\x1b[31m$x_{$\n</script>&amp;'
AS_TOLD = Reason(ReasonCode.TESTS_FAIL, "as told")
LETTERS = {"r": Status.RESOLVED, "u": Status.UNRESOLVED, "i": Status.INFRA, "e": Status.EMPTY}


class Kept:
    """Patches and logs of outcomes."""

    def patch(self, outcome: Outcome) -> str:
        return "" if outcome.status is Status.EMPTY else f"diff of {outcome.instance_id} {outcome.attempt}\n"

    def trajectory(self, outcome: Outcome) -> Mapping[str, Any] | None:
        return {"messages": []} if outcome.rollout else None

    def native(self, outcome: Outcome) -> Mapping[str, Any] | None:
        return None

    def log(self, outcome: Outcome) -> str:
        return "log\n"


def outcomes(model: str, told: Mapping[str, str], *, seed: str = "", repos: int = 0, **values: Any) -> list[Outcome]:
    """Return outcomes by instance: a letter for each attempt. repos: how many there are, else one for each instance."""
    found = []
    for n, (instance, letters) in enumerate(told.items()):
        repo = f"org/repo{n % repos if repos else n}"
        for attempt, letter in enumerate(letters):
            key = hashlib.sha256(f"{model}{instance}{attempt}{seed}".encode("utf-8", "replace")).hexdigest()[:24]
            shape = {"rollout": key, "cost_usd": 0.5, "tokens": 1000, "steps": 10, "solver_s": 30.0, **values}
            status = LETTERS[letter]
            verdict = None if status is Status.INFRA else status is Status.RESOLVED
            shape = {"resolved": verdict, "tests": verdict, **shape}
            found.append(Outcome(instance, repo, model, status, AS_TOLD, attempt=attempt, **shape))
    return found


def run_folder(folder: Path, made: Iterable[Outcome], *, wanted: int = 0, instances: Iterable[str] = ()) -> Path:
    """Write a run's folder as `ssr run` does; instances: what was chosen beyond those that have an outcome."""
    rows = list(made)
    chosen = sorted({o.instance_id for o in rows} | set(instances))
    about = {"dataset": "rows.jsonl", "split": "test"}
    write_run(folder, "ssr", Kept(), rows, wanted=wanted or len(rows), instances=chosen, about=about)
    return folder


def results_only(folder: Path, made: Iterable[Outcome]) -> Path:
    """Write a run's results and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(o.to_json()) + "\n" for o in made))
    return folder


def rollout(artifact: str, attempt: int, solver: str, resolved: bool | None, **values: Any) -> Rollout:
    key = hashlib.sha256(f"{artifact}{attempt}{solver}".encode()).hexdigest()[:24]
    shape = {
        "reward": None,
        "reason": AS_TOLD,
        "tests": resolved,
        "exit_reason": "submitted",
        "status": "completed",
        **values,
    }
    return Rollout(key, attempt, solver, 0, resolved, **{"tokens": 100, "steps": 3, "seconds": 2.0, **shape})


def episode(number: int, *, valid: bool = True, solvers: Mapping[str, str] | None = None, **values: Any) -> Episode:
    """Return one bug; solvers: a letter for each attempt."""
    artifact = values.pop("artifact_id", f"bug{number:03d}") if valid else ""
    grades = {"r": True, "u": False, "i": None}
    made = [
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
        "reason": "" if valid else "bug-validity: no test fails",
        "change": f"change{number}",
        "seconds": 1.0,
        **values,
    }
    return Episode(artifact_id=artifact, valid=valid, rollouts=tuple(made), **shape)


def store(folder: Path, *rounds: list[Episode], run: str = "abc") -> Path:
    """Write rounds of one run into a store as `ssr play` does."""
    kept = Store(folder)
    for number, episodes in enumerate(rounds, 1):
        kept.put_record(f"episodes/{run}", f"round-{number:03d}-001", {"episodes": [e.to_json() for e in episodes]})
    return folder


def board(*runs: Path | str, by: str = "auto", **settings: Any) -> Board:
    return make_board(read_runs([str(r) for r in runs], by=by), RankSettings(**settings))
