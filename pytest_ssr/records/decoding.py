"""Decode plain data, as it is read from JSON, into the dataclasses of records.

Stores are edited, truncated and written by other releases, so each field is checked against its declared type. Fields
that this release does not know are ignored.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from pytest_ssr.errors import StoreError

_Record = TypeVar("_Record")
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
TokenCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_MAX_FLOAT, _INT_LIMIT = 1e100, 2**63
"""Larger than any count, cost or duration, yet small enough for tables and for sums."""


def decode(cls: type[_Record], data: object, *, version: int | None = None, is_complete: bool = False) -> _Record:
    """Return the record of a class that plain data describes.

    version: the schema version that the data must have; None if the record has none. is_complete: whether fields with
    a default must be there, too, because an earlier release that did not write them meant something else. Raises
    StoreError, naming the class and the field, for other data.
    """
    if version is not None:
        actual = data.get("schema_version") if isinstance(data, Mapping) else None
        if actual != version:
            raise damaged(cls, f"it has schema version {actual!r}, this release reads {version}")
    try:
        record = of_shape(cls, data)
    except ValueError as error:
        raise damaged(cls, str(error)) from None
    if is_complete and isinstance(data, Mapping) and is_dataclass(record):
        missing = [field.name for field in fields(record) if field.name not in data]
        if missing:
            raise damaged(cls, f"it has no field `{missing[0]}`")
    path = _out_of_range(record)
    if path is not None:
        raise damaged(cls, f"number out of range - at `${path}`")
    return record


def of_shape(cls: type[_Record], data: object) -> _Record:
    """Return the record that plain data describes, without limits on its numbers.

    Raises ValueError, which names the path of the field, for other data.
    """
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def json_schemas(classes: Iterable[type], reference: str) -> dict[str, Any]:
    """Return the JSON Schemas of these classes, and of those that they refer to, by name.

    reference: how one schema refers to another; `{name}` stands for its name.
    """
    return msgspec.json.schema_components(classes, ref_template=reference)[1]


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """Return the object that JSON describes, or None if it is damaged or something else."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def parse_json(data: bytes) -> Any:
    """Return the value that JSON describes; raises ValueError for anything else, or RecursionError.

    Accepts whatever `json.loads` does, such as NaN and lone surrogates, but is several times as fast.
    """
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return json.loads(data)


def json_fields(cls: type[_Record], data: bytes) -> _Record | None:
    """Return the record that JSON describes, or None if it does not; other fields are skipped without decoding them."""
    try:
        return msgspec.json.decode(data, type=cls)
    except (ValueError, RecursionError):
        return None


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in UTF-8 without spaces; NaN and infinity become null.

    Raises ValueError for a lone surrogate, and TypeError for a value that JSON does not have.
    """
    return msgspec.json.encode(value, enc_hook=_base_value)


def _base_value(value: object) -> object:
    """Return an instance of a subclass, such as a float of NumPy, as one of the class that JSON has."""
    kinds: tuple[Callable[[Any], object], ...] = (str, int, float, dict, list)
    for kind in kinds:
        if isinstance(value, kind):  # type: ignore[arg-type]
            return kind(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode_or_none(cls: type[_Record], data: object, *, version: int | None = None) -> _Record | None:
    """Return the record, or None for data that does not describe one; the work behind it is then repeated."""
    try:
        return decode(cls, data, version=version)
    except StoreError:
        return None


def damaged(cls: type, problem: str) -> StoreError:
    """Return the error for stored data that does not describe a record of this class."""
    return StoreError(f"a stored {cls.__name__} cannot be read: {problem}; delete it and run the same command again")


def pack(data: bytes, *, level: int = 6) -> str:
    """Return bytes compressed, as a string for JSON; level is that of zlib."""
    return base64.b85encode(zlib.compress(data, level)).decode()


def unpack(cls: type, packed: str) -> bytes:
    """Return the bytes that `pack` compressed; raises StoreError, naming the record's class, for another string."""
    try:
        return zlib.decompress(base64.b85decode(packed))
    except (ValueError, zlib.error) as error:
        raise damaged(cls, str(error)) from None


def _out_of_range(value: object) -> str | None:
    """Return the path of the first field that is not finite, or too large for tables; None if there is none.

    Tuples of numbers, such as log-probabilities, are not searched: they are long, and are never summed up.
    """
    if isinstance(value, float):
        # A comparison with NaN is false.
        return None if abs(value) <= _MAX_FLOAT else ""
    if isinstance(value, int):
        return None if abs(value) < _INT_LIMIT else ""
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        for index, item in enumerate(value):
            path = _out_of_range(item)
            if path is not None:
                return f"[{index}]{path}"
    else:
        kind: type = type(value)
        for name in _field_names(kind):
            part = getattr(value, name)
            path = None if isinstance(part, str) else _out_of_range(part)
            if path is not None:
                return f".{name}{path}"
    return None


@functools.cache
def _field_names(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; nothing for another class."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()
