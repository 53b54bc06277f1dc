"""Replay changes of real projects as pull requests, and measure what `ssr review` says of each, and when.

Run: `python benchmarks/pull_requests.py CLONE... --python PATH --count 4 --out benchmarks/results/NAME.md`. CLONE is
a git repository whose tests PATH can run. The last changes of each are taken, merge commits or others, that touch
code and not only tests, and whose tests run; each is reviewed against its first parent in a fresh checkout with an
empty store. The time is that from the command to its answer, start and measurement included; one run of the tests is
measured beside it. Every survivor with a remark is tried again cold: its diff is applied to another checkout and
plain pytest is run there, twice. A remark is wrong if tests fail then that pass without it. What is finished is kept
beside the result (.jsonl): an ended run goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_NO_CODE = ("test", "tests", "docs", "setup.py", "conftest.py", "noxfile.py", "tasks.py")
_MOST_SUITE_S = 600
_MOST_TRIED = 4
"""How many changes are tried for each that is wanted: old ones may have no tests that still run."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The review of one change."""

    project: str
    commit: str
    subject: str
    suite_s: float
    """Wall time of one plain run of the tests."""
    answer_s: float
    """Wall time from the command to its answer."""
    code: int
    tried: int
    remarks: Sequence[dict[str, Any]]
    more: int
    is_complete: bool
    wrong: Sequence[str]
    """The ids of survivors with which tests fail in a cold run."""
    problem: str = ""
    """Why there is no review, such as no test that can be collected."""
    unproven: Sequence[dict[str, Any]] = ()
    """Survivors without a remark, because no input was found that shows them."""
    failed: Sequence[str] = ()
    """The ids of remarks whose test does not tell the two states apart in a cold run."""


def main() -> int:
    """Replay, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--count", type=int, default=4, help="changes of each project")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    kept = options.out.with_suffix(".jsonl")
    done = [Replay(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    for clone in options.clones:
        name = clone.resolve().name
        for commit in _commits(clone, _MOST_TRIED * options.count):
            own = [r for r in done if r.project == name]
            if sum(not r.problem for r in own) >= options.count:
                break
            if any(r.commit == commit for r in own):
                continue
            replay = _replay(clone, name, commit, options.python.absolute())
            done.append(replay)
            with kept.open("a") as file:
                file.write(json.dumps(asdict(replay)) + "\n")
            print(_row(replay), flush=True)
    options.out.write_text(_page(done))
    return 0


def _git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


def _commits(clone: Path, count: int) -> list[str]:
    """Return the last commits that change code."""
    commits = _git(clone, "log", "--first-parent", "--format=%H", "-n", "600").split()
    return list(itertools.islice((commit for commit in commits if _has_code(clone, commit)), count))


def _has_code(clone: Path, commit: str) -> bool:
    try:
        names = _git(clone, "diff", "--name-only", "--diff-filter=AM", f"{commit}^1", commit).splitlines()
    except subprocess.CalledProcessError:
        return False
    paths = [Path(name) for name in names if name.endswith(".py")]
    return any(
        not set(path.parts) & set(_NO_CODE) and not path.name.startswith(("test_", "_version", "__version"))
        for path in paths
    )


def _replay(clone: Path, name: str, commit: str, python: Path) -> Replay:
    subject = _git(clone, "log", "-1", "--format=%s", commit).strip()
    with tempfile.TemporaryDirectory() as scratch:
        work, cold = Path(scratch, "work"), Path(scratch, "cold")
        for folder in (work, cold):
            subprocess.run(["git", "clone", "-q", str(clone.resolve()), str(folder)], check=True)
            _git(folder, "checkout", "-q", commit)
        suite_s, failing = _suite(cold, python)
        command = [sys.executable, "-m", "harness.cli", "review", f"{commit}^1", "--json", f"--python={python}"]
        start = time.monotonic()
        run = subprocess.run(
            [*command, f"--repo={work}"], cwd=_ROOT, capture_output=True, text=True, timeout=4 * _MOST_SUITE_S
        )
        answer_s = time.monotonic() - start
        try:
            found = json.loads(run.stdout)
        except ValueError:
            found = {"error": run.stderr.strip()[-300:] or "no answer"}
        remarks = found.get("remarks", [])
        unproven = found.get("unproven", [])
        wrong = [r["id"] for r in (*remarks, *unproven) if _is_noticed(cold, python, r["diff"], failing)]
        failed = [r["id"] for r in remarks if r["test"] and not _is_shown(cold, python, r)]
        return Replay(
            name,
            commit,
            subject,
            suite_s,
            answer_s,
            run.returncode,
            found.get("tried", 0),
            remarks,
            found.get("more", 0),
            found.get("complete", False),
            wrong,
            str(found.get("error") or found.get("nothing_to_do") or ""),
            unproven,
            failed,
        )


def _suite(folder: Path, python: Path) -> tuple[float, frozenset[str]]:
    """Return the wall time of one run of the tests, and the names of those that fail."""
    start = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
    # The interpreter may have another checkout of the project installed.
    own = {**os.environ, "PYTHONPATH": f"{folder}/src:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_SUITE_S, env=own)
    lines = run.stdout.splitlines()
    failing = frozenset(line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR ")))
    return time.monotonic() - start, failing


def _is_noticed(folder: Path, python: Path, diff: str, failing: frozenset[str]) -> bool:
    """Return whether tests fail with a change that pass without it, in two runs."""
    applied = subprocess.run(["git", "-C", str(folder), "apply", "-"], input=diff, text=True, capture_output=True)
    if applied.returncode != 0:
        raise RuntimeError(f"a diff does not apply: {applied.stderr}")
    try:
        return all(_suite(folder, python)[1] - failing for _ in range(2))
    finally:
        _git(folder, "checkout", "-q", "--", ".")


def _is_shown(folder: Path, python: Path, remark: dict[str, Any]) -> bool:
    """Return whether a suggested test passes on the code as it is and fails with the change."""
    path = folder / remark["test"]["folder"] / "test_of_remark.py"
    path.write_text(remark["test"]["content"])
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    own = {**os.environ, "PYTHONPATH": f"{folder}/src:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    codes = []
    try:
        for diff in ("", remark["diff"]):
            if diff:
                subprocess.run(["git", "-C", str(folder), "apply", "-"], input=diff, text=True, check=True)
            codes.append(subprocess.run(command, cwd=folder, capture_output=True, env=own).returncode)
    finally:
        path.unlink()
        _git(folder, "checkout", "-q", "--", ".")
    return codes == [0, 1]


def _row(replay: Replay) -> str:
    return (
        f"| {replay.project} | {replay.commit[:10]} | {replay.suite_s:.1f} | {replay.answer_s:.1f} | {replay.tried} | "
        f"{len(replay.remarks)} | {sum(bool(r['test']) for r in replay.remarks)} | {len(replay.unproven)} | "
        f"{len(replay.wrong)} | "
        f"{'' if replay.is_complete else replay.problem.splitlines()[0][:80] if replay.problem else 'cut'} |"
    )


def _page(done: Sequence[Replay]) -> str:
    return "\n".join(_lines(done)) + "\n"


def _lines(done: Sequence[Replay]) -> Iterator[str]:
    reviewed = [r for r in done if not r.problem]
    yield "# Reviews of real changes\n"
    projects = len({r.project for r in done})
    yield f"{len(done)} changes of {projects} projects, {datetime.now(UTC).date()}; see the script.\n"
    if reviewed:
        own = sorted(r.answer_s - r.suite_s for r in reviewed)
        remarks = [remark for r in reviewed for remark in r.remarks]
        wrong, tested = sum(len(r.wrong) for r in reviewed), sum(bool(remark["test"]) for remark in remarks)
        yield (
            f"From command to answer, without one run of the tests: median {statistics.median(own):.0f} s, "
            f"worst {own[-1]:.0f} s. Remarks: {len(remarks)}, {len(remarks) / len(reviewed):.1f} a change; with a "
            f"test: {tested}, of which {sum(len(r.failed) for r in reviewed)} do not tell the two apart in a cold run. "
            f"Survivors without a remark, as no input was found that shows them: "
            f"{sum(len(r.unproven) for r in reviewed)}. Noticed in a cold run, so wrong: {wrong}.\n"
        )
    yield (
        "| project | commit | tests, s | answer, s | tried | remarks | with a test | unproven | wrong | not complete |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from map(_row, done)
    yield "\n## Remarks\n"
    for replay in reviewed:
        for remark in replay.remarks:
            yield f"- {replay.project} {replay.commit[:10]} {remark['path']}:{remark['line']}: {remark['text']}"


if __name__ == "__main__":
    sys.exit(main())
