"""Mine rows in SWE-bench's format from the history of clones: commits that change code and tests, proven by running.

Run: `python benchmarks/mine_rows.py --out rows.jsonl [--python PYTHON] [--most 12] CLONE ...`.
CLONE is a folder with a git history, bare or not, named owner__name; PYTHON the interpreter whose environment runs its
tests (default: an environment built with uv). From the newest commit on, each one that changes Python code and tests is
tried: the tests run on the commit, and on the commit with its code as before. FAIL_TO_PASS are the tests that pass only
with the change, PASS_TO_PASS those that pass with both, twice each. Commits without a FAIL_TO_PASS test are skipped, as
are those that change too much to be one task. Rows already in the file are kept and not mined again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.datasets.environments import Environments
from harness.datasets.instance import Instance, InstanceError
from harness.datasets.repositories import Repositories
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ArtifactError, SsrError
from pytest_ssr.patch import Patch
from pytest_ssr.project.file_roles import is_injectable, is_test_file
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

_MAX_LINES, _MAX_FILES = 400, 12


def git(clone: Path, *argv: str) -> bytes:
    return subprocess.run(["git", "-C", str(clone), *argv], check=True, capture_output=True).stdout


def commits(clone: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield commits with one parent, newest first: hash, parent, date, message."""
    log = git(clone, "log", "--no-merges", "--format=%H%x00%P%x00%cI%x00%B%x01").decode(errors="replace")
    for entry in log.split("\1"):
        name, *rest = entry.strip("\n").split("\0")
        if len(rest) == 3 and len(rest[0].split()) == 1:
            yield name, rest[0], rest[1], rest[2].strip()


def mine_row(
    clone: Path, repo: str, name: str, parent: str, date: str, message: str, python: Path | None, store: Store
) -> Any:
    """Return the row of a commit, or None if it is not a task."""
    raw = git(clone, "diff", "--no-color", "--no-ext-diff", "--binary", "--full-index", "--no-renames", parent, name)
    try:
        whole = Patch.parse(raw)
    except ArtifactError:
        return None
    tests = [p for p in whole.paths if is_test_file(p) or re.match(r"(tests?|testing)/|.*/tests?/", p)]
    code = [p for p in whole.paths if p not in tests and is_injectable(p)]
    small = whole.stats.lines <= _MAX_LINES and len(whole.files) <= _MAX_FILES
    files = [p for p in tests if p.endswith(".py") and is_test_file(p)]
    if not (code and files and small):
        return None
    patch, test_patch = whole.select(code), whole.select(tests)
    identity = f"{repo.replace('/', '__')}-{name[:10]}"
    instance = Instance(identity, repo, parent, patch, test_patch, (), ())
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "testbed"
        try:
            Repositories(store, clone.parent).write(instance, tree, SharedFiles(store.trees))
            interpreter = Environments(store, python).python_of(replace(instance, created_at=date), tree)
            settings = RuleSettings(time_limit_s=120)
            runner = open_runner(tree, store, settings=settings, python=interpreter, sandbox="auto")
            present = [p for p in files if p in runner.snapshot.files]
            if not present:
                return None
            after = [runner.suite(runner.original, present, fresh=True, hash_seed=n)[0].passing for n in (0, 1)]
            before_state = runner.original.apply(patch.reverse())
            before = [runner.suite(before_state, present, fresh=True, hash_seed=n)[0].passing for n in (0, 1)]
        except (SsrError, InstanceError) as error:
            print(f"  {identity}: {error}", file=sys.stderr)
            return None
    fail_to_pass = sorted((after[0] & after[1]) - (before[0] | before[1]))
    if not fail_to_pass:
        return None
    return {
        "repo": repo,
        "instance_id": identity,
        "base_commit": parent,
        "patch": patch.data.decode("utf-8", "surrogateescape"),
        "test_patch": test_patch.data.decode("utf-8", "surrogateescape"),
        "problem_statement": message,
        "hints_text": "",
        "created_at": date,
        "version": "",
        "FAIL_TO_PASS": json.dumps(fail_to_pass),
        "PASS_TO_PASS": json.dumps(sorted(after[0] & after[1] & before[0] & before[1])),
        "environment_setup_commit": parent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", type=Path, help="folders named owner__name, or owner__name.git")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--most", type=int, default=12, help="rows per clone")
    parser.add_argument("--tries", type=int, default=200, help="commits to try per clone")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    seen = {json.loads(line)["instance_id"] for line in lines}
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("a") as out:
        for clone in arguments.clones:
            repo = clone.name.removesuffix(".git").replace("__", "/", 1)
            count = sum(i.startswith(f"{clone.name.removesuffix('.git')}-") for i in seen)
            for number, (name, parent, date, message) in enumerate(commits(clone)):
                if count >= arguments.most or number >= arguments.tries:
                    break
                if f"{repo.replace('/', '__')}-{name[:10]}" in seen:
                    continue
                row = mine_row(clone, repo, name, parent, date, message, arguments.python, Store(Path(folder) / "s"))
                if row is not None:
                    count += 1
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(f"{row['instance_id']}: {row['FAIL_TO_PASS'][:100]}", flush=True)


if __name__ == "__main__":
    main()
