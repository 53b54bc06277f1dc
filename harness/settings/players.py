"""Declare the settings of those who play: the solver, models in any role, their limits and their judge."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.agents.limits import RolloutLimits
from harness.models.timeouts import READY_S, TIMEOUT_S
from harness.records.messages import Sampling
from harness.settings.plan import section
from harness.solvers.mini import is_mini
from harness.solvers.submission import SubmissionForm
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import AT_LEAST_1, FINITE, FRACTION, MORE_THAN_0, NOT_NEGATIVE, option, shared, switch

_LIMITS = RolloutLimits()
_SAMPLING = Sampling()
_OWN_SERVERS = ("vllm:", "scripted:")
_INJECTOR_OPTIONS = ("strategy", "rejections")
"""Options of models as injectors, which other injectors do not support."""
_AGENT_OPTIONS = (
    *("steps", "command-limit", "rollout-tokens", "rollout-usd", "format-errors", "repeats", "output-chars"),
    *("temperature", "top-p", "max-tokens", "bundles", "prompt-dir"),
)
_OWN_AGENT_OPTIONS = ("repeats", "output-chars", "bundles", "prompt-dir", "cache", "context")
"""Options without an effect on mini-swe-agent."""
_MODEL_OPTIONS = ("budget-usd", "budget-tokens", "budget-calls", "cache", "models")
_NAMED = "; a model is named PROVIDER/MODEL, model:NAME, vllm:PATH or vllm:URL"
_JUDGE_OPTIONS = ("judge-votes", "judge-coefficient", "judge-temperature", "judge-max-tokens")


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """The solver."""

    name: str = shared(
        "solver",
        help="search, search:policy=PATH[,lm=MODEL][,writer=MODEL], search:writer=MODEL, lm:MODEL, replay:PATH, "
        "mini-swe-agent:MODEL, or a model",
    )
    attempts: int = shared("attempts", help="attempts per bug")
    tries: int = option(
        0, "N", "candidates in one attempt of `search` (0 for 800) or `lm:MODEL` (0 for 100)", bound=NOT_NEGATIVE
    )
    without_failure: bool = switch(
        "tell the model of `lm:MODEL` or `writer=MODEL` nothing of the failing test: it was trained without"
    )
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
        "SECONDS",
        f"seconds for one rollout (default {_LIMITS.wall_s:g}; 120 for `search` and `lm:MODEL`)",
        flag="rollout-limit",
        bound=MORE_THAN_0,
    )
    tokens: int = shared("rollout_tokens", help="tokens in one rollout")
    usd: float = shared("rollout_usd", help="cost of one rollout in USD, if prices are known")
    command: float = option(
        _LIMITS.command_s, "SECONDS", "seconds for one command", flag="command-limit", bound=MORE_THAN_0
    )
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
    max_tokens: int = option(_SAMPLING.max_tokens, "TOKENS", "tokens in one reply", bound=MORE_THAN_0)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Models in any role; their API keys stay in the environment."""

    url: str = option(
        "", "URL", "address of the server of a model PROVIDER/MODEL (default: its provider's)", is_personal=True
    )
    context: int = option(0, "TOKENS", "tokens of a prompt and its reply; 0 for the server's limit", bound=NOT_NEGATIVE)
    timeout: float = option(
        TIMEOUT_S, "SECONDS", "seconds until a reply is complete", flag="model-timeout", bound=MORE_THAN_0
    )
    vllm_ready: float = option(
        READY_S, "SECONDS", "seconds until a server started for vllm:PATH is ready", bound=MORE_THAN_0
    )
    vllm_args: str = option(
        "",
        "WORDS",
        "additional arguments of `vllm serve` for vllm:PATH: --vllm-args='--tensor-parallel-size 2'",
        is_personal=True,
    )
    cache: Path | None = option(None, "FOLDER", "cache replies in this folder, so that repeated requests cost nothing")
    models: Path | None = option(
        None,
        "FILE",
        "names and prices of models: YAML or JSON that maps NAME, for model:NAME, to `model`, `url`, `key`, `context`, "
        "and to `input`, `output` and `cached` in USD per million tokens",
        is_personal=True,
    )
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
    max_tokens: int = option(
        1024, "TOKENS", "tokens in one reply of the judge", flag="judge-max-tokens", bound=MORE_THAN_0
    )
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

    def require_effect(self, typed: Collection[str], injector: str = "") -> None:
        """Raise SettingsError, naming the option, for one without an effect on these players.

        typed: the options that a flag or a variable has set. injector: its name, for a command that has one.
        """
        from harness.models.factory import NAMED, PLUGIN, is_model, is_started_late
        from harness.rollouts.player_factory import injector_writes_code
        from harness.solvers.search.solver import is_search
        from harness.solvers.writer.mixed import split_writer
        from harness.solvers.writer.solver import is_writer

        solver = self.solver.name
        if self.judge.model and not is_model(self.judge.model):
            raise SettingsError(
                f"--judge must be a model, PROVIDER/MODEL or vllm:PATH, not {self.judge.model!r}", option="judge"
            )
        names = [n for n in (solver, injector, self.judge.model) if n and is_model(n)]
        uses_agent = any(is_model(n) for n in (solver, injector))
        players = " and ".join(n for n in (solver, injector) if n)
        for options, has_effect, problem in (
            (
                ("url",),
                not all(n.startswith((PLUGIN, NAMED, *_OWN_SERVERS)) for n in names),
                "is for a model named PROVIDER/MODEL; a server of vLLM is named vllm:URL",
            ),
            (
                ("model-timeout",),
                not all(n.startswith((PLUGIN, "scripted:")) for n in names),
                "is for a model behind a server: PROVIDER/MODEL, vllm:PATH, vllm:URL",
            ),
            (
                ("vllm-args", "vllm-ready"),
                any(is_started_late(n) for n in names),
                "is for a model whose server is started here: vllm:PATH",
            ),
            (("context",), bool(names), "is for a model: PROVIDER/MODEL, vllm:PATH, vllm:URL, scripted:FILE"),
            (
                ("fixed-mixture",),
                not (injector and injector_writes_code(injector)),
                f"is for operators, not for {injector}",
            ),
            (_INJECTOR_OPTIONS, is_model(injector), f"is for a model that injects, not for {injector}"),
            (
                ("submit", "submissions"),
                is_model(solver) and not is_mini(solver),
                f"is for a model that solves, not for {solver}",
            ),
            (
                ("tries",),
                is_search(solver) or is_writer(solver),
                f"is for the solvers search and lm:MODEL, not for {solver}",
            ),
            (
                ("without-failure",),
                is_writer(solver) or bool(split_writer(solver)[1]),
                f"is for the solvers lm:MODEL and search:writer=MODEL, not for {solver}",
            ),
            (("mini-python",), is_mini(solver), f"is for mini-swe-agent:MODEL, not for {solver}"),
            (_OWN_AGENT_OPTIONS, not _is_mini_alone(solver, names), "has no effect on mini-swe-agent"),
            (_AGENT_OPTIONS, uses_agent, f"is for a model that solves or injects, not for {players}{_NAMED}"),
            (_MODEL_OPTIONS, bool(names), f"is for a model, not for {players}{_NAMED}"),
            (
                _JUDGE_OPTIONS,
                bool(self.judge.model),
                f"is for a model that scores steps (--judge MODEL), not for {players}",
            ),
        ):
            given = next((name for name in options if name in typed), None)
            if given is not None and not has_effect:
                raise SettingsError(f"--{given} {problem}", option=given)


def _is_mini_alone(solver: str, names: Sequence[str]) -> bool:
    """Return whether mini-swe-agent is the only agent. names: of all models in use."""
    return is_mini(solver) and all(is_mini(n) for n in names)
