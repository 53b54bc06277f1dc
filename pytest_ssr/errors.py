"""Define the exceptions. A bad artifact that can still be judged gets a verdict, never an exception.

SsrError
├── ProjectError                the project cannot be used (no tests, read-only, a suite that hangs)
│   └── LeakError               a solver could read the fix of a task
├── ArtifactError               an artifact directory or a diff cannot be read at all
│   └── DiffError               a submitted diff cannot be read, or does not apply
├── SandboxError                a sandbox is missing or failed; never the fault of what ran inside
│   ├── SandboxUnavailableError it does not work on this machine
│   │   ├── EnvironmentsDifferError a machine of a cluster has other packages than the run
│   │   ├── SandboxMissingError what it needs is not installed
│   │   └── UnreachableError    a sandbox server does not answer
│   ├── WorkerLostError         a unit of work has lost its worker each time
│   ├── UnresponsiveError       a container does not answer
│   ├── TooLargeError           a file or folder of a task's container exceeds the limit for reading
│   └── RemoteError             a sandbox server refuses a call, or the call failed there
├── ModelError                  a model or its server failed; never the content of a reply
│   ├── ModelUnavailableError   its server is out of reach, or refuses requests for now
│   ├── RefusedError            a server rejects this request because of its content
│   │   └── ContextError        the prompt does not fit into the model's context
│   ├── UnknownPathError        a server does not know a path
│   ├── FieldsRefusedError      a server rejects fields of a request
│   └── BudgetSpentError        the budget of tokens or money is spent
├── StoreError                  the store cannot be read or written
│   ├── DamagedTreeError        what machines have shared as the tree of an artifact is not that tree
│   └── StoreWriteError         a full disk, a read-only directory; a run can continue once that is fixed
├── SettingsError               an option has an invalid value
│   ├── NoRunError              a store has no run of a project that could be reported
│   ├── DiskFullError           a disk has no space for a run that has not begun
│   ├── NotPublishableError     a folder is not published, because of itself or of what is at its destination
│   ├── GgufError               a GGUF file of a language model cannot be converted
│   ├── MissingKeyError         the variable with a model's key is not set
│   ├── KeyNotAllowedError      a registered model names a key that the operator does not allow
│   └── ServersAwayError        models' servers are out of reach before a command begins
├── InstanceError               an instance of a dataset cannot be used
│   ├── DoesNotHoldError        what a row says of its tests does not hold here
│   │   ├── ReferenceFailsError  tests do not pass with the reference solution
│   │   └── EmptyResolvesError  tests that it should repair pass without it
│   └── RowError                a row of a dataset cannot be read; also a SettingsError
│       ├── OtherLanguageError  it is of another programming language
│       └── UnsupportedTaskError  a task directory of Harbor cannot be used here
├── TaskError                   a task directory of Harbor cannot be used
├── ActionError                 an environment cannot take this action
├── ImageError                  an image of a container cannot be read from its registry
├── DockerfileError             a Dockerfile cannot be followed without Docker, or a line of it fails
├── GradingError                a defect has prevented a grade
├── TrainingError               a training of a model cannot go on; its last checkpoint is kept
├── QueueError                  the queue of jobs refuses something, such as to retry a job that runs
├── ProjectRefusedError         a project cannot be added to the service
├── VersionsDifferError         a machine of a cluster has another version of this package, or of Python
├── NothingToDoError            the options leave nothing to do; not a failure
├── MissingExtraError           an optional package is not installed
├── MissingToolError            a program such as git is not installed
│   Raised and caught inside of a package:
├── CheckFailed                 an item of `pytest --ssr-validate` fails
├── LimitExceededError          a limit ended a command in a sandbox
├── UnfitError                  a run cannot be made in a fork of a warm process
├── FormatError                 a reply of a model calls no tool
├── EndOfRollout                a rollout ends
├── UnableError                 the search has no test to repair
├── LateError                   mini-swe-agent does not answer in time
├── SkippedError                an item yields no row of an export
├── ProblemError                the service refuses a request
└── LeftOutError                a row is not trained on

Outside of the tree are TimeBudgetError, which is not an Exception so that no handler mistakes it for a failure, and the
exceptions of programs that run inside sandboxes (`execution.guest`, `solvers.mini.driver`).
"""

import errno
import traceback
from pathlib import Path


class SsrError(Exception):
    """The base class of every error raised on purpose; its message is shown to the user without a traceback."""


class ProjectError(SsrError):
    """The project cannot be used: not Python, no tests, all tests fail, or the suite hangs."""


class LeakError(ProjectError):
    """A solver could read the fix of a task, in the project or in the environment."""


class ArtifactError(SsrError):
    """An artifact or a diff cannot be read, or does not apply."""


class SandboxError(SsrError):
    """A sandbox failed: an infrastructure fault, never a verdict about what ran in it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """remedy: what to do about it, which the error's string gives after the message."""
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class SandboxUnavailableError(SandboxError):
    """The chosen sandbox does not work on this machine."""


class SandboxMissingError(SandboxUnavailableError):
    """What the chosen sandbox needs is not installed on this machine, which no waiting cures."""


class ModelError(SsrError):
    """A model gave no reply: an infrastructure fault, never a verdict about its earlier actions."""

    def __init__(self, message: str, *, retry: bool = False, wait_s: float = 0.0) -> None:
        """retry: the same request may succeed later, after `wait_s` seconds if the server gave a delay."""
        super().__init__(message)
        self.retry = retry
        self.wait_s = wait_s


class ModelUnavailableError(ModelError):
    """The server of a model cannot be reached, or refuses requests for now; it may answer later."""


class RefusedError(ModelError):
    """A server rejects this request because of its content; other requests may succeed."""


class ContextError(RefusedError):
    """A prompt does not fit into the model's context, and nothing more can be left out."""

    def __init__(self, message: str, *, prompt_tokens: int = 0, limit_tokens: int = 0) -> None:
        """prompt_tokens, limit_tokens: the size of the prompt and of the context, as the server gave them; else 0."""
        super().__init__(message)
        self.prompt_tokens, self.limit_tokens = prompt_tokens, limit_tokens


class StoreError(SsrError):
    """The store cannot be read or written."""


class DamagedTreeError(StoreError):
    """What machines have shared as the tree of an artifact is damaged, or another tree; all else can be used."""


class StoreWriteError(StoreError):
    """A write failed; finished results are kept, and running the same command again continues."""


class SettingsError(SsrError):
    """An option has an unknown or invalid value."""

    option: str = ""
    """The flag of the option at fault without dashes; empty if it is not one option."""

    def __init__(self, message: str = "", *, option: str = "") -> None:
        super().__init__(message)
        self.option = option


class NoRunError(SettingsError):
    """A store has no run of this project that could be reported."""


class DiskFullError(SettingsError):
    """A disk has no space for the results of a command that has not begun."""


class MissingKeyError(SettingsError):
    """A model needs a key, and the environment variable that would hold it is not set."""

    def __init__(self, message: str, *, variable: str) -> None:
        super().__init__(message)
        self.variable = variable


class ServersAwayError(SettingsError):
    """The servers of models cannot be reached before a command begins, and nothing else is in its way."""


class ActionError(SsrError):
    """An environment cannot take this action: it is not an action, or there is no episode."""


class GradingError(SsrError):
    """A defect has prevented the grade of an episode: not a fault of its sandbox, so every grade could be affected."""


class TrainingError(SsrError):
    """A training of a model cannot go on, such as one whose loss is not a number; its checkpoints are kept."""


class NothingToDoError(SsrError):
    """The options leave nothing to do, such as a diff without code; commands report it and exit with status 0."""


class MissingExtraError(SsrError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.remedy = f"run: pip install 'pytest-ssr[{extra}]'"
        super().__init__(f"{package} is not installed and is needed here; {self.remedy}")


def describe_unexpected(error: Exception) -> str:
    """Return an unexpected error as a string with its source location, so that it can be reported as a bug."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def os_error_advice(error: OSError, *, option: str = "--store") -> str:
    """Return the cause of a file system error and, for common causes, what to do about it.

    option: the option that chooses the directory; empty if the path itself is an argument.
    """
    suggestion = f"choose another place with {option}" if option else "choose another place"
    return {
        errno.ENOSPC: "the disk is full; free some space and run the same command again",
        errno.EDQUOT: "the quota is used up; free some space and run the same command again",
        errno.EROFS: f"the file system is read-only; {suggestion}",
        errno.EACCES: f"permission is denied; {suggestion}",
        errno.ENOTDIR: f"a file is in the way; {suggestion}",
    }.get(error.errno or 0, f"{error.strerror or error}")
