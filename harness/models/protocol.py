"""The interface of models: a reply to messages and tools, from a server, a script or a recording."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from harness.records.messages import Message, Reply, Sampling
from pytest_ssr.errors import ModelError

ToolSchema = Mapping[str, Any]
"""One tool as the OpenAI protocol describes it: `{"type": "function", "function": {"name", "parameters", ...}}`."""


class Model(Protocol):
    """A chat model."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def context_tokens(self) -> int:
        """The size of the context window: the tokens of a prompt and its reply together."""

    def reply(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema], sampling: Sampling) -> Reply:
        """Return the model's reply to the messages.

        Raises ModelError if there is none; ContextError if the prompt does not fit.
        """

    def count(self, messages: Sequence[Message], *, tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens these messages have as a prompt; never fewer than the server will count."""

    def session(self, rollout: str) -> Model:
        """Return the model for one rollout: a script starts at its first reply, a server is shared."""

    def close(self) -> None:
        """Release the model's resources, such as a server that it started; idempotent."""


def served_model_of(model: Model) -> str:
    """Return the id of the model on the server whose URL is its name; empty for a name that already has the id."""
    return str(getattr(model, "served_model", ""))


class Named(Protocol):
    """A model or a player, which may have a `label` besides."""

    @property
    def name(self) -> str:
        """The name on the command line."""


def label_of(named: Named) -> str:
    """Return the name in tables: the id on the server, if a model is named by the URL of the server.

    Of an id that is a path on the server, as of local files, it is the last part.
    """
    served = str(getattr(named, "label", "") or getattr(named, "served_model", ""))
    return (PurePosixPath(served).name if served.startswith("/") else served) or named.name


def passes_tools(model: Model) -> bool:
    """Return whether the model sees the tools of a request; some chat templates drop them."""
    return bool(getattr(model, "passes_tools", True))


def remarks_on(model: Model) -> str:
    """Return what the model's server lacks and what is done without it, in one line; empty if nothing is missing."""
    return str(getattr(model, "remarks", ""))


def failure_of(model: Model) -> ModelError | None:
    """Return why no request to the model can succeed, such as a key that is not valid; None if no reason is known."""
    failure: ModelError | None = getattr(model, "failure", None)
    return failure


_WHOLE, _SAMPLES, _PIECE = 1 << 24, 64, 1 << 14


def identity_of(model: Model) -> str:
    """Return the model's name with its `identity`: the served id, or a hash of its script or of its files."""
    return f"{model.name} {getattr(model, 'identity', '')}".strip()


def hash_path(path: Path) -> str:
    """Return a hash of a file's content, or of a folder's files and their names; empty if the path does not exist.

    Of a file larger than 16 MiB, its size and 64 pieces from beginning to end are hashed: fine-tuned weights differ
    everywhere, and reading hundreds of gigabytes for a key would take too long.
    """
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path)}\0{size}\0".encode("utf-8", "surrogateescape"))
        with file.open("rb") as data:
            if size <= _WHOLE:
                digest.update(data.read())
                continue
            for index in range(_SAMPLES):
                data.seek(index * (size - _PIECE) // (_SAMPLES - 1))
                digest.update(data.read(_PIECE))
    return digest.hexdigest()[:16]
