"""Findings of a campaign without a campaign: sources, changes of every status, and a proven bug."""

from __future__ import annotations

import difflib
from pathlib import Path

from pytest_ssr.campaign.findings import CampaignRecord, Findings, ProvenBug
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.suggested_test import SuggestedTest

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
"""What a project may have written."""
SOURCE = f'''"""A shop."""


def total(prices, rate):
    """Return the sum
    with taxes."""
    if rate > 0:
        return sum(prices) * (1 + rate)
    return sum(prices)


def label(name):
    text = "{HOSTILE}"
    return text + name
'''


def change(
    index: int, line: int, new: str, *, path: str = "shop/cart.py", source: str = SOURCE, **more: object
) -> CandidateResult:
    """Return the result of a change that replaces one line of a source."""
    lines = source.splitlines(keepends=True)
    after = [*lines[: line - 1], *([f"{new}\n"] if new else []), *lines[line:]]
    diff = "".join(difflib.unified_diff(lines, after, f"a/{path}", f"b/{path}"))
    values = {
        "status": CandidateStatus.SURVIVED,
        "strategy": "mutation",
        "operator": "swap-operands",
        "scope": "total",
        "detail": f"{lines[line - 1].strip()} -> {new.strip()}",
        "reason": CheckReason(CheckCode.NOT_NOTICED),
        **more,
    }
    return CandidateResult(index=index, path=path, line=line, diff=f"diff --git a/{path} b/{path}\n{diff}", **values)


def example(folder: Path) -> Findings:
    """Return findings with two survivors, one change of each other status, and hostile content everywhere."""
    (folder / "shop").mkdir(parents=True, exist_ok=True)
    (folder / "shop" / "cart.py").write_text(SOURCE)
    (folder / "shop" / "empty.py").write_text("")
    results = [
        change(0, 7, "    if rate >= 0:"),
        change(1, 7, "    if rate:", operator="weaken-condition"),
        change(2, 9, "    return 0", status=CandidateStatus.VALID, reason=None, artifact_id="a" * 20, fail_to_pass=1),
        change(
            3,
            13,
            "",
            scope=f"label{HOSTILE}",
            operator=f"remove{HOSTILE}",
            reason=CheckReason(CheckCode.NOT_REACHED),
        ),
        change(
            4,
            8,
            "        return 1",
            status=CandidateStatus.REJECTED,
            check="screening",
            reason=CheckReason.of(CheckCode.TOO_MANY_BREAK, share=0.8, most=0.5),
        ),
        change(5, 8, "        pass", status=CandidateStatus.NOT_EXERCISED, check="screening", reason=None),
        change(6, 8, "        while 1: pass", status=CandidateStatus.TIMED_OUT, check="screening", reason=None),
    ]
    tests = (f"tests/test_cart.py::test_total[{HOSTILE}]",)
    return Findings.of(
        campaign_of(("shop/cart.py", "shop/empty.py"), project=f"shop {HOSTILE}"),
        results,
        [ProvenBug(results[2], tests, results[2].diff)],
        folder,
        [SuggestedTest(0, "shop/cart.py", 7, "total", f"def test():\n    # {HOSTILE}\n    assert total([], 0) == 0\n")],
    )


def campaign_of(files: tuple[str, ...], *, project: str = "shop", root: str = "") -> CampaignRecord:
    """Return the record of a campaign in these files."""
    return CampaignRecord(
        key="c" * 24,
        project=project,
        folder="/shop",
        tree_hash="d" * 40,
        started_at=1_700_000_000.0,
        tests=7,
        seconds=1.5,
        python="3.12.1",
        sandbox="bubblewrap",
        seed=0,
        files=files,
        root=root,
    )


def large(folder: Path, *, files: int, changes: int) -> Findings:
    """Return findings of a large project; three of ten changes survived."""
    names = tuple(f"package_{n % 40}/module_{n}.py" for n in range(files))
    body = "".join(
        f"def function_{k}(first, second):\n"
        f"    # Adds {k}.\n    if first > {k} and second is not None:\n"
        f'        return first * second + {k}, "text {k}"\n    return [item for item in range({k})]\n\n\n'
        for k in range(20)
    )
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    statuses = (
        *[CandidateStatus.SURVIVED] * 3,
        *[CandidateStatus.REJECTED] * 3,
        *[CandidateStatus.VALID] * 2,
        CandidateStatus.NOT_EXERCISED,
        CandidateStatus.TIMED_OUT,
    )
    results = []
    for n in range(changes):
        at = (n // files) % 20
        line = 7 * at + 3 + n % 2
        results.append(
            change(
                n,
                line,
                f"    if first >= {at}:" if n % 2 == 0 else "        return None",
                path=names[n % files],
                source=body,
                scope=f"function_{at}",
                status=statuses[(n * 7) % 10],
            )
        )
    bugs = [ProvenBug(r, ("tests/test_a.py::test_a",), r.diff) for r in results if r.status is CandidateStatus.VALID]
    return Findings.of(campaign_of(names), results, bugs[:200], folder)
