"""Train a language model from begin to end, or continue a training that was ended."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from harness.exporters.protocol import Row
from harness.training.language.contamination import Excluded, Name, require_clean, with_owner
from harness.training.language.guarded import is_main, save_model, train
from harness.training.language.left_out import LeftOut
from harness.training.language.models import (
    encoder_of,
    load_model,
    load_tokenizer,
    require_packages,
    require_targets,
    write_merged,
)
from harness.training.language.plan import Plan
from harness.training.language.rows import origins, read_rows
from harness.training.language.run_folder import RunFolder, read_lines
from harness.training.language.supervised import Watch, prepare, supervised_trainer
from harness.training.plots import training_plot
from pytest_ssr.errors import SettingsError


def require_tracker(name: str) -> None:
    """Raise SettingsError for a tracker that is not installed."""
    if name and importlib.util.find_spec(name) is None:
        raise SettingsError(f"--tracker {name} is not installed; run: pip install {name}", option="tracker")


def train_on_rows(sources: Sequence[Path], plan: Plan, watch: Watch) -> dict[str, Any]:
    """Train by sft, bc, dpo or kto; return the report. One that has finished is only read.

    Raises SettingsError for data or a model that cannot be used, TrainingError if the training cannot go on, and
    OSError or StoreWriteError if a file cannot be written.
    """
    require_packages()
    require_tracker(plan.tracking.tracker)
    folder = RunFolder(plan.out)
    folder.require_same(plan.identity())
    if (finished := finished_report(folder, plan)) is not None:
        return finished
    watch("reading the data")
    rows, reasons = _rows(sources, plan, folder)
    watch("loading the model")
    tokenizer = load_tokenizer(plan.base)
    model = load_model(plan.base, plan.adapter)
    require_targets(model, plan.adapter)
    left_out = LeftOut()
    encoder = encoder_of(model, tokenizer, plan.base, plan.data)
    data, counts = prepare(rows, encoder, plan, left_out)
    trainer = supervised_trainer(plan, folder, model, tokenizer, data, encoder.limit, watch)
    start = time.monotonic()
    watch("training")
    begun = train(trainer, plan, folder)
    save_model(trainer, folder)
    facts = {
        **counts,
        "left_out": [*reasons, *left_out.to_json()],
        "origins": origins(rows),
        "namesakes": _namesakes(rows, sources, plan),
        "of_unknown_origin": sum(not _has_origin(row) for row in rows),
    }
    return finish(trainer, folder, plan, facts, begun, start)


def _rows(sources: Sequence[Path], plan: Plan, folder: RunFolder) -> tuple[list[Row], list[Any]]:
    if (kept := folder.data()) is not None:
        return kept
    left_out = LeftOut()
    rows = read_rows(sources, plan.method, left_out, token_ids=not plan.data.ignore_token_ids)
    _namesakes(rows, sources, plan)
    if is_main():
        folder.begin(plan.identity(), rows, left_out.to_json())
    return rows, left_out.to_json()


def _namesakes(rows: Sequence[Row], sources: Sequence[Path], plan: Plan) -> list[str]:
    """Return what may be a fork of an evaluation set; raises SettingsError for what belongs to one."""
    projects = [path for source in sources for path in (source, source.resolve().parent)]
    names = {with_owner(name, projects) for row in rows for name in _names(row)}
    return require_clean(names, Excluded(plan.data.exclude), forced=plan.data.allow_contaminated)


def _names(row: Row) -> list[str]:
    """Return what a row of ours, or of the SWE-bench family, says about its repository and its task."""
    values = (row.get(column) for column in ("repository", "task_id", "repo", "instance_id"))
    return [value for value in values if isinstance(value, str) and value]


def _has_origin(row: Row) -> bool:
    """Return whether a row names its repository; the id of a bug does not, that of a SWE-bench instance does."""
    return bool(row.get("repository") or row.get("repo")) or any(Name.of(name).owner for name in _names(row))


def finish(
    trainer: Any, folder: RunFolder, plan: Plan, counts: dict[str, Any], begun: int, start: float
) -> dict[str, Any]:
    """Write the report and the plot of a finished training; return the report."""
    lines = read_lines(folder.metrics) if folder.metrics.exists() else []
    report = {
        "method": str(plan.method),
        "model": str(folder.model),
        "adapter": plan.adapter.kind,
        "updates": trainer.state.global_step,
        "continued_after": begun,
        **_ends(lines, "loss"),
        **_ends(lines, "reward"),
        **counts,
        "seconds_of_last_start": round(time.monotonic() - start, 1),
        "device": _device(trainer.args.device),
        **_speed([line for line in lines if line["step"] > begun]),
        "packages": {name: version(name) for name in ("torch", "transformers", "trl", "peft")},
    }
    if is_main():
        _merge(folder, plan)
        picture = training_plot(lines, folder.path)
        report["plot"] = str(picture) if picture is not None else None
        folder.finish(report)
    return report


def finished_report(folder: RunFolder, plan: Plan) -> dict[str, Any] | None:
    """Return the report of a training that has finished; None of another. The merged model is written if it is new."""
    report = folder.report()
    if report is not None and is_main():
        _merge(folder, plan)
    return report


def _merge(folder: RunFolder, plan: Plan) -> None:
    """Write the merged model if it is asked for and missing; without an adapter, the trained model needs no merging."""
    if plan.saving.merged and plan.adapter.kind != "none" and not folder.merged.exists():
        write_merged(plan.base, plan.adapter, folder.model, folder.merged)


def _device(device: Any) -> str:
    """Return the name of a device, with the model of a GPU."""
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def _speed(lines: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return medians over the metrics of one start, without the first line, which includes what is done once.

    Seconds include generation, sandboxes and checkpoints. Tokens are those of all sequences, with their prompts.
    """
    pairs = list(pairwise(lines))
    seconds = [after["seconds"] / (after["step"] - before["step"]) for before, after in pairs]
    tokens = [
        (after["num_tokens"] - before["num_tokens"]) / after["seconds"]
        for before, after in pairs
        if "num_tokens" in after and after["seconds"]
    ]
    return {
        "seconds_per_update": round(median(seconds), 3) if seconds else None,
        "tokens_per_second": round(median(tokens), 1) if tokens else None,
        "peak_gpu_gib": max((line["peak_gpu_gib"] for line in lines if "peak_gpu_gib" in line), default=None),
    }


def _ends(lines: Sequence[dict[str, Any]], name: str) -> dict[str, float | None]:
    """Return the first and the last value of a metric."""
    values = [line[name] for line in lines if line.get(name) is not None]
    return {f"{name}_first": values[0] if values else None, f"{name}_last": values[-1] if values else None}
