"""The functions of `os` that our code inside a test process uses, as they were before the tests began.

Tests replace such functions, or forbid them while the project's code is on the stack (BlockBuster does, for what blocks
an event loop): what we do there must not count as the project's doing.
"""

import importlib.util
import os
import types

write = os.write
_stat = os.stat


def _private_path():
    """Return a copy of `os.path` with an `os` of its own."""
    module = importlib.util.module_from_spec(os.path.__spec__)
    os.path.__spec__.loader.exec_module(module)
    module.os = types.SimpleNamespace(**vars(os))
    return module


realpath = _private_path().realpath


def exists(path):
    """Tell whether a path leads to something."""
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True
