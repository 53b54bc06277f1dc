"""Write rows to compressed parquet files in batches. Only this module imports pyarrow.

Columns of JSON have Arrow's JSON type: `datasets` reads objects from them, pandas strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.exporters.features import as_json
from harness.exporters.protocol import BITS, IDS, JSON, NUMBER, NUMBERS, OBJECTS, TEXT, TEXTS, TRUTH, WHOLE, Row

_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 1024**2
_TYPES: dict[str, Any] = {
    TEXT: pa.string(),
    TEXTS: pa.list_(pa.string()),
    NUMBER: pa.float64(),
    WHOLE: pa.int64(),
    TRUTH: pa.bool_(),
    IDS: pa.list_(pa.int32()),
    BITS: pa.list_(pa.int8()),
    NUMBERS: pa.list_(pa.float64()),
    JSON: pa.json_(),
    OBJECTS: pa.list_(pa.json_()),
}


class ParquetSink:
    """Write rows with fixed columns to a parquet file."""

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        """columns: the kind of each column, by name."""
        self._columns = columns
        features = json.dumps({"info": {"features": as_json(columns)}})
        self._schema = pa.schema([(n, _TYPES[k]) for n, k in columns.items()], metadata={"huggingface": features})
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[list[Any]] = []
        self._bytes = 0

    def write(self, row: Row) -> None:
        """Add a row; it is written to disk once a batch is full."""
        values = [_value(row[name], kind) for name, kind in self._columns.items()]
        self._rows.append(values)
        self._bytes += sum(_size(v) for v in values)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last batch and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close the file without its remaining rows; it is incomplete."""
        self._rows.clear()
        self._writer.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [_array(column, kind) for column, kind in zip(columns, self._columns.values(), strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows, self._bytes = [], 0


def _value(value: Any, kind: str) -> Any:
    if kind == JSON:
        return None if value is None else _text(value)
    return [_text(item) for item in value] if kind == OBJECTS else value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(len, value)) if value and isinstance(value[0], str) else 8 * len(value)
    return len(value) if isinstance(value, str) else 8


def _array(values: Sequence[Any], kind: str) -> Any:
    if kind == JSON:
        return pa.ExtensionArray.from_storage(pa.json_(), pa.array(values, type=pa.string()))
    if kind == OBJECTS:
        texts = pa.array(values, type=pa.list_(pa.string()))
        return pa.ListArray.from_arrays(texts.offsets, pa.ExtensionArray.from_storage(pa.json_(), texts.values))
    return pa.array(values, type=_TYPES[kind])


def rows_of(path: Path) -> Iterator[Row]:
    """Yield the rows of a file, a batch at a time; what was JSON is decoded."""
    with pq.ParquetFile(path) as file:
        kinds = {item.name: _json_kind(item.type) for item in file.schema_arrow}
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for row in batch.to_pylist():
                yield {name: _decoded(value, kinds[name]) for name, value in row.items()}


def _json_kind(kind: Any) -> str:
    if pa.types.is_list(kind):
        return OBJECTS if kind.value_type == pa.json_() else ""
    return JSON if kind == pa.json_() else ""


def _decoded(value: Any, kind: str) -> Any:
    if value is None or not kind:
        return value
    return json.loads(value) if kind == JSON else [json.loads(item) for item in value]
