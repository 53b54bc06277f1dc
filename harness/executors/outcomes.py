"""What a worker returns for a unit: its result or its error, and the files that it stored."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ssr.errors import SsrError, describe_unexpected


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a worker, in a form that survives the way back: exceptions with arguments of their own do not."""

    module: str
    name: str
    message: str
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return an error as a failure; one that is not an SsrError keeps its text and its place."""
        if not isinstance(error, SsrError):
            return cls(SsrError.__module__, SsrError.__name__, describe_unexpected(error))
        simple = {k: v for k, v in vars(error).items() if isinstance(v, str | int | float | bool | None)}
        return cls(type(error).__module__, type(error).__qualname__, str(error), simple)

    def error(self) -> SsrError:
        """Return the error, of its own class."""
        found: Any = getattr(importlib.import_module(self.module), self.name, SsrError)
        kind: type[SsrError] = found if isinstance(found, type) and issubclass(found, SsrError) else SsrError
        # The constructors build their own messages, and this one is already complete.
        error = kind.__new__(kind, self.message)
        for name, value in self.attributes.items():
            setattr(error, name, value)
        return error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit on one worker."""

    result: Any = None
    failure: Failure | None = None
    is_fault: bool = False
    """The machine may be the cause, so that another one should try."""
    is_unopened: bool = False
    """The machine cannot open the work at all: the fault says nothing of the unit."""
    cause: str = ""
    """What people are shown as the fault of a result; that of a failure is its message."""
    is_stopped: bool = False
    """The unit was stopped because its result is no longer needed."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The durable files that the unit wrote, by their paths in the store."""
    seconds: float = 0.0
    """Seconds on the worker."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on all machines, because results depend on it."""

    code: str
    """The hash of this package's code."""
    release: str
    python: str

    def __str__(self) -> str:
        """Return them for a message."""
        return f"pytest-ssr {self.release} (code {self.code}) on Python {self.python}"
