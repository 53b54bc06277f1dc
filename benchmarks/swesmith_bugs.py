"""Measure how many bugs that SWE-smith accepts are rejected here, and why: its procedural bugs on a real project.

Run: `python benchmarks/swesmith_bugs.py CLONE ... --out benchmarks/results/NAME.md [--most 150]`.
A CLONE is a git repository named owner__name, bare or not, whose tests need only pytest (or what --python has).
SWE-smith's package, in a separate environment, creates bugs at its HEAD with the modifiers that it uses and validates
them as it does (the whole suite once with each bug, in a bare process instead of a container); `harness.datasets` reads
the rows that it would create. Each row's bug is then a candidate like any other: its tests run, an artifact is made
with weakened tests, and the seven checks, the controls and the repeats run, in bubblewrap.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from projects import plain

from harness.datasets.instance import Instance
from harness.datasets.loading import read_instances
from harness.datasets.repositories import Repositories
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

PEERS = Path(__file__).resolve().parents[1] / "tests" / "peers"
NEEDED = ("swesmith[generate]==0.0.9", "swebench==4.1.0", "pytest")
THEIRS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from swesmith_parts import Smith, mirror_of
owner, name, commit, clone, folder, python, most, seed, workers = sys.argv[2:]
folder = Path(folder)
smith = Smith(owner, name, commit, mirror_of(Path(clone), folder / "mirror"), folder, Path(python))
bugs = smith.generated(most=int(most), seed=int(seed))
reports = smith.validated(bugs, workers=int(workers))
verdicts = {k: "timed out" if r.get("timed_out") else "valid" if r.get("FAIL_TO_PASS") and r.get("PASS_TO_PASS") else
        "no PASS_TO_PASS" if r.get("FAIL_TO_PASS") else "no FAIL_TO_PASS" for k, r in reports.items()}
(folder / "verdicts.json").write_text(json.dumps(verdicts))
rows = smith.rows(bugs, reports)
(folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""


class RowInjector:
    """An injector that yields the bugs of rows."""

    name = "swe-smith"

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield the bugs in the order of the rows."""
        for instance in self._instances:
            bug = instance.patch.reverse()
            assert isinstance(tree, Snapshot)
            state = CodebaseState(tree).apply(bug)
            changes = {p: e.data for p, e in state.changes.items() if e is not None}
            yield Candidate("swe-smith", modifier(instance.id), changes, bug.paths[0], 1, "?", detail=instance.id)


def modifier(instance: str) -> str:
    """Return which of SWE-smith's modifiers created a bug."""
    return instance.rpartition(".")[2].rpartition("__")[0].removeprefix("func_pm_")


def run_swesmith(arguments: argparse.Namespace, clone: Path, commit: str, work: Path, python: Path) -> dict[str, str]:
    """Create and validate bugs with SWE-smith; return its verdict on each, and write rows.jsonl."""
    environment = arguments.folder / "swesmith"
    rival = environment / "bin" / "python"
    if not (environment / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        subprocess.run([rival, "-m", "pip", "install", "-q", *NEEDED], check=True)
        (environment / "installed").touch()
    owner, _, name = clone.name.removesuffix(".git").partition("__")
    argv = [rival, "-c", THEIRS, PEERS, owner, name, commit, clone, work, python]
    argv += [arguments.most, arguments.seed, arguments.workers]
    done = subprocess.run([str(w) for w in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    verdicts: dict[str, str] = json.loads((work / "verdicts.json").read_text())
    return verdicts


def judged(clone: Path, instances: Sequence[Instance], work: Path, python: Path) -> list[CandidateResult]:
    """Return the result of each bug here; the same change twice is tried once."""
    Repositories(Store(work / "other"), clone.parent).write(instances[0], work / "tree", SharedFiles(work))
    store = Store(work / "store")
    campaign = open_campaign(
        work / "tree",
        store,
        settings=RuleSettings(),
        injectors=RowInjector.name,
        sandbox="bubblewrap",
        python=python,
        extra_injectors={RowInjector.name: RowInjector(instances)},
    )
    attempts = []
    try:
        while (attempt := campaign.attempt(len(attempts))) is not None:
            attempts.append(attempt)
            print(f"{attempt.detail}: {attempt.status} {attempt.explanation[:100]}", flush=True)
    finally:
        campaign.close()
    return attempts


def report(verdicts: dict[str, str], attempts: Sequence[CandidateResult], about: str) -> list[str]:
    """Return the results on one project as Markdown."""
    accepted = [name for name, verdict in verdicts.items() if verdict == "valid"]
    results = {a.detail: a for a in attempts}
    valid = {a.detail for a in attempts if a.status is CandidateStatus.VALID}
    each = ", ".join(f"{n} {verdict}" for verdict, n in Counter(verdicts.values()).most_common())
    text = [
        about,
        "",
        f"SWE-smith made {len(verdicts)} bugs and accepts **{len(accepted)}** ({each}). Of those **"
        f"{len(accepted) - len(valid)} are rejected here** and {len(valid)} are valid.",
        "",
        "| modifier | made | accepted by SWE-smith | valid here | rejected here |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in sorted({modifier(i) for i in verdicts}):
        own = [i for i in accepted if modifier(i) == name]
        good = sum(i in valid for i in own)
        text.append(
            f"| {name} | {sum(modifier(i) == name for i in verdicts)} | {len(own)} | {good} | {len(own) - good} |"
        )
    rejections = Counter((a.check or str(a.status), code_of(a)) for a in attempts if a.detail not in valid)
    rejections["repeated", "the same change as another of these bugs"] += sum(name not in results for name in accepted)
    lines = [f"| {check} | {reason} | {n} |" for (check, reason), n in rejections.most_common() if n]
    table = ["| rejected by | code | bugs |", "| --- | --- | --- |", *lines, ""]
    return [*text, "", *(table if lines else ())]


def code_of(attempt: CandidateResult) -> str:
    """Return the code of the reason why a bug is rejected; empty if it is valid."""
    return str(attempt.reason.code) if attempt.reason is not None else ""


def measured(arguments: argparse.Namespace, clone: Path, python: Path) -> list[str]:
    """Measure one project; return the results as Markdown."""
    git = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    work = Path(tempfile.mkdtemp(prefix="swesmith-bugs-"))
    try:
        begin = time.monotonic()
        verdicts = run_swesmith(arguments, clone, commit, work, python)
        theirs_s = time.monotonic() - begin
        print(Counter(verdicts.values()), flush=True)
        instances = read_instances(str(work / "rows.jsonl"))
        begin = time.monotonic()
        attempts = judged(clone, instances, work, python)
        ours_s = time.monotonic() - begin
    finally:
        shutil.rmtree(work, ignore_errors=True)
    name = clone.name.removesuffix(".git").replace("__", "/", 1)
    return [
        f"## {name} at {commit[:10]}",
        "",
        *report(
            verdicts,
            attempts,
            f"To make and validate them took SWE-smith {theirs_s:.0f} s with {arguments.workers} workers (one run of "
            f"the whole suite for each bug); to prove or reject what it accepts took {ours_s:.0f} s here with one.",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path, nargs="+", metavar="CLONE")
    parser.add_argument("--python", type=Path, help="interpreter that runs the tests (default: one with only pytest)")
    parser.add_argument("--most", type=int, default=150, help="locations and modifiers that SWE-smith tries")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2, help="workers of SWE-smith's validation")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for environments")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    python = arguments.python or plain(arguments.folder)
    text = [
        "# SWE-smith's bugs under the rule of this package",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/swesmith_bugs.py`, "
        f"{' with '.join(NEEDED[:2])}; {arguments.most} places for its modifiers, seed {arguments.seed}.",
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for clone in arguments.clones:
        text += measured(arguments, clone.absolute(), python)
        arguments.out.write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
