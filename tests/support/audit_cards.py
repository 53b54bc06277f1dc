"""Make small cards of audits for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.audit.card import (
    Card,
    Cause,
    ChangeStatus,
    Condition,
    Cost,
    ForgeryResult,
    Leak,
    Narrowness,
    Sealing,
    Sharpness,
    SolutionChange,
    Soundness,
    TokenKind,
    UnknownToken,
    Unsound,
    UnsteadyTest,
)
from pytest_ssr.records.reasons import Reason, ReasonCode

DIFF = "--- a/shop.py\n+++ b/shop.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a + b\n+    return a - b\n"
PROOF = "def test_add():\n    assert add(1, 2) == 3\n"


def change(status: ChangeStatus, number: int = 0, **values: Any) -> SolutionChange:
    """Return a change of a solution."""
    shape = {"operator": "arithmetic", "path": "shop.py", "line": number + 1, "scope": "add", "diff": DIFF}
    return SolutionChange(status, detail="`+` becomes `-`", **{**shape, **values})


def sharpness(noticed: int, survived: int = 0, *, proven: int = 0, planned: int = 0, **more: int) -> Sharpness:
    """Return the sharpness of so many changes; more: further changes by status."""
    changes = [change(ChangeStatus.NOTICED, n) for n in range(noticed)]
    for n in range(survived):
        proof = (
            {"test": PROOF, "test_file": "tests/test_shop.py", "shown_by": "add(1, 2) gives 3"} if n < proven else {}
        )
        changes.append(change(ChangeStatus.SURVIVED, n, **proof))
    changes += [change(ChangeStatus(name.replace("_", "-"))) for name, count in more.items() for _ in range(count)]
    return Sharpness(tuple(changes), planned or len(changes))


def clean(task: str = "acme__shop-1", **values: Any) -> Card:
    """Return the card of a task of which everything is known, and nothing was found."""
    shape = {
        "repo": "acme/shop",
        "family": "swe-bench",
        "sound": Soundness(conditions=tuple(Condition)),
        "sharp": sharpness(30),
        "narrow": Narrowness(),
        "sealed": Sealing((ForgeryResult("exit-early", False, False), ForgeryResult("report", False, False))),
        "cost": Cost(1.25, 85.0, 3.0, 40.0, 55.0),
    }
    return Card(task, **{**shape, **values})


def unsound(task: str = "acme__shop-2", *problems: Unsound, **values: Any) -> Card:
    """Return the card of a task that is not sound."""
    tests = (UnsteadyTest("tests/test_shop.py::test_now", Cause.CLOCK),)
    return clean(task, sound=Soundness(problems or (Unsound.UNSTEADY,), tests, tuple(Condition)), **values)


def blunt(task: str = "acme__shop-3", **values: Any) -> Card:
    """Return the card of a task with survivors, unknown names, an accepted forgery and a leak."""
    sealed = Sealing(
        (
            ForgeryResult("exit-early", True, False),
            ForgeryResult("report", False, None),
            ForgeryResult("x", None, None),
        ),
        (Leak.GIT_HISTORY,),
        "tests",
    )
    shape = {
        "sharp": sharpness(6, 3, proven=2, planned=40, not_reached=1, equivalent=2, undecided=1),
        "narrow": Narrowness((UnknownToken(TokenKind.NAME, "secret_name", ("tests/test_shop.py",)),)),
        "sealed": sealed,
    }
    return clean(task, **{**shape, **values})


def unaudited(task: str = "acme__shop-4", code: ReasonCode = ReasonCode.INSTANCE_UNUSABLE) -> Card:
    """Return the card of a task without an audit."""
    return Card(task, "acme/shop", problem=Reason(code, "its image is missing"))


def write_cards(path: Path, cards: Iterable[Card]) -> Path:
    """Write cards as `ssr audit` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(card.to_json()) + "\n" for card in cards), encoding="utf-8")
    return path
