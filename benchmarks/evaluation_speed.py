"""Measure evaluations per core-hour: `ssr eval` in bubblewrap, and swebench's own steps in bare processes.

Run: `python benchmarks/evaluation_speed.py ROWS --repos CLONES --out benchmarks/results/NAME.md`.
If each row names an image (`benchmarks/row_images.py` builds some), both run in Docker instead.
ROWS are in SWE-bench's format (`benchmarks/mine_rows.py` creates some), CLONES their repositories. Both grade the same
predictions in turn: the reference solutions; the same with a comment, which is another patch; and a comment alone,
which repairs nothing. swebench checks out the commit, applies the patch, restores the test files, runs the tests once
and reads the log, all with its own code (tests/peers/swebench_parts.py). CPU time is what the kernel has counted for a
control group in which a command and all its descendants run: no other figure includes processes that a sandbox ends
without waiting for them. That needs a cgroup that this user may create. With Docker, the engine with the processes that
it starts, and all containers, are counted too (class Engine), so that no other containers may run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attacks import install
from projects import plain

from pytest_ssr.patch import Patch

PEERS = Path(__file__).resolve().parents[1] / "tests" / "peers"
RIVAL = "swebench==5.0.2"
THEIRS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from swebench_parts import Swebench
rows, preds, repos, python, folder, jobs = sys.argv[2:]
read = lambda path: [json.loads(line) for line in Path(path).read_text().splitlines()]
peer = Swebench(read(rows), Path(repos), Path(python))
predictions = {p["instance_id"]: p for p in read(preds)}
if predictions:
    peer.run(predictions, Path(folder), "speed", timeout_s=1800, jobs=int(jobs))
    print(json.dumps(peer.totals(predictions, Path(folder), "speed")["resolved_ids"]))
"""
TOPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))
"""Where cgroup versions 1 and 2 are mounted."""
_COMMENT = "# A comment, and nothing else.\n"


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and results of one command."""

    wall_s: float
    cpu_s: float
    resolved: int
    of: int

    @property
    def per_core_hour(self) -> float:
        """Evaluations per hour of CPU time."""
        return self.of / self.cpu_s * 3600


def writable_top() -> Path:
    """Return the folder in which this user may create control groups; exits if this is not allowed."""
    top = next((p for p in TOPS if os.access(p, os.W_OK)), None)
    if top is None:
        raise SystemExit("cannot count CPU time: this user may not create a control group")
    return top


class Engine:
    """Counts the CPU time of Docker's engine, in a control group of its own, and of its containers."""

    def __init__(self) -> None:
        top = writable_top()
        self._group, self._containers = top / f"evaluation-speed-engine-{os.getpid()}", top / "docker"

    def __enter__(self) -> Self:
        self._group.mkdir()
        self._move(self._group)
        return self

    def __exit__(self, *_: object) -> None:
        self._move(self._group.parent)
        remove(self._group)

    def _move(self, group: Path) -> None:
        """Move the engine and the parents of its containers; what they start later follows them."""
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "comm").read_text().startswith(("dockerd", "containerd")):
                    (group / "cgroup.procs").write_text(path.name)

    def used_s(self) -> float:
        """Return the CPU seconds so far."""
        return used_s(self._group) + used_s(self._containers)


def measured(
    command: Sequence[object], accepted: Sequence[int] = (0,), *, engine: Engine | None = None
) -> tuple[float, float, str]:
    """Run a command; return wall seconds, CPU seconds of all its processes (and of the engine), and its output."""
    top = writable_top()
    group = top / f"evaluation-speed-{os.getpid()}"
    group.mkdir()
    try:
        argv = ["bash", "-c", 'echo 0 > "$0" && exec "$@"', group / "cgroup.procs", *command]
        begin, before_s = time.monotonic(), engine.used_s() if engine else 0.0
        done = subprocess.run([str(w) for w in argv], capture_output=True, text=True, check=False)
        wall_s = time.monotonic() - begin
        cpu_s = used_s(group) + (engine.used_s() - before_s if engine else 0.0)
    finally:
        remove(group)
    if done.returncode not in accepted:
        raise SystemExit(f"{command[:4]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return wall_s, cpu_s, done.stdout


def used_s(group: Path) -> float:
    """Return the CPU seconds that a control group and those below it have used."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def remove(group: Path) -> None:
    """Remove a control group after its last process has ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def predictions(rows: Sequence[Mapping[str, Any]], repos: Path) -> dict[str, list[dict[str, str]]]:
    """Return the sets of predictions by their names."""
    prediction_sets: dict[str, list[dict[str, str]]] = {"gold": [], "gold and a comment": [], "a comment alone": []}
    for row in rows:
        patch = Patch.parse(row["patch"].encode())
        for name, with_solution in zip(prediction_sets, (True, True, False), strict=True):
            text = row["patch"] if name == "gold" else commented(row, patch, repos, with_solution=with_solution)
            prediction = {"instance_id": row["instance_id"], "model_name_or_path": "m", "model_patch": text}
            prediction_sets[name].append(prediction)
    return prediction_sets


def commented(row: Mapping[str, Any], patch: Patch, repos: Path, *, with_solution: bool) -> str:
    """Return a diff that appends a comment to a file of the solution, with or without the solution."""
    name = row["repo"].replace("/", "__")
    repository = next(p for n in (name, f"{name}.git") if (p := repos / n).is_dir())
    with tempfile.TemporaryDirectory() as checkout:
        git = ["git", "-C", checkout, "-c", "advice.detachedHead=false"]
        subprocess.run(["git", "clone", "-q", "--shared", "-n", str(repository), checkout], check=True)
        subprocess.run([*git, "checkout", "-q", row["base_commit"]], check=True)
        if with_solution:
            subprocess.run([*git, "apply", "-"], input=row["patch"], text=True, check=True)
        path = next(p for p in patch.paths if p.endswith(".py") and (Path(checkout) / p).exists())
        with (Path(checkout) / path).open("a") as file:
            file.write(_COMMENT)
        subprocess.run([*git, "add", "-A"], check=True)
        return subprocess.run([*git, "diff", "--cached"], check=True, capture_output=True, text=True).stdout


class Race:
    """Runs both graders on the same rows."""

    def __init__(self, arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]], work: Path) -> None:
        self.rows, self.work, self.jobs, self.repos = rows, work, arguments.jobs, arguments.repos
        self.path = self._write_jsonl("rows", rows)
        self.engine = Engine() if all(row.get("image") for row in rows) else None
        self.python = arguments.python or plain(arguments.folder)
        self.rival = install(RIVAL, arguments.folder)

    def _write_jsonl(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        path = self.work / f"{name.replace(' ', '-')}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return path

    def ours(self, name: str, given: Sequence[Mapping[str, str]], *more: str) -> Cost:
        """Grade with `ssr eval`; all runs share a store."""
        path = self._write_jsonl(name, given)
        argv = [sys.executable, "-m", "harness.cli", "eval", self.path, "--predictions", path, "--repos", self.repos]
        argv += ["--images", "docker"] if self.engine else ["--python", self.python, "--sandbox", "bubblewrap"]
        argv += ["-n", self.jobs, "--store", self.work / "store"]
        out = Path(tempfile.mkdtemp(dir=self.work))
        wall_s, cpu_s, output = measured([*argv, "--out", out, "--json", *more], accepted=(0, 1), engine=self.engine)
        summary = json.loads(output)
        if summary["graded"] != len(given):
            raise SystemExit(f"{name}: {summary['graded']} of {len(given)} were graded")
        return Cost(wall_s, cpu_s, summary["resolved"], len(given))

    def theirs(self, name: str, given: Sequence[Mapping[str, str]]) -> tuple[Cost, float]:
        """Grade with swebench; also return the seconds of the tests themselves."""
        path, folder = self._write_jsonl(name, given), Path(tempfile.mkdtemp(dir=self.work))
        argv = [self.rival, "-c", THEIRS, PEERS, self.path, path, self.repos, self.python, folder]
        wall_s, cpu_s, output = measured([*argv, self.jobs], engine=self.engine)
        resolved = len(json.loads(output.splitlines()[-1])) if given else 0
        logs = (p.read_text() for p in folder.rglob("run_instance.log"))
        tests_s = sum(float(s) for log in logs for s in re.findall(r"Test runtime: ([\d._]+) seconds", log))
        return Cost(wall_s, cpu_s, resolved, len(given)), tests_s


def line(name: str, cost: Cost, beside: Cost) -> str:
    """Return a row of the table."""
    ratio = cost.per_core_hour / beside.per_core_hour
    figures = f"{cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.per_core_hour:.0f} | {ratio:.2f}"
    return f"| {name} | {cost.resolved} of {cost.of} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--python", type=Path, help="interpreter that runs the tests (default: one with only pytest)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=100, help="number of rows to use, from the first on")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for environments")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.repos, arguments.folder = arguments.repos.resolve(), arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(text) for text in arguments.rows.read_text().splitlines()][: arguments.most]
    work = Path(tempfile.mkdtemp(prefix="evaluation-speed-"))
    stack = contextlib.ExitStack()
    try:
        race = Race(arguments, rows, work)
        if race.engine:
            stack.enter_context(race.engine)
        start, _ = race.theirs("nothing", [])
        table, tests = list[str](), list[str]()
        for name, given in predictions(rows, arguments.repos).items():
            cold = " (cold: an empty store)" if not table else " (warm: trees, references and environments are known)"
            ours = race.ours(name, given)
            theirs, tests_s = race.theirs(name, given)
            table += [line(f"swebench, {name}", theirs, theirs), line(f"ssr eval, {name}{cold}", ours, theirs)]
            tests.append(f"{name}: {tests_s:.1f} s")
            if name != "gold":
                table.append(line(f"ssr eval --no-logs, {name} (warm)", race.ours(name, given, "--no-logs"), theirs))
            write(arguments, race, start, table, tests)
    finally:
        stack.close()
        shutil.rmtree(work, ignore_errors=True)


def write(
    arguments: argparse.Namespace,
    race: Race,
    start: Cost,
    table: Sequence[str],
    tests: Sequence[str],
) -> None:
    """Write what has been measured so far."""
    repositories = ", ".join(sorted({row["repo"] for row in race.rows}))
    environment = "bare processes (swebench) and bubblewrap (`ssr eval`)"
    if race.engine:
        environment = "Docker, each row in its image"
    text = [
        "# Evaluations per core-hour",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/evaluation_speed.py`, "
        f"{RIVAL}, {arguments.jobs} at a time on {os.cpu_count()} cores. {len(race.rows)} rows of {repositories}, "
        f"in {environment}. The ratio is to swebench with the same predictions: above 1 is faster.",
        "",
        "| grader, predictions | resolved | wall s | CPU s | evaluations per core-hour | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
        *table,
        "",
        f"swebench with nothing to grade takes {start.cpu_s:.1f} s of CPU time, which its figures hold. Its runs of "
        f"the tests took, wall time added up: {'; '.join(tests)}. It runs them once for a verdict and believes the "
        "log. `ssr eval` runs them in a sandbox, once if a recorded test fails and otherwise again, blind and with "
        "other inputs; for the first verdict of a row also with and without the reference solution, and to learn what "
        "the original computes. With --no-logs, the first recorded failure ends a run.",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text) + "\n")
    print("\n".join(table), flush=True)


if __name__ == "__main__":
    main()
