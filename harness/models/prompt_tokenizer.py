"""Count and encode prompts by a server's own tokenizer, if it has one for messages.

vLLM counts messages and tools itself (`POST /tokenize`). llama.cpp renders them (`/apply-template`) and encodes the
text (`/tokenize`, which answers a request with messages by an empty list). Other servers have neither, or answer any
path with status 200: only an answer that can be true is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.models.connection import Connection
from harness.models.refusals import UnknownPathError
from pytest_ssr.errors import ModelError

_TRIES = 3
_Wire = Mapping[str, Any]
"""The fields `model`, `messages` and `tools` of a request."""


class PromptTokenizer:
    """The tokenizer of one server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tries: dict[Callable[[_Wire], int], int] = {self._count: _TRIES, self._count_rendered: _TRIES}

    def count(self, request: _Wire) -> int | None:
        """Return the number of tokens of a prompt; None if the server cannot count them, or not now."""
        for way in list(self._tries):
            if self._tries[way] <= 0:
                continue
            try:
                counted = way(request)
            except UnknownPathError:
                self._tries[way] = 0
            except ModelError:
                # A busy server may answer the next time, and a template may accept other messages.
                self._tries[way] -= 1
            except (KeyError, TypeError, ValueError):
                self._tries[way] = 0
            else:
                self._tries[way] = _TRIES
                return counted
        return None

    def ids(self, request: _Wire, prompt_tokens: int) -> tuple[int, ...] | None:
        """Return the tokens of a rendered prompt; None if they are not as many as the server counted for it."""
        if self._tries[self._count_rendered] <= 0:
            return None
        try:
            ids = self._rendered(request)
        except UnknownPathError:
            self._tries[self._count_rendered] = 0
            return None
        except (ModelError, KeyError, TypeError, ValueError):
            self._tries[self._count_rendered] -= 1
            return None
        return ids if len(ids) == prompt_tokens else None

    def _count(self, request: _Wire) -> int:
        body = {**request, "tools": list(request.get("tools") or ()) or None}
        return _positive(int(self._connection.post("/tokenize", body, root=True)["count"]))

    def _count_rendered(self, request: _Wire) -> int:
        return len(self._rendered(request))

    def _rendered(self, request: _Wire) -> tuple[int, ...]:
        prompt = self._connection.post("/apply-template", request, root=True)["prompt"]
        if not isinstance(prompt, str) or not prompt:
            raise ValueError("the rendered prompt is empty")
        body = {"content": prompt, "add_special": True, "parse_special": True}
        tokens: Sequence[Any] = self._connection.post("/tokenize", body, root=True)["tokens"]
        _positive(len(tokens))
        return tuple(int(token) for token in tokens)


def _positive(count: int) -> int:
    if count <= 0:
        raise ValueError("a prompt has at least one token")
    return count
