"""Build solvers, models and judges from settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import JUDGE_SAMPLING, ProcessReward
from harness.agents.prompts import DEFAULT, Prompts
from harness.models.budget import Budget
from harness.models.factory import PLUGIN, is_model, is_started_late
from harness.records.messages import Sampling
from harness.rollouts.player_factory import PlayerFactory, injector_writes_code, read_bundles
from harness.settings.sections import BudgetSettings, JudgeSettings, LimitSettings, PlayerSettings
from harness.solvers.mini import is_mini
from harness.solvers.protocol import Solver
from harness.solvers.submission import SubmissionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.storage.store import Store

_OWN_SERVERS = (PLUGIN, "vllm:", "scripted:")
INJECTOR_OPTIONS = ("strategy", "rejections")
"""Options of models as injectors, which other injectors do not support."""
_AGENT_OPTIONS = (
    *("steps", "command-limit", "rollout-tokens", "rollout-usd", "format-errors", "repeats", "output-chars"),
    *("temperature", "top-p", "max-tokens", "bundles", "prompt-dir"),
)
_OWN_AGENT_OPTIONS = ("repeats", "output-chars", "bundles", "prompt-dir", "cache", "context")
"""Options without an effect on mini-swe-agent."""
_MODEL_OPTIONS = ("budget-usd", "budget-tokens", "budget-calls", "cache")
_JUDGE_OPTIONS = ("judge-votes", "judge-coefficient", "judge-temperature", "judge-max-tokens")


def open_players(
    settings: PlayerSettings, typed: Collection[str], store: Path, extensions: Extensions, *, injector: str = ""
) -> PlayerFactory:
    """Return the factory of solvers and models; raises SettingsError for options without an effect.

    typed: the options that a flag or a variable has set. store: contains environments that are built. extensions:
    have the solvers and models of plugins. injector: its name, for a command that has one.
    """
    _require_effect(settings, typed, injector)
    model, budget = settings.model, settings.budget
    return PlayerFactory(
        limits=limits_of(settings.limits),
        sampling=Sampling(settings.sampling.temperature, settings.sampling.top_p, settings.sampling.max_tokens),
        budget=Budget(usd=budget.usd, tokens=budget.tokens, calls=budget.calls),
        cache=Store(model.cache) if model.cache is not None else None,
        url=model.url,
        context_tokens=model.context,
        vllm_arguments=_split_arguments(model.vllm_args),
        bundles=read_bundles(model.bundles),
        prompts=Prompts.read(model.prompt_dir) if model.prompt_dir is not None else DEFAULT,
        mini_python=model.mini_python,
        store=Store(store) if is_mini(settings.solver.name) else None,
        timeout_s=model.timeout,
        ready_s=model.vllm_ready,
        extensions=extensions,
    )


def share_of(budget: BudgetSettings, workers: int) -> BudgetSettings:
    """Return one worker's share of the budget; raises SettingsError for a share of zero."""
    for name, value in (("budget-tokens", budget.tokens), ("budget-calls", budget.calls)):
        if value is not None and value < workers:
            raise SettingsError(f"--{name} {value} is less than one for each of {workers} workers", option=name)
    return BudgetSettings(
        usd=None if budget.usd is None else budget.usd / workers,
        tokens=None if budget.tokens is None else budget.tokens // workers,
        calls=None if budget.calls is None else budget.calls // workers,
    )


def limits_of(settings: LimitSettings) -> RolloutLimits:
    """Return the limits on one rollout."""
    limits = RolloutLimits(
        steps=settings.steps,
        command_s=settings.command,
        tokens=settings.tokens,
        usd=settings.usd,
        format_errors=settings.format_errors,
        repeats=settings.repeats,
        output_chars=settings.output_chars,
    )
    return limits if settings.seconds is None else replace(limits, wall_s=settings.seconds)


def _split_arguments(text: str) -> list[str]:
    """Split arguments as a shell does; raises SettingsError for invalid quoting."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"--vllm-args {text!r} cannot be read: {error}", option="vllm-args") from None


def _require_effect(settings: PlayerSettings, typed: Collection[str], injector: str) -> None:
    """Raise SettingsError, naming the option, for one without an effect on this command."""
    solver = settings.solver.name
    names = [n for n in (solver, injector, settings.judge.model) if n and is_model(n)]
    uses_agent = any(is_model(n) for n in (solver, injector))
    players = " and ".join(n for n in (solver, injector) if n)
    for options, has_effect, problem in (
        (
            ("url",),
            not all(n.startswith(_OWN_SERVERS) for n in names),
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
        (INJECTOR_OPTIONS, is_model(injector), f"is for a model that injects, not for {injector}"),
        (
            ("submit", "submissions"),
            is_model(solver) and not is_mini(solver),
            f"is for a model that solves, not for {solver}",
        ),
        (("mini-python",), is_mini(solver), f"is for mini-swe-agent:MODEL, not for {solver}"),
        (_OWN_AGENT_OPTIONS, not _is_mini_alone(solver, names), "has no effect on mini-swe-agent"),
        (_AGENT_OPTIONS, uses_agent, f"is for a model that solves or injects, not for {players}"),
        (_MODEL_OPTIONS, bool(names), f"is for a model, not for {players}"),
        (
            _JUDGE_OPTIONS,
            bool(settings.judge.model),
            f"is for a model that scores steps (--judge MODEL), not for {players}",
        ),
    ):
        given = next((name for name in options if name in typed), None)
        if given is not None and not has_effect:
            raise SettingsError(f"--{given} {problem}", option=given)


def _is_mini_alone(solver: str, names: Sequence[str]) -> bool:
    """Return whether mini-swe-agent is the only agent. names: of all models in use."""
    return is_mini(solver) and all(is_mini(n) for n in names)


def chosen_solver(settings: PlayerSettings, players: PlayerFactory) -> Solver:
    """Return the solver; raises SettingsError for an unknown one."""
    solver = settings.solver
    return players.solver(
        solver.name,
        tries=solver.tries,
        wall_s=settings.limits.seconds,
        submission=SubmissionSettings(solver.submit, solver.submissions),
    )


def note_remarks(players: PlayerFactory, note: Callable[[str], None]) -> None:
    """Say what the models' servers lack, and what is done without it; nothing that was said before.

    To be called before the work, and after it for servers that are started at the first query.
    """
    for line in players.remarks():
        note(line)


def chosen_judge(settings: JudgeSettings, players: PlayerFactory) -> ProcessReward | None:
    """Return the model that scores steps, or None; raises SettingsError if it is not a model."""
    if not settings.model:
        return None
    if not is_model(settings.model):
        raise SettingsError(
            f"--judge must be a model, PROVIDER/MODEL or vllm:PATH, not {settings.model!r}", option="judge"
        )
    return players.judge(
        settings.model,
        votes=settings.votes,
        coefficient=settings.coefficient,
        sampling=replace(JUDGE_SAMPLING, temperature=settings.temperature, max_tokens=settings.max_tokens),
    )


def read_statement(path: Path | None, solver: str) -> str:
    """Return the task statement from a file, empty if none was given; raises SettingsError for an empty file."""
    if path is None:
        return ""
    if not is_model(solver):
        raise SettingsError(f"--statement is for a model, not for {solver}", option="statement")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"--statement {path} cannot be read: {error}", option="statement") from None
    if not text:
        raise SettingsError(f"--statement {path} is empty", option="statement")
    return text
