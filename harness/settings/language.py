"""Declare the settings of `ssr train` for language models; its sections are the parts of the plan of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.records.rewards import ALPHA
from harness.settings.plan import CommandSettings, section
from harness.settings.players import LimitSettings
from harness.settings.sections import ExecutionSettings, InstanceSettings, SelectionSettings, rule_option
from harness.training.language.plan import Adapter, Base, Data, Method, Optimization, Policy, Saving, Tracking
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import (
    AT_LEAST_0,
    INNER_FRACTION,
    option,
    required,
    shared,
)
from pytest_ssr.records.reasons import Rule

_OF_TOKENS = frozenset(("packing", "tokens-of", "ignore-token-ids"))
_OF_OWN_ROLLOUTS = frozenset(("log-rollouts",))


def strategies() -> tuple[str, ...]:
    """Return the strategies of an injector."""
    from harness.injectors.model import STRATEGIES

    return STRATEGIES


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLanguageSettings(CommandSettings):
    """What every training of a language model has."""

    method: ClassVar[Method]
    out: Path = option(Path("trained"), "FOLDER", "folder of the run; a run that was ended continues there")
    seed: int = shared("seed", help="random seed: of the data's order, new weights and samples", bound=AT_LEAST_0)
    base: Base = section(Base)
    adapter: Adapter = section(Adapter)
    data: Data = section(Data)
    optimization: Optimization = section(Optimization)
    saving: Saving = section(Saving)
    tracking: Tracking = section(Tracking)

    def check(self) -> None:
        """Refuse batches that are too small for the method."""
        if self.method is Method.KTO and self.optimization.batch < 2:
            raise SettingsError("kto compares the rows of a batch: --batch must be at least 2", option="batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRowsSettings(TrainLanguageSettings):
    """What every training on rows has."""

    source: tuple[Path, ...] = required(
        "SOURCE", "stores, projects or runs that have one, or files and folders of `ssr export`", is_argument=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSftSettings(TrainRowsSettings):
    """Train a language model on rollouts that succeeded (supervised fine-tuning)."""

    method = Method.SFT
    without = _OF_OWN_ROLLOUTS | {"beta"}
    example: ClassVar[str] = "ssr train sft .ssr --model Qwen/Qwen2.5-Coder-0.5B-Instruct --out tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBcSettings(TrainRowsSettings):
    """Train a language model on single replies of rollouts that succeeded (behaviour cloning)."""

    method = Method.BC
    without = _OF_OWN_ROLLOUTS | {"beta"}
    example: ClassVar[str] = "ssr train bc .ssr --model Qwen/Qwen2.5-Coder-0.5B-Instruct --out tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDpoSettings(TrainRowsSettings):
    """Train a language model on pairs of a better and a worse reply (direct preference optimisation)."""

    method = Method.DPO
    without = _OF_OWN_ROLLOUTS | _OF_TOKENS
    example: ClassVar[str] = "ssr train dpo .ssr --model tuned/merged --learning-rate 5e-6 --out preferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainKtoSettings(TrainRowsSettings):
    """Train a language model on replies that are labelled good or bad (Kahneman-Tversky optimisation)."""

    method = Method.KTO
    without = _OF_OWN_ROLLOUTS | _OF_TOKENS
    example: ClassVar[str] = "ssr train kto .ssr --model tuned/merged --batch 4 --out preferred"


@dataclass(frozen=True, slots=True)
class PolicySettings(Policy):
    """How the model acts while it is trained."""

    strategy: str = option("direct", "NAME", "strategy of the injector", is_own=True, choices=lambda: strategies())


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

    without = _OF_TOKENS | {"epochs", "accumulation", "rollout-usd", "rollout-tokens"}
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

    method = Method.GRPO
    example: ClassVar[str] = "ssr train grpo . --model tuned/merged --updates 100 --out policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReinforceSettings(TrainPolicySettings):
    """Train a language model by the rewards of its own rollouts (REINFORCE, with the group's mean as the baseline)."""

    method = Method.REINFORCE
    example: ClassVar[str] = "ssr train reinforce . --roles solver --model tuned/merged --updates 100 --out policy"
