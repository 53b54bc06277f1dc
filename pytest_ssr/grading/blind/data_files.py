"""Data files of tests with other inputs."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from pytest_ssr.grading.blind.inputs import another

_MOST_BYTES = 100_000
_SHARE = 0.3
_NUMBER = re.compile(r"\d+")


def varied_data(data: bytes, chance: random.Random, *, far: bool) -> bytes | None:
    """Return a data file with some other values: of JSON, or the numbers of a text; None if it has none to vary."""
    try:
        text = data.decode() if len(data) <= _MOST_BYTES else ""
    except UnicodeDecodeError:
        return None
    try:
        found = json.dumps(_varied(json.loads(text), chance, far=far), ensure_ascii=False)
    except (ValueError, RecursionError):
        found = _NUMBER.sub(lambda m: _other_number(m[0], chance, far=far), text)
    return found.encode("utf-8", "surrogatepass") if found != text else None


def _varied(value: Any, chance: random.Random, *, far: bool) -> Any:
    if isinstance(value, dict):
        return {key: _varied(inner, chance, far=far) for key, inner in value.items()}
    if isinstance(value, list):
        return [_varied(inner, chance, far=far) for inner in value]
    if value is None or chance.random() >= _SHARE:
        return value
    return another(value, chance, far=far)


def _other_number(text: str, chance: random.Random, *, far: bool) -> str:
    return str(abs(int(str(another(int(text), chance, far=far))))) if chance.random() < _SHARE else text
