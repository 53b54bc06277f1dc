"""Lock files of a store's folder; a lock ends with the process that holds it."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

from pytest_ssr.interrupts import raise_if_stopped

FOLDER = "locks"
_POLL_S = 0.1


def wait_for(descriptor: int, operation: int) -> None:
    """Wait until a lock is held, or until it is known that the file system has no locks."""
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_POLL_S)
            raise_if_stopped()
        except OSError:
            return
        else:
            return


def try_alone(descriptor: int) -> bool:
    """Hold a lock alone if nobody else has it; return whether that is so, which is unknown without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(root: Path, name: str) -> bool:
    """Return whether a process holds the lock of a name in a store's folder; see `Store.alone`."""
    try:
        with (root / FOLDER / name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # There is no such lock, or the file system has none.
        return False
    return False
