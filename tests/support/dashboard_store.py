"""Make a store with something for every page of the dashboard."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from harness.database.records import DatabaseRecords, records_of
from harness.database.schema import artifacts, candidates, episodes, rollouts, rounds
from harness.database.sharing import share_store

ARTIFACT, ATTEMPT, RUN = "a" * 20, "b" * 24, "d" * 24
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
"""What a model or a project may have written."""
_CODE = ("def total(prices):", '    """Return the sum', "    of all prices.", '    """', "    return sum(prices)", "")
BUG = "\n".join(
    (
        "diff --git a/shop/cart.py b/shop/cart.py",
        "--- a/shop/cart.py",
        "+++ b/shop/cart.py",
        "@@ -1,6 +1,6 @@",
        *(f" {line}" for line in _CODE[:4]),
        "-    return sum(prices)",
        "+    return sum(prices[1:])  # &amp;",
        " ",
        "",
    )
)
WEAKENING = (
    "diff --git a/tests/test_cart.py b/tests/test_cart.py\n--- a/tests/test_cart.py\n+++ b/tests/test_cart.py\n"
    "@@ -1,5 +1,2 @@\n import shop\n-\n-def test_total():\n-    assert shop.total([1, 2]) == 3\n \n"
)
_FILES = ("shop/cart.py", "shop/prices.py", "shop/orders.py", "shop/stock.py", "shop/web/views.py", "shop/web/forms.py")
_FUNCTIONS = ("total", "discount", "Order.pay", "Order.cancel", "in_stock", "render", "validate", "parse_amount")
_PLAYERS = (("search", 0.72), ("model-small", 0.38), ("model-large", 0.61), (f"odd {HOSTILE}", 0.5))


def dashboard_store(root: Path, *, database: str = "sqlite") -> DatabaseRecords:
    """Create a store with a database and fill it, always with the same content."""
    records = records_of(share_store(root, database=database).root)
    rng = random.Random(7)
    records.put(_artifact_files())
    records.put(_attempt_files())
    for n in range(60):
        path = f"attempts/{'f' * 24}/{n:05}.json"
        records.put({path: json.dumps(_candidate(n, rng)).encode()})
    with records.engine.begin() as connection:
        connection.execute(sa.insert(rounds), [_round(n, rng) for n in range(24)])
        connection.execute(sa.insert(episodes), [_episode(n, rng) for n in range(130)])
        connection.execute(sa.insert(rollouts), [_rollout(n, rng) for n in range(120)])
        connection.execute(sa.update(artifacts).values(stored_at=1.7e9))
        connection.execute(sa.update(candidates).values(stored_at=1.7e9))
    return records


def _artifact_files() -> dict[str, bytes]:
    info = {
        "repository": "shop",
        "tree_hash": "1" * 40,
        "injector": {"strategy": "mutation", "operator": "slice-start", "model": ""},
        "order": 1,
        "parent": "",
        "FAIL_TO_PASS": [f"tests/test_cart.py::test_total[{HOSTILE}]"],
        "sizes": {"files": 1, "lines_added": 1, "lines_removed": 1},
    }
    folder = f"artifacts/{ARTIFACT}"
    return {
        f"{folder}/artifact.json": json.dumps(info).encode(),
        f"{folder}/bug_inject.diff": BUG.encode(),
        f"{folder}/test_weaken.diff": WEAKENING.encode(),
        f"{folder}/test_script.sh": b'#!/bin/bash\npython -m pytest -q "$@"  # the tests\n',
        f"{folder}/test_files.txt": b"tests/test_cart.py\n",
        f"verdicts/{ARTIFACT}/{'2' * 24}.json": json.dumps(_verdict()).encode(),
    }


def _verdict() -> dict[str, Any]:
    run = {"kind": "suite", "state": "original", "outcome": "completed, 12 passed, 0 not", "seconds": 1.5}

    def result(name: str, passed: bool, reason: str) -> dict[str, Any]:
        return {
            "name": name,
            "passed": passed,
            "reason": reason,
            "code": "unstated",
            "details": {},
            "seconds": 1.5,
            "runs": [run],
        }

    return {
        "schema_version": 1,
        "artifact_id": ARTIFACT,
        "tree_hash": "1" * 40,
        "certified": "full",
        "checks": [result("test-files", True, "1 test file"), result("test-parser", False, HOSTILE)],
        "controls": [],
        "repeats": [],
        "fail_to_pass": [],
        "pass_to_pass": [],
        "set_aside": {},
        "files_control": {},
        "fault": "",
        "fault_code": "",
        "fault_details": {},
        "original_s": 1.0,
    }


def _attempt_files() -> dict[str, bytes]:
    edit = {"command": "str_replace", "path": "shop/cart.py", "old_str": "prices[1:]", "new_str": "prices"}
    lines: list[dict[str, Any]] = [
        {"event": "rollout", "task_id": ARTIFACT, "role": "solver", "attempt": 0, "model": "search"},
        {"event": "message", "role": "system", "content": "Repair the project."},
        {"event": "message", "role": "user", "content": f"The tests fail. {HOSTILE}"},
        _call("1", "bash", {"command": "python -m pytest -q | tail -n 3"}, "I run the tests first."),
        {"event": "message", "role": "tool", "content": f"1 failed {HOSTILE}", "tool_call_id": "1"},
        {"event": "step", "id": 0, "call": 0, "kind": "tool", "tool": "bash", "observation_index": 3, "exit_code": 1},
        _call("2", "editor", edit, "The first price is left out."),
        {"event": "message", "role": "tool", "content": "written", "tool_call_id": "2"},
        _call("3", "submit", {}, ""),
        {"event": "message", "role": "tool", "content": "submitted", "tool_call_id": "3"},
        {"event": "end", "exit_reason": "submitted", "status": "completed", "detail": "", "result": {}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    patch = BUG.replace("\n-", "\n~").replace("\n+    ", "\n-    ").replace("\n~    ", "\n+    ").replace("\n~", "\n-")
    return {
        f"rollouts/{ATTEMPT}/trajectory.jsonl": text.encode(),
        f"rollouts/{ATTEMPT}/patch.diff": patch.encode(),
        f"rollouts/{ATTEMPT}/candidates.jsonl": "".join(f"{json.dumps(row)}\n" for row in _tried()).encode(),
    }


def _tried() -> list[Any]:
    row = {"path": "shop/cart.py", "line": 5, "pattern": "slice", "on_top": False, "complete": False}
    tests = [f"tests/test_cart.py::test_total[{HOSTILE}]", "tests/test_cart.py::test_empty"]
    return [
        {**row, "passed": [], "failed": tests},
        {**row, "passed": tests[:1], "failed": tests[1:]},
        {**row, "passed": "damaged"},
        {**row, "on_top": True, "passed": tests, "failed": [], "complete": True},
    ]


def _call(call_id: str, name: str, arguments: dict[str, Any], content: str) -> dict[str, Any]:
    call = {"id": call_id, "name": name, "arguments": arguments, "raw": json.dumps(arguments), "fault": ""}
    return {"event": "message", "role": "assistant", "content": content, "tool_calls": [call]}


def _candidate(n: int, rng: random.Random) -> dict[str, Any]:
    status = rng.choice(("survived", "valid", "rejected", "not-exercised"))
    return {
        "schema_version": 2,
        "index": n,
        "status": status,
        "strategy": "mutation",
        "operator": rng.choice(("lost-return", "invert-if", "off-by-one")),
        "path": rng.choice(_FILES),
        "line": 5,
        "scope": rng.choice(_FUNCTIONS),
        "detail": f"{n} -> {n + 1}",
        "diff": BUG,
        "check": "bug-tests" if status == "rejected" else "",
        "artifact_id": ARTIFACT if status == "valid" else "",
        "fail_to_pass": 1,
        "seconds": 1.0,
        "reason": "",
        "code": "",
        "details": {},
        "disagreement": "",
        "fallback": None,
        "forks": 1,
        "runs": 1,
        "tier": "swap",
    }


def _round(n: int, rng: random.Random) -> dict[str, Any]:
    graded = 20
    return {
        "path": f"episodes/{RUN}/round-{n:03}-001.json",
        "run": RUN if n % 2 else "5" * 24,
        "round": n,
        "project": "shop",
        "episodes": 8,
        "valid": rng.randint(3, 8),
        "solved": rng.randint(4 + n // 2, 20),
        "graded": graded,
        "rewards": rng.uniform(-4, 4),
        "rewarded": 8,
        "tokens": rng.randint(10_000, 90_000),
        "cost_usd": rng.uniform(0.1, 0.9),
        "stored_at": 1.7e9 + 600 * n,
    }


def _episode(n: int, rng: random.Random) -> dict[str, Any]:
    check = rng.choice(("", "", "", "bug-tests", "weakening", "test-parser"))
    solved = rng.randint(0, 4)
    return {
        "path": f"episodes/{RUN}/round-{n // 8:03}-001.json",
        "position": n % 8,
        "run": RUN,
        "round": n // 8,
        "project": "shop",
        "artifact_id": "" if check else ARTIFACT,
        "strategy": rng.choice(("mutation", "removal", "history")),
        "operator": "",
        "file": rng.choice(_FILES),
        "scope": rng.choice(_FUNCTIONS),
        "lines": 2,
        "fail_to_pass": 3,
        "order": 1,
        "valid": not check,
        "check": check,
        "solved": 0 if check else solved,
        "graded": 0 if check else 4,
        "solve_rate": None if check else solved / 4,
        "reward": -1.0 if check else 1 - solved / 2,
        "tokens": 1200,
        "cost_usd": 0.01,
        "seconds": 12.5,
        "stored_at": 1.7e9 + n,
    }


def _rollout(n: int, rng: random.Random) -> dict[str, Any]:
    player, rate = _PLAYERS[n % len(_PLAYERS)]
    resolved = rng.random() < rate
    return {
        "id": f"{n:024x}",
        "artifact_id": ARTIFACT,
        "role": "solver",
        "player": player,
        "attempt": n,
        "resolved": resolved,
        "tests": resolved,
        "reward": 1.0 if resolved else -1.0,
        "reason": "resolved" if resolved else "tests-fail",
        "exit_reason": "submitted",
        "status": "completed",
        "steps": rng.randint(3, 30),
        "tokens": rng.randint(1_000, 40_000),
        "cost_usd": rng.uniform(0, 0.2),
        "unpriced": 0,
        "seconds": rng.uniform(5, 200),
        "grading_s": 3.0,
        "stored_at": 1.6e9 + n,
    }
