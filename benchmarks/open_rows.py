"""Measure what opening many rows of one repository takes: seconds beside `git worktree add`, and disk.

Run: `python benchmarks/open_rows.py CLONE --python PYTHON --target tests/basic/tests.py [--rows 50] [--every 100]
[--graded]`.
CLONE is a folder with a git history, named owner__name or owner__name.git. A row is made from every N-th commit, from
the newest on. Opening a row writes its tree into a store, takes its snapshot and compiles what collecting the test file
TARGET imports. In turn with that, `git worktree add` checks out the same commit; its seconds include nothing else.
Seconds are wall time and CPU time of all processes, which a busy machine changes less; that needs a cgroup that this
user may create. Each row is opened again at the end, as a second run does. With `--graded`, a row's trees are removed
after it is opened, as `ssr eval` does after grading, and none is opened again. Disk is that of the blocks of all files
of the store, each counted once; with `--graded`, before the trees are removed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evaluation_speed import remove, used_s, writable_top

from harness.datasets.instance import Instance
from harness.datasets.instance_task import discard_trees, shown_at, tree_of, trees_of
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


class Seconds(NamedTuple):
    """What an action takes."""

    wall: float
    cpu: float


@contextmanager
def own_group() -> Iterator[Path]:
    """Yield a control group that this process and those that it starts are in."""
    top = writable_top()
    group = top / f"open-rows-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text("0")
        yield group
    finally:
        (top / "cgroup.procs").write_text("0")
        remove(group)


def seconds(group: Path, action: Callable[[], Any]) -> Seconds:
    start, before = time.monotonic(), used_s(group)
    action()
    return Seconds(time.monotonic() - start, used_s(group) - before)


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
    parser.add_argument("--graded", action="store_true", help="remove the trees of each row, as ssr eval does")
    arguments = parser.parse_args()
    with own_group() as group:
        measure(arguments, group)


def measure(arguments: argparse.Namespace, group: Path) -> None:
    """Print what opening takes."""
    keep = not arguments.graded
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
                tree_of(row, repositories, store, keep=keep),
                store,
                settings=RuleSettings(),
                sandbox="bubblewrap",
                python=arguments.python,
                test_runner=RUNNERS[arguments.runner],
                targets=[arguments.target],
                shown_at=shown_at(row, store),
                trees=trees_of(row, store, keep=keep),
            )

        print("| row | files | `git worktree add`, s (CPU) | opening, s (CPU) | store, MiB | files of the store |")
        print("|---|---|---|---|---|---|")
        times = []
        for number, row in enumerate(rows, 1):
            worktree = Path(folder) / "worktree"
            command = ["worktree", "add", "--quiet", "--detach", str(worktree), row.base_commit]
            checkout = seconds(group, lambda command=command: git(arguments.clone, *command))  # type: ignore[misc]
            file_count = disk(worktree)[1]
            git(arguments.clone, "worktree", "remove", "--force", str(worktree))
            opening = seconds(group, lambda row=row: open_row(row))  # type: ignore[misc]
            times.append((checkout, opening))
            size, count = disk(store.root)
            cells = [*(f"{s.wall:.2f} ({s.cpu:.2f})" for s in (checkout, opening)), f"{size / 2**20:.1f}", count]
            print(f"| {number} | {file_count} | {' | '.join(map(str, cells))} |", flush=True)
            if not keep:
                discard_trees(row, store)
        summary(times[1:] or times)
        if keep:
            again = [seconds(group, lambda row=row: open_row(row)) for row in rows]  # type: ignore[misc]
            line("opened again", again)


def summary(times: list[tuple[Seconds, Seconds]]) -> None:
    """Print medians over the rows after the first."""
    print(
        "\n| after the first row | wall s, median | wall s, most | CPU s, median | CPU s, most |\n|---|---|---|---|---|"
    )
    line("`git worktree add`", [checkout for checkout, _ in times])
    line("opening", [opening for _, opening in times])
    line("opening less `git worktree add`", [Seconds(o.wall - c.wall, o.cpu - c.cpu) for c, o in times])


def line(name: str, some: list[Seconds]) -> None:
    cells = [f"{f(s[n] for s in some):.2f}" for n in (0, 1) for f in (statistics.median, max)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
