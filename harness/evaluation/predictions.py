"""Read predictions in the formats of SWE-bench and mini-swe-agent: JSONL, a JSON list, or a JSON object by instance.

A folder must be one that `mini-extra swebench` wrote: `preds.json`, and `ID/ID.traj.json` for each instance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.datasets import Instance
from harness.storage.atomic_write import lone_surrogate
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.test_run import abbreviate

GOLD, EMPTY = "gold", "empty"
_MINI_FILE = "preds.json"
_MAX_NAME_BYTES = 200
"""Bytes of a folder's name; reports append a suffix to it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The patch that one model submitted for one instance."""

    instance_id: str
    model: str
    """`model_name_or_path`."""
    patch: str
    """A git diff; empty if nothing was submitted."""
    recorded: Path | None = None
    """The path of its trajectory by mini-swe-agent."""

    def to_json(self) -> dict[str, str]:
        """Return a row in SWE-bench's form."""
        return {
            "instance_id": self.instance_id,
            "model_name_or_path": self.model,
            "model_patch": self.patch,
        }


def read_predictions(
    source: str, instances: Iterable[Instance], report: Callable[[str], None] = lambda _: None
) -> list[Prediction]:
    """Return the predictions for these instances in their order: `gold`, `empty`, or those of a file or folder.

    Instances without a prediction are left out and passed to `report`, and so are predictions for other instances.
    Invalid rows without one get an empty prediction, so that they are among the results.
    Raises SettingsError for a file without predictions for these instances, or with two for the same instance.
    """
    instances = list(instances)
    if source == GOLD:
        return [Prediction(i.id, GOLD, i.patch.data.decode("utf-8", "surrogateescape")) for i in instances]
    if source == EMPTY:
        return [Prediction(i.id, EMPTY, "") for i in instances]
    by_id: dict[str, Prediction] = {}
    path = Path(source)
    folder = path if path.is_dir() else None
    for location, row in _rows(path / _MINI_FILE if folder is not None else path):
        prediction = _prediction(row, location)
        if prediction.instance_id in by_id:
            raise SettingsError(
                f"{location}: {prediction.instance_id} is predicted twice; a file holds one prediction per instance"
            )
        by_id[prediction.instance_id] = prediction
    predicted = [by_id[i.id] for i in instances if i.id in by_id]
    if not predicted:
        raise SettingsError(f"{source} predicts none of the {len(instances)} instances")
    invalid = {i.id: Prediction(i.id, predicted[0].model, "") for i in instances if i.invalid}
    complete = {**invalid, **by_id}
    wanted = [_with_trajectory(complete[i.id], folder) for i in instances if i.id in complete]
    if missing := [i.id for i in instances if i.id not in complete]:
        report(f"{len(missing)} of {len(instances)} instances have no prediction in {source}: {abbreviate(missing)}")
    if unmatched := sorted(by_id.keys() - {i.id for i in instances}):
        report(
            f"{len(unmatched)} of {len(by_id)} predictions in {source} are for none of the instances: "
            f"{abbreviate(unmatched)}"
        )
    folders: dict[str, str] = {}
    for model in dict.fromkeys(p.model for p in wanted):
        other = folders.setdefault(folder_of(model), model)
        if other != model:
            raise SettingsError(f"{source}: the models {other} and {model} would share one folder; rename one")
    return wanted


def folder_of(model: str) -> str:
    """Return the name of a model's folder, as SWE-bench writes it; it is a single path component."""
    return model.replace("/", "__").strip(".") or "unnamed"


def require_name(model: str, location: str) -> str:
    """Return a model's name; raises SettingsError for one that cannot name a folder."""
    if lone_surrogate(model) or not model.isprintable() or len(os.fsencode(folder_of(model))) > _MAX_NAME_BYTES:
        raise SettingsError(f"{location} {ascii(model)[:80]} cannot name a folder")
    return model


def _with_trajectory(prediction: Prediction, folder: Path | None) -> Prediction:
    if folder is None:
        return prediction
    path = folder / prediction.instance_id / f"{prediction.instance_id}.traj.json"
    return replace(prediction, recorded=path) if path.is_file() else prediction


def _rows(path: Path) -> list[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"predictions {path} cannot be read: {error}; name a file, a folder of mini-swe-agent, gold or empty"
        ) from None
    if path.suffix == ".jsonl":
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [(f"{path}: line {n}", _parse(line, f"{path}: line {n}")) for n, line in lines]
    data = _parse(text, str(path))
    if isinstance(data, Mapping):
        # mini-swe-agent's format; a row may omit the instance_id that is its key.
        data = [{"instance_id": k, **v} if isinstance(v, Mapping) else v for k, v in data.items()]
    if not isinstance(data, list):
        raise SettingsError(f"{path} is neither a list of predictions nor an object of them")
    return [(f"{path}: row {n}", row) for n, row in enumerate(data, 1)]


def _parse(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{location} is not JSON: {error}") from None


def _prediction(row: Any, location: str) -> Prediction:
    if not isinstance(row, Mapping) or not isinstance(row.get("instance_id"), str):
        raise SettingsError(f"{location} is not a prediction: it has no instance_id")
    patch = row.get("model_patch", row.get("patch"))
    if patch is not None and not isinstance(patch, str):
        raise SettingsError(f"{location}: model_patch is {type(patch).__name__}, not text")
    if half := lone_surrogate(patch or ""):
        raise SettingsError(f"{location}: model_patch holds {half}, which is half a character")
    model = require_name(str(row.get("model_name_or_path") or "unnamed"), f"{location}: model_name_or_path")
    return Prediction(row["instance_id"], model, patch or "")
