"""Read attempts from SWE-bench's reports: `MODEL.RUN.json` of its schema 1 and 2, or the folders of its logs.

Reports of swebench 4.x have no infra_failure and ambiguous_failure: there, such instances are among the errors. In 5.x
they are labels on instances that are also unresolved or errors. A failure of the machine has no grade, nor has an
instance that was not submitted (`incomplete`); a failure that may be the patch's (`ambiguous`) keeps its status, with
the reason. An instance without a report.json is an error if its run_instance.log records how it ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.leaderboard.escaping import clean
from harness.leaderboard.records import Entry
from pytest_ssr.errors import SettingsError

_LISTS = {
    "resolved_ids": "resolved",
    "unresolved_ids": "unresolved",
    "empty_patch_ids": "empty",
    "error_ids": "error",
    "infra_failure_ids": "infra",
    "ambiguous_failure_ids": "ambiguous",
    "incomplete_ids": "incomplete",
}
_REPORT, _LOG = "report.json", "run_instance.log"
_LABELLED = {"infra": ("unresolved", "error"), "ambiguous": ("unresolved", "error")}
"""The labels of 5.x, and the statuses that they may accompany."""
_ENDS = (">>>>> Patch Apply Failed", "Test timed out after", "Error in evaluating model", "EvaluationError")
"""Lines in the run_instance.log of an instance that ended without a report."""


def repo_of(instance_id: str) -> str:
    """Return `owner/name` from an instance id of SWE-bench or SWE-smith; empty for other ids."""
    match = re.match(r"(.+?)__(.+?)(?:-\d+$|\.[0-9a-f]{8}\.)", instance_id)
    return f"{match[1]}/{match[2]}" if match else ""


def is_report(path: Path) -> bool:
    """Return whether a file holds a model's totals as SWE-bench writes them."""
    data = _load(path) if path.suffix == ".json" else None
    return isinstance(data, dict) and isinstance(data.get("resolved_ids"), list)


def read_reports(path: Path, label: str) -> list[Entry]:
    """Read a file of totals, or a folder: its files of totals, else all `MODEL/INSTANCE/` below it.

    Several runs in a folder get separate labels. Raises SettingsError for a damaged report.
    """
    if path.is_file():
        return list(_totals(path, label))
    reports = [(_model_and_run(p)[1], p, _totals) for p in sorted(path.glob("*.json")) if is_report(p)]
    reports = reports or [(p.absolute().parent.parent.parent.name, p, _instance) for p in _ended(path)]
    several = len({run for run, *_ in reports}) > 1
    return [a for run, p, read in reports for a in read(p, f"{label}/{run}" if several else label)]


def _model_and_run(path: Path) -> tuple[str, str]:
    """Return the model and run of `MODEL.RUN.json`; our own further attempts are in `MODEL.RUN.2.json`."""
    stem, _, last = path.stem.rpartition(".")
    if last.isdigit() and path.with_name(f"{stem}.json").exists():
        model, _, run = stem.rpartition(".")
        return model, f"{run}.{last}"
    return stem or last, last


def _totals(path: Path, label: str) -> Iterator[Entry]:
    model, _ = _model_and_run(path)
    data = _load(path)
    seen: dict[str, str] = {}
    reasons = data.get("failure_reasons") if isinstance(data.get("failure_reasons"), dict) else {}
    for name, status in _LISTS.items():
        ids = data.get(name, [])
        if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
            raise SettingsError(f"{path} is damaged: {name} is not a list of ids")
        for instance in ids:
            earlier = seen.get(instance, status)
            if earlier != status and earlier not in _LABELLED.get(status, ()):
                raise SettingsError(f"{path} is damaged: {instance} is both {earlier} and {status}")
            seen[instance] = earlier if status == "ambiguous" else status
    for instance, status in seen.items():
        reason = reasons.get(instance)
        yield _attempt(model, instance, status, reason if isinstance(reason, str) else "", label)


def _ended(path: Path) -> list[Path]:
    """Return the reports below a folder, and the logs of instances that ended without one."""
    logs = (p for p in path.rglob(_LOG) if not p.with_name(_REPORT).exists())
    return sorted([*path.rglob(_REPORT), *(p for p in logs if _end_of(p))], key=lambda p: p.parent)


def _end_of(log: Path) -> str:
    """Return the line of a log that records an end without a report; an empty string if it has none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SettingsError(f"{log} cannot be read: {error.strerror}") from None
    return next((line for line in reversed(lines) if any(end in line for end in _ENDS)), "")


def _instance(path: Path, label: str) -> Iterator[Entry]:
    if path.name == _LOG:
        yield _attempt(path.parent.parent.name, path.parent.name, "error", _end_of(path), label)
        return
    data = _load(path)
    rows = data.items() if isinstance(data, dict) else ()
    for instance, row in rows:
        if not isinstance(row, Mapping) or type(row.get("resolved")) is not bool:
            raise SettingsError(f"{path} is damaged: it has no boolean `resolved` for {instance}")
        status = "resolved" if row["resolved"] else "unresolved"
        if row.get("patch_is_None") or row.get("patch_exists") is False:
            status = "empty"
        if row.get("infra_failure"):
            status = "infra"
        reason = row.get("infra_failure_reason")
        yield _attempt(path.parent.parent.name, instance, status, reason if isinstance(reason, str) else "", label)


def _attempt(model: str, instance: str, status: str, reason: str, label: str) -> Entry:
    model, instance, reason = map(clean, (model, instance, reason))
    return Entry(model, instance, 0, label, status, repo_of(instance), status, reason)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"{path} is damaged: it is not JSON") from None
