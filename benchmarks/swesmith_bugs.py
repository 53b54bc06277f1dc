"""How many bugs that SWE-smith accepts are rejected here, and why: its own procedural bugs on a real project.

Run: `python benchmarks/swesmith_bugs.py CLONE ... --out benchmarks/results/NAME.md [--most 150]`.
A CLONE is a git repository named owner__name, bare or not, whose tests need nothing but pytest (or what --python has).
SWE-smith's package, in an environment of its own, makes bugs at its HEAD with the modifiers that it uses, validates
them as it does (the whole suite once with each bug, in a bare process in the place of a container), and what it would
make rows of is read by `harness.instances`. Each row's bug is then a candidate like any other: its tests are run, an
artifact is made with weakened tests, and the seven checks, the controls and the repeats are made, in bubblewrap.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
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

from harness.instances.checkouts import Checkouts
from harness.instances.instance import Instance
from harness.instances.reading import read_instances
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.opening import open_campaign
from pytest_ssr.settings import RuleSettings
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.store import Store

PEERS = Path(__file__).resolve().parents[1] / "tests" / "peers"
NEEDED = ("swesmith[generate]==0.0.9", "swebench==4.1.0", "pytest")
THEIRS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from swesmith_parts import Smith, mirror_of
owner, name, commit, clone, place, python, most, seed, workers = sys.argv[2:]
place = Path(place)
smith = Smith(owner, name, commit, mirror_of(Path(clone), place / "mirror"), place, Path(python))
bugs = smith.generated(most=int(most), seed=int(seed))
reports = smith.validated(bugs, workers=int(workers))
told = {k: "timed out" if r.get("timed_out") else "valid" if r.get("FAIL_TO_PASS") and r.get("PASS_TO_PASS") else
        "no PASS_TO_PASS" if r.get("FAIL_TO_PASS") else "no FAIL_TO_PASS" for k, r in reports.items()}
(place / "told.json").write_text(json.dumps(told))
rows = smith.rows(bugs, reports)
(place / "rows.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""


class Given:
    """An injector that brings the bugs of rows."""

    name = "swe-smith"

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield them in their order."""
        for instance in self._instances:
            bug = instance.patch.reverse()
            assert isinstance(tree, Snapshot)
            state = CodebaseState(tree).apply(bug)
            changes = {p: e.data for p, e in state.changes.items() if e is not None}
            yield Candidate("swe-smith", modifier(instance.id), changes, bug.paths[0], 1, "?", detail=instance.id)


def modifier(instance: str) -> str:
    """Return which of its modifiers made a bug."""
    return instance.rpartition(".")[2].rpartition("__")[0].removeprefix("func_pm_")


def made_by_them(arguments: argparse.Namespace, clone: Path, commit: str, work: Path, python: Path) -> dict[str, str]:
    """Let SWE-smith make and validate bugs; returns what it says of each, and leaves rows.jsonl."""
    environment = arguments.folder / "swesmith"
    rival = environment / "bin" / "python"
    if not (environment / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        subprocess.run([rival, "-m", "pip", "install", "-q", *NEEDED], check=True)
        (environment / "installed").touch()
    owner, _, name = clone.name.removesuffix(".git").partition("__")
    words = [rival, "-c", THEIRS, PEERS, owner, name, commit, clone, work, python]
    words += [arguments.most, arguments.seed, arguments.workers]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    told: dict[str, str] = json.loads((work / "told.json").read_text())
    return told


def judged(clone: Path, instances: Sequence[Instance], work: Path, python: Path) -> list[Attempt]:
    """Return what became of each bug here; the same change twice is tried once."""
    Checkouts(Store(work / "other"), clone.parent).write(instances[0], work / "tree")
    store = Store(work / "store")
    campaign = open_campaign(
        work / "tree",
        store,
        settings=RuleSettings(),
        injectors=Given.name,
        sandbox="bubblewrap",
        python=python,
        extra_injectors={Given.name: Given(instances)},
    )
    attempts = []
    try:
        while (attempt := campaign.attempt(len(attempts))) is not None:
            attempts.append(attempt)
            print(f"{attempt.detail}: {attempt.status} {attempt.check} {attempt.reason[:100]}", flush=True)
    finally:
        campaign.close()
    return attempts


def report(told: dict[str, str], attempts: Sequence[Attempt], about: str) -> list[str]:
    """Return what was seen on one project as Markdown."""
    accepted = [name for name, word in told.items() if word == "valid"]
    tried = {a.detail: a for a in attempts}
    valid = {a.detail for a in attempts if a.status is AttemptStatus.VALID}
    each = ", ".join(f"{n} {word}" for word, n in Counter(told.values()).most_common())
    text = [
        about,
        "",
        f"SWE-smith made {len(told)} bugs and accepts **{len(accepted)}** ({each}). Of those **"
        f"{len(accepted) - len(valid)} are rejected here** and {len(valid)} are valid.",
        "",
        "| modifier | made | accepted by SWE-smith | valid here | rejected here |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in sorted({modifier(i) for i in told}):
        mine = [i for i in accepted if modifier(i) == name]
        good = sum(i in valid for i in mine)
        text.append(
            f"| {name} | {sum(modifier(i) == name for i in told)} | {len(mine)} | {good} | {len(mine) - good} |"
        )
    why = Counter((a.check or str(a.status), shortened(a.reason)) for a in attempts if a.detail not in valid)
    why["repeated", "the same change as another of these bugs"] += sum(name not in tried for name in accepted)
    lines = [f"| {check} | {reason} | {n} |" for (check, reason), n in why.most_common() if n]
    table = ["| rejected by | why, ids and numbers left out | bugs |", "| --- | --- | --- |", *lines, ""]
    return [*text, "", *(table if lines else ())]


def shortened(reason: str) -> str:
    """Return a reason without what is particular to one bug."""
    text = re.sub(r"[\w/.-]+\.py(::[^\s,;:]+)*", "...", reason)
    text = re.sub(r"(\.\.\., )+(and \d+ more|\.\.\.)", "...", text)
    return re.sub(r"\d+(\.\d+)?", "N", text).replace("|", "/")[:120]


def measured(arguments: argparse.Namespace, clone: Path, python: Path) -> list[str]:
    """Return what was seen on one project."""
    git = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    work = Path(tempfile.mkdtemp(prefix="swesmith-bugs-"))
    try:
        begin = time.monotonic()
        told = made_by_them(arguments, clone, commit, work, python)
        theirs_s = time.monotonic() - begin
        print(Counter(told.values()), flush=True)
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
            told,
            attempts,
            f"To make and validate them took SWE-smith {theirs_s:.0f} s with {arguments.workers} workers (one run of "
            f"the whole suite for each bug); to prove or reject what it accepts took {ours_s:.0f} s here with one.",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path, nargs="+", metavar="CLONE")
    parser.add_argument("--python", type=Path, help="whose environment runs the tests (default: one with pytest alone)")
    parser.add_argument("--most", type=int, default=150, help="places and modifiers that SWE-smith tries")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2, help="of SWE-smith's validation")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="where environments are kept")
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
