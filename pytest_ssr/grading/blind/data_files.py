"""Vary the data files of tests."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from pytest_ssr.grading.blind.inputs import other_value

_MAX_BYTES = 100_000
_SHARE = 0.3
_NUMBER = re.compile(r"\d+")


def varied_data(data: bytes, rng: random.Random, *, far: bool) -> bytes | None:
    """Return a data file with some JSON values or some numbers in its text varied; None if there is nothing to vary."""
    try:
        text = data.decode() if len(data) <= _MAX_BYTES else ""
    except UnicodeDecodeError:
        return None
    try:
        varied = json.dumps(_varied(json.loads(text), rng, far=far), ensure_ascii=False)
    except (ValueError, RecursionError):
        varied = _NUMBER.sub(lambda m: _other_number(m[0], rng, far=far), text)
    return varied.encode("utf-8", "surrogatepass") if varied != text else None


def _varied(value: Any, rng: random.Random, *, far: bool) -> Any:
    if isinstance(value, dict):
        return {key: _varied(inner, rng, far=far) for key, inner in value.items()}
    if isinstance(value, list):
        return [_varied(inner, rng, far=far) for inner in value]
    if value is None or rng.random() >= _SHARE:
        return value
    return other_value(value, rng, far=far)


def _other_number(text: str, rng: random.Random, *, far: bool) -> str:
    return str(abs(int(str(other_value(int(text), rng, far=far))))) if rng.random() < _SHARE else text
