"""Validate parsed arguments, and build the objects that commands use."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import JUDGE_SAMPLING, ProcessReward
from harness.datasets import Instance
from harness.datasets.loading import Selection, read_instances
from harness.models.budget import Budget
from harness.models.factory import is_model, is_started_late
from harness.records.messages import Sampling
from harness.rollouts.player_factory import PlayerFactory, read_bundles, writes_code
from harness.solvers.mini import is_mini
from harness.solvers.protocol import Solver
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

_OWN_SERVERS = ("vllm:", "scripted:")
INJECTOR_OPTIONS = ("strategy", "rejections")
"""Options of models as injectors, which other injectors do not support."""
_POSITIVE = (
    *("steps", "rollout_limit", "command_limit", "rollout_tokens", "rollout_usd", "format_errors", "repeats"),
    *("output_chars", "max_tokens", "model_timeout", "vllm_ready"),
    *("budget_usd", "budget_tokens", "budget_calls", "judge_votes", "judge_max_tokens"),
)
_AGENT_OPTIONS = (
    *("steps", "command_limit", "rollout_tokens", "rollout_usd", "format_errors", "repeats", "output_chars"),
    *("temperature", "top_p", "max_tokens", "bundles"),
)
_OWN_AGENT_OPTIONS = ("repeats", "output_chars", "bundles", "cache", "context")
"""Options without an effect on mini-swe-agent."""
_MODEL_OPTIONS = ("budget_usd", "budget_tokens", "budget_calls", "cache")
_JUDGE_OPTIONS = ("judge_votes", "judge_coefficient", "judge_temperature", "judge_max_tokens")


class RunOptions(TypedDict):
    """How tests are run: the keyword arguments of everything that opens a project."""

    settings: RuleSettings
    sandbox: str
    python: Path | None


def run_options(arguments: argparse.Namespace) -> RunOptions:
    """Return the options about how tests are run."""
    return RunOptions(settings=rule_settings(arguments), sandbox=arguments.sandbox, python=arguments.python)


def rule_settings(arguments: argparse.Namespace) -> RuleSettings:
    """Return the thresholds and limits from the arguments."""
    return RuleSettings(
        min_passing_tests=arguments.min_passing_tests,
        min_changed_files=arguments.min_changed_files,
        min_failing_tests=arguments.min_failing_tests,
        per_hunk=getattr(arguments, "per_hunk", False),
        time_limit_s=arguments.time_limit,
    )


def chosen_rule(arguments: argparse.Namespace) -> Rule:
    """Return the rule that selects the deciding verdict of a grade; raises SettingsError for an unknown one."""
    try:
        return Rule(arguments.rule)
    except ValueError:
        raise SettingsError(f"--rule must be {' or '.join(Rule)}, not {arguments.rule!r}") from None


def open_store(arguments: argparse.Namespace, project: Path) -> Store:
    """Return the store from the arguments, else the project's own."""
    return Store(arguments.store or project / ".ssr")


def chosen_instances(arguments: argparse.Namespace, dataset: str) -> list[Instance]:
    """Return the selected instances of a dataset; raises InstanceError or SettingsError."""
    instances = read_instances(dataset, split=arguments.split)
    return Selection(arguments.only, arguments.shuffle, arguments.slice).select(instances)


def require_own_images(arguments: argparse.Namespace) -> None:
    """Raise SettingsError if --images is combined with --sandbox or --python."""
    if arguments.images and (arguments.python is not None or arguments.sandbox != "auto"):
        raise SettingsError("--images has its own sandboxes and interpreters; omit --sandbox and --python")


def require_counts(arguments: argparse.Namespace, *names: str) -> None:
    """Raise SettingsError, naming the option, for a number below 1."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise SettingsError(f"--{name} must be at least 1, not {getattr(arguments, name)}")


def open_players(arguments: argparse.Namespace, directory: Path) -> PlayerFactory:
    """Return the factory of solvers and models; raises SettingsError for invalid options or ones without an effect.

    directory: contains the store if none was given.
    """
    _require_sense(arguments)
    _require_effect(arguments)
    limits = {
        "steps": arguments.steps,
        "wall_s": arguments.rollout_limit,
        "command_s": arguments.command_limit,
        "tokens": arguments.rollout_tokens,
        "usd": arguments.rollout_usd,
        "format_errors": arguments.format_errors,
        "repeats": arguments.repeats,
        "output_chars": arguments.output_chars,
    }
    timeouts = {"timeout_s": arguments.model_timeout, "ready_s": arguments.vllm_ready}
    sampling = {name: getattr(arguments, name) for name in ("temperature", "top_p", "max_tokens")}
    return PlayerFactory(
        limits=RolloutLimits(**{k: v for k, v in limits.items() if v is not None}),
        sampling=Sampling(**{k: v for k, v in sampling.items() if v is not None}),
        budget=Budget(usd=arguments.budget_usd, tokens=arguments.budget_tokens, calls=arguments.budget_calls),
        cache=Store(arguments.cache) if arguments.cache is not None else None,
        url=arguments.url,
        context_tokens=arguments.context,
        vllm_arguments=_split_arguments(arguments.vllm_args),
        bundles=read_bundles(arguments.bundles),
        mini_python=arguments.mini_python,
        store=open_store(arguments, directory) if is_mini(arguments.solver) else None,
        **{k: v for k, v in timeouts.items() if v is not None},
    )


def _split_arguments(text: str) -> list[str]:
    """Split arguments as a shell does; raises SettingsError for invalid quoting."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"--vllm-args {text!r} cannot be read: {error}") from None


def _require_effect(arguments: argparse.Namespace) -> None:
    """Raise SettingsError, naming the option, for one without an effect on this command."""
    injector = getattr(arguments, "injector", "")
    names = [n for n in (arguments.solver, injector, arguments.judge) if n and is_model(n)]
    if arguments.url and all(n.startswith(_OWN_SERVERS) for n in names):
        raise SettingsError("--url is for a model named PROVIDER/MODEL; a server of vLLM is named vllm:URL")
    if arguments.model_timeout is not None and all(n.startswith("scripted:") for n in names):
        raise SettingsError("--model-timeout is for a model behind a server: PROVIDER/MODEL, vllm:PATH, vllm:URL")
    for name, value in (("args", arguments.vllm_args), ("ready", arguments.vllm_ready)):
        if value and not any(is_started_late(n) for n in names):
            raise SettingsError(f"--vllm-{name} is for a model whose server is started here: vllm:PATH")
    if arguments.context and not names:
        raise SettingsError("--context is for a model: PROVIDER/MODEL, vllm:PATH, vllm:URL, scripted:FILE")
    if injector and writes_code(injector) and arguments.fixed_mixture:
        raise SettingsError(f"--fixed-mixture is for operators, not for {injector}")
    for name in INJECTOR_OPTIONS:
        if injector and not is_model(injector) and getattr(arguments, name) is not None:
            raise SettingsError(f"--{name} is for a model that injects, not for {injector}")
    _require_effect_on_mini(arguments, names)
    uses_agent = any(is_model(n) for n in (arguments.solver, injector))
    for options, is_used, purpose in (
        (_AGENT_OPTIONS, uses_agent, "a model that solves or injects"),
        (_MODEL_OPTIONS, bool(names), "a model"),
        (_JUDGE_OPTIONS, bool(arguments.judge), "a model that scores steps (--judge MODEL)"),
    ):
        given = [n for n in options if getattr(arguments, n) not in (None, [])]
        if given and not is_used:
            others = " and ".join(n for n in (arguments.solver, injector) if n)
            raise SettingsError(f"--{given[0].replace('_', '-')} is for {purpose}, not for {others}")


def _require_effect_on_mini(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise SettingsError for options of our own agent if mini-swe-agent is the only agent.

    names: of all models in use.
    """
    if arguments.mini_python is not None and not is_mini(arguments.solver):
        raise SettingsError(f"--mini-python is for mini-swe-agent:MODEL, not for {arguments.solver}")
    if all(is_mini(n) for n in names):
        given = [
            n for n in _OWN_AGENT_OPTIONS if is_mini(arguments.solver) and getattr(arguments, n) not in (None, [], 0)
        ]
        if given:
            raise SettingsError(f"--{given[0].replace('_', '-')} has no effect on mini-swe-agent")


def _require_sense(arguments: argparse.Namespace) -> None:
    """Raise SettingsError, naming the option, for a value out of range."""
    for name in ("tries", "context", "temperature", "judge_temperature"):
        value = getattr(arguments, name) or 0
        if not (value >= 0 and math.isfinite(value)):
            raise SettingsError(f"--{name.replace('_', '-')} must be at least 0, and finite, not {value:g}")
    if arguments.top_p is not None and not 0 < arguments.top_p <= 1:
        raise SettingsError(f"--top-p must be in (0, 1], not {arguments.top_p:g}")
    if not math.isfinite(arguments.judge_coefficient or 0):
        raise SettingsError(f"--judge-coefficient must be finite, not {arguments.judge_coefficient}")
    for name, value in vars(arguments).items():
        if name in _POSITIVE and value is not None and not value > 0:
            raise SettingsError(f"--{name.replace('_', '-')} must be more than 0, not {value:g}")


def chosen_solver(arguments: argparse.Namespace, roles: PlayerFactory) -> Solver:
    """Return the solver from the arguments; raises SettingsError for an unknown one."""
    return roles.solver(arguments.solver, tries=arguments.tries, wall_s=arguments.rollout_limit)


def chosen_judge(arguments: argparse.Namespace, roles: PlayerFactory) -> ProcessReward | None:
    """Return the model that scores steps, or None; raises SettingsError if it is not a model."""
    if not arguments.judge:
        return None
    if not is_model(arguments.judge):
        raise SettingsError(f"--judge must be a model, PROVIDER/MODEL or vllm:PATH, not {arguments.judge!r}")
    given = {"votes": arguments.judge_votes, "coefficient": arguments.judge_coefficient}
    sampling = {"temperature": arguments.judge_temperature, "max_tokens": arguments.judge_max_tokens}
    return roles.judge(
        arguments.judge,
        sampling=replace(JUDGE_SAMPLING, **{k: v for k, v in sampling.items() if v is not None}),
        **{k: v for k, v in given.items() if v is not None},
    )


def statement_of(arguments: argparse.Namespace) -> str:
    """Return the task statement from a file, empty if none was given; raises SettingsError for an empty file."""
    path: Path | None = arguments.statement
    if path is None:
        return ""
    if not is_model(arguments.solver):
        raise SettingsError(f"--statement is for a model, not for {arguments.solver}")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"--statement {path} cannot be read: {error}") from None
    if not text:
        raise SettingsError(f"--statement {path} is empty")
    return text
