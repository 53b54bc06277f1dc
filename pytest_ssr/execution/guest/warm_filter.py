"""A filter of system calls that keeps a fork of a warm process from reaching that process by its id (seccomp(2)).

The fork is in a separate user namespace, so that the kernel refuses to trace the server or to read its memory. A signal
needs only the same user, which the fork has.
"""

import ctypes
import os
import platform
import struct

_SET_SECCOMP, _MODE_FILTER = 22, 2
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Calls whose first argument is a process id, with their numbers in the kernel's tables.
_CALLS = {
    "x86_64": {
        "kill": 62,
        "tkill": 200,
        "tgkill": 234,
        "rt_sigqueueinfo": 129,
        "rt_tgsigqueueinfo": 297,
        "pidfd_open": 434,
        "prlimit64": 302,
        "sched_setaffinity": 203,
    },
    "aarch64": {
        "kill": 129,
        "tkill": 130,
        "tgkill": 131,
        "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240,
        "pidfd_open": 434,
        "prlimit64": 261,
        "sched_setaffinity": 122,
    },
}


def _program(machine, numbers):
    """Return the steps of a filter that refuses the calls for these process ids."""
    calls = sorted(_CALLS[machine].values())
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # The x32 interface has other numbers for the same calls; other machines have none this high.
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    # A listed call jumps past the list and the step that allows all other calls.
    steps += [(_EQUAL, len(calls) - index, 0, call) for index, call in enumerate(calls)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    steps += [(_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    return [*steps, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]


def shield(server):
    """Forbid this process and its descendants to signal the server, its group, or all processes at once.

    The caller needs the capability CAP_SYS_ADMIN in its user namespace. Raises OSError.
    """
    machine = platform.machine()
    if machine not in _CALLS:
        return
    # A group created outside of this pid namespace has no id here, and 0 means the caller.
    numbers = {server, -os.getpgid(server), -1} - {0}
    steps = _program(machine, [number & 0xFFFFFFFF for number in sorted(numbers)])
    raw = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(raw))
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(program), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"the filter of system calls: {os.strerror(number)}")
