"""Measure validated bugs on real projects: `ssr inject --count N` on pinned source distributions, as a Markdown table.

Run: `python benchmarks/validated_bugs.py --out benchmarks/results/NAME.md [--count 10] [--jobs 2] [project ...]`.
Each project is downloaded with pip (`--no-binary`), unpacked, and gets a separate environment. The table shows
candidates, survivors, rejections by check, validated bugs per core-hour, seconds per artifact, and sizes. A core-hour
is an hour of wall time of one job, the baseline included: CPU time would miss processes that a sandbox ends without
waiting for them. Afterwards every artifact is validated again from its five files alone, in another directory.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from projects import PROJECTS, PUBLISHED, fetch

HEAD = (
    "project",
    "tests",
    "suite s",
    "candidates",
    "valid",
    "survived",
    "rejected by",
    "runs",
    "s per artifact",
    "valid per core-hour",
    "files",
    "lines",
    "FAIL_TO_PASS (median, max)",
    "valid again",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=list(PUBLISHED), metavar="project", help=", ".join(PROJECTS))
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    for name in arguments.projects:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            rows.append(measure(name, Path(folder), arguments.count, arguments.jobs))
        write(arguments.out, rows, arguments)
        print(" | ".join(rows[-1]), flush=True)


def measure(name: str, folder: Path, count: int, jobs: int) -> list[str]:
    project, python = fetch(name, folder)
    store = folder / "store"
    command = [sys.executable, "-m", "harness.cli", "inject", str(project), "--json", "--store", str(store)]
    command += ["--python", str(python), "--count", str(count), "--jobs", str(jobs)]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    core_s = (time.monotonic() - start) * jobs
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: {done.stderr}")
    result = json.loads(done.stdout)
    return row(name, result, core_s, again(project, python, store, folder / "elsewhere"))


def again(project: Path, python: Path, store: Path, elsewhere: Path) -> str:
    """Validate every artifact from its five files alone, in another directory."""
    shutil.copytree(store / "artifacts", elsewhere)
    for info in elsewhere.glob("*/artifact.json"):
        info.unlink()
    command = [sys.executable, "-m", "harness.cli", "validate", str(elsewhere), "--repo", str(project), "--json"]
    done = subprocess.run([*command, "--python", str(python)], capture_output=True, text=True, check=False)
    artifacts = json.loads(done.stdout)["artifacts"]
    return f"{sum(a['valid'] for a in artifacts)} of {len(artifacts)}"


def row(name: str, result: dict[str, Any], core_s: float, repeated: str) -> list[str]:
    attempts = result["attempts"]
    valid = [a for a in attempts if a["status"] == "valid"]
    sizes = [a["diff"].count("\ndiff --git ") + 1 for a in valid]
    lines = [sum(x[:1] in "+-" and x[:3] not in ("+++", "---") for x in a["diff"].splitlines()) for a in valid]
    broken = [a["fail_to_pass"] for a in valid]
    return [
        name,
        str(result["baseline"]["stable"]),
        f"{result['baseline']['seconds']:.1f}",
        str(len(attempts)),
        str(len(valid)),
        str(sum(a["status"] == "survived" for a in attempts)),
        ", ".join(f"{k} {v}" for k, v in result["rejected"].items()) or "-",
        str(sum(a["runs"] for a in attempts)),
        f"{core_s / max(1, len(valid)):.1f}",
        f"{len(valid) / (core_s / 3600):.0f}",
        f"{statistics.mean(sizes):.1f}" if sizes else "-",
        f"{statistics.median(lines):.0f}" if lines else "-",
        f"{statistics.median(broken):.0f}, {max(broken)}" if broken else "-",
        repeated,
    ]


def write(out: Path, rows: list[list[str]], arguments: argparse.Namespace) -> None:
    table = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    text = [
        "# Validated bugs on real projects",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `--count {arguments.count} "
        f"--jobs {arguments.jobs}`, full rule: seven checks, controls, repeats; screened in",
        "forks of warm processes, confirmed by the artifact's own script in fresh sandboxes; again: in fresh processes",
        "only. Seconds per artifact are wall time times jobs, rejected candidates and the baseline included.",
        "A core-hour is an hour of one job; what else the machine did counts against it.",
        "",
        *table,
        "",
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
