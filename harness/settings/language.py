"""Declare the settings of `ssr train` for language models. Defaults are those of the plan of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.records.rewards import ALPHA
from harness.settings.commands import CommandSettings
from harness.settings.sections import (
    ExecutionSettings,
    InstanceSettings,
    LimitSettings,
    SelectionSettings,
    rule_option,
    section,
)
from harness.training.language.plan import Adapter, Data, Optimization, Policy, Saving, Tracking
from pytest_ssr.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FRACTION,
    INNER_FRACTION,
    MORE_THAN_0,
    NOT_NEGATIVE,
    option,
    required,
    shared,
    switch,
)
from pytest_ssr.records.reasons import Rule

_ADAPTER, _DATA, _OPTIMIZATION, _SAVING, _TRACKING = Adapter(), Data(), Optimization(), Saving(), Tracking()
_POLICY = Policy()


def strategies() -> tuple[str, ...]:
    """Return the strategies of an injector."""
    from harness.injectors.model import STRATEGIES

    return STRATEGIES


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """The model that is trained."""

    model: str = required("MODEL", "a folder with a model and its tokenizer, or a name on the hub", is_own=True)
    chat_template: Path | None = option(None, "FILE", "use this chat template instead of the tokenizer's")
    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        "NAME",
        "type of the weights; auto: float32, but bfloat16 below an adapter on a GPU. A GPU calculates in bfloat16, "
        "unless this is float32",
    )
    bits: int = option(0, "N", "load the weights in 4 or 8 bits, with bitsandbytes on a GPU; 0: not quantised")


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What is trained of the model."""

    kind: Literal["lora", "dora", "none"] = option(
        _ADAPTER.kind, "KIND", "an adapter, or none to train all weights", flag="adapter"
    )
    rank: int = option(_ADAPTER.rank, "N", "rank of the adapter", flag="lora-rank", bound=AT_LEAST_1)
    alpha: float = option(_ADAPTER.alpha, "N", "scale of the adapter", flag="lora-alpha", bound=MORE_THAN_0)
    dropout: float = option(_ADAPTER.dropout, "N", "dropout of the adapter", flag="lora-dropout", bound=NOT_NEGATIVE)
    targets: tuple[str, ...] = option(
        _ADAPTER.targets,
        "NAME",
        "module that gets an adapter; can be repeated (default: all linear layers but the last)",
        flag="lora-target",
    )


@dataclass(frozen=True, slots=True)
class DataSettings:
    """How rows become tokens."""

    max_length: int = option(
        _DATA.max_length,
        "N",
        "tokens of the longest sequence; longer rows are left out, rollouts end before it, and both are counted; 0: "
        "the model's context",
        bound=AT_LEAST_0,
    )
    packing: bool = switch("put several sequences into one row of a batch (sft, bc)")
    tokens_of: tuple[str, ...] = option(
        _DATA.tokens_of,
        "MODEL",
        "recorded model that has the same tokenizer as --model: its name, its id on the server of vllm:URL, or all of "
        "vllm:URL if the record lacks that id; can be repeated",
    )
    ignore_token_ids: bool = switch("encode the text by the chat template, even if its token ids were recorded")
    exclude: tuple[str, ...] = option(
        _DATA.exclude,
        "NAME",
        "a repository, an instance's id or a .jsonl file of rows that must not be trained on, besides the "
        "repositories of SWE-bench; can be repeated",
    )
    allow_contaminated: bool = switch("train on repositories and instances of evaluation sets nevertheless")


@dataclass(frozen=True, slots=True)
class OptimizationSettings:
    """How the weights change."""

    epochs: float = option(_OPTIMIZATION.epochs, "N", "passes over the data", bound=MORE_THAN_0)
    updates: int = option(
        _OPTIMIZATION.updates,
        "N",
        "number of updates, which grpo and reinforce need; 0: by --epochs",
        bound=AT_LEAST_0,
    )
    batch: int = option(_OPTIMIZATION.batch, "N", "sequences at a time on each device", bound=AT_LEAST_1)
    accumulation: int = option(_OPTIMIZATION.accumulation, "N", "batches in one update", bound=AT_LEAST_1)
    learning_rate: float = option(_OPTIMIZATION.learning_rate, "N", "highest learning rate", bound=NOT_NEGATIVE)
    schedule: Literal["cosine", "linear", "constant"] = option(
        _OPTIMIZATION.schedule, "NAME", "how the learning rate falls after the warmup"
    )
    warmup: float = option(_OPTIMIZATION.warmup, "N", "share of the updates of the warmup", bound=NOT_NEGATIVE)
    weight_decay: float = option(_OPTIMIZATION.weight_decay, "N", "weight decay of AdamW", bound=NOT_NEGATIVE)
    clip: float = option(_OPTIMIZATION.clip, "N", "largest norm of the gradient", bound=MORE_THAN_0)
    gradient_checkpointing: bool = switch("save memory by computing activations twice")
    sharding: bool = switch("spread the weights over all GPUs (FSDP)")
    beta: float | None = option(
        None, "N", "weight of the distance to the first model (default: TRL's for the method)", bound=NOT_NEGATIVE
    )


@dataclass(frozen=True, slots=True)
class SavingSettings:
    """When checkpoints are written."""

    every: int = option(
        _SAVING.every, "N", "updates between two checkpoints", flag="checkpoint-every", bound=AT_LEAST_1
    )
    keep: int = option(_SAVING.keep, "N", "checkpoints to keep", flag="checkpoints", bound=AT_LEAST_1)


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """Where metrics go; they are always in metrics.jsonl of the run's folder."""

    tracker: Literal["", "trackio", "wandb", "mlflow", "tensorboard"] = option(
        "", "NAME", "also report to trackio, wandb, mlflow or tensorboard"
    )
    run_name: str = option("", "NAME", "name of the run for the tracker (default: the folder's)")
    every: int = option(
        _TRACKING.every,
        "N",
        "updates between two lines of metrics; each checkpoint has one, too",
        flag="log-every",
        bound=AT_LEAST_1,
    )
    samples: int = option(
        _TRACKING.samples,
        "N",
        "rollouts of each update in rollouts.jsonl (grpo, reinforce)",
        flag="log-rollouts",
        bound=AT_LEAST_0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLanguageSettings(CommandSettings):
    """What every training of a language model has."""

    out: Path = option(Path("trained"), "FOLDER", "folder of the run; a run that was ended continues there")
    seed: int = shared("seed", help="random seed: of the data's order, new weights and samples")
    base: BaseSettings = section(BaseSettings)
    adapter: AdapterSettings = section(AdapterSettings)
    data: DataSettings = section(DataSettings)
    optimization: OptimizationSettings = section(OptimizationSettings)
    saving: SavingSettings = section(SavingSettings)
    tracking: TrackingSettings = section(TrackingSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRowsSettings(TrainLanguageSettings):
    """What every training on rows has."""

    source: tuple[Path, ...] = required(
        "SOURCE", "stores, projects or runs that have one, or files and folders of `ssr export`", is_argument=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSftSettings(TrainRowsSettings):
    """Train a language model on rollouts that succeeded (supervised fine-tuning)."""

    example: ClassVar[str] = "ssr train sft .ssr --model Qwen/Qwen2.5-Coder-0.5B-Instruct --out tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBcSettings(TrainRowsSettings):
    """Train a language model on single replies of rollouts that succeeded (behaviour cloning)."""

    example: ClassVar[str] = "ssr train bc .ssr --model Qwen/Qwen2.5-Coder-0.5B-Instruct --out tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDpoSettings(TrainRowsSettings):
    """Train a language model on pairs of a better and a worse reply (direct preference optimisation)."""

    example: ClassVar[str] = "ssr train dpo .ssr --model tuned/merged --learning-rate 5e-6 --out preferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainKtoSettings(TrainRowsSettings):
    """Train a language model on replies that are labelled good or bad (Kahneman-Tversky optimisation)."""

    example: ClassVar[str] = "ssr train kto .ssr --model tuned/merged --batch 4 --out preferred"


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """How the model acts while it is trained."""

    roles: Literal["solver", "injector", "both"] = option(
        _POLICY.roles, "NAME", "what it learns: to repair, to inject, or both in each update"
    )
    strategy: str = option("direct", "NAME", "strategy of the injector", is_own=True, choices=lambda: strategies())
    group: int = option(_POLICY.group, "N", "rollouts of one task in one update", bound=AT_LEAST_1)
    tasks: int = option(
        _POLICY.tasks,
        "N",
        "tasks in one update; with both roles half of them for each, and a multiple of twice the processes",
        flag="tasks",
        bound=AT_LEAST_1,
    )
    completion_tokens: int = option(
        _POLICY.completion_tokens, "N", "tokens of one rollout, without its prompt", bound=AT_LEAST_1
    )
    reply_tokens: int = option(_POLICY.reply_tokens, "N", "tokens of one reply", bound=AT_LEAST_1)
    temperature: float = option(_POLICY.temperature, "N", "sampling temperature", bound=MORE_THAN_0, is_own=True)
    top_p: float = option(_POLICY.top_p, "N", "sampling top-p", bound=FRACTION, is_own=True)
    vllm: str = option(
        _POLICY.vllm,
        "URL",
        "generate on this server, started by `trl vllm-serve` (default: with transformers)",
        is_personal=True,
    )


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """What the reward consists of."""

    scores: tuple[str, ...] = option(
        (),
        "NAME=WEIGHT",
        "a score and its weight in the reward: outcome, tests, process, or one that another package adds; can be "
        "repeated (default: outcome=1)",
        flag="score",
        is_own=True,
    )
    judge: str = option("", "MODEL", "model of the score process", is_own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPolicySettings(TrainLanguageSettings):
    """What every training on the model's own rollouts has."""

    source: tuple[Path, ...] = required(
        "PROJECT",
        "projects in which bugs are injected and repaired, or datasets whose rows are repaired",
        is_argument=True,
    )
    selection: SelectionSettings = section(SelectionSettings)
    instances: InstanceSettings = section(InstanceSettings)
    store: Path | None = shared(
        "store", help="store of one project's bugs, or of what datasets need (default: .ssr in each project, .ssr here)"
    )
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    rule: Rule = rule_option()
    policy: PolicySettings = section(PolicySettings)
    tools: tuple[str, ...] = option(
        (), "NAME", "a tool that another package adds, besides our own; can be repeated", flag="tool", is_own=True
    )
    reward: RewardSettings = section(RewardSettings)
    limits: LimitSettings = section(LimitSettings)
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGrpoSettings(TrainPolicySettings):
    """Train a language model by the rewards of its own rollouts (GRPO); it injects bugs, repairs them, or both."""

    example: ClassVar[str] = "ssr train grpo . --model tuned/merged --updates 100 --out policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReinforceSettings(TrainPolicySettings):
    """Train a language model by the rewards of its own rollouts (REINFORCE, with the group's mean as the baseline)."""

    example: ClassVar[str] = "ssr train reinforce . --roles solver --model tuned/merged --updates 100 --out policy"
