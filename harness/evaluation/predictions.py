"""Predictions as SWE-bench and mini-swe-agent write them: JSONL, a JSON list, or a JSON object by instance.

A folder is one that `mini-extra swebench` has written: `preds.json`, and `ID/ID.traj.json` of each instance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.instances import Instance
from harness.writing import half_character
from pytest_ssr.errors import SettingsError
from pytest_ssr.outcomes import some

GOLD, EMPTY = "gold", "empty"
_OF_MINI = "preds.json"
_LONGEST = 200
"""Bytes of a folder's name; reports have words of ours behind it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one model handed in for one instance."""

    instance_id: str
    model: str
    """`model_name_or_path`."""
    patch: str
    """A git diff; empty: nothing was handed in."""
    recorded: Path | None = None
    """The trajectory that mini-swe-agent wrote of it."""

    def to_json(self) -> dict[str, str]:
        """Return a row in SWE-bench's form."""
        return {
            "instance_id": self.instance_id,
            "model_name_or_path": self.model,
            "model_patch": self.patch,
        }


def read_predictions(
    source: str, instances: Iterable[Instance], told: Callable[[str], None] = lambda _: None
) -> list[Prediction]:
    """Return the predictions for these instances in their order: `gold`, `empty`, or those of a file or folder.

    Instances that a file says nothing of are left out, and `told` is told so, as of those that are for none of these.
    Raises SettingsError for a file that holds no predictions, that tells of an instance twice, or of none of these.
    """
    instances = list(instances)
    if source == GOLD:
        return [Prediction(i.id, GOLD, i.patch.data.decode("utf-8", "surrogateescape")) for i in instances]
    if source == EMPTY:
        return [Prediction(i.id, EMPTY, "") for i in instances]
    known: dict[str, Prediction] = {}
    path = Path(source)
    folder = path if path.is_dir() else None
    for where, row in _rows(path / _OF_MINI if folder is not None else path):
        found = _prediction(row, where)
        if found.instance_id in known:
            raise SettingsError(f"{where}: {found.instance_id} is predicted twice; one file holds one attempt at each")
        known[found.instance_id] = found
    wanted = [_with_trajectory(known[i.id], folder) for i in instances if i.id in known]
    if not wanted:
        raise SettingsError(f"{source} predicts none of the {len(instances)} instances")
    if missing := [i.id for i in instances if i.id not in known]:
        told(f"{len(missing)} of {len(instances)} instances have no prediction in {source}: {some(missing)}")
    if strange := sorted(known.keys() - {i.id for i in instances}):
        told(f"{len(strange)} of {len(known)} predictions in {source} are for none of the instances: {some(strange)}")
    folders: dict[str, str] = {}
    for model in dict.fromkeys(p.model for p in wanted):
        other = folders.setdefault(folder_of(model), model)
        if other != model:
            raise SettingsError(f"{source}: the models {other} and {model} would be one folder; name one otherwise")
    return wanted


def folder_of(model: str) -> str:
    """Return a model's name as a folder, as SWE-bench writes it; nothing leads out of where it lies."""
    return model.replace("/", "__").strip(".") or "unnamed"


def require_name(model: str, where: str) -> str:
    """Return a model's name; raises SettingsError for one that cannot name a folder."""
    if half_character(model) or not model.isprintable() or len(os.fsencode(folder_of(model))) > _LONGEST:
        raise SettingsError(f"{where} {ascii(model)[:80]} cannot name a folder")
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
        return [(f"{path}: line {n}", _parsed(line, f"{path}: line {n}")) for n, line in lines]
    data = _parsed(text, str(path))
    if isinstance(data, Mapping):
        # mini-swe-agent's; its rows may leave out the name they are under.
        data = [{"instance_id": k, **v} if isinstance(v, Mapping) else v for k, v in data.items()]
    if not isinstance(data, list):
        raise SettingsError(f"{path} is neither a list of predictions nor an object of them")
    return [(f"{path}: row {n}", row) for n, row in enumerate(data, 1)]


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where} is not JSON: {error}") from None


def _prediction(row: Any, where: str) -> Prediction:
    if not isinstance(row, Mapping) or not isinstance(row.get("instance_id"), str):
        raise SettingsError(f"{where} is no prediction: it has no instance_id")
    patch = row.get("model_patch", row.get("patch"))
    if patch is not None and not isinstance(patch, str):
        raise SettingsError(f"{where}: model_patch is {type(patch).__name__}, not text")
    if half := half_character(patch or ""):
        raise SettingsError(f"{where}: model_patch holds {half}, which is half a character")
    model = require_name(str(row.get("model_name_or_path") or "unnamed"), f"{where}: model_name_or_path")
    return Prediction(row["instance_id"], model, patch or "")
