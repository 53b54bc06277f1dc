"""Grade a working tree inside a container, as a standalone program for any Python 3.

Changes of a patch to the tests and to what runs them are undone and the improved tests applied; then the artifact's own
script and parser report which tests pass, and the tests are put back. The exit status is 0 if every test that has to
pass does. The output is in the form of the Test Anything Protocol, with exact ids.
"""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

_NAMES = [
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "tox.toml",
    "setup.cfg",
    "setup.py",
    "pyproject.toml",
    ".coveragerc",
    "noxfile.py",
    "sitecustomize.py",
    "usercustomize.py",
    "entry_points.txt",
]
_PATTERNS = ("test_*.py", "*_test.py", "test.py", "tests.py", "*.pth", "*.ambr", "*.snap")
_FOLDERS = ["test", "tests", "testdata", "test_data", "__snapshots__", "snapshots", "fixtures", "cassettes", "golden"]


def is_surface(path: str) -> bool:
    """Return whether a path belongs to the tests or to what runs them."""
    *folders, name = path.split("/")
    if name in _NAMES or any(fnmatch.fnmatchcase(name, p) for p in _PATTERNS):
        return True
    return any(f in _FOLDERS or f.endswith((".dist-info", ".egg-info")) for f in folders)


def git(*argv: str, **options: Any) -> bytes:
    """Run git in the working tree and return its output; raises CalledProcessError if it fails."""
    command = ("git", "-c", "safe.directory=*", "-c", "core.quotePath=off")
    done: bytes = subprocess.run(command + argv, check=True, stdout=subprocess.PIPE, **options).stdout
    return done


def restore(test_files: Any) -> None:
    """Undo changes to the tests, and delete files that were added there."""
    changes = git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split(b"\0")
    committed = set(git("ls-tree", "-r", "-z", "--name-only", "HEAD").split(b"\0"))
    for path in (line[3:] for line in changes if line):
        name = os.fsdecode(path)
        if name in test_files or is_surface(name):
            if path in committed:
                git("checkout", "-q", "HEAD", "--", name)
            else:
                git("rm", "-q", "--cached", "--ignore-unmatch", "--", name)
                if os.path.lexists(name):
                    os.unlink(name)


def main(task: Any) -> int:
    """Return the exit status. task: an object with specification, script, parser, test_files and tests."""
    restore(set(task["test_files"]))
    if task["specification"]:
        git("apply", "--whitespace=nowarn", "-", input=task["specification"].encode("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("script", "parser"):
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(task[name])
        command = ["bash", os.path.join(folder, "script")]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        command = [sys.executable, "-I", os.path.join(folder, "parser")]
        statuses = json.loads(subprocess.run(command, input=output, stdout=subprocess.PIPE, check=True).stdout)
    restore(set(task["test_files"]))
    passed = [name for name in task["tests"] if statuses.get(name) == "passed"]
    missed = [name for name in task["tests"] if statuses.get(name) != "passed"]
    results = [*(("ok", name) for name in passed), *(("not ok", name) for name in missed)]
    lines = [f"{result} {number} {name}" for number, (result, name) in enumerate(results, 1)]
    lines.append(f"# {len(passed)} of {len(task['tests'])} tests pass")
    # The locale of an image need not have the characters of an id.
    sys.stdout.buffer.write("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
    return 1 if missed or not task["tests"] else 0


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        sys.exit(main(json.load(source)))
