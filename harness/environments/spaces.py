"""Gymnasium spaces of strings and tool calls, which also work in the shared memory of `AsyncVectorEnv`.

`gymnasium.spaces.Text` needs a set of all characters, and the output of a command can contain any.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

_SAMPLE_CHARS = 12
_LETTERS = np.array(list(string.ascii_lowercase))


class UnicodeText(Space[str]):
    """All strings of at most `max_chars` characters that UTF-8 can encode."""

    def __init__(self, max_chars: int, seed: int | np.random.Generator | None = None) -> None:
        self.max_chars = max_chars
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Strings have no fixed shape."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short string of letters; masks are ignored."""
        length = int(self.np_random.integers(1, min(_SAMPLE_CHARS, self.max_chars) + 1))
        return "".join(self.np_random.choice(_LETTERS, size=length))

    def contains(self, x: Any) -> bool:
        """Return whether x is such a string."""
        if not isinstance(x, str) or len(x) > self.max_chars:
            return False
        return not any(0xD800 <= ord(char) < 0xE000 for char in x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_chars == self.max_chars

    def __hash__(self) -> int:
        return hash(self.max_chars)

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_chars})"


class Actions(Space[Any]):
    """A shell command, a tool call `{"tool": NAME, "arguments": {...}}`, or a model's reply `{"reply": TEXT}`."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Actions have no fixed shape."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a command that prints a random number; masks are ignored."""
        return f"echo {int(self.np_random.integers(0, 1 << 16))}"

    def contains(self, x: Any) -> bool:
        """Return whether x is an action; whether its tool exists is not checked."""
        if isinstance(x, str):
            return True
        if isinstance(x, Mapping) and set(x) == {"reply"}:
            return isinstance(x["reply"], str)
        if not isinstance(x, Mapping) or set(x) != {"tool", "arguments"}:
            return False
        if not isinstance(x["tool"], str) or not isinstance(x["arguments"], Mapping):
            return False
        try:
            json.dumps(dict(x["arguments"]))
        except (TypeError, ValueError, RecursionError):
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Actions)

    def __hash__(self) -> int:
        return hash(Actions)

    def __repr__(self) -> str:
        return "Actions()"


class _SharedStrings(Sequence[str]):
    """The current strings in a shared memory: each one's length and its code points.

    `AsyncVectorEnv` reads the memory once, at the beginning, and copies what it has read after every step. So this is a
    view, and its copy is a tuple of strings.
    """

    def __init__(self, space: UnicodeText, memory: SynchronizedArray[int]) -> None:
        items = np.frombuffer(memoryview(memory.get_obj()), dtype=np.int32)
        self._rows = items.reshape(-1, space.max_chars + 1)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        row = self._rows[index]
        return row[1 : row[0] + 1].astype("<i4").tobytes().decode("utf-32-le")

    def write(self, index: int, value: str) -> None:
        """Replace one string."""
        row = self._rows[index]
        row[0] = len(value)
        row[1 : len(value) + 1] = np.frombuffer(value.encode("utf-32-le"), dtype="<i4")

    def __deepcopy__(self, memo: object) -> tuple[str, ...]:
        return tuple(self[index] for index in range(len(self)))


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = None) -> SynchronizedArray[int]:
    memory: SynchronizedArray[int] = ctx.Array("i", n * (space.max_chars + 1))
    return memory


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: SynchronizedArray[int]) -> None:
    _SharedStrings(space, shared_memory).write(index, value)


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: SynchronizedArray[int], n: int = 1) -> Sequence[str]:
    return _SharedStrings(space, shared_memory)
