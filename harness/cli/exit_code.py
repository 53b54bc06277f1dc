"""Define the exit codes of `ssr`."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a command."""

    DONE = 0
    NO = 1
    """A negative result."""
    USAGE = 2
    """Wrong usage."""
    BROKEN = 3
    """A failure, or no result."""
