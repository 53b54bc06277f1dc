"""Write reports to the channel, and find what a process has imported; shared by the reporters of all test runners.

Input: `SSR_CHANNEL` (a file to append to). Output: one JSON object per line.
"""

import collections
import json
import os
import random
import sys
import tempfile
import time

import ssr_system_calls

_FD = os.open(os.environ.pop("SSR_CHANNEL"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
_PID = os.getpid()


def send(kind, **fields):
    """Write a record, unless this is a process that the tests have started."""
    if os.getpid() == _PID:
        # The kind comes last: whoever watches a run counts the ends of lines. Plain dictionaries had no order in 3.5.
        record = collections.OrderedDict(fields)
        record["kind"] = kind
        ssr_system_calls.write(_FD, (json.dumps(record) + "\n").encode())


def send_end(root, code):
    """Write the record of the end of a run: the exit status, and which files were imported from where."""
    sources, foreign = imported(root)
    evidence = sys.modules.get("ssr_evidence")
    exercised = evidence.exercised() if evidence is not None else []
    send("end", exit=code, sources=sources, foreign=foreign, exercised=exercised, time=time.time())


def redirect(channel):
    """In a fork of a warm process: report to another channel."""
    global _FD, _PID
    _FD, _PID = channel, os.getpid()


def shuffled(items, seed):
    """Reorder files, and in each file its classes and functions; tests that share a fixture scope stay together.

    Seed 1 reverses the order, so that of any two tests the other one comes first and no dependence is missed.
    """
    rng = random.Random(seed)
    shuffle = list.reverse if seed == "1" else rng.shuffle
    files = {}
    for item in items:
        parts = item.nodeid.split("::")
        block = "::".join(parts[:2]) if len(parts) > 2 and "[" not in parts[1] else item.nodeid
        files.setdefault(parts[0], {}).setdefault(block, []).append(item)
    order = list(files)
    shuffle(order)
    result = []
    for name in order:
        blocks = list(files[name].values())
        shuffle(blocks)
        for block in blocks:
            if seed == "1":
                block.reverse()
            result.extend(block)
    return result


def imported(root):
    """Return the imported files of the tree, and the modules that the tree has but that came from elsewhere.

    What tests of pytest plugins have made in a temporary folder, and run there with pytest, is no such module.
    """
    prefix = root.rstrip("/") + "/"
    temporary = os.path.realpath(tempfile.gettempdir()) + "/"
    sources, foreign = set(), set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        path = os.path.abspath(path)
        if path.startswith(prefix):
            if "/site-packages/" not in path:
                sources.add(path[len(prefix) :])
        elif "." not in name and not is_rewritten(module) and not os.path.realpath(path).startswith(temporary):
            for base in ("src/", ""):
                for tail in ("/__init__.py", ".py"):
                    if os.path.exists(prefix + base + name + tail):
                        foreign.add(name + " (" + path + ")")
    return sorted(sources), sorted(foreign)


def is_rewritten(module):
    """Return whether a hook of pytest has loaded a module: a test file, a conftest.py or a plugin."""
    return type(getattr(module, "__dict__", {}).get("__loader__")).__name__ == "AssertionRewritingHook"


def outside_modules(root):
    """Return what is imported from outside of the tree and not by a hook of pytest, in the order of import."""
    prefix = root.rstrip("/") + "/"
    names = []
    for name, module in list(sys.modules.items()):
        facts = getattr(module, "__dict__", {})
        path = facts.get("__file__")
        inside = isinstance(path, str) and path.startswith(prefix) and "/site-packages/" not in path
        if isinstance(name, str) and path and not inside and not is_rewritten(module):
            names.append(name)
    return [name for name in names if name != "__main__" and not name.startswith("ssr_")]
