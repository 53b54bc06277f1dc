"""Measure how long two versions of this package list and rank the candidate repairs of a file, and compare the results.

Run: `git worktree add ../before REV`, then `python benchmarks/repair_listing.py FILE... --before ../before
--policy FOLDER --out benchmarks/results/NAME.md [--rounds 3]`.
The versions take turns, each in a process of its own, and list the repairs of every function of each file: by the
patterns, and again ranked by a policy. The times are processor times; hashes show whether both versions give the same
repairs with the same scores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# This text runs with each version's own modules.
_LISTING = """
import hashlib, json, sys, time
from pathlib import Path
from harness.solvers.search.patterns import repairs_of
from harness.solvers.search.policy import load_policy
from pytest_ssr.source.syntax_tree import parse, scopes

path, policy = Path(sys.argv[1]), load_policy(Path(sys.argv[2]))
source = parse(path.name, path.read_bytes())
every = scopes(source)
start = time.process_time()
repairs = [repairs_of(source, scope, every) for scope in every]
listed = time.process_time()
scores = [policy.scores(source, scope, own) for scope, own in zip(every, repairs)]
ranked = time.process_time()
digest = hashlib.sha256(repr((repairs, scores)).encode()).hexdigest()
print(json.dumps([listed - start, ranked - listed, sum(map(len, repairs)), digest]))
"""


def listing(version: Path, file: Path, policy: Path) -> tuple[float, float, int, str]:
    """Return the processor times for listing and for ranking, in seconds, the number of repairs, and a hash."""
    environment = {**os.environ, "PYTHONPATH": str(version), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _LISTING, str(file.resolve()), str(policy.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=version, env=environment)
    listed, ranked, count, digest = json.loads(done.stdout)
    return listed, ranked, count, digest


def main() -> None:
    """Measure both versions on each file, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier version")
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    versions = (arguments.before.resolve(), ROOT)
    lines = [
        "# The time to list and rank candidate repairs, before and after",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/repair_listing.py`: all "
        f"functions of a file; medians of {arguments.rounds} rounds in which the versions took turns. Times are "
        "processor times in seconds.",
        "",
        "| file | repairs | listed before | listed | ratio | ranked before | ranked | ratio | same result |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for file in arguments.files:
        runs = [[listing(version, file, arguments.policy) for version in versions] for _ in range(arguments.rounds)]
        medians = [[statistics.median(pair[v][part] for pair in runs) for v in (0, 1)] for part in (0, 1)]
        cells = [file.name, str(runs[0][1][2])]
        for before, after in medians:
            cells += [f"{before:.2f}", f"{after:.2f}", f"{before / after:.1f}"]
        is_same = len({digest for pair in runs for *_, digest in pair}) == 1
        lines.append(f"| {' | '.join([*cells, 'yes' if is_same else 'no'])} |")
        print(lines[-1], flush=True)
    arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
