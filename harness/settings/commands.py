"""Declare the settings of each command of `ssr`; a class's docstring is the command's description."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from harness.records.rewards import ALPHA, KINDS
from harness.settings.plan import CommandSettings, section
from harness.settings.players import PlayerSettings, SolverSettings
from harness.settings.sections import (
    EvaluationSettings,
    ExecutionSettings,
    InstanceSettings,
    SelectionSettings,
    dataset_argument,
    jobs_option,
    mirror_option,
    ray_option,
    rule_option,
)
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    INJECTOR_NAMES,
    INNER_FRACTION,
    SANDBOX_NAMES,
    option,
    required,
    shared,
    switch,
)
from pytest_ssr.records.reasons import Rule
from pytest_ssr.records.shard import COUNT_IS_NOT_SPLIT, SUGGEST_IS_NOT_SPLIT, Shard
from pytest_ssr.settings import budget_seconds, limit_of

SHELLS = ("bash", "fish", "zsh")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings(CommandSettings):
    """Look at a project, run its tests once, and add a commented [tool.ssr] to its pyproject.toml."""

    example: ClassVar[str] = "ssr init . --dry-run"
    repo: Path = option(Path(), "REPO", "the project's top directory", is_argument=True)
    dry_run: bool = switch("only print what would be added")
    store: Path | None = shared("store", help="store for the measured tests (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionSettings(CommandSettings):
    """Print a script that completes the commands and options of ssr in a shell."""

    example: ClassVar[str] = "ssr completion bash > ~/.local/share/bash-completion/completions/ssr"
    shell: Literal["bash", "fish", "zsh"] = required("SHELL", f"one of {', '.join(SHELLS)}", is_argument=True)


_ARTIFACT = "a directory, or an id (or its beginning) in the store"
_WITH_FILES = ("artifacts:", "replay:")
_CONFTEST = "run the project's conftest.py, outside of any sandbox, for its pytest_ssr hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectSettings(CommandSettings):
    """Inject bugs into a project and store those that pass validation."""

    example: ClassVar[str] = "ssr inject . --count 5 --jobs 2"
    repo: Path = required(
        "REPO", "the project's top directory, or a dataset of which one instance is selected", is_argument=True
    )
    count: int = shared("count")
    injector: str = shared("injector", help=f"comma-separated: {', '.join(INJECTOR_NAMES)}, lm:MODEL")
    seed: int = shared("seed")
    source: tuple[str, ...] = shared("source", help="inject only below this file or folder; can be repeated")
    tests: tuple[str, ...] = option((), "PATH", "run only these tests (default: all); can be repeated")
    diff: str | None = shared("diff")
    fail_under: float | None = shared("fail_under")
    fail_on: str | None = shared("fail_on")
    changes: int = shared("changes")
    shard: str | None = shared(
        "shard",
        help="do the work of one of N machines, such as 2/5: every Nth of the first --changes changes; ssr merge joins "
        "the results",
    )
    suggest: int = shared("suggest")
    jobs: int = option(1, "N", "parallel candidates", bound=AT_LEAST_1)
    ray: str = ray_option()
    time: str | None = shared("time")
    per_hunk: bool = shared("per_hunk")
    diffs: bool = switch("show the diff of each change that no test detected")
    html: Path | None = shared("html")
    sarif: Path | None = shared("sarif")
    stryker: Path | None = shared("stryker")
    annotations: str = shared("annotations")
    conftest: bool = switch(_CONFTEST, is_personal=True)
    store: Path | None = shared("store", help="store for results (default: REPO/.ssr, or .ssr here for a dataset)")
    selection: SelectionSettings = section(SelectionSettings)
    instances: InstanceSettings = section(InstanceSettings)
    execution: ExecutionSettings = section(ExecutionSettings)

    @property
    def limit(self) -> float | None:
        """The least score in percent, or None without a gate."""
        return limit_of(self.fail_under, self.fail_on)

    @property
    def is_review(self) -> bool:
        """Whether it judges changed code, and proves no bug."""
        return self.diff is not None and "count" not in self.typed and self.shard is None

    @property
    def judges_only(self) -> bool:
        """Whether it makes no artifacts."""
        return self.is_review or (self.limit is not None and "count" not in self.typed)

    def check(self) -> None:
        """Refuse models, which `ssr play` asks for bugs, and a time limit that cannot be read."""
        from harness.rollouts.player_factory import injector_writes_code

        given = next((name for name in self.injector.split(",") if injector_writes_code(name.strip())), None)
        if given is not None:
            raise SettingsError(
                f"--injector {given} is for ssr play; ssr inject has operators and lm:MODEL only", option="injector"
            )
        _require_here(self.injector, self.ray)
        if self.time:
            budget_seconds(self.time, option="--time")
        if self.part is None:
            return
        if "count" in self.typed and self.limit is None:
            message = COUNT_IS_NOT_SPLIT.format(option="--count")
            raise SettingsError(f"{message}; use --changes", option="count")
        if self.suggest:
            raise SettingsError(f"--suggest {SUGGEST_IS_NOT_SPLIT}", option="suggest")

    @property
    def part(self) -> Shard | None:
        """The part of the work that this run does; None for all of it."""
        return Shard.parse(self.shard, option="--shard") if self.shard else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateSettings(CommandSettings):
    """Validate artifacts again, from their five files."""

    example: ClassVar[str] = "ssr validate .ssr/artifacts --repo ."
    path: Path = required("PATH", "an artifact, or a folder of artifacts", is_argument=True)
    repo: Path = option(Path(), "REPO", "the project's top directory")
    shard: str | None = shared(
        "shard",
        help="validate the part of one of N machines, such as 2/5: every Nth artifact; ssr merge joins the results",
    )
    per_hunk: bool = shared("per_hunk")
    by_script: bool = shared("by_script")
    store: Path | None = shared(
        "store",
        help="store for the copy of the project, and of a shard for the results (default: a temporary folder; of a "
        "shard: REPO/.ssr)",
    )
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse what is not a shard."""
        if self.shard:
            Shard.parse(self.shard, option="--shard")

    @property
    def part(self) -> Shard | None:
        """The part of the artifacts that this run validates; None for all of them."""
        return Shard.parse(self.shard, option="--shard") if self.shard else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings(CommandSettings):
    """Join the results of all shards of an injection or a validation, as if one machine had done the work."""

    example: ClassVar[str] = "ssr merge shards/* --into merged --fail-under 80 --html report"
    stores: tuple[Path, ...] = required(
        "STORE", "the stores of the shards, each with the results of one or several", is_argument=True
    )
    into: Path = required("DIR", "the store for the joined results; one that does not exist is created")
    fail_under: float | None = shared(
        "fail_under",
        help="fail if the tests notice less than this share of the tried changes, in percent (default: what the "
        "shards were given)",
    )
    diffs: bool = switch("show the diff of each change that no test detected")
    html: Path | None = shared("html")
    sarif: Path | None = shared("sarif")
    stryker: Path | None = shared("stryker")
    junit: Path | None = option(
        None, "FILE", "write a test case for each change into this file, as JUnit XML", is_own=True, is_personal=True
    )
    annotations: str = shared("annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSettings(CommandSettings):
    """List the artifacts of a store."""

    example: ClassVar[str] = "ssr list .ssr"
    store: Path = required("STORE", "a store", is_argument=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings(CommandSettings):
    """Show one artifact: its bug, its tests, its verdict; or one rollout, step by step."""

    example: ClassVar[str] = "ssr show 3f2a --store .ssr"
    artifact: str = required(
        "ID",
        "the id of an artifact or a rollout in the store, its beginning, or a path, such as that of a trajectory",
        is_argument=True,
    )
    store: Path | None = shared("store", help="store of the artifact or rollout (default: .ssr)")
    grep: str | None = option(
        None, "PATTERN", "show only the steps of a rollout in which this regular expression is found", is_own=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeSettings(CommandSettings):
    """Grade a patch on an artifact's buggy code."""

    example: ClassVar[str] = "ssr grade 3f2a --repo . --patch fix.diff"
    artifact: str = required("ARTIFACT", _ARTIFACT, is_argument=True)
    repo: Path = option(Path(), "REPO", "the project's top directory")
    patch: Path = required("FILE", "a git diff; - for standard input", takes_stdin=True)
    test_changes: Literal["drop", "refuse"] = option(
        "drop", "WAY", "drop a patch's changes to tests, or refuse the patch"
    )
    full: bool = switch("run all tests, even after a recorded one has failed (default: stop there)")
    rule: Rule = rule_option()
    by_script: bool = shared("by_script")
    store: Path | None = shared("store", help="store of the artifact and of what grades measure (default: REPO/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings(CommandSettings):
    """Report which sandboxes work here, and what to install; or test one against the whole contract."""

    example: ClassVar[str] = "ssr doctor --sandbox bubblewrap"
    sandbox: str | None = option(
        None, "NAME", f"test this sandbox against every clause of the contract: {', '.join(SANDBOX_NAMES)}", is_own=True
    )
    python: Path | None = option(None, "PATH", "check this interpreter as well", is_interpreter=True, is_own=True)
    slots: bool = switch("print only how many sandboxes this machine can run at the same time", is_own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveSettings(CommandSettings):
    """Run a solver on an artifact several times and grade its patches."""

    example: ClassVar[str] = "ssr solve 3f2a --repo . --solver search --attempts 8"
    artifact: str = required("ARTIFACT", _ARTIFACT, is_argument=True)
    repo: Path = option(Path(), "REPO", "the project's top directory")
    statement: Path | None = option(
        None, "FILE", "describe the task to a model by this file (default: by the weakened tests)"
    )
    seed: int = shared("seed", help="random seed")
    jobs: int = jobs_option("parallel attempts")
    rule: Rule = rule_option()
    by_script: bool = shared("by_script")
    store: Path | None = shared("store", help="store for results (default: REPO/.ssr)")
    players: PlayerSettings = section(PlayerSettings, is_named=False)
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse options that have no effect on the solver."""
        from harness.models.factory import is_model

        self.players.require_effect(self.typed)
        if self.statement is not None and not is_model(self.players.solver.name):
            solver = self.players.solver.name
            raise SettingsError(f"--statement is for a model, not for {solver}", option="statement")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySettings(CommandSettings):
    """Self-play: inject, validate, solve and reward, in rounds; run again to continue."""

    example: ClassVar[str] = "ssr play . --injector mutation --solver search --rounds 3"
    source: tuple[Path, ...] = required(
        "SOURCE", "projects' top directories, or datasets of instances", is_argument=True
    )
    injector: str = shared(
        "injector",
        help=f"comma-separated: {', '.join(INJECTOR_NAMES)}, lm:MODEL; or a model, replay:PATH, or artifacts:PATH",
    )
    rounds: int = option(1, "N", "rounds of self-play", bound=AT_LEAST_1)
    count: int = shared("count", default=4, help="bugs per project and round")
    alpha: float = option(ALPHA, "A", "weight of the solve rate in the injector's reward", bound=INNER_FRACTION)
    reward: str = option(KINDS[0], "KIND", "reward of the injector", choices=lambda: KINDS)
    fixed_mixture: bool = switch("sample operators in balance, regardless of the results of earlier rounds")
    higher_order: int = option(
        1, "N", "failed repairs of each bug that are tried as new bugs; 0: none", bound=AT_LEAST_0
    )
    higher_order_form: Literal["flattened", "paper"] = option(
        "flattened",
        "FORM",
        "flattened: a failed repair is a new bug with its own tests; paper: it keeps those of its parent",
    )
    strategy: str = option("removal+history", "NAME", "strategy of a model that injects", choices=lambda: _strategies())
    rejections: int = option(2, "N", "how often a model may revise a rejected bug", bound=AT_LEAST_0)
    seed: int = shared("seed", help="random seed")
    jobs: int = jobs_option("parallel attempts")
    ray: str = ray_option()
    rule: Rule = rule_option()
    by_script: bool = shared("by_script")
    conftest: bool = switch(_CONFTEST, is_personal=True)
    store: Path | None = shared("store", help="store for results (default: SOURCE/.ssr, or .ssr here for several)")
    selection: SelectionSettings = section(SelectionSettings)
    instances: InstanceSettings = section(InstanceSettings)
    players: PlayerSettings = section(PlayerSettings, is_named=False)
    execution: ExecutionSettings = section(ExecutionSettings)

    def check(self) -> None:
        """Refuse options that have no effect on the players, and players that a cluster does not have."""
        from harness.executors.protocol import is_remote
        from harness.rollouts.player_factory import injector_writes_code

        self.players.require_effect(self.typed, self.injector)
        if "by-script" in self.typed and not injector_writes_code(self.injector):
            raise SettingsError(f"--by-script is for a model that injects, not for {self.injector}", option="by-script")
        _require_here(self.injector, self.ray)
        if is_remote(self.ray):
            for name in (self.injector, self.players.solver.name, self.players.judge.model):
                _require_reachable(name)


def _require_here(injector: str, ray: str) -> None:
    """Raise SettingsError for a model that a cluster would have to run: another machine may write other replies."""
    from harness.executors.protocol import is_remote
    from harness.injectors.lm import lm_names

    if is_remote(ray) and (models := lm_names(injector)):
        raise SettingsError(f"{models[0]} writes bugs on this machine alone; omit --ray", option="ray")


def _require_reachable(player: str) -> None:
    """Raise SettingsError for a player of which the machines of a cluster have nothing."""
    from harness.models.factory import is_started_late

    if player.startswith(_WITH_FILES):
        raise SettingsError(
            f"{player} reads files of this machine, which a cluster does not have; omit --ray", option="ray"
        )
    if is_started_late(player):
        raise SettingsError(
            f"{player} would be started on every node of the cluster; start its server once, and name it vllm:URL",
            option="ray",
        )


def _strategies() -> tuple[str, ...]:
    from harness.injectors.model import STRATEGIES
    from harness.injectors.single_reply import STRATEGIES as SINGLE_REPLY

    return (*STRATEGIES, *SINGLE_REPLY)


@dataclass(frozen=True, slots=True)
class OneAttemptSettings(SolverSettings):
    """The solver, with one attempt."""

    attempts: int = shared("attempts", default=1, help="attempts per instance")


@dataclass(frozen=True, slots=True)
class RunPlayerSettings(PlayerSettings):
    """The solver, with one attempt, and models."""

    solver: SolverSettings = section(OneAttemptSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(CommandSettings):
    """Run a solver on the instances of a dataset and grade its patches; run again to continue."""

    without = frozenset(("judge", "judge-votes", "judge-temperature", "judge-max-tokens", "judge-coefficient"))
    example: ClassVar[str] = "ssr run rows.jsonl --solver search --repos clones --out runs/search -n 2"
    evaluation: EvaluationSettings = section(EvaluationSettings, is_named=False)
    name: str = option("", "NAME", "name of the solver in predictions and leaderboards (default: its own)", is_own=True)
    seed: int = shared("seed", help="random seed")
    show_tests: bool = switch("describe the task to a model by the tests, not by the statement")
    players: PlayerSettings = section(RunPlayerSettings, is_named=False)

    def check(self) -> None:
        """Refuse options that have no effect on the solver."""
        self.players.require_effect(self.typed)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings(CommandSettings):
    """Grade predictions for the instances of a dataset; run again to continue."""

    example: ClassVar[str] = "ssr eval rows.jsonl --predictions preds.jsonl --repos clones --out runs/mine"
    evaluation: EvaluationSettings = section(EvaluationSettings, is_named=False)
    predictions: str = required(
        "FILE", "a JSONL or JSON file of predictions, a folder of mini-swe-agent, gold or empty"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(CommandSettings):
    """Measure how good the tests of a dataset's tasks are: sound, sharp, narrow, sealed; run again to continue."""

    without = frozenset(("no-logs", "full", "rule", "run-id", "audit", "min-sharpness"))
    example: ClassVar[str] = "ssr audit rows.jsonl --repos clones --out audit -n 2"
    evaluation: EvaluationSettings = section(EvaluationSettings, is_named=False)
    changes: int = option(60, "N", "changes of each solution that are tried", bound=AT_LEAST_1)
    time: str = option("3m", "TIME", "time for each task after its reference runs, such as 90s or 5m")
    strengthen: bool = switch("write the tests that survivors are proven by as a patch for each task")

    @property
    def time_s(self) -> float:
        """The time for each task, in seconds."""
        return budget_seconds(self.time, option="--time")

    def check(self) -> None:
        """Refuse a time that cannot be read."""
        budget_seconds(self.time, option="--time")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetsSettings(CommandSettings):
    """List what a run over a dataset needs, and pull its images."""

    example: ClassVar[str] = "ssr assets rows.jsonl --out assets --jobs 4 --mirror mirror.local/"
    dataset: str = dataset_argument()
    selection: SelectionSettings = section(SelectionSettings)
    out: Path = required("DIR", "folder for the lists")
    jobs: int = jobs_option("parallel pulls", 4)
    no_pull: bool = switch("only write the lists")
    mirror: tuple[str, ...] = mirror_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsSettings(CommandSettings):
    """Write the default prompts of models into a folder, to edit them and use them with --prompt-dir."""

    example: ClassVar[str] = "ssr prompts my-prompts"
    out: Path = required("DIR", "folder for the templates", is_argument=True)
