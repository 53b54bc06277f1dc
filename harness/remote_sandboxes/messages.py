"""Encode calls and replies: JSON, followed by bytes.

A call has a key. The host acts once for each key, however often the call arrives, and answers each time with the same
reply. Nothing is unpickled: what arrives is checked against the declared classes.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from harness.remote_sandboxes.calls import ARGUMENTS, Arguments, Ended, ErrorCode, Operation, RemoteError
from pytest_ssr.errors import SandboxUnavailableError, StoreError
from pytest_ssr.records.decoding import decode, json_object
from pytest_ssr.sandbox.protocol import ExecResult, Limit
from pytest_ssr.sandbox.supervision.rpc_session import LimitExceededError

_HEADER = struct.Struct("!I")
_T = TypeVar("_T")
_MIN_KEY_CHARACTERS, _MAX_KEY_CHARACTERS = 16, 128


@dataclass(frozen=True, slots=True)
class Request:
    """A call on its way to a host."""

    arguments: Arguments
    sandbox: str = ""
    blobs: Sequence[bytes] = ()
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def encode(self) -> bytes:
        """Return the call as bytes."""
        head = {"operation": self.arguments.operation, "key": self.key, "sandbox": self.sandbox}
        return _encode({**head, "arguments": asdict(self.arguments)}, self.blobs)

    def digest(self) -> bytes:
        """Return a hash of what the call does: everything except its key."""
        call = [self.arguments.operation, self.sandbox, asdict(self.arguments), [len(blob) for blob in self.blobs]]
        digest = hashlib.sha256(json.dumps(call).encode())
        for blob in self.blobs:
            digest.update(blob)
        return digest.digest()

    @classmethod
    def decode(cls, raw: bytes) -> Request:
        """Return the call; raises RemoteError for other bytes."""
        return cls.of(*_decode(raw))

    @classmethod
    def of(cls, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Request:
        """Return the call that plain data describes; raises RemoteError for other data."""
        try:
            envelope = decode(_Envelope, head)
            arguments = decode(ARGUMENTS[envelope.operation], head.get("arguments"))
        except StoreError:
            raise RemoteError(ErrorCode.MALFORMED, "the call is not valid") from None
        if not _MIN_KEY_CHARACTERS <= len(envelope.key) <= _MAX_KEY_CHARACTERS:
            raise RemoteError(ErrorCode.MALFORMED, f"a key has at least {_MIN_KEY_CHARACTERS} characters")
        return cls(arguments, envelope.sandbox, blobs, envelope.key)


@dataclass(frozen=True, slots=True)
class _Envelope:
    operation: Operation
    key: str
    sandbox: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call, or why it failed."""

    result: Mapping[str, Any] = field(default_factory=dict)
    blobs: Sequence[bytes] = ()
    code: ErrorCode | None = None
    message: str = ""

    @property
    def size(self) -> int:
        """Bytes that it occupies, roughly."""
        return sum(map(len, self.blobs))

    def encode(self) -> bytes:
        """Return the reply as bytes."""
        return _encode({"result": self.result, "code": self.code, "message": self.message}, self.blobs)

    @classmethod
    def decode(cls, raw: bytes) -> Reply:
        """Return the reply; raises RemoteError for other bytes."""
        head, blobs = _decode(raw)
        try:
            reply = decode(_ReplyHead, head)
        except StoreError:
            raise RemoteError(ErrorCode.MALFORMED, "the reply of the sandbox server is not valid") from None
        return cls(reply.result, blobs, reply.code, reply.message)

    def require_success(self) -> Reply:
        """Return the reply; raises the error that it describes."""
        if self.code is None:
            return self
        if self.code is ErrorCode.FILE_NOT_FOUND:
            raise FileNotFoundError(self.message)
        if self.code is ErrorCode.UNAVAILABLE:
            raise SandboxUnavailableError(self.message)
        if self.code is ErrorCode.LIMIT and self.message in list(Limit):
            raise LimitExceededError(Limit(self.message))
        raise RemoteError(self.code, self.message)

    def read(self, cls: type[_T], *, blobs: int = 0) -> _T:
        """Return the result as a class. blobs: how many must be there. Raises RemoteError."""
        if len(self.blobs) != blobs:
            raise RemoteError(ErrorCode.MALFORMED, "the reply of the sandbox server is incomplete")
        try:
            return decode(cls, self.result)
        except StoreError as error:
            raise RemoteError(ErrorCode.MALFORMED, f"the reply of the sandbox server is not valid: {error}") from None

    def exec_result(self) -> ExecResult:
        """Return the result of a command; raises RemoteError."""
        ended = self.read(Ended, blobs=2)
        return ExecResult(ended.exit_code, self.blobs[0], self.blobs[1], ended.seconds, ended.limit)


@dataclass(frozen=True, slots=True)
class _ReplyHead:
    result: dict[str, Any]
    code: ErrorCode | None
    message: str


def reply_of(result: Any, *blobs: bytes) -> Reply:
    """Return the reply with a dataclass as its result."""
    return Reply(asdict(result), blobs)


def reply_to_exec(result: ExecResult) -> Reply:
    """Return the reply with the result of a command."""
    return reply_of(Ended(result.exit_code, result.seconds, result.limit), result.stdout, result.stderr)


def _encode(head: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    text = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join((_HEADER.pack(len(text)), text, *blobs))


def _decode(raw: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Return the JSON and the blobs; raises RemoteError."""
    malformed = RemoteError(ErrorCode.MALFORMED, "the message is not valid")
    if len(raw) < _HEADER.size:
        raise malformed
    end = _HEADER.size + _HEADER.unpack_from(raw)[0]
    head = json_object(raw[_HEADER.size : end])
    sizes = head.pop("sizes", None) if head is not None else None
    if head is None or not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise malformed
    if end + sum(sizes) != len(raw):
        raise malformed
    blobs = []
    for size in sizes:
        blobs.append(raw[end : end + size])
        end += size
    return head, tuple(blobs)
