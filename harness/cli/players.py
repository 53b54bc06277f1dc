"""Build solvers, models and judges from settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import JUDGE_SAMPLING, ProcessReward
from harness.agents.prompts import DEFAULT, Prompts
from harness.models.budget import Budget
from harness.models.registry import read_registry
from harness.records.messages import Sampling
from harness.rollouts.player_factory import PlayerFactory, read_bundles
from harness.settings.players import BudgetSettings, JudgeSettings, LimitSettings, PlayerSettings
from harness.solvers.mini import is_mini
from harness.solvers.protocol import Solver
from harness.solvers.submission import SubmissionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.storage.store import Store


def open_players(settings: PlayerSettings, store: Path, extensions: Extensions) -> PlayerFactory:
    """Return the factory of solvers and models; raises SettingsError for values that cannot be read.

    store: contains environments that are built. extensions: have the solvers and models of plugins.
    """
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
        registry=read_registry(model.models) if model.models is not None else {},
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


def chosen_solver(settings: PlayerSettings, players: PlayerFactory) -> Solver:
    """Return the solver; raises SettingsError for an unknown one."""
    solver = settings.solver
    return players.solver(
        solver.name,
        tries=solver.tries,
        wall_s=settings.limits.seconds,
        submission=SubmissionSettings(solver.submit, solver.submissions),
        shows_failure=not solver.without_failure,
    )


def note_remarks(players: PlayerFactory, note: Callable[[str], None]) -> None:
    """Say what the models' servers lack, and what is done without it; nothing that was said before.

    To be called before the work, and after it for servers that are started at the first query.
    """
    for line in players.remarks():
        note(line)


def unscored_line(count: int) -> str:
    """Return what to say about graded attempts whose judge has given no valid vote."""
    return f"attempts without a valid vote of the judge: {count}; their reward is the outcome alone"


def chosen_judge(settings: JudgeSettings, players: PlayerFactory) -> ProcessReward | None:
    """Return the model that scores steps, or None."""
    if not settings.model:
        return None
    return players.judge(
        settings.model,
        votes=settings.votes,
        coefficient=settings.coefficient,
        sampling=replace(JUDGE_SAMPLING, temperature=settings.temperature, max_tokens=settings.max_tokens),
    )


def read_statement(path: Path | None) -> str:
    """Return the task statement from a file, empty if none was given; raises SettingsError for an empty file."""
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"--statement {path} cannot be read: {error}", option="statement") from None
    if not text:
        raise SettingsError(f"--statement {path} is empty", option="statement")
    return text
