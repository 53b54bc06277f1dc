"""Hand on the output of a command while it runs; the result of the command contains all of it, too.

The listener belongs to the thread that runs the command, so that `exec` needs no argument that few callers use. What
it raises leaves `exec`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

OutputListener = Callable[[bytes], None]
"""Takes a part of standard output or standard error, in the order of arrival."""


class _Current(threading.local):
    listener: OutputListener | None = None


_current = _Current()


@contextlib.contextmanager
def listening(listener: OutputListener | None) -> Iterator[None]:
    """Call the listener with the output of commands that this thread runs in the block; None: with nothing."""
    outer = _current.listener
    _current.listener = listener
    try:
        yield
    finally:
        _current.listener = outer


def after_mark(mark: bytes) -> OutputListener:
    """Return a listener that hands the output behind a mark on to the present one."""
    outer, seen, is_behind = _current.listener, b"", False

    def hand_on_behind(data: bytes) -> None:
        nonlocal seen, is_behind
        if not is_behind:
            seen += data
            _, found, data = seen.partition(mark)
            is_behind = bool(found)
        if is_behind and outer is not None and data:
            outer(data)

    return hand_on_behind


def hand_on(data: bytes) -> None:
    """Pass output to this thread's listener, if it has one."""
    if _current.listener is not None:
        _current.listener(data)
