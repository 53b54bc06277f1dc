"""Try pytest-ssr on projects as a new user does, and re-run every survivor in a fresh process.

Run: `python benchmarks/new_projects.py FOLDER --out NAME.jsonl [--projects bleach,hpack] [--count 5] [--time 8m]`.
FOLDER holds the projects, each unpacked and with a `.venv` in which the project, the packages of its tests, pytest and
pytest-ssr are installed, and a file `projects.toml` with a table for each:

    [hpack]
    kind = "hypothesis, src layout"
    arguments = ["tests"]   # what the user adds to `pytest`; may be left out

For each project, `pytest` runs twice, then `pytest --ssr-inject` in a fresh store. Times are taken from outside: a bug
counts from the time when the record of its attempt is written. Then the diff of each survivor, and of each bug, is
applied to a copy of the project and `pytest` runs there without pytest-ssr (`cold_runs.py`). A survivor that a test
notices then is a wrong one. The log and the `--ssr-json` file of each project lie beside `--out`. Results already in
the file are not measured again; the table beside it (`NAME.md`) is rewritten after each project.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import statistics
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cold_runs import ColdProject, ColdVerdict, DiffRefusedError, user_environment
from project_kinds import TARGET_GRACE_S, TARGET_RUNS, attempts_of

_JUDGED = ("valid", "survived", "rejected")
_PLAIN = ("-q", "-p", "no:cacheprovider")
_SUITE_LIMIT_S = 600.0
_INJECT_LIMIT_S = 900.0
"""A command that still runs then does not keep its own time limit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One project."""

    project: str
    kind: str
    tests: int
    """The number of tests that pass in a plain run."""
    suite_s: float
    """The median of the plain runs."""
    first_s: float | None
    """Seconds from the start of the command to the first bug; None if there was none."""
    last_s: float | None
    """The same to the last of the wanted bugs."""
    wall_s: float
    exit_status: int | None
    """None if the command did not end."""
    statuses: dict[str, int]
    """Attempts by status."""
    checks: dict[str, int]
    """Rejections by check and code."""
    runs: int
    """Test runs of the command."""
    warm_runs: int
    changed_paths: tuple[str, ...]
    """The files that the attempts changed."""
    touched: tuple[str, ...]
    """Files of the project itself that are not as before the command."""
    wrong: tuple[dict[str, Any], ...] = ()
    """Survivors that plain pytest notices, with the tests."""
    marked: int = 0
    """Survivors marked as probably equivalent; they are run again, too."""
    unproven: int = 0
    """Survivors for which no run shows that the changed file was imported."""
    flaky: tuple[dict[str, Any], ...] = ()
    """Survivors with which a test failed once, but not each time."""
    bugs_noticed: int = 0
    """Bugs with which a test fails in a fresh process, too."""
    bugs_missed: tuple[dict[str, Any], ...] = ()
    phantoms: tuple[dict[str, Any], ...] = ()
    """Other bugs of which a FAIL_TO_PASS test does not fail in a fresh process, with these tests."""
    notes: tuple[str, ...] = ()

    @property
    def first_runs(self) -> float | None:
        """Runs of the suite to the first bug, without the seconds that the target allows in addition."""
        return None if self.first_s is None else max(0.0, self.first_s - TARGET_GRACE_S) / self.suite_s


def measure(source: Path, options: dict[str, Any], arguments: argparse.Namespace) -> Measured:
    """Measure one project."""
    user_arguments = options.get("arguments", [])
    plain = [run_suite(source, user_arguments) for _ in range(2)]
    suite_s = statistics.median(seconds for seconds, _ in plain)
    log, results = (arguments.out.with_name(f"{source.name}.{ending}") for ending in ("log", "json"))
    shutil.rmtree(source / ".ssr", ignore_errors=True)
    results.unlink(missing_ok=True)
    before = hashes(source)
    begun = time.time()
    exit_status = inject(source, log, results, user_arguments, arguments)
    wall_s = time.time() - begun
    touched = sorted(path for path, _ in set(before.items()) ^ set(hashes(source).items()))
    written, attempts = attempts_of(source / ".ssr")
    bugs = sorted(at - begun for at, a in zip(written, attempts, strict=True) if a["status"] == "valid")
    runs = re.search(r"test runs: (\d+)(?:, (\d+) of them in warm)?", log.read_text(errors="replace"))
    measured = Measured(
        project=source.name,
        kind=options["kind"],
        tests=plain[0][1],
        suite_s=round(suite_s, 2),
        first_s=round(bugs[0], 1) if bugs else None,
        last_s=round(bugs[arguments.count - 1], 1) if len(bugs) >= arguments.count else None,
        wall_s=round(wall_s, 1),
        exit_status=exit_status,
        statuses=dict(Counter(a["status"] for a in attempts)),
        checks=dict(Counter(f"{a['check']} {a['code']}" for a in attempts if a["status"] == "rejected")),
        runs=int(runs[1]) if runs else 0,
        warm_runs=int(runs[2] or 0) if runs else 0,
        changed_paths=tuple(sorted({path for a in attempts for path in paths_of(a["diff"])})),
        touched=tuple(touched),
    )
    return with_cold_results(measured, source, user_arguments, arguments)


def with_cold_results(
    measured: Measured, source: Path, user_arguments: Sequence[str], arguments: argparse.Namespace
) -> Measured:
    """Add what runs of the survivors and of the bugs in fresh processes show."""
    results = arguments.out.with_name(f"{source.name}.json")
    timeout_s = 60 + 10 * measured.suite_s
    return replace(measured, **cold_results(source, user_arguments, results, arguments.work, timeout_s=timeout_s))


def run_suite(source: Path, user_arguments: Sequence[str]) -> tuple[float, int]:
    """Run a project's suite as its users do; return the seconds and the number of tests that passed."""
    command = [str(source / ".venv" / "bin" / "pytest"), *_PLAIN, *user_arguments]
    begun = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=source,
        env=user_environment(source),
        capture_output=True,
        text=True,
        timeout=_SUITE_LIMIT_S,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{source.name}: plain pytest fails:\n{(done.stdout + done.stderr)[-2000:]}")
    passed = re.search(r"(\d+) passed", done.stdout)
    return seconds, int(passed[1]) if passed else 0


def inject(
    source: Path, log: Path, results: Path, user_arguments: Sequence[str], arguments: argparse.Namespace
) -> int | None:
    """Run `pytest --ssr-inject`; return its exit status, or None if it does not end."""
    command = [str(source / ".venv" / "bin" / "pytest"), "--ssr-inject", f"--ssr-count={arguments.count}"]
    command += ["-p", "no:cacheprovider", f"--ssr-time={arguments.time}", f"--ssr-json={results}", *user_arguments]
    with log.open("wb") as output:
        try:
            return subprocess.run(
                command,
                cwd=source,
                env=user_environment(source),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_INJECT_LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def cold_results(
    source: Path, user_arguments: Sequence[str], results: Path, work: Path, *, timeout_s: float
) -> dict[str, Any]:
    """Run the survivors and the bugs of a `--ssr-json` file in fresh processes."""
    if not results.exists():
        return {"notes": ("no file of --ssr-json",)}
    found = json.loads(results.read_text())
    project = ColdProject(source, user_arguments, work, timeout_s=timeout_s)
    notes: list[str] = []
    survivors = [(s, cold_verdict(project, s, notes)) for s in found["survivors"]]
    bugs = [(b, cold_verdict(project, b, notes)) for b in found["artifacts"]]
    return {
        "wrong": tuple({**summary(s), "tests": verdict.noticed} for s, verdict in survivors if verdict.noticed),
        "marked": sum(s["equivalence"] is not None for s, _ in survivors),
        "unproven": sum(not verdict.proven and not verdict.noticed for _, verdict in survivors),
        "flaky": tuple({**summary(s), "tests": verdict.flaky} for s, verdict in survivors if verdict.flaky),
        "bugs_noticed": sum(bool(verdict.noticed) for _, verdict in bugs),
        "bugs_missed": tuple(summary(b) for b, verdict in bugs if not verdict.noticed),
        "phantoms": tuple(
            {**summary(b), "tests": tests}
            for b, verdict in bugs
            if verdict.noticed and (tests := sorted(fail_to_pass(source, b["id"]) - set(verdict.noticed)))
        ),
        "notes": tuple(notes),
    }


def fail_to_pass(source: Path, artifact_id: str) -> set[str]:
    """Return an artifact's FAIL_TO_PASS tests, without those whose ids are only positions (`[#0]`)."""
    record = json.loads((source / ".ssr" / "artifacts" / artifact_id / "artifact.json").read_text())
    return {test for test in record["FAIL_TO_PASS"] if "[#" not in test}


def cold_verdict(project: ColdProject, change: dict[str, Any], notes: list[str]) -> ColdVerdict:
    """Run the suite with a change; one whose diff is refused gets a note and counts as unproven."""
    try:
        return project.verdict(change["diff"])
    except DiffRefusedError as error:
        notes.append(f"patch refuses the diff of {change['path']}:{change['line']} {change['operator']}: {error}")
        return ColdVerdict((), (), proven=False)


def summary(change: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies a change."""
    return {key: change.get(key) for key in ("path", "line", "scope", "operator", "equivalence", "diff")}


def hashes(source: Path) -> dict[str, str]:
    """Return the hashes of a project's files, without its environment, its store and compiled files."""
    files = {}
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if not {".venv", ".ssr", ".git", "__pycache__"} & set(parts) and path.is_file():
            files["/".join(parts)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def paths_of(diff: str) -> list[str]:
    """Return the files that a diff changes."""
    return re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)


HEAD = (
    "project",
    "kind",
    "tests",
    "suite s",
    "first bug s (runs)",
    "fifth bug s (runs)",
    "warm runs",
    "valid, survived, rejected, not judged",
    "wrong survivors",
    "bugs that fail cold",
)


def table_row(row: Measured) -> list[str]:
    """Return one row of the table."""
    counts = [row.statuses.get(status, 0) for status in _JUDGED]
    counts.append(sum(row.statuses.values()) - sum(counts))
    survived = row.statuses.get("survived", 0)
    return [
        row.project,
        row.kind,
        str(row.tests),
        f"{row.suite_s:.1f}",
        in_runs(row.first_s, row.suite_s),
        in_runs(row.last_s, row.suite_s),
        f"{row.warm_runs / row.runs:.0%} of {row.runs}" if row.runs else "-",
        ", ".join(map(str, counts)),
        f"{len(row.wrong)} of {survived}" + (f" ({row.unproven} unproven)" if row.unproven else ""),
        f"{row.bugs_noticed} of {row.bugs_noticed + len(row.bugs_missed)}",
    ]


def in_runs(seconds: float | None, suite_s: float) -> str:
    return "-" if seconds is None else f"{seconds:.0f} ({seconds / suite_s:.1f})"


def table(rows: Sequence[Measured]) -> str:
    """Return the table, and whether the projects together meet the targets."""
    # A project without a bug is worse than any other.
    runs = [float("inf") if row.first_runs is None else row.first_runs for row in rows]
    warm, total = sum(row.warm_runs for row in rows), sum(row.runs for row in rows)
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *map(table_row, rows))]
    lines += [
        "",
        f"- First bug: median {statistics.median(runs):.1f} runs of the suite after {TARGET_GRACE_S:.0f} s (target "
        f"{TARGET_RUNS:.0f}), worst {max(runs):.1f}.",
        f"- Runs in warm processes: {warm} of {total} ({warm / max(total, 1):.0%}).",
        f"- Wrong survivors: {sum(len(row.wrong) for row in rows)} of "
        f"{sum(row.statuses.get('survived', 0) for row in rows)} (target 0).",
    ]
    for row in rows:
        for entry in row.wrong:
            what = f"{entry['path']}:{entry['line']} {entry['scope']} {entry['operator']}"
            lines.append(f"- {row.project}: wrong survivor {what}: {', '.join(entry['tests'][:3])}")
        for entry in row.bugs_missed:
            what = f"{entry['path']}:{entry['line']} {entry['scope']} {entry['operator']}"
            lines.append(f"- {row.project}: no test fails with the bug {what}")
        for entry in row.phantoms:
            what = f"{entry['path']}:{entry['line']} {entry['scope']} {entry['operator']}"
            lines.append(f"- {row.project}: {len(entry['tests'])} of FAIL_TO_PASS do not fail with the bug {what}")
        lines += [f"- {row.project}: {note}" for note in row.notes]
        if row.touched:
            lines.append(f"- {row.project}: files that are not as before: {', '.join(row.touched[:5])}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="prepared projects and their projects.toml")
    parser.add_argument("--projects", help="comma-separated (default: all of projects.toml)")
    parser.add_argument("--count", type=int, default=5, help="bugs wanted (default 5)")
    parser.add_argument("--time", default="8m", help="--ssr-time of each project (default 8m)")
    parser.add_argument("--work", type=Path, default=Path("/tmp/ssr-new-projects"), help="folder for copies")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file; its results are not measured again")
    parser.add_argument(
        "--cold", action="store_true", help="for results in the file, repeat the runs without pytest-ssr"
    )
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.resolve()
    projects = tomllib.loads((arguments.folder / "projects.toml").read_text())
    names = arguments.projects.split(",") if arguments.projects else list(projects)
    if unknown := set(names) - set(projects):
        parser.error(f"not in projects.toml: {', '.join(sorted(unknown))}")
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    rows = {row["project"]: Measured(**row) for row in map(json.loads, lines)}
    for name in names:
        source, options = (arguments.folder / name).resolve(), projects[name]
        if name not in rows:
            rows[name] = measure(source, options, arguments)
        elif arguments.cold:
            rows[name] = with_cold_results(rows[name], source, options.get("arguments", []), arguments)
        arguments.out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows.values()))
        arguments.out.with_suffix(".md").write_text(table(list(rows.values())))
        print(" | ".join(table_row(rows[name])), flush=True)


if __name__ == "__main__":
    main()
