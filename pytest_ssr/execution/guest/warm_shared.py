"""Find what forks of one process share: open files, the files that capture output, mapped memory."""

import os
import stat


def shares_memory():
    """Return whether memory is mapped that a write by one fork would change for all."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.split(" ", 2)[1][1::2] == "ws" for line in file)


def open_files():
    """Return the open descriptors whose position or content forks would share, or that bypass their view."""
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISDIR(mode):
            descriptors.add(int(name))
    return descriptors


def _captures(config):
    manager = config.pluginmanager.getplugin("capturemanager")
    capturing = getattr(manager, "_global_capturing", None)
    return [c for c in (getattr(capturing, n, None) for n in ("in_", "out", "err")) if c is not None]


def is_capture(number, config):
    """Return whether pytest captures output with a descriptor."""
    for capture in _captures(config):
        for name in ("tmpfile", "syscapture"):
            file = getattr(capture, name, None)
            file = getattr(file, "tmpfile", file)
            try:
                if file is not None and file.fileno() == number:
                    return True
            except (OSError, ValueError, AttributeError):
                pass
        if number in (getattr(capture, "targetfd_save", None), getattr(capture, "targetfd", None)):
            return True
    return False


def empty_captures(config):
    """Empty the files that capture output of what an earlier child left."""
    for capture in _captures(config):
        file = getattr(capture, "tmpfile", None)
        try:
            file.seek(0)
            file.truncate()
        except (OSError, ValueError, AttributeError):
            pass
