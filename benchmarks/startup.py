"""Measure what the plugin costs a run that does not use it, by paired runs of `pytest` with and without it.

Run: `python benchmarks/startup.py [--pairs 30]`. Each pair runs `pytest --collect-only` on an empty project once with
the plugin blocked (`-p no:ssr`) and once with it, in alternating order; the output is the difference in CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

NO_TESTS_COLLECTED = 5


def cpu_ms(folder: str, *options: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *options]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != NO_TESTS_COLLECTED:
        raise SystemExit(f"pytest ended with status {process.returncode}: {' '.join(command)}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    pairs = parser.parse_args().pairs
    differences, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs):
            if number % 2:
                without, with_it = cpu_ms(folder, "-p", "no:ssr"), cpu_ms(folder)
            else:
                with_it, without = cpu_ms(folder), cpu_ms(folder, "-p", "no:ssr")
            differences.append(with_it - without)
            bare.append(without)
    low, _, high = statistics.quantiles(differences, n=4)
    print(f"pytest without the plugin: {statistics.median(bare):.0f} ms of CPU time")
    print(f"the plugin adds {statistics.median(differences):.1f} ms (quartiles {low:.1f} to {high:.1f}, {pairs} pairs)")


if __name__ == "__main__":
    main()
