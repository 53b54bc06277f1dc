"""Train on rows: sft and bc by TRL's SFTTrainer, dpo and kto by its trainers of these names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.exporters.formats import FORMATS
from harness.exporters.protocol import OBJECTS, TEXT, TRUTH, Row
from harness.exporters.tokens import IGNORED
from harness.training.language.encoding import Encoder
from harness.training.language.guarded import build, metrics_writer
from harness.training.language.left_out import LeftOut, LeftOutCode, LeftOutError
from harness.training.language.models import adapter_of
from harness.training.language.plan import Method, Plan
from harness.training.language.rows import row_name
from harness.training.language.run_folder import RunFolder
from pytest_ssr.errors import SettingsError

Watch = Callable[[str], None]
"""Shows the status of a training."""
_PREFERENCE_COLUMNS = {Method.DPO: ("prompt", "chosen", "rejected"), Method.KTO: ("prompt", "completion")}


def prepare(rows: Sequence[Row], encoder: Encoder, plan: Plan, left_out: LeftOut) -> tuple[Any, dict[str, int]]:
    """Return the data set of a trainer, and counts of its rows and tokens.

    Raises SettingsError if no row is left, or if there are too few.
    """
    columns = _PREFERENCE_COLUMNS.get(plan.method)
    kept = _sequences(rows, encoder, left_out) if columns is None else _fitting(rows, columns, encoder, left_out)
    if not kept:
        reasons = "; ".join(f"{i['count']}: {i['reason']}, such as {i['examples'][0]}" for i in left_out.to_json())
        raise SettingsError(f"none of the {len(rows)} rows can be trained on ({reasons})", option="max-length")
    if columns is None:
        from datasets import Dataset

        tokens = sum(len(row["input_ids"]) for row in kept)
        trained = sum(label != IGNORED for row in kept for label in row["labels"])
        return Dataset.from_list(kept), {"rows": len(kept), "tokens": tokens, "trained_tokens": trained}
    return _preferences(kept, plan), {"rows": len(kept)}


def _sequences(rows: Sequence[Row], encoder: Encoder, left_out: LeftOut) -> list[Row]:
    kept = []
    for number, row in enumerate(rows, 1):
        try:
            encoded = encoder.sequence(row)
        except LeftOutError as error:
            left_out.add(row_name(row, number), error)
            continue
        kept.append({"input_ids": encoded.ids, "labels": encoded.labels})
    _require_same_tokenizer(rows, left_out)
    return kept


def _require_same_tokenizer(rows: Sequence[Row], left_out: LeftOut) -> None:
    """Raise SettingsError if half of the rows with recorded token ids, or more, are of another tokenizer."""
    recorded = sum("input_ids" in row for row in rows)
    others = left_out.counts[LeftOutCode.OTHER_TOKENIZER]
    if others and others * 2 >= recorded:
        [example, *_] = left_out.examples[LeftOutCode.OTHER_TOKENIZER]
        raise SettingsError(
            f"{others} of {recorded} rows with recorded token ids are of another tokenizer, such as {example}; "
            "--ignore-token-ids encodes the text again",
            option="tokens-of",
        )


def _fitting(rows: Sequence[Row], columns: Sequence[str], encoder: Encoder, left_out: LeftOut) -> list[Row]:
    """Return the rows of which every sequence is short enough."""
    kept = []
    prompt, *endings = columns
    for number, row in enumerate(rows, 1):
        try:
            for ending in endings:
                encoder.require_length(encoder.length([*row[prompt], *row[ending]], row.get("tools")))
        except LeftOutError as error:
            left_out.add(row_name(row, number), error)
            continue
        kept.append(row)
    return kept


def _preferences(rows: Sequence[Row], plan: Plan) -> Any:
    """Return rows as a data set whose objects keep their own keys."""
    from datasets import Dataset, Features, Json, List, Value

    kinds = {OBJECTS: lambda: List(Json()), TRUTH: lambda: Value("bool"), TEXT: lambda: Value("string")}
    names = [*_PREFERENCE_COLUMNS[plan.method], "tools", *(["label"] if plan.method is Method.KTO else [])]
    columns = FORMATS[plan.method].columns
    features = Features({name: kinds[columns[name]]() for name in names})
    return Dataset.from_list([{name: row.get(name) or [] for name in names} | _label(row) for row in rows], features)


def _label(row: Row) -> Row:
    return {"label": bool(row["label"])} if "label" in row else {}


def common_arguments(plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """Return the arguments of every trainer."""
    import torch

    how, on_gpu = plan.optimization, torch.cuda.is_available()
    return {
        "output_dir": str(folder.checkpoints),
        "num_train_epochs": how.epochs,
        "max_steps": how.updates or -1,
        "per_device_train_batch_size": how.batch,
        "gradient_accumulation_steps": how.accumulation,
        "learning_rate": how.learning_rate,
        "lr_scheduler_type": how.schedule,
        "warmup_steps": how.warmup,
        "weight_decay": how.weight_decay,
        "max_grad_norm": how.clip,
        "gradient_checkpointing": how.gradient_checkpointing,
        "fsdp": "full_shard" if how.sharding else None,
        "bf16": plan.base.dtype != "float32" and (on_gpu or _cpu_has_bfloat16()),
        "use_cpu": not on_gpu,
        "seed": plan.seed,
        "data_seed": plan.seed,
        "save_strategy": "steps",
        "save_steps": plan.saving.every,
        "logging_steps": plan.tracking.every,
        "logging_nan_inf_filter": False,
        "report_to": [plan.tracking.tracker] if plan.tracking.tracker else [],
        "run_name": plan.tracking.run_name or folder.path.name,
        "disable_tqdm": True,
        "dataloader_pin_memory": on_gpu,
    }


def _cpu_has_bfloat16() -> bool:
    """Return whether the processor multiplies matrices of bfloat16 by instructions of its own; others emulate that."""
    import torch

    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def supervised_trainer(
    plan: Plan, folder: RunFolder, model: Any, tokenizer: Any, data: Any, limit: int, watch: Watch
) -> Any:
    """Return TRL's trainer of a method. limit: tokens of the longest row, for packing."""
    import trl

    arguments = common_arguments(plan, folder)
    if plan.optimization.beta is not None and plan.method in (Method.DPO, Method.KTO):
        arguments["beta"] = plan.optimization.beta
    arguments["max_length"] = None
    if plan.method is Method.DPO:
        kind, config = trl.DPOTrainer, trl.DPOConfig
    elif plan.method is Method.KTO:
        kind, config = trl.KTOTrainer, trl.KTOConfig
    else:
        kind, config = trl.SFTTrainer, trl.SFTConfig
        arguments["packing"] = plan.data.packing
        if plan.data.packing:
            arguments["max_length"] = limit
    return build(
        kind,
        config,
        arguments,
        folder,
        model=model,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=adapter_of(model, plan.base, plan.adapter),
        callbacks=[metrics_writer(folder, watch)],
    )
