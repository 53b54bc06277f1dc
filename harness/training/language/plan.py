"""Describe a training of a language model: the method, and everything that the loss curve depends on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SettingsError

INJECTOR, SOLVER = "injector", "solver"
"""The roles of a model."""


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

    model: str
    """A folder, or a name on the hub."""
    chat_template: Path | None = None
    """A file that replaces the tokenizer's chat template."""
    dtype: str = "auto"
    """`float32` or `bfloat16`; `auto` is float32, but bfloat16 for the weights below an adapter on a GPU.

    A GPU calculates in bfloat16, unless this is `float32`.
    """
    bits: int = 0
    """Bits of each weight after quantisation, 4 or 8; 0: none."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is trained of it: an adapter, or all weights."""

    kind: str = "lora"
    """`lora`, `dora`, or `none` for all weights."""
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    """Names of modules; empty: all linear layers but the last."""


@dataclass(frozen=True, slots=True)
class Data:
    """How rows become tokens."""

    max_length: int = 0
    """Tokens of the longest sequence; 0: the model's context. Longer rows are left out, and rollouts end before it."""
    packing: bool = False
    """Put several sequences into one row of a batch."""
    tokens_of: tuple[str, ...] = ()
    """Recorded models whose tokenizer is that of the model."""
    ignore_token_ids: bool = False
    """Encode the text by the chat template, even if its token ids were recorded."""
    exclude: tuple[str, ...] = ()
    """Repositories, instances and `.jsonl` files of rows that must not be trained on, besides those of SWE-bench."""
    allow_contaminated: bool = False
    """Train on them nevertheless."""


@dataclass(frozen=True, slots=True)
class Optimization:
    """How the weights change."""

    epochs: float = 1.0
    updates: int = 0
    """Number of updates; 0: as many as the epochs have."""
    batch: int = 1
    """Sequences at a time on each device."""
    accumulation: int = 8
    """Batches in one update."""
    learning_rate: float = 1e-4
    schedule: str = "cosine"
    warmup: float = 0.03
    """Share of the updates in which the learning rate rises."""
    weight_decay: float = 0.0
    clip: float = 1.0
    """The largest norm of the gradient."""
    gradient_checkpointing: bool = False
    """Compute activations twice, to save memory."""
    sharding: bool = False
    """Spread the weights over all GPUs (FSDP)."""
    beta: float | None = None
    """Weight of the distance to the first model; None: TRL's default for the method."""


@dataclass(frozen=True, slots=True)
class Saving:
    """When a checkpoint is written."""

    every: int = 50
    """Updates between two checkpoints."""
    keep: int = 2
    """The number of checkpoints that are kept."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """Where metrics go besides the run's folder."""

    tracker: str = ""
    """`trackio`, `wandb`, `mlflow` or `tensorboard`; empty: nowhere."""
    run_name: str = ""
    every: int = 1
    """Updates between two lines of metrics."""
    samples: int = 2
    """Rollouts of each update that are written to rollouts.jsonl."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the model acts and learns from it."""

    roles: str = "both"
    """`solver`, `injector` or `both`."""
    group: int = 8
    """Rollouts of one task in one update."""
    tasks: int = 2
    """Tasks in one update; with both roles an even number, half for each."""
    completion_tokens: int = 4096
    """Tokens of one rollout, without its prompt."""
    reply_tokens: int = 1024
    """Tokens of one reply."""
    temperature: float = 1.0
    top_p: float = 1.0
    vllm: str = ""
    """The address of a server that `trl vllm-serve` started; empty: transformers generates."""

    def __post_init__(self) -> None:
        """Raise SettingsError for values that cannot work."""
        if self.roles == "both" and self.tasks % 2:
            raise SettingsError(f"--tasks {self.tasks}: with both roles it must be even", option="tasks")
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
        parts = {
            "method": str(self.method),
            "base": asdict(self.base),
            "adapter": asdict(self.adapter),
            "data": asdict(self.data),
            "optimization": asdict(self.optimization),
            "seed": self.seed,
            "environment": self.environment,
        }
        plain: dict[str, Any] = json.loads(json.dumps(parts, default=str))
        return plain
