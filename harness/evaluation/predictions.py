"""Read predictions: JSONL, a JSON list, or a JSON object by instance, with the columns of the usual formats.

A folder must be one that an agent wrote: `preds.json` of mini-swe-agent and SWE-agent, with `ID/ID.traj.json` for each
instance of the former, or another of `_FOLDER_FILES`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.datasets import Instance
from harness.datasets.columns import Columns, find_column, is_empty, missing_column
from harness.storage.atomic_write import lone_surrogate
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.test_run import abbreviate

GOLD, EMPTY = "gold", "empty"
_FOLDER_FILES = ("preds.json", "all_preds.jsonl", "predictions.jsonl", "output.jsonl")
COLUMNS: Columns = {
    "id": ("instance_id", "task_id", "id", "instance.instance_id"),
    "patch": (
        *("model_patch", "model_prediction", "prediction"),
        # OpenHands
        *("test_result.git_patch", "git_patch"),
        # Multi-SWE-bench; trajectories of SWE-agent; others
        *("fix_patch", "info.submission", "submission", "generated_patch", "predicted_patch", "output_patch"),
        # SWE-bench Pro
        "patch",
    ),
    "model": (
        *("model_name_or_path", "model_name", "model", "model_id"),
        *("metadata.llm_config.model", "metadata.llm.model", "llm_config.model", "metadata.model", "prefix"),
    ),
}
"""The names of each column in files of predictions."""
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
    is_reference: bool = False
    """Whether it is the reference solution of a task directory, which only the task itself holds."""

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
        return [
            Prediction(i.id, GOLD, i.patch.data.decode("utf-8", "surrogateescape"), is_reference=i.harbor is not None)
            for i in instances
        ]
    if source == EMPTY:
        return [Prediction(i.id, EMPTY, "") for i in instances]
    by_id: dict[str, Prediction] = {}
    path = Path(source)
    folder = path if path.is_dir() else None
    for location, row in _rows(_file_of(path)):
        prediction = _prediction(row, location, unnamed=path.stem)
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


def _file_of(source: Path) -> Path:
    """Return the file of predictions in a folder, or the file itself."""
    if not source.is_dir():
        return source
    for name in _FOLDER_FILES:
        if (source / name).is_file():
            return source / name
    raise SettingsError(f"{source} has none of the files {', '.join(_FOLDER_FILES)}; name a file of predictions")


def _rows(path: Path) -> list[tuple[str, Any]]:
    """Return the predictions of a file with their locations, in whichever of the layouts it is."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"predictions {path} cannot be read: {error}; name a file, a folder of mini-swe-agent, gold or empty"
        ) from None
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and _is_json(lines[0][1]):
        return [(f"{path}: line {n}", _parse(line, f"{path}: line {n}")) for n, line in lines]
    if not lines:
        return []
    data = _parse(text, f"{path}: line 1" if path.suffix == ".jsonl" else str(path))
    if isinstance(data, Mapping) and find_column(data, (*COLUMNS["id"], *COLUMNS["patch"])) is None:
        # By instance, as mini-swe-agent and SWE-agent write them; a value may also be the patch alone.
        data = [_keyed(name, value) for name, value in data.items()]
    elif isinstance(data, Mapping):
        data = [data]
    if not isinstance(data, list):
        raise SettingsError(f"{path} is neither a list of predictions nor an object of them")
    return [(f"{path}: row {n}", row) for n, row in enumerate(data, 1)]


def _keyed(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {"instance_id": name, **value}
    return {"instance_id": name, "model_patch": value} if value is None or isinstance(value, str) else value


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{location} is not JSON: {error}") from None


def _prediction(row: Any, location: str, *, unnamed: str) -> Prediction:
    """Return a prediction. unnamed: the model's name, if the row has none."""
    if not isinstance(row, Mapping):
        raise SettingsError(f"{location} is not a prediction: it is {type(row).__name__}, not an object")
    name = _id_of(row)
    if name is None:
        raise SettingsError(f"{location} is not a prediction of an instance: {missing_column(row, COLUMNS['id'])}")
    # In a row of a dataset, the column `patch` is the reference solution.
    names = [n for n in COLUMNS["patch"] if n != "patch" or find_column(row, ("test_patch",)) is None]
    found = find_column(row, names)
    if found is None:
        raise SettingsError(f"{location} has no patch: {missing_column(row, names)}")
    column, patch = found
    if is_empty(patch):
        patch = patch if isinstance(patch, str) else ""
    if not isinstance(patch, str):
        raise SettingsError(f"{location}: {column} is {type(patch).__name__}, not text")
    if half := lone_surrogate(patch):
        raise SettingsError(f"{location}: {column} holds {half}, which is half a character")
    named = find_column(row, COLUMNS["model"])
    model = named[1] if named is not None and isinstance(named[1], str) and named[1].strip() else unnamed
    label = named[0] if named is not None else COLUMNS["model"][0]
    return Prediction(name, require_name(model, f"{location}: {label}"), patch)


def _id_of(row: Mapping[str, Any]) -> str | None:
    """Return the id of the instance: one column, or the three of Multi-SWE-bench."""
    found = find_column(row, COLUMNS["id"])
    if found is not None and isinstance(found[1], str) and found[1].strip():
        return found[1].strip()
    owner, repo, number = (row.get(key) for key in ("org", "repo", "number"))
    if isinstance(owner, str) and isinstance(repo, str) and isinstance(number, int | str):
        return f"{owner}__{repo.rpartition('/')[2]}-{number}"
    return None
