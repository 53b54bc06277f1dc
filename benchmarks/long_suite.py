"""Measure the time to the first bug of a suite that takes ten minutes, and what is repeated after a kill.

Run: `python benchmarks/long_suite.py --out benchmarks/results/NAME.md [--minutes 10]`.
The project is created by `long_project.py`. First `ssr inject --count 1` runs undisturbed in a fresh store. Then, in
another store, it is killed (SIGKILL) when half of the tests have been seen running, started again, killed when every
test has been seen (the instrumented run of the baseline is over then), and started a third time, until there is a bug.
The names of the processes below `ssr inject` show from outside which tests run: a run that repeats the baseline shows
tests that had run before. With `--minutes` below 0.5, tests are too short for all to be seen.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from long_project import MODULES, SEEN_PREFIX, TESTS, make_project
from memory_watch import process_tree
from projects import plain

ROOT = Path(__file__).parent.parent
TARGET_RUNS = 3.0
"""A suite of ten minutes must have its first bug in under thirty."""
_POLL_S = 0.1
_EXIT_S = 5.0


@dataclass
class Observed:
    """What was observed of one `ssr inject`."""

    seconds: float = 0.0
    first_bug_s: float | None = None
    tests: set[str] = field(default_factory=set)
    """Tests that were seen running."""
    before_attempt: int | None = None
    """How many of them ran before the first candidate was done; None if no candidate was done."""
    test_s: float = 0.0
    """Seconds during which tests ran, summed over processes."""
    survivors: int = 0
    """Processes that were still alive five seconds after the kill."""
    failure: str = ""


def inject(
    project: Path, python: Path, store: Path, log: Path, *, limit_s: float, until: Callable[[Observed], bool]
) -> Observed:
    """Run `ssr inject --count 1` until it ends, or kill it when `until` returns true or the limit is over."""
    command = [sys.executable, "-m", "harness.cli", "inject", str(project), "--store", str(store), "--count", "1"]
    command += ["--python", str(python)]
    seen, begin, begun = Observed(), time.monotonic(), time.time()
    previous = len(attempts(store))
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        last = begin
        while process.poll() is None:
            tree, now = process_tree(process.pid), time.monotonic()
            record_running(seen, tree, now - last)
            last = now
            if seen.before_attempt is None and len(attempts(store)) > previous:
                seen.before_attempt = len(seen.tests)
            if until(seen) or now - begin > limit_s:
                process.kill()
                process.wait()
                seen.survivors = end_survivors(tree)
                break
            time.sleep(_POLL_S)
    seen.seconds = time.monotonic() - begin
    if process.returncode not in (0, -signal.SIGKILL):
        seen.failure = f"exit status {process.returncode}, see {log}"
    bugs = [path.stat().st_mtime - begun for path in attempts(store) if is_valid(path)]
    seen.first_bug_s = min(bugs, default=None)
    return seen


def record_running(seen: Observed, tree: list[int], elapsed_s: float) -> None:
    """Record which tests are running."""
    for pid in tree:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith(SEEN_PREFIX):
            seen.tests.add(name)
            seen.test_s += elapsed_s


def end_survivors(tree: list[int]) -> int:
    """Return how many processes of a killed program are still alive after a while, and end them."""
    end = time.monotonic() + _EXIT_S
    alive = [pid for pid in tree if Path(f"/proc/{pid}").exists()]
    while alive and time.monotonic() < end:
        time.sleep(_POLL_S)
        alive = [pid for pid in alive if Path(f"/proc/{pid}").exists()]
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(alive)


def attempts(store: Path) -> list[Path]:
    """Return the records of all candidates that are done."""
    return list(store.glob("attempts/*/*.json"))


def is_valid(path: Path) -> bool:
    return bool(json.loads(path.read_text())["status"] == "valid")


def suite_seconds(project: Path, python: Path) -> float:
    """Run the suite once with a plain pytest."""
    begin = time.perf_counter()
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def measure(arguments: argparse.Namespace) -> tuple[float, dict[str, Observed]]:
    """Return the seconds of one plain run, and the observations of each `ssr inject`."""
    work = arguments.folder / "long-suite"
    shutil.rmtree(work, ignore_errors=True)
    project, python = work / "project", plain(arguments.folder)
    make_project(project, arguments.minutes)
    suite_s = suite_seconds(project, python)
    print(f"one plain run: {suite_s:.0f} s", flush=True)
    limit_s = 60 + 12 * suite_s
    observations: dict[str, Observed] = {}

    def step(name: str, store: str, until: Callable[[Observed], bool]) -> Observed:
        seen = inject(project, python, work / store, work / f"{name}.log", limit_s=limit_s, until=until)
        observations[name] = seen
        print(f"{name}: {described(seen, suite_s)}", flush=True)
        return seen

    if not arguments.skip_undisturbed:
        step("undisturbed", "store", lambda seen: False)
    first = step("killed in the middle of the baseline", "store-killed", lambda s: len(s.tests) >= TESTS // 2)
    step("killed after the baseline", "store-killed", lambda s: len(first.tests | s.tests) >= TESTS)
    step("resumed", "store-killed", lambda seen: False)
    return suite_s, observations


def described(seen: Observed, suite_s: float) -> str:
    bug = "no bug" if seen.first_bug_s is None else f"first bug after {seen.first_bug_s:.0f} s"
    survivors = f", {seen.survivors} processes left over" if seen.survivors else ""
    failure = f", {seen.failure}" if seen.failure else ""
    return (
        f"{seen.seconds:.0f} s, {bug}, {len(seen.tests)} of {TESTS} tests seen, tests ran {seen.test_s:.0f} s "
        f"({seen.test_s / suite_s:.2f} runs){survivors}{failure}"
    )


def report(suite_s: float, observations: dict[str, Observed], arguments: argparse.Namespace) -> list[str]:
    """Return the lines of the report."""
    names = ("killed in the middle of the baseline", "killed after the baseline", "resumed")
    killed, second, resumed = (observations[name] for name in names)
    before = killed.tests | second.tests
    total_s = killed.seconds + second.seconds + (resumed.first_bug_s or resumed.seconds)
    lines = [
        "# First bug in a long suite",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"`benchmarks/long_suite.py --minutes {arguments.minutes:g}`. {TESTS} tests over {MODULES} modules, half of "
        f"them sleep, the others compute; one plain run takes {suite_s:.0f} s.",
        "",
        *(f"- {name}: {described(seen, suite_s)}" for name, seen in observations.items()),
        "",
        f"After the kill in the middle, {len(killed.tests & second.tests)} of {len(killed.tests)} tests "
        f"that had been seen were run again. After the kill at its end, {len(before & resumed.tests)} of "
        f"{len(before)} ({resumed.before_attempt or 0} of them before the first candidate was done); "
        f"tests ran {resumed.test_s / suite_s:.2f} suite runs until the end.",
        "",
    ]
    undisturbed = observations.get("undisturbed")
    if undisturbed is not None and undisturbed.first_bug_s is not None:
        lines.append(f"- first bug undisturbed: {against_target(undisturbed.first_bug_s, suite_s)}")
    if resumed.first_bug_s is not None:
        lines.append(f"- first bug, killed twice, all three runs added up: {against_target(total_s, suite_s)}")
    return [*lines, ""]


def against_target(seconds: float, suite_s: float) -> str:
    runs = seconds / suite_s
    verdict = "yes" if runs < TARGET_RUNS else "**no**"
    return f"{seconds / 60:.1f} min, {runs:.2f} suite runs (target: under {TARGET_RUNS:.0f}): {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the suite takes (default 10)")
    parser.add_argument("--skip-undisturbed", action="store_true", help="only the runs that are killed")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for the project")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    suite_s, observations = measure(arguments)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(report(suite_s, observations, arguments)))
    print(arguments.out.read_text())


if __name__ == "__main__":
    main()
