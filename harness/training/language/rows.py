"""Read the rows to train on, from stores or from files that `ssr export` wrote. The exporters make them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.exporters.filters import Filters
from harness.exporters.formats import FORMATS
from harness.exporters.index import Index
from harness.exporters.library import Library, RolloutGroup
from harness.exporters.protocol import Choices, Format, Row
from harness.exporters.sft import SERVED, about
from harness.exporters.skipped import SkippedError
from harness.exporters.sources import Source, find_sources, index_sources
from harness.exporters.tokens import segments, steps
from harness.training.language.left_out import LeftOut
from harness.training.language.plan import Method
from harness.training.language.row_files import TEXTS, file_rows, is_record
from pytest_ssr.errors import SettingsError, StoreWriteError


def read_rows(sources: Sequence[Path], method: Method, left_out: LeftOut, *, token_ids: bool) -> list[Row]:
    """Return all rows of the sources; what a store has but cannot be trained on is counted.

    token_ids: use recorded token ids, if there are any. Raises SettingsError if there is no row at all.
    """
    rows: list[Row] = []
    stores: list[Path] = []
    for path in sources:
        files = _exported_files(path)
        for file in files:
            if _has_records(file):
                stores.append(file)
            else:
                rows += file_rows(file, method, token_ids=token_ids)
        if not files:
            stores.append(path)
    if stores:
        rows += _store_rows(find_sources(stores), method, left_out, token_ids=token_ids)
    if not rows:
        reasons = "; ".join(f"{item['count']} left out: {item['reason']}" for item in left_out.to_json())
        detail = reasons or "there are no rollouts; make some with ssr play or ssr solve"
        raise SettingsError(f"there is nothing to train on by {method}: {detail}")
    return rows


def _exported_files(path: Path) -> list[Path]:
    """Return the files of an export; none for a store."""
    if path.is_dir():
        return [] if _is_store(path) else sorted(path.glob("data/train.jsonl"))
    return [path] if path.suffix == ".jsonl" and path.is_file() else []


def _has_records(file: Path) -> bool:
    """Return whether a file has canonical records of rollouts, which are filtered as those of a store are."""
    with file.open("rb") as opened:
        first = next((line for line in opened if line.strip()), b"")
    return is_record(first)


def _is_store(path: Path) -> bool:
    """Return whether a folder is a store or contains one."""
    try:
        find_sources([path])
    except SettingsError:
        return False
    return True


def _store_rows(sources: Sequence[Source], method: Method, left_out: LeftOut, *, token_ids: bool) -> list[Row]:
    form = FORMATS[method]
    try:
        with Index() as index:
            index_sources(index, sources, left_out.add)
            library = Library(sources, index)
            return [
                row
                for task, role in index.groups()
                for row in _group_rows(library, task, role, form, left_out, token_ids=token_ids)
            ]
    except sqlite3.Error as error:
        raise StoreWriteError(f"cannot write an index in {tempfile.gettempdir()}: {error}") from None


def _group_rows(
    library: Library, task: str, role: str, form: Format, left_out: LeftOut, *, token_ids: bool
) -> Iterator[Row]:
    """Yield the rows of one task; a rollout whose token ids were recorded gives tokens, otherwise messages."""
    filters = Filters(positive=form.imitates)

    def group(report: Callable[[str, SkippedError], None]) -> RolloutGroup:
        return RolloutGroup(library, filters, task, role, report, form.rewarded)

    covered: set[str] = set()
    if token_ids and form.imitates:
        for row in _token_rows(group(lambda *_: None), form):
            covered.add(str(row["rollout_id"]))
            yield row

    def report(name: str, error: SkippedError) -> None:
        if name.partition(",")[0] not in covered:
            left_out.add(name, error)

    for row in form.rows(group(report), Choices()):
        if row.get("rollout_id") not in covered or not form.imitates:
            yield row


def _token_rows(group: RolloutGroup, form: Format) -> Iterator[Row]:
    sequences = segments if form.name == Method.SFT else steps
    for record in group.records():
        for part in sequences(record):
            texts = [str(call.reply.get("content") or "") for call in part.calls if call.trainable]
            ids = {"input_ids": part.ids, "labels": part.labels, TEXTS: texts}
            yield {**ids, SERVED: record.served_model, **about(record)}


def row_name(row: dict[str, Any], number: int) -> str:
    """Return the name of a row for messages: of its rollout, or its number."""
    return str(row.get("rollout_id") or row.get("chosen_rollout_id") or f"row {number}")


_ORIGINS = (("model", "rollout_id"), ("model", "chosen_rollout_id"), ("rejected_model", "rejected_rollout_id"))
"""Columns with a model and with a rollout that it made."""


def origins(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return which models made the rollouts that rows come from; a row may name one rollout, or those of a pair."""
    rollouts: dict[str, set[str]] = defaultdict(set)
    recorded: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for model_column, rollout_column in _ORIGINS:
            model, rollout = str(row.get(model_column) or ""), row.get(rollout_column)
            if rollout:
                rollouts[model].add(str(rollout))
                if "input_ids" in row:
                    recorded[model].add(str(rollout))
    return [
        {"model": model, "rollouts": len(ids), "with_token_ids": len(recorded[model])}
        for model, ids in sorted(rollouts.items())
    ]
