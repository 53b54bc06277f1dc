"""Measure what opening many rows of one repository takes: seconds beside `git worktree add`, and disk.

Run: `python benchmarks/open_rows.py CLONE --python PYTHON --target tests/basic/tests.py [--rows 50] [--every 100]`.
CLONE is a folder with a git history, named owner__name or owner__name.git. A row is made from every N-th commit, from
the newest on. Opening a row writes its tree into a store, takes its snapshot and compiles what collecting the test file
TARGET imports. In turn with that, `git worktree add` checks out the same commit; its seconds include nothing else. Each
row is opened again at the end, as a second run of an evaluation does. Disk is that of the blocks of all files of the
store, each counted once, and after a `sync` of neither.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.datasets.instance import Instance
from harness.datasets.instance_task import shown_at, tree_of
from harness.datasets.repositories import Repositories
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.test_runners import RUNNERS
from pytest_ssr.patch import Patch
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


def git(clone: Path, *argv: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *argv], check=True, capture_output=True, text=True).stdout


def disk(folder: Path) -> tuple[int, int]:
    """Return the bytes of the blocks of all files and folders, each counted once, and their number."""
    seen: dict[int, int] = {}
    for top, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = os.lstat(os.path.join(top, name))
            seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values()), len(seen)


def seconds(action: Callable[[], Any]) -> float:
    start = time.monotonic()
    action()
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--runner", choices=RUNNERS, default="django")
    parser.add_argument("--target", required=True, help="a test file that all commits have")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--every", type=int, default=100, help="commits between two rows")
    parser.add_argument("--first", default="HEAD", help="the newest commit")
    parser.add_argument("--folder", type=Path, help="folder on the disk to measure (default: a temporary one)")
    arguments = parser.parse_args()
    repo = arguments.clone.name.removesuffix(".git").replace("__", "/", 1)
    log = git(arguments.clone, "log", "--first-parent", "--format=%H", arguments.first).split()
    commits = log[:: arguments.every][: arguments.rows]
    empty = Patch.parse(b"")
    rows = [Instance(f"row-{n}", repo, commit, empty, empty, (), ()) for n, commit in enumerate(commits)]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store = Store(Path(folder) / "store")
        repositories = Repositories(store, arguments.clone.parent)

        def open_row(row: Instance) -> None:
            open_runner(
                tree_of(row, repositories, store),
                store,
                settings=RuleSettings(),
                sandbox="bubblewrap",
                python=arguments.python,
                test_runner=RUNNERS[arguments.runner],
                targets=[arguments.target],
                shown_at=shown_at(row, store),
            )

        print("| row | files | `git worktree add`, s | opening, s | store, MiB | files of the store |")
        print("|---|---|---|---|---|---|")
        times = []
        for number, row in enumerate(rows, 1):
            worktree = Path(folder) / "worktree"
            command = ["worktree", "add", "--quiet", "--detach", str(worktree), row.base_commit]
            checkout_s = seconds(lambda command=command: git(arguments.clone, *command))  # type: ignore[misc]
            file_count = disk(worktree)[1]
            git(arguments.clone, "worktree", "remove", "--force", str(worktree))
            opening_s = seconds(lambda row=row: open_row(row))  # type: ignore[misc]
            times.append((checkout_s, opening_s))
            if number in (1, 2, 10, len(rows)):
                size, count = disk(store.root)
                cells = [f"{checkout_s:.2f}", f"{opening_s:.2f}", f"{size / 2**20:.1f}", count]
                print(f"| {number} | {file_count} | {' | '.join(map(str, cells))} |", flush=True)
        again = [seconds(lambda row=row: open_row(row)) for row in rows]  # type: ignore[misc]
        later = times[1:] or times
        more = [opening - checkout for checkout, opening in later]
        print(f"\nAfter the first row: `git worktree add` {statistics.median(c for c, _ in later):.2f} s (median), ")
        print(f"opening {statistics.median(o for _, o in later):.2f} s; opening took at most {max(more):.2f} s more, ")
        print(f"{statistics.median(more):.2f} s (median). Opened again: {statistics.median(again):.2f} s (median), ")
        print(f"at most {max(again):.2f} s.")


if __name__ == "__main__":
    main()
