"""Record that this process runs the changed source of a project, and not another copy of it.

A change proves nothing about the tests unless the process that ran them loaded the changed file: pytest, a plugin or
an editable install may have imported another copy, or the same file before it was changed. A file counts as exercised
if its source was compiled after `watch` was called, or if the code of its live functions was exchanged.
"""

import importlib.machinery
import importlib.util
import os
import sys

import ssr_system_calls

_ROOT = os.getcwd()
_Loader = importlib.machinery.SourceFileLoader
_get_code = _Loader.get_code
_watched = {}
_loaded_before = set()
_exercised = set()


def watch(paths):
    """Start recording which of these files, given relative to the root of the tree, are loaded."""
    for path in paths:
        _watched[os.path.realpath(os.path.join(_ROOT, path))] = path
    _loaded_before.update(id(module) for module, _ in _rewritten_modules())
    _Loader.get_code = _recording


def add(path):
    """Record that the live functions of a file got the code of the changed source."""
    _exercised.add(path)


def exercised():
    """Return the watched files whose changed source this process has loaded, sorted."""
    _exercised.update(path for module, path in _rewritten_modules() if id(module) not in _loaded_before)
    return sorted(_exercised)


def _recording(loader, fullname):
    path = _watched.get(ssr_system_calls.realpath(loader.path))
    from_source = path is not None and not _is_cached(loader.path)
    code = _get_code(loader, fullname)
    if from_source:
        _exercised.add(path)
    return code


def _is_cached(path):
    """Return whether a compiled file, possibly of an older source, could be loaded instead of the source."""
    try:
        return ssr_system_calls.exists(importlib.util.cache_from_source(path))
    except NotImplementedError:
        return False


def _rewritten_modules():
    """Yield the watched modules whose assertions pytest has rewritten; its loader compiles the source by itself."""
    for module in list(sys.modules.values()):
        facts = getattr(module, "__dict__", None) or {}
        file = facts.get("__file__")
        if isinstance(file, str) and type(facts.get("__loader__")).__name__ == "AssertionRewritingHook":
            path = _watched.get(os.path.realpath(file))
            if path is not None:
                yield module, path


if os.environ.get("SSR_WATCHED"):
    with open(os.environ.pop("SSR_WATCHED"), encoding="utf-8", errors="surrogateescape") as _file:
        watch([path for path in _file.read().split("\0") if path])
