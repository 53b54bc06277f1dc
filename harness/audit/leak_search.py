"""Look for a solution and for tests in what an agent can read.

This runs inside of a sandbox or a container, with its Python, which may be as old as 3.5. It reads a request as JSON
from the file that its argument names, or from standard input, and prints the codes of the leaks as JSON.
"""

import fnmatch
import json
import os
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Set

_MOST_BYTES, _MOST_FILES, _MOST_LOG = 2 << 20, 40000, 64 << 20
_SHARE = 0.8
_SKIPPED = (".git", "proc", "sys", "dev", "node_modules", "site-packages", "dist-packages", "pkgs")
_GIT_S = 60


def holds(text: str, lines: List[str]) -> bool:
    """Return whether a text holds nearly all of some lines; there may be none."""
    return bool(lines) and sum(line in text for line in lines) >= _SHARE * len(lines)


def content(path: str) -> bytes:
    """Return the content of a regular file that is not large; empty for anything else."""
    try:
        if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > _MOST_BYTES:
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def files_below(top: str, root: str) -> Iterator[str]:
    """Yield the files below a folder, without installed packages, and without another tree in it."""
    count = 0
    for folder, folders, names in os.walk(top):
        folders[:] = [n for n in folders if n not in _SKIPPED and (os.path.join(folder, n) != root or top == root)]
        for name in names:
            count += 1
            if count > _MOST_FILES:
                return
            yield os.path.join(folder, name)


def git(root: str, arguments: List[str], data: bytes = b"") -> bytes:
    """Return the beginning of what git prints; empty without git or a repository."""
    command = ["git", "-c", "safe.directory=*", "-C", root, *arguments]
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_GIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout[:_MOST_LOG]


def is_in_history(root: str, files: List[Dict[str, Any]]) -> bool:
    """Return whether a repository holds a solved file, reachable or not, or commits that lead to it."""
    if not os.path.exists(os.path.join(root, ".git")):
        return False
    ids = "".join("%s\n" % f["blob"] for f in files if f["blob"])
    if any(
        line.split()[1:2] == [b"blob"] for line in git(root, ["cat-file", "--batch-check"], ids.encode()).splitlines()
    ):
        return True
    later = ["log", "--all", "--reflog", "-p", "--not", "HEAD", "--"]
    return any(
        holds(git(root, [*later, f["path"]]).decode("utf-8", "replace"), f["added"]) for f in files if f["added"]
    )


def found_in_tree(request: Dict[str, Any]) -> Set[str]:
    """Return what the tree itself shows."""
    root, found = request["root"], set()
    solved = {os.path.join(root, f["path"]) for f in request["files"]}
    for path in files_below(root, root):
        if path.endswith(".pyc"):
            if is_compiled(path, request["files"]):
                found.add("cache")
            continue
        text = content(path).decode("utf-8", "replace")
        if (path not in solved or request["itself"]) and any(holds(text, f["lines"]) for f in request["files"]):
            found.add("solution-in-image")
        if any(holds(text, f["lines"]) for f in request["tests"]):
            found.add("tests-in-image")
    return found


def is_compiled(path: str, files: List[Dict[str, Any]]) -> bool:
    """Return whether a compiled file holds the new words of a solved module."""
    stem = os.path.basename(path).partition(".")[0]
    for file in files:
        if file["words"] and os.path.basename(file["path"]) == stem + ".py":
            data = content(path)
            if all(word.encode() in data for word in file["words"]):
                return True
    return False


def found_installed(request: Dict[str, Any]) -> Set[str]:
    """Return what the folders of installed packages show."""
    root, found = os.path.realpath(request["root"]), set()
    names = {os.path.basename(f["path"]) for f in request["files"]}
    folders = [os.path.realpath(p) for p in sys.path if p and os.path.isdir(p)]
    for top in sorted(set(folders)):
        if top == root or top.startswith(root + "/"):
            continue
        for folder, inner, present in os.walk(top):
            inner[:] = [n for n in inner if os.path.join(folder, n) != root]
            for name in present:
                path = os.path.join(folder, name)
                if name in names:
                    text = content(path).decode("utf-8", "replace")
                    same = [f for f in request["files"] if os.path.basename(f["path"]) == name]
                    if any(holds(text, f["lines"]) for f in same):
                        found.add("installed-copy")
                elif fnmatch.fnmatch(name, "*.pyc") and is_compiled(path, request["files"]):
                    found.add("installed-copy")
    return found


def found_elsewhere(request: Dict[str, Any]) -> Set[str]:
    """Return what other folders of the image show."""
    found = set()
    for top in request["elsewhere"]:
        for path in files_below(top, request["root"]):
            text = content(path).decode("utf-8", "replace")
            if any(holds(text, f["lines"]) for f in request["files"]):
                found.add("solution-in-image")
            if any(holds(text, f["lines"]) for f in request["tests"]):
                found.add("tests-in-image")
    return found


def main() -> None:
    """Answer one request."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as file:
            request = json.load(file)
    else:
        request = json.loads(sys.stdin.buffer.read().decode())
    found = found_in_tree(request) | found_installed(request) | found_elsewhere(request)
    if is_in_history(request["root"], request["files"]):
        found.add("git-history")
    print("\n" + json.dumps(sorted(found)))


if __name__ == "__main__":
    main()
