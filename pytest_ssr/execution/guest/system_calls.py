"""Provide the functions of `os` that our code inside a test process uses, as they were before the tests began.

Tests replace such functions, or forbid them while the project's code is on the stack (BlockBuster does, for what blocks
an event loop): our own calls must not count as the project's.
"""

import importlib.util
import os
import types

write = os.write
_stat = os.stat


def _private_path():
    """Return a copy of `os.path` with its own copy of `os`."""
    module = importlib.util.module_from_spec(os.path.__spec__)
    os.path.__spec__.loader.exec_module(module)
    module.os = types.SimpleNamespace(**vars(os))
    return module


realpath = _private_path().realpath


def exists(path):
    """Return whether a path exists."""
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True
