"""Grade the reference solutions of native rows several times, and a patch that repairs nothing once.

Run: `python benchmarks/native_row_grades.py GROUPS.jsonl --repos CLONES --folder DIR [--times 3]`.
Each line of GROUPS has `name`, `rows` (a file of `benchmarks/mine_native_rows.py` or `benchmarks/mine_rows.py`),
`only` (a regular expression of ids) and `python` (the interpreter that runs their tests) or `images` (`docker` or
`apptainer`). Every time has a store of its own, so nothing is reused. Groups that are finished in DIR are not run
again. Prints a table; the patch that repairs nothing adds a text file.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USELESS = "--- /dev/null\n+++ b/a-note.txt\n@@ -0,0 +1 @@\n+It repairs nothing.\n"


@dataclass(frozen=True, slots=True)
class Run:
    """One evaluation of one group."""

    group: str
    predictions: str
    """`gold 1` to `gold N`, or `useless`."""
    statuses: Mapping[str, str]
    """Id to status."""
    reasons: Mapping[str, str]
    """Id to reason, for all statuses but `resolved`."""
    wall_s: float


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def useless_predictions(group: Mapping[str, Any], target: Path) -> Path:
    ids = [
        row["instance_id"] for row in read_jsonl(Path(group["rows"])) if re.search(group["only"], row["instance_id"])
    ]
    lines = [{"instance_id": i, "model_name_or_path": "useless", "model_patch": USELESS} for i in ids]
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return target


def evaluate(group: Mapping[str, Any], kind: str, repos: Path, folder: Path) -> Run:
    """Return the results of `ssr eval` of one group, from an earlier call if it was finished."""
    out = folder / group["name"] / kind.replace(" ", "-")
    seconds = out / "seconds.txt"
    if not seconds.is_file():
        out.mkdir(parents=True, exist_ok=True)
        predictions = "gold" if kind.startswith("gold") else useless_predictions(group, out.with_suffix(".jsonl"))
        where = ["--images", group["images"]] if "images" in group else ["--python", group["python"]]
        command = [sys.executable, "-m", "harness.cli", "eval", group["rows"], "--only", group["only"], *where]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--repos", str(repos), "--predictions", str(predictions), "--out", str(out), "--json"],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"{group['name']}, {kind}: ssr eval ended with {done.returncode}")
        seconds.write_text(f"{time.monotonic() - start:.1f}\n")
    results = read_jsonl(out / "results.jsonl")
    statuses = {r["task"]: r["status"] for r in results}
    reasons = {r["task"]: str(r["reason"]["text"]) for r in results if r["status"] != "resolved"}
    return Run(group["name"], kind, statuses, reasons, float(seconds.read_text()))


def table(runs: list[Run]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and the reason of each reference solution that is not resolved."""
    yield "| group | predictions | rows | resolved | unresolved | infra | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        count = Counter(run.statuses.values())
        others = [count["resolved"], count["unresolved"], count["infra"]]
        cells = [run.group, run.predictions, len(run.statuses), *others, f"{run.wall_s:.0f}"]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for run in runs:
        if run.predictions.startswith("gold"):
            for name, reason in run.reasons.items():
                yield f"- {name}, {run.predictions}: {run.statuses[name]}: {reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", type=Path)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    kinds = ["useless", *(f"gold {n + 1}" for n in range(arguments.times))]
    runs = []
    for group in read_jsonl(arguments.groups):
        for kind in kinds:
            runs.append(evaluate(group, kind, arguments.repos, arguments.folder))
            print(f"{group['name']}, {kind}: {dict(Counter(runs[-1].statuses.values()))}", file=sys.stderr, flush=True)
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
