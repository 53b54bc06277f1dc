"""Mine rows in SWE-bench's format whose tests run by the repository's own runner, not only by pytest.

Run: `python benchmarks/mine_native_rows.py --runner django --python PYTHON --out rows.jsonl [--start COMMIT] CLONE`.
CLONE is a git repository, bare or not, named owner__name; PYTHON the interpreter of an environment with what the
repository needs, but not the repository itself: PYTHONPATH is its tree. The runners are `django`
(`tests/runtests.py`), `sympy` (`bin/test`), `pytest` and `unittest` (`python -m unittest`). From the start on towards
older commits, each one that changes code and test files is tried: its test files run with the old code and with the new
code, twice each, in bubblewrap without a network. The ids are those that SWE-bench reads from the log: the text before
` ... ok`, which is a test's docstring if it has one, a bare function name for SymPy, the node id for pytest.
FAIL_TO_PASS are the ids that pass only with the new code, PASS_TO_PASS those that pass with both; ids whose outcome the
log of the old code does not show are neither, and a commit is left out if a run takes longer than `--time-limit`. Rows
already in the file are kept and not mined again. With `--check`, the rows in the file are run again, and none is mined.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MAX_LINES, _MAX_FILES = 300, 10
_TEST_PATH = re.compile(r"(.*/)?(tests?|testing)/|(.*/)?test_[^/]*\.py$")
_VERSION = re.compile(r"""^(?:__)?version(?:_info)?(?:__)?\b[^=\n]*=\D*?["'(]\s*(\d+)[.,]\s*(\d+)""", re.I | re.M)
_BEGUN = re.compile(r" \.\.\.(?: |$)")
_FAILED = re.compile(r"(?:FAIL|ERROR): (?P<name>.*)")
_RESULT = re.compile(r"(?P<name>.*) \.\.\. (?P<outcome>ok|FAIL|ERROR|skipped.*)$")


@dataclass(frozen=True)
class Outcomes:
    """The ids that passed, and those that began but whose outcome stands nowhere in the log."""

    passed: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NativeRunner:
    """How the test files of a repository are run, and how the log is read."""

    command: Callable[[list[str]], list[str]]
    read: Callable[[str], Outcomes]
    is_test_file: Callable[[str], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def read_unittest(log: str) -> Outcomes:
    """Read unittest's verbose output, in which a test's own output can come between its name and `ok`."""
    outcomes: dict[str, bool | None] = {}
    name = ""
    for line in map(str.strip, log.splitlines()):
        if result := _RESULT.match(line):
            name = result["name"]
            outcomes[name] = result["outcome"] == "ok"
        elif _BEGUN.search(line):
            name = _BEGUN.split(line, maxsplit=1)[0]
            outcomes.setdefault(name, None)
        elif name and line.startswith("ok"):
            outcomes[name] = True
        elif failed := _FAILED.match(line):
            outcomes[failed["name"]] = False
    return Outcomes(
        frozenset(name for name, ok in outcomes.items() if ok),
        frozenset(name for name, ok in outcomes.items() if ok is None),
    )


def read_sympy(log: str) -> Outcomes:
    lines = (line.strip() for line in log.splitlines())
    return Outcomes(frozenset(line.split()[0] for line in lines if line.startswith("test_") and line.endswith(" ok")))


def read_pytest(log: str) -> Outcomes:
    return Outcomes(frozenset(line.split()[1] for line in log.splitlines() if line.startswith("PASSED ")))


def is_pytest_file(path: str) -> bool:
    return re.match(r"test_.*\.py$", Path(path).name) is not None


RUNNERS = {
    "django": NativeRunner(
        lambda files: [
            *("tests/runtests.py", "--verbosity", "2", "--settings=test_sqlite", "--parallel", "1"),
            *(module_of(name.removeprefix("tests/")) for name in files),
        ],
        read_unittest,
        lambda path: path.startswith("tests/") and path.endswith(".py"),
    ),
    "sympy": NativeRunner(
        lambda files: ["bin/test", "-C", "--verbose", *files],
        read_sympy,
        is_pytest_file,
        {"PYTHONWARNINGS": "ignore::UserWarning,ignore::SyntaxWarning"},
    ),
    "pytest": NativeRunner(
        lambda files: ["-m", "pytest", "-rA", "-p", "no:cacheprovider", *files],
        read_pytest,
        is_pytest_file,
    ),
    "unittest": NativeRunner(
        lambda files: ["-m", "unittest", "-v", *map(module_of, files)],
        read_unittest,
        lambda path: "test" in Path(path).name and path.endswith(".py"),
    ),
}


def git(folder: Path, *argv: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *argv],
        check=True, capture_output=True, text=True, errors="surrogateescape", input=stdin,
    )  # fmt: skip
    return done.stdout


@dataclass(frozen=True)
class Commit:
    """A commit with one parent, and the paths that it changes."""

    name: str
    parent: str
    date: str
    message: str


def commits(clone: Path, start: str, most: int, under: list[str]) -> Iterator[Commit]:
    """Yield commits with one parent that change something under the paths, newest first."""
    style = ["--no-merges", f"--max-count={most}", "--format=%H%x00%P%x00%cI%x00%B%x01"]
    log = git(clone, "log", *style, start, "--", *under)
    for entry in log.split("\1"):
        name, *rest = entry.strip("\n").split("\0")
        if len(rest) == 3 and len(rest[0].split()) == 1:
            yield Commit(name, rest[0], rest[1], rest[2].strip())


def split_paths(clone: Path, commit: Commit, runner: NativeRunner) -> tuple[list[str], list[str]] | None:
    """Return the code and the test files of a commit, or None if it is not one small task with tests to run."""
    changes = git(clone, "diff", "--numstat", "--no-renames", commit.parent, commit.name).splitlines()
    counts = [line.split("\t") for line in changes]
    if len(counts) > _MAX_FILES or any(added == "-" for added, _, _ in counts):  # "-": a binary file
        return None
    if sum(int(added) + int(removed) for added, removed, _ in counts) > _MAX_LINES:
        return None
    tests = [path for *_, path in counts if _TEST_PATH.match(path)]
    code = [path for *_, path in counts if path not in tests]
    gone = git(clone, "diff", "--name-only", "--no-renames", "--diff-filter=D", commit.parent, commit.name).split("\n")
    runs = bool(tests) and all(runner.is_test_file(path) and path not in gone for path in tests)
    return (code, tests) if runs and any(path.endswith(".py") for path in code) else None


def version_of(clone: Path, commit: str) -> str:
    """Return the version of a commit as SWE-bench writes it: major and minor number."""
    package = clone.name.removesuffix(".git").rpartition("__")[2]
    for path in (f"{package}/release.py", f"{package}/__init__.py"):
        shown = subprocess.run(
            ["git", "-C", str(clone), "show", f"{commit}:{path}"], check=False, capture_output=True, text=True
        )
        if found := _VERSION.search(shown.stdout):
            return f"{found[1]}.{found[2]}"
    return ""


class Bench:
    """A tree of one repository in which test files run at any commit, with patches."""

    def __init__(self, clone: Path, tree: Path, runner: NativeRunner, python: Path, time_limit: float) -> None:
        self.tree, self.runner, self.python, self.time_limit = tree, runner, python, time_limit
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(clone), str(tree)], check=True)

    def run(self, commit: str, patches: list[str], files: list[str]) -> tuple[str, Outcomes] | None:
        """Run test files on a commit with patches; return the log and what it says, or None at the time limit."""
        git(self.tree, "checkout", "-q", "--force", "--detach", commit)
        git(self.tree, "clean", "-qffdx")
        for patch in patches:
            git(self.tree, "apply", "-", stdin=patch)
        try:
            done = subprocess.run(
                [*self._view(), str(self.python), *self.runner.command(files)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.time_limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        log = done.stdout.decode(errors="replace")
        return log, self.runner.read(log)

    def _view(self) -> list[str]:
        tree = str(self.tree)
        variables = {
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONPATH": tree,
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.runner.environment,
        }
        return [
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev"),
            *("--proc", "/proc", "--tmpfs", "/root", "--tmpfs", "/tmp", "--bind", tree, tree, "--clearenv"),
            *("--ro-bind", str(base := self.python.parent.parent), str(base)),
            *("--ro-bind", str(home := self.python.resolve().parent.parent), str(home)),
            *(part for name, value in variables.items() for part in ("--setenv", name, value)),
            *("--chdir", tree, "--"),
        ]


def mine_row(clone: Path, commit: Commit, bench: Bench, logs: Path | None) -> dict[str, Any] | None:
    """Return the row of a commit, or None if it is not a task."""
    paths = split_paths(clone, commit, bench.runner)
    if paths is None:
        return None
    patch, test_patch = (
        git(clone, "diff", "--no-color", "--no-ext-diff", "--no-renames", commit.parent, commit.name, "--", *part)
        for part in paths
    )
    identity = f"{clone.name.removesuffix('.git')}-{commit.name[:10]}"
    old, new = [test_patch], [test_patch, patch]
    runs: list[tuple[str, Outcomes]] = []
    for patches in (new, old, new, old):
        run = bench.run(commit.parent, patches, paths[1])
        if run is None or (patches is old and not runs[0][1].passed - run[1].passed):
            return None
        runs.append(run)
    (log_after, after), (log_before, before), (_, after_again), (_, before_again) = runs
    passed = after.passed & after_again.passed
    # A name without an outcome was interrupted by output: it need not have failed.
    fail_to_pass = passed - (before.passed | before_again.passed | before.unread | before_again.unread)
    if not fail_to_pass:
        return None
    if logs is not None:
        (logs / f"{identity}.before.log").write_text(log_before)
        (logs / f"{identity}.after.log").write_text(log_after)
    return {
        "repo": clone.name.removesuffix(".git").replace("__", "/", 1),
        "instance_id": identity,
        "base_commit": commit.parent,
        "patch": patch,
        "test_patch": test_patch,
        "problem_statement": commit.message,
        "hints_text": "",
        "created_at": commit.date,
        "version": version_of(clone, commit.parent),
        "FAIL_TO_PASS": json.dumps(sorted(fail_to_pass)),
        "PASS_TO_PASS": json.dumps(sorted(passed & before.passed & before_again.passed)),
        "environment_setup_commit": commit.parent,
    }


def check_row(row: Mapping[str, Any], bench: Bench) -> list[str]:
    """Run a row without and with its patch; return what does not hold."""
    files = re.findall(r"^\+\+\+ b/(.*)$", row["test_patch"], re.M)
    old = bench.run(row["base_commit"], [row["test_patch"]], files)
    new = bench.run(row["base_commit"], [row["test_patch"], row["patch"]], files)
    if old is None or new is None:
        return ["a run reached the time limit"]
    before, after = old[1].passed, new[1].passed
    wanted, kept = set(json.loads(row["FAIL_TO_PASS"])), set(json.loads(row["PASS_TO_PASS"]))
    return [
        *(f"passes without the patch: {name}" for name in sorted(wanted & before)),
        *(f"does not pass with the patch: {name}" for name in sorted((wanted | kept) - after)),
    ]


def mine(arguments: argparse.Namespace, bench: Bench, rows: list[dict[str, Any]]) -> None:
    """Add rows to the file until there are enough of them."""
    seen, count = {row["instance_id"] for row in rows}, 0
    with arguments.out.open("a") as out:
        for commit in commits(arguments.clone, arguments.start, arguments.tries, arguments.under):
            if count >= arguments.most:
                break
            if f"{arguments.clone.name.removesuffix('.git')}-{commit.name[:10]}" in seen:
                continue
            row = mine_row(arguments.clone, commit, bench, arguments.logs)
            if row is not None:
                count += 1
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"{row['instance_id']} {row['version']}: {row['FAIL_TO_PASS'][:100]}", flush=True)


def check(bench: Bench, rows: list[dict[str, Any]]) -> int:
    """Run the rows of the repository again; return how many do not hold."""
    bad = 0
    for row in rows:
        problems = check_row(row, bench)
        bad += bool(problems)
        print(row["instance_id"], "holds" if not problems else "; ".join(problems[:5]), flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="a repository named owner__name, or owner__name.git")
    parser.add_argument("--runner", choices=RUNNERS, required=True)
    parser.add_argument("--python", type=Path, required=True, help="interpreter of the repository's environment")
    parser.add_argument("--start", default="HEAD", help="commit to begin with; older ones follow")
    parser.add_argument("--under", action="append", default=[], metavar="PATH", help="only commits that change this")
    parser.add_argument("--most", type=int, default=4, help="number of rows to add")
    parser.add_argument("--tries", type=int, default=200, help="number of commits to look at")
    parser.add_argument("--time-limit", type=float, default=150, help="seconds for one run of the tests")
    parser.add_argument("--logs", type=Path, help="folder for each row's log without and with the patch")
    parser.add_argument("--check", action="store_true", help="run the file's rows of CLONE again")
    parser.add_argument(
        "--versions", type=re.compile, default=re.compile(""), help="with --check: a pattern that versions match"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if shutil.which("bwrap") is None:
        sys.exit("bubblewrap is needed: install bwrap")
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    rows = [json.loads(line) for line in lines]
    # Not resolved: the link in an environment's bin is what makes it that environment.
    python = Path(os.path.abspath(arguments.python))
    with tempfile.TemporaryDirectory(prefix="native-rows-") as folder:
        bench = Bench(
            arguments.clone.resolve(), Path(folder) / "testbed", RUNNERS[arguments.runner], python, arguments.time_limit
        )
        if not arguments.check:
            mine(arguments, bench, rows)
        else:
            repo = arguments.clone.name.removesuffix(".git").replace("__", "/", 1)
            chosen = [row for row in rows if row["repo"] == repo and arguments.versions.match(row["version"])]
            sys.exit(check(bench, chosen) and 1)


if __name__ == "__main__":
    main()
