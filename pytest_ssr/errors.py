"""The exception tree. A bad artifact that can still be judged is a verdict, never an exception.

SsrError
├── ProjectError        the project cannot be worked on (no tests, read-only, a suite that hangs)
├── ArtifactError       an artifact directory or a diff cannot be read at all
├── SandboxError        a sandbox is absent or broke; never the fault of what ran inside
│   └── SandboxUnavailableError
├── ModelError          a model or its server failed; never what a model said
│   └── RefusedError    a server will not answer this request, for what is in it
│       └── ContextError    what has to be sent is longer than the model takes
├── StoreError          the store cannot be read or written
│   └── StoreWriteError a full disk, a read-only place; a run can go on once that is mended
├── SettingsError       an option has a value that makes no sense
├── NothingToDoError    the options leave nothing to do; nobody's fault
└── MissingExtraError   an optional package is not installed
"""

import errno
import traceback
from pathlib import Path


class SsrError(Exception):
    """The root of every error raised on purpose; its text is meant for the user, without a traceback."""


class ProjectError(SsrError):
    """The project cannot be worked on: not Python, no tests, all of them fail, the suite hangs."""


class ArtifactError(SsrError):
    """An artifact or a diff cannot be read, or does not apply."""


class SandboxError(SsrError):
    """A sandbox broke: an infrastructure fault, never a verdict about what ran in it."""


class SandboxUnavailableError(SandboxError):
    """The chosen sandbox does not work on this machine."""


class ModelError(SsrError):
    """A model gave no reply: an infrastructure fault, never a verdict about what it did before."""

    def __init__(self, message: str, *, retry: bool = False, wait_s: float = 0.0) -> None:
        """retry: the same request may be answered later, after `wait_s` seconds where the server says so."""
        super().__init__(message)
        self.retry = retry
        self.wait_s = wait_s


class RefusedError(ModelError):
    """A server will not answer this request, for what is in it; it may answer others."""


class ContextError(RefusedError):
    """A prompt does not fit into what the model takes, and nothing more can be left out."""


class StoreError(SsrError):
    """The store cannot be read or written."""


class StoreWriteError(StoreError):
    """The file system refused; what is finished stays, and the same command goes on later."""


class SettingsError(SsrError):
    """An option has an unknown or impossible value."""


class NothingToDoError(SsrError):
    """The options leave nothing to do, such as a diff without code; commands say so and end with status 0."""


class MissingExtraError(SsrError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed and is needed here; run: pip install 'pytest-ssr[{extra}]'")


def unforeseen(error: Exception) -> str:
    """Return an error that nobody raised on purpose, with its place in the code: it is one to be reported."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def advice(error: OSError, *, option: str = "--store") -> str:
    """Return what the file system says, and what to do about it where that is known.

    option: what chooses another place; empty where it is the user's word itself.
    """
    elsewhere = f"choose another place with {option}" if option else "choose another place"
    return {
        errno.ENOSPC: "the disk is full; free some space and run the same command again",
        errno.EDQUOT: "the quota is used up; free some space and run the same command again",
        errno.EROFS: f"the file system is read-only; {elsewhere}",
        errno.EACCES: f"permission is denied; {elsewhere}",
        errno.ENOTDIR: f"a file is in the way; {elsewhere}",
    }.get(error.errno or 0, f"{error.strerror or error}")
