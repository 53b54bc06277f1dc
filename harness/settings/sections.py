"""Declare the sections of settings that several commands share.

An option of a section has a flag and a dotted name: `--tries` and `--solver.tries`. Defaults are those of the classes
that use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from harness.agents.limits import RolloutLimits
from harness.models.timeouts import READY_S, TIMEOUT_S
from harness.records.messages import Sampling
from harness.solvers.submission import SubmissionForm
from pytest_ssr.options import AT_LEAST_1, FINITE, FRACTION, MORE_THAN_0, NOT_NEGATIVE, option, required, shared, switch
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings

_LIMITS = RolloutLimits()
_SAMPLING = Sampling()


def section(kind: type[Any], *, is_named: bool = True) -> Any:
    """Return a field for a section; is_named: its options also have dotted names, which begin with the field's."""
    return field(default_factory=kind, metadata={"section": kind, "is_named": is_named})


def rule_option() -> Any:
    """Return a field for the rule that selects the deciding verdict of a grade."""
    text = "strict: the recorded tests pass and the evidence holds; tests: the recorded tests pass"
    return option(Rule.STRICT, "RULE", text)


def jobs_option(help: str, default: int = 1) -> Any:
    """Return a field for the number of parallel jobs."""
    return option(default, "N", help, short="-n", bound=AT_LEAST_1)


def ray_option() -> Any:
    """Return a field for the cluster that does the work."""
    text = "let the nodes of this Ray cluster work (HOST:PORT of its head, or auto) instead of this machine"
    return option("", "ADDRESS", text, variable="SSR_EXECUTOR", is_personal=True)


def dataset_argument() -> Any:
    """Return a field for a dataset."""
    text = "a .jsonl, .json or .parquet file, a folder of them, a store (.ssr), owner/name on the hub"
    return required("DATASET", text, is_argument=True)


class RunOptions(TypedDict):
    """How tests are run: the keyword arguments of everything that opens a project."""

    settings: RuleSettings
    sandbox: str
    python: Path | None


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """How tests are run."""

    sandbox: str = shared("sandbox")
    python: Path | None = shared("python")
    time_limit: float = shared("time_limit")
    max_weakened_failing: float = shared("max_weakened_failing")
    script_limit: float = shared("script_limit")
    min_passing_tests: int = shared("min_passing_tests")
    min_changed_files: int = shared("min_changed_files")
    min_failing_tests: int = shared("min_failing_tests")
    max_broken_fraction: float = shared("max_broken_fraction")
    allow_undefined_names: bool = shared("allow_undefined_names")

    def rules(self, *, per_hunk: bool = False, by_script: bool = False) -> RuleSettings:
        """Return the thresholds and limits of validation."""
        return RuleSettings(
            min_passing_tests=self.min_passing_tests,
            min_changed_files=self.min_changed_files,
            min_failing_tests=self.min_failing_tests,
            max_broken_fraction=self.max_broken_fraction,
            per_hunk=per_hunk,
            allow_undefined_names=self.allow_undefined_names,
            by_script=by_script,
            max_weakened_failing=self.max_weakened_failing,
            script_limit_s=self.script_limit,
            time_limit_s=self.time_limit,
        )

    def run_options(self, *, per_hunk: bool = False, by_script: bool = False) -> RunOptions:
        """Return the keyword arguments of what opens a project."""
        rules = self.rules(per_hunk=per_hunk, by_script=by_script)
        return RunOptions(settings=rules, sandbox=self.sandbox, python=self.python)


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """The solver."""

    name: str = shared("solver", help="search, search:policy=PATH, replay:PATH, mini-swe-agent:MODEL, or a model")
    attempts: int = shared("attempts", help="attempts per bug")
    tries: int = option(0, "N", "candidates in one attempt of `search`; 0 for 800", bound=NOT_NEGATIVE)
    submit: SubmissionForm = option(
        SubmissionForm.TREE, "FORM", "what a model submits: the changes of its tree, or a patch-file by its path"
    )
    submissions: int = option(1, "N", "submissions of a model in one attempt; the last one is graded", bound=AT_LEAST_1)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits on one rollout."""

    steps: int = shared("steps", help="replies in one rollout")
    seconds: float | None = option(
        None,
        "N",
        f"seconds for one rollout (default {_LIMITS.wall_s:g}; 120 for `search`)",
        flag="rollout-limit",
        bound=MORE_THAN_0,
    )
    tokens: int = shared("rollout_tokens", help="tokens in one rollout")
    usd: float = shared("rollout_usd", help="cost of one rollout in USD, if prices are known")
    command: float = option(_LIMITS.command_s, "N", "seconds for one command", flag="command-limit", bound=MORE_THAN_0)
    format_errors: int = option(_LIMITS.format_errors, "N", "replies in a row without a valid call", bound=MORE_THAN_0)
    repeats: int = option(
        _LIMITS.repeats,
        "N",
        "repetitions of the same call with the same result, or of a cycle of a few",
        bound=MORE_THAN_0,
    )
    output_chars: int = option(_LIMITS.output_chars, "N", "characters in one observation", bound=MORE_THAN_0)


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How replies are sampled."""

    temperature: float = option(_SAMPLING.temperature, "N", "sampling temperature", bound=NOT_NEGATIVE)
    top_p: float = option(_SAMPLING.top_p, "N", "sampling top-p", bound=FRACTION)
    max_tokens: int = option(_SAMPLING.max_tokens, "N", "tokens in one reply", bound=MORE_THAN_0)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Models in any role. API keys are no settings: they stay in the environment."""

    url: str = option(
        "", "URL", "address of the server of a model PROVIDER/MODEL (default: its provider's)", is_personal=True
    )
    context: int = option(0, "N", "tokens of a prompt and its reply; 0 for the server's limit", bound=NOT_NEGATIVE)
    timeout: float = option(
        TIMEOUT_S, "N", "seconds until a reply is complete", flag="model-timeout", bound=MORE_THAN_0
    )
    vllm_ready: float = option(READY_S, "N", "seconds until a server started for vllm:PATH is ready", bound=MORE_THAN_0)
    vllm_args: str = option(
        "",
        "WORDS",
        "additional arguments of `vllm serve` for vllm:PATH: --vllm-args='--tensor-parallel-size 2'",
        is_personal=True,
    )
    cache: Path | None = option(None, "FOLDER", "cache replies in this folder, so that repeated requests cost nothing")
    bundles: tuple[Path, ...] = option(
        (),
        "FOLDER",
        "more tools for models: repository (list_dir, find_files, apply_diff, run_tests), or a folder in SWE-agent's "
        "layout; can be repeated",
        is_personal=True,
    )
    prompt_dir: Path | None = option(
        None,
        "DIR",
        "use these templates of prompts for both roles; `ssr prompts DIR` writes those to start from",
        is_personal=True,
    )
    mini_python: Path | None = option(
        None,
        "PATH",
        "an interpreter with mini-swe-agent (default: SSR_MINI_PYTHON, else one is built in the store)",
        is_interpreter=True,
        is_own=True,
        is_personal=True,
    )
    grade_unsubmitted: bool = switch("also grade the changes of attempts that a limit ended")


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Limits on the whole run."""

    usd: float | None = shared("budget_usd", help="cost of the whole run in USD (default: no limit)")
    tokens: int | None = shared("budget_tokens", help="tokens of the whole run (default: no limit)")
    calls: int | None = shared("budget_calls", help="requests of the whole run (default: no limit)")


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The model that scores a solver's steps."""

    model: str = option("", "MODEL", "model that scores the solver's steps", flag="judge")
    votes: int = option(3, "N", "votes of the judge per step", flag="judge-votes", bound=MORE_THAN_0)
    temperature: float = option(
        1.0, "N", "sampling temperature of the judge", flag="judge-temperature", bound=NOT_NEGATIVE
    )
    max_tokens: int = option(1024, "N", "tokens in one reply of the judge", flag="judge-max-tokens", bound=MORE_THAN_0)
    coefficient: float = option(
        1.0, "N", "weight of the judge's mean score in a solver's reward", flag="judge-coefficient", bound=FINITE
    )


@dataclass(frozen=True, slots=True)
class PlayerSettings:
    """The solver, and models in any role."""

    solver: SolverSettings = section(SolverSettings)
    limits: LimitSettings = section(LimitSettings)
    sampling: SamplingSettings = section(SamplingSettings)
    model: ModelSettings = section(ModelSettings)
    budget: BudgetSettings = section(BudgetSettings)
    judge: JudgeSettings = section(JudgeSettings)


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """Which instances of a dataset."""

    split: str = option("", "NAME", "split of a dataset on the hub (default: test)")
    only: str = option("", "PATTERN", "only instances whose id matches this regular expression")
    shuffle: int | None = option(None, "SEED", "shuffle the instances with this seed")
    slice: str = option("", "A:B", "slice of the instances: 10:20, :5, ::3")


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Where instances have their repositories and environments."""

    repos: Path | None = option(None, "DIR", "folder of local clones, named owner__name (default: clone and cache)")
    images: Literal["docker", "apptainer"] | None = option(
        None, "KIND", "run each instance in its own image: the row's, else the one named by its family's convention"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """A run over the instances of a dataset."""

    dataset: str = dataset_argument()
    selection: SelectionSettings = section(SelectionSettings)
    instances: InstanceSettings = section(InstanceSettings)
    out: Path = required("DIR", "folder for the files of the run")
    jobs: int = jobs_option("parallel workers")
    ray: str = ray_option()
    dist: Literal["load", "worksteal"] = option("load", "NAME", "how xdist distributes the work")
    no_logs: bool = switch("do not run the tests once more for a log in SWE-bench's format")
    full: bool = switch("run all tests, even after a recorded one has failed (always on without --no-logs)")
    rule: Rule = rule_option()
    run_id: str = option("ssr", "NAME", "name of the run in the logs' folder")
    store: Path | None = shared("store", help="store that is kept between runs (default: OUT/.ssr)")
    execution: ExecutionSettings = section(ExecutionSettings)
