"""What forks of one process share: open files, the files that capture output, mapped memory."""

import os
import stat


def shares_memory():
    """Tell whether memory is mapped that a write of one fork would change for all."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.split(" ", 2)[1][1::2] == "ws" for line in file)


def open_files():
    """Return the open descriptors whose position or content forks would share, or that lead past their view."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISDIR(mode):
            found.add(int(name))
    return found


def _captures(config):
    manager = config.pluginmanager.getplugin("capturemanager")
    capturing = getattr(manager, "_global_capturing", None)
    return [c for c in (getattr(capturing, n, None) for n in ("in_", "out", "err")) if c is not None]


def is_capture(number, config):
    """Tell whether a descriptor is one by which pytest captures output."""
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
    """Take out what an earlier child left in the files that capture output."""
    for capture in _captures(config):
        file = getattr(capture, "tmpfile", None)
        try:
            file.seek(0)
            file.truncate()
        except (OSError, ValueError, AttributeError):
            pass
