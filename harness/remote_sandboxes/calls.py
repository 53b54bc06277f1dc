"""Define the calls between a provider and a host: their arguments, their results, and the codes of their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.protocol import Image, Limit, Limits

_LIMITS = Limits()
SCRIPT = "evaluate.sh"
"""The name of the script of `evaluate` in the scratch directory of a sandbox."""


class ErrorCode(StrEnum):
    """Why a host refuses a call, or why the call failed."""

    SANDBOX = "sandbox"
    """The sandbox failed, or refuses the call."""
    UNAVAILABLE = "unavailable"
    """The sandbox does not work on the host."""
    FILE_NOT_FOUND = "file-not-found"
    LIMIT = "limit"
    """A limit ended a long-running command; the message is its name."""
    BUSY = "busy"
    """All slots are taken; later there may be a free one."""
    CACHE_FULL = "cache-full"
    """Open sandboxes use all of the space for trees."""
    UNKNOWN_SANDBOX = "unknown-sandbox"
    """The sandbox was closed, its lease has expired, or the host was started again."""
    UNKNOWN_TREE = "unknown-tree"
    NO_IMAGES = "no-images"
    """The sandbox of the host has no images."""
    IMAGE_NOT_ALLOWED = "image-not-allowed"
    """The host does not pull images of this name."""
    IMAGE_UNAVAILABLE = "image-unavailable"
    """The image cannot be pulled, for whatever reason: clients learn nothing about registries."""
    CANCELLED = "cancelled"
    CLOSING = "closing"
    """The host is being stopped."""
    FORGOTTEN = "forgotten"
    """The call has been made, and its reply is no longer kept."""
    KEY_REUSED = "key-reused"
    """Another call had the same key."""
    CEILING = "ceiling"
    """A limit that the client chose is above the host's ceiling."""
    MALFORMED = "malformed"
    INTERNAL = "internal"
    UNAUTHORIZED = "unauthorized"
    """The token is missing, or another one."""
    FOREIGN_HOST = "foreign-host"
    """A server for this machine only was called by another name."""
    BROWSER = "browser"
    """A page of another site could have made the request."""
    MEDIA_TYPE = "unsupported-media-type"
    TOO_LARGE = "too-large"
    """The call is larger than the server accepts."""
    OTHER_SYSTEM = "other-system"
    """The address is one of another system's server; the message names ours."""


class RemoteError(SandboxError):
    """A sandbox server refuses a call, or the call failed there."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call was refused, or failed."""

    code: ErrorCode
    message: str


class Operation(StrEnum):
    """What a call does."""

    DESCRIBE = "describe"
    ADD_TREE = "add-tree"
    PUT_FILES = "put-files"
    OPEN = "open"
    EXEC = "exec"
    EXEC_IN_IMAGE = "exec-in-image"
    READ = "read"
    WRITE = "write"
    REMOVE = "remove"
    DIFF = "diff"
    CONVERSE = "converse"
    ANSWER = "answer"
    END_SESSION = "end-session"
    HEARTBEAT = "heartbeat"
    CANCEL = "cancel"
    CLOSE = "close"
    LIST_IMAGES = "list-images"
    PULL_IMAGE = "pull-image"


@dataclass(frozen=True, slots=True)
class HostDescription:
    """What a host offers."""

    works: bool
    detail: str
    remedy: str
    identity: str
    """A hash of what decides the results of tests there: the sandbox, its image or the system."""
    lease_s: float
    """How long a sandbox stays open without a call or a heartbeat."""
    max_bytes: int
    """The largest call."""
    slots: int = 0
    """Maximum number of open sandboxes; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Files that a host lacks."""

    digests: tuple[str, ...]
    tree: str
    """The name of the tree, once no file is missing."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A sandbox that was opened."""

    id: str
    root: str
    scratch: str
    built: tuple[str, ...] = ()
    lower: str = ""
    """Empty if the sandbox supports no long-running commands; see SupportsRpcSessions."""
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command, without its output."""

    exit_code: int | None
    seconds: float
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """The images that a host has."""

    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call."""

    operation: ClassVar[Operation]
    result: ClassVar[type | None] = None
    """The class of the result; None if the call returns nothing."""
    needs_sandbox: ClassVar[bool] = False
    """Whether the call is made to an open sandbox."""
    blobs: ClassVar[tuple[str, ...]] = ()
    """Names of the blobs that are sent with the call."""
    blob_list: ClassVar[str] = ""
    """Name of a list of blobs whose length differs from call to call; empty for none."""
    result_blobs: ClassVar[tuple[str, ...]] = ()
    """Names of the blobs of the result."""


@dataclass(frozen=True, slots=True)
class Describe(Arguments):
    """Return what the host offers."""

    operation: ClassVar[Operation] = Operation.DESCRIBE
    result: ClassVar[type | None] = HostDescription


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file, link or folder of a tree."""

    path: str
    """Relative to the tree; `.` for the tree's own folder."""
    mode: int
    """Permission bits."""
    mtime_ns: int
    digest: str = ""
    """SHA-256 of a file's content."""
    size: int = 0
    """Of a file, in bytes."""
    target: str = ""
    """Of a link. Without a digest and a target, the entry is a folder."""


@dataclass(frozen=True, slots=True)
class AddTree(Arguments):
    """Build a tree from files that the host has, and return those that it lacks."""

    operation: ClassVar[Operation] = Operation.ADD_TREE
    result: ClassVar[type | None] = Missing
    entries: tuple[TreeEntry, ...]


@dataclass(frozen=True, slots=True)
class PutFiles(Arguments):
    """Add files, with their SHA-256 in the same order, to those from which trees are built."""

    operation: ClassVar[Operation] = Operation.PUT_FILES
    blob_list: ClassVar[str] = "files"
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open(Arguments):
    """Open a sandbox on a tree that was added."""

    operation: ClassVar[Operation] = Operation.OPEN
    result: ClassVar[type | None] = Opened
    tree: str
    mount_at: str
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exec(Arguments):
    """Run a command, and return how it ended, with its output."""

    operation: ClassVar[Operation] = Operation.EXEC
    needs_sandbox: ClassVar[bool] = True
    result: ClassVar[type | None] = Ended
    blobs: ClassVar[tuple[str, ...]] = ("stdin",)
    result_blobs: ClassVar[tuple[str, ...]] = ("stdout", "stderr")
    argv: tuple[str, ...]
    limits: Limits = _LIMITS
    env: tuple[tuple[str, str], ...] | None = None
    cwd: str | None = None
    streams: bool = False
    """Whether the output is sent while the command runs, too; only in frames."""


@dataclass(frozen=True, slots=True)
class ExecInImage(Arguments):
    """Run a command in a sandbox without a tree, which exists for this call only."""

    operation: ClassVar[Operation] = Operation.EXEC_IN_IMAGE
    result: ClassVar[type | None] = Ended
    blobs: ClassVar[tuple[str, ...]] = ("stdin",)
    result_blobs: ClassVar[tuple[str, ...]] = ("stdout", "stderr")
    argv: tuple[str, ...]
    limits: Limits = _LIMITS


@dataclass(frozen=True, slots=True)
class Read(Arguments):
    """Return a file's content."""

    operation: ClassVar[Operation] = Operation.READ
    needs_sandbox: ClassVar[bool] = True
    result_blobs: ClassVar[tuple[str, ...]] = ("content",)
    path: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Write(Arguments):
    """Write a file."""

    operation: ClassVar[Operation] = Operation.WRITE
    needs_sandbox: ClassVar[bool] = True
    blobs: ClassVar[tuple[str, ...]] = ("content",)
    path: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Remove(Arguments):
    """Remove a file."""

    operation: ClassVar[Operation] = Operation.REMOVE
    needs_sandbox: ClassVar[bool] = True
    path: str


@dataclass(frozen=True, slots=True)
class Diff(Arguments):
    """Return the difference from the sandbox's tree, as a patch."""

    operation: ClassVar[Operation] = Operation.DIFF
    needs_sandbox: ClassVar[bool] = True
    result_blobs: ClassVar[tuple[str, ...]] = ("diff",)


@dataclass(frozen=True, slots=True)
class Converse(Arguments):
    """Start a long-running command."""

    operation: ClassVar[Operation] = Operation.CONVERSE
    needs_sandbox: ClassVar[bool] = True
    argv: tuple[str, ...]
    limits: Limits = _LIMITS
    env: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer(Arguments):
    """Send a request (JSON) to the long-running command unless it is empty; return its response (JSON) and bytes."""

    operation: ClassVar[Operation] = Operation.ANSWER
    needs_sandbox: ClassVar[bool] = True
    blobs: ClassVar[tuple[str, ...]] = ("request",)
    result_blobs: ClassVar[tuple[str, ...]] = ("response", "raw")
    wall_s: float


@dataclass(frozen=True, slots=True)
class EndSession(Arguments):
    """End the long-running command."""

    operation: ClassVar[Operation] = Operation.END_SESSION
    needs_sandbox: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Heartbeat(Arguments):
    """Renew the leases of several sandboxes."""

    operation: ClassVar[Operation] = Operation.HEARTBEAT
    sandboxes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel(Arguments):
    """Stop a call; a sandbox that it has opened is closed."""

    operation: ClassVar[Operation] = Operation.CANCEL
    call: str


@dataclass(frozen=True, slots=True)
class Close(Arguments):
    """Close a sandbox, if it is open."""

    operation: ClassVar[Operation] = Operation.CLOSE
    needs_sandbox: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ListImages(Arguments):
    """Return the images that the host has."""

    operation: ClassVar[Operation] = Operation.LIST_IMAGES
    result: ClassVar[type | None] = Images


@dataclass(frozen=True, slots=True)
class PullImage(Arguments):
    """Pull an image, unless the host has it."""

    operation: ClassVar[Operation] = Operation.PULL_IMAGE
    result: ClassVar[type | None] = Image
    image: str


def pairs_of(env: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    """Return variables as a call holds them."""
    return tuple(env.items()) if env is not None else None


ARGUMENTS: Mapping[Operation, type[Arguments]] = {cls.operation: cls for cls in Arguments.__subclasses__()}
