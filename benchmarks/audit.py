"""Check the cards of an audit against cold runs, and against which tasks were weakened on purpose.

Run: `python benchmarks/audit.py AUDIT --rows rows.jsonl --repos CLONES --python PYTHON [--weakened ids.txt] --out
benchmarks/results/NAME.md`. AUDIT is the folder that `ssr audit rows.jsonl` wrote. Every survivor with a proof is tried
again cold, without anything of this package: in a fresh checkout with the solution and the row's tests, plain pytest
runs the tests that decide with the change, which must pass, and the proving test without the change, which must pass,
and with it, which must fail. A proof is wrong if one of these is not so. `--weakened` names the ids of the rows whose
tests were weakened on purpose, one on a line: the page then says how well sharpness tells them from the others (the
area under the ROC curve). The naive way is a cold run of the deciding tests for each change and each repeat; its CPU
time is that of one such run, times their number. What is finished is kept beside the page (.jsonl).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.audit.card import Card, SolutionChange
from harness.audit.files import read_cards

_LIMIT_S = 120
_REPEATS = 11
"""Runs of a soundness check: five surroundings, each with and without the solution, and one more."""


@dataclass(frozen=True, slots=True)
class ColdTask:
    """What cold runs show of the card of one task."""

    task: str
    run_cpu_s: float
    """CPU seconds of one run of the deciding tests."""
    proven: int
    wrong: tuple[str, ...]
    """The proofs that do not hold, with the reason."""
    noticed_cold: int
    """Survivors that the deciding tests notice in a cold run: these are wrong, too."""


def main() -> int:
    """Check the cards and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audit", type=Path)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--weakened", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    cards = read_cards(options.audit)
    rows = {row["instance_id"]: row for row in map(json.loads, options.rows.read_text().splitlines())}
    kept = options.out.with_suffix(".jsonl")
    done = [ColdTask(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    finished = {cold.task for cold in done}
    for name, card in cards.items():
        if name in finished or card.sharp is None or not card.sharp.changes:
            continue
        cold = _checked(card, rows[name], options.repos, options.python.absolute())
        done.append(cold)
        with kept.open("a") as file:
            file.write(json.dumps(asdict(cold)) + "\n")
        print(f"{name}: {cold.proven} proofs, {len(cold.wrong)} wrong {list(cold.wrong)}", flush=True)
    weakened = options.weakened.read_text().split() if options.weakened else []
    options.out.write_text("\n".join(_page(cards, done, weakened)) + "\n")
    return 0


def _checked(card: Card, row: dict[str, Any], repos: Path, python: Path) -> ColdTask:
    assert card.sharp is not None
    wrong: list[str] = []
    noticed = 0
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch, "clone")
        source = repos / row["repo"].replace("/", "__")
        subprocess.run(["git", "clone", "-q", str(source.resolve()), str(clone)], check=True)
        _git(clone, "checkout", "-q", row["base_commit"])
        for patch in (row["patch"], row["test_patch"]):
            _apply(clone, patch)
        _git(clone, "add", "-A")
        ids = [*_listed(row["FAIL_TO_PASS"]), *_listed(row["PASS_TO_PASS"])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        deciding = [test for test in ids if test not in (card.sound.set_aside if card.sound else ())]
        _passes(clone, python, deciding)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        proven = [change for change in card.sharp.changes if change.is_proven]
        for change in proven:
            reason = _fault_of(clone, python, change, deciding)
            noticed += reason == "noticed"
            if reason:
                wrong.append(f"{change.path}:{change.line} {change.operator}: {reason}")
    return ColdTask(card.task, round(cpu_s, 2), len(proven), tuple(wrong), noticed)


def _fault_of(clone: Path, python: Path, change: SolutionChange, deciding: Sequence[str]) -> str:
    """Return what does not hold of a proof; empty if all of it does."""
    test = Path(change.test_file).with_name("test_of_audit.py")
    (clone / test).write_text(change.test)
    try:
        if not _passes(clone, python, [str(test)]):
            return "the test does not pass on the solution"
        _apply(clone, change.diff)
        if _passes(clone, python, [str(test)]):
            return "the test passes with the change"
        (clone / test).unlink()
        return "" if _passes(clone, python, deciding) else "noticed"
    finally:
        (clone / test).unlink(missing_ok=True)
        _git(clone, "checkout", "-q", "--", ".")
        _git(clone, "clean", "-fdq")


def _passes(clone: Path, python: Path, tests: Sequence[str]) -> bool:
    env = {**os.environ, "PYTHONPATH": f"{clone}/src:{clone}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [str(python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", *tests]
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, timeout=_LIMIT_S).returncode == 0


def _listed(value: str | Sequence[str]) -> list[str]:
    return list(json.loads(value)) if isinstance(value, str) else list(value)


def _apply(clone: Path, patch: str) -> None:
    done = subprocess.run(["git", "-C", str(clone), "apply", "-"], input=patch, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"a diff does not apply: {done.stderr}")


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def area_under_curve(bad: Sequence[float], good: Sequence[float]) -> float:
    """Return how often a bad one has the smaller figure; equal ones count half."""
    pairs = [(b < g) + 0.5 * (b == g) for b in bad for g in good]
    return sum(pairs) / len(pairs)


def _page(cards: dict[str, Card], done: Sequence[ColdTask], weakened: Sequence[str]) -> Iterator[str]:
    yield "# Audited rows, checked by cold runs\n"
    yield f"{datetime.now(UTC).date()}, `benchmarks/audit.py`; see the script for what is compared.\n"
    measured = {name: card for name, card in cards.items() if card.sharp is not None and card.sharp.changes}
    repositories = {card.repo for card in measured.values()}
    proofs, wrong = sum(cold.proven for cold in done), sum(len(cold.wrong) for cold in done)
    others = len(cards) - len(measured)
    yield f"- {len(measured)} rows of {len(repositories)} repositories; {others} others have no sharpness."
    yield f"- Survivors with a proof: {proofs}; wrong in a cold run: **{wrong}**."
    if weakened:
        yield from _ranking(measured, frozenset(weakened))
    yield from _costs(measured, {cold.task: cold for cold in done})
    yield "\n| task | sound | noticed | own lines | proven | CPU of the audit, s | CPU of one cold run, s |"
    yield "|---|---|---|---|---|---|---|"
    by_name = {cold.task: cold for cold in done}
    for name, card in sorted(measured.items(), key=lambda item: item[1].sharpness or 0.0):
        assert card.sharp is not None
        mark = " (weakened)" if name in weakened else ""
        cold = by_name.get(name)
        own = [change for change in card.sharp.changes if change.is_own]
        own_noticed = sum(change.status == "noticed" for change in own)
        own_counted = sum(change.status in ("noticed", "survived", "not-reached") for change in own)
        yield (
            f"| {name}{mark} | {'yes' if card.is_sound else 'no'} | {card.sharp.noticed} of {card.sharp.counted} | "
            f"{own_noticed} of {own_counted} | {card.sharp.proven} | {card.cost.audit_cpu_s:.0f} | "
            f"{cold.run_cpu_s if cold else float('nan'):.1f} |"
        )
    if wrong:
        yield "\nProofs that do not hold:\n"
        yield from (f"- {cold.task} {reason}" for cold in done for reason in cold.wrong)


def _ranking(cards: dict[str, Card], weakened: frozenset[str]) -> Iterator[str]:
    for title, figure in (("all changes", _sharpness), ("changes of the solution's own lines", _own_sharpness)):
        known = {name: value for name, card in cards.items() if (value := figure(card)) is not None}
        bad = [value for name, value in known.items() if name in weakened]
        good = [value for name, value in known.items() if name not in weakened]
        if bad and good:
            yield (
                f"- Area under the curve, {title}: **{area_under_curve(bad, good):.3f}** "
                f"({len(bad)} weakened rows, median {statistics.median(bad):.2f}; {len(good)} others, "
                f"median {statistics.median(good):.2f})."
            )


def _sharpness(card: Card) -> float | None:
    return card.sharpness


def _own_sharpness(card: Card) -> float | None:
    assert card.sharp is not None
    own = [c.status for c in card.sharp.changes if c.is_own and c.status in ("noticed", "survived", "not-reached")]
    return sum(status == "noticed" for status in own) / len(own) if own else None


def _costs(cards: dict[str, Card], cold: dict[str, ColdTask]) -> Iterator[str]:
    pairs = []
    for name, card in cards.items():
        if name in cold and card.sharp is not None:
            runs = len(card.sharp.changes) + _REPEATS
            pairs.append((card.cost.audit_cpu_s, runs * cold[name].run_cpu_s))
    if pairs:
        ours, naive = [a for a, _ in pairs], [b for _, b in pairs]
        ratios = [b / a for a, b in pairs if a]
        yield (
            f"- CPU seconds a task, all parts of the audit: median {statistics.median(ours):.0f} "
            f"(worst {max(ours):.0f}); the naive way: median {statistics.median(naive):.0f} (worst {max(naive):.0f}); "
            f"ratio, median {statistics.median(ratios):.1f}."
        )


if __name__ == "__main__":
    sys.exit(main())
