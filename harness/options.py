"""From what was typed to what commands work with: checked, opened, and one sentence for what makes no sense."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import JUDGING, ProcessReward
from harness.instances import Instance
from harness.instances.reading import Selection, read_instances
from harness.messages import Sampling
from harness.models.names import is_model, is_started_late
from harness.models.spending import Budget
from harness.roles import Roles, read_bundles, writes
from harness.solvers.mini import is_mini
from harness.solvers.protocol import Solver
from pytest_ssr.errors import SettingsError
from pytest_ssr.reasons import Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store

_OWN_SERVERS = ("vllm:", "scripted:")
OF_AN_INJECTOR = ("strategy", "rejections")
"""Options of a model that injects, which no other injector takes."""
_POSITIVE = (
    *("steps", "rollout_limit", "command_limit", "rollout_tokens", "rollout_usd", "format_errors", "repeats"),
    *("output_chars", "max_tokens", "model_timeout", "vllm_ready"),
    *("budget_usd", "budget_tokens", "budget_calls", "judge_votes", "judge_max_tokens"),
)
_OF_AN_AGENT = (
    *("steps", "command_limit", "rollout_tokens", "rollout_usd", "format_errors", "repeats", "output_chars"),
    *("temperature", "top_p", "max_tokens", "bundles"),
)
_OF_OUR_AGENT = ("repeats", "output_chars", "bundles", "cache", "context")
"""What does nothing for mini-swe-agent."""
_OF_ANY_MODEL = ("budget_usd", "budget_tokens", "budget_calls", "cache")
_OF_A_JUDGE = ("judge_votes", "judge_coefficient", "judge_temperature", "judge_max_tokens")


class Running(TypedDict):
    """How tests are run, as all that opens a project takes it."""

    settings: RuleSettings
    sandbox: str
    python: Path | None


def running(arguments: argparse.Namespace) -> Running:
    """Return how tests are to be run."""
    return Running(settings=rule_settings(arguments), sandbox=arguments.sandbox, python=arguments.python)


def rule_settings(arguments: argparse.Namespace) -> RuleSettings:
    """Return the thresholds and limits that were given."""
    return RuleSettings(
        min_passing_tests=arguments.min_passing_tests,
        min_changed_files=arguments.min_changed_files,
        min_failing_tests=arguments.min_failing_tests,
        per_hunk=getattr(arguments, "per_hunk", False),
        time_limit_s=arguments.time_limit,
    )


def chosen_rule(arguments: argparse.Namespace) -> Rule:
    """Return which verdict of a grade decides; raises SettingsError for an unknown one."""
    try:
        return Rule(arguments.rule)
    except ValueError:
        raise SettingsError(f"--rule is {' or '.join(Rule)}, not {arguments.rule!r}") from None


def open_store(arguments: argparse.Namespace, project: Path) -> Store:
    """Return the store that was named, else the project's own."""
    return Store(arguments.store or project / ".ssr")


def chosen_instances(arguments: argparse.Namespace, dataset: str) -> list[Instance]:
    """Return the instances of a dataset that are wanted; raises InstanceError or SettingsError."""
    instances = read_instances(dataset, split=arguments.split)
    return Selection(arguments.only, arguments.shuffle, arguments.slice).of(instances)


def require_own_images(arguments: argparse.Namespace) -> None:
    """Raise SettingsError where instances are to run in their own images and elsewhere."""
    if arguments.images and (arguments.python is not None or arguments.sandbox != "auto"):
        raise SettingsError("--images has its own sandboxes and interpreters: without --sandbox and --python")


def require_counts(arguments: argparse.Namespace, *names: str) -> None:
    """Raise SettingsError, naming the option, for a number that is not at least 1."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise SettingsError(f"--{name} must be at least 1, not {getattr(arguments, name)}")


def open_roles(arguments: argparse.Namespace, place: Path) -> Roles:
    """Return what opens the models; raises SettingsError for options that make no sense or would do nothing.

    place: whose store it is where none was named.
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
    waits = {"timeout_s": arguments.model_timeout, "ready_s": arguments.vllm_ready}
    drawing = {name: getattr(arguments, name) for name in ("temperature", "top_p", "max_tokens")}
    return Roles(
        limits=RolloutLimits(**{k: v for k, v in limits.items() if v is not None}),
        sampling=Sampling(**{k: v for k, v in drawing.items() if v is not None}),
        budget=Budget(usd=arguments.budget_usd, tokens=arguments.budget_tokens, calls=arguments.budget_calls),
        cache=Store(arguments.cache) if arguments.cache is not None else None,
        url=arguments.url,
        context_tokens=arguments.context,
        vllm_arguments=_words(arguments.vllm_args),
        bundles=read_bundles(arguments.bundles),
        mini_python=arguments.mini_python,
        store=open_store(arguments, place) if is_mini(arguments.solver) else None,
        **{k: v for k, v in waits.items() if v is not None},
    )


def _words(text: str) -> list[str]:
    """Return words as a shell reads them; raises SettingsError for what it cannot read."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"--vllm-args {text!r} cannot be read: {error}") from None


def _require_effect(arguments: argparse.Namespace) -> None:
    """Raise SettingsError, naming the option, for one that nobody here looks at."""
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
    if injector and writes(injector) and arguments.fixed_mixture:
        raise SettingsError(f"--fixed-mixture is for operators, not for {injector}")
    for name in OF_AN_INJECTOR:
        if injector and not is_model(injector) and getattr(arguments, name) is not None:
            raise SettingsError(f"--{name} is for a model that injects, not for {injector}")
    _require_effect_on_mini(arguments, names)
    at_work = any(is_model(n) for n in (arguments.solver, injector))
    for options, is_used, whom in (
        (_OF_AN_AGENT, at_work, "a model that solves or injects"),
        (_OF_ANY_MODEL, bool(names), "a model"),
        (_OF_A_JUDGE, bool(arguments.judge), "a model that scores steps (--judge MODEL)"),
    ):
        given = [n for n in options if getattr(arguments, n) not in (None, [])]
        if given and not is_used:
            others = " and ".join(n for n in (arguments.solver, injector) if n)
            raise SettingsError(f"--{given[0].replace('_', '-')} is for {whom}, not for {others}")


def _require_effect_on_mini(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise SettingsError likewise for options of our own agent where mini-swe-agent is the only one at work.

    names: of all models that play.
    """
    if arguments.mini_python is not None and not is_mini(arguments.solver):
        raise SettingsError(f"--mini-python is for mini-swe-agent:MODEL, not for {arguments.solver}")
    if all(is_mini(n) for n in names):
        given = [n for n in _OF_OUR_AGENT if is_mini(arguments.solver) and getattr(arguments, n) not in (None, [], 0)]
        if given:
            raise SettingsError(f"--{given[0].replace('_', '-')} does nothing for mini-swe-agent")


def _require_sense(arguments: argparse.Namespace) -> None:
    """Raise SettingsError, naming the option, for a value that makes no sense."""
    for name in ("tries", "context", "temperature", "judge_temperature"):
        value = getattr(arguments, name) or 0
        if not (value >= 0 and math.isfinite(value)):
            raise SettingsError(f"--{name.replace('_', '-')} must be at least 0, and finite, not {value:g}")
    if arguments.top_p is not None and not 0 < arguments.top_p <= 1:
        raise SettingsError(f"--top-p lies in (0, 1], not {arguments.top_p:g}")
    if not math.isfinite(arguments.judge_coefficient or 0):
        raise SettingsError(f"--judge-coefficient is a number, not {arguments.judge_coefficient}")
    for name, value in vars(arguments).items():
        if name in _POSITIVE and value is not None and not value > 0:
            raise SettingsError(f"--{name.replace('_', '-')} must be more than 0, not {value:g}")


def chosen_solver(arguments: argparse.Namespace, roles: Roles) -> Solver:
    """Return the solver that was named; raises SettingsError for what is none."""
    return roles.solver(arguments.solver, tries=arguments.tries, wall_s=arguments.rollout_limit)


def chosen_judge(arguments: argparse.Namespace, roles: Roles) -> ProcessReward | None:
    """Return the model that scores steps, if one was named; raises SettingsError for what is none."""
    if not arguments.judge:
        return None
    if not is_model(arguments.judge):
        raise SettingsError(f"--judge is a model: PROVIDER/MODEL, vllm:PATH; not {arguments.judge!r}")
    given = {"votes": arguments.judge_votes, "coefficient": arguments.judge_coefficient}
    drawing = {"temperature": arguments.judge_temperature, "max_tokens": arguments.judge_max_tokens}
    return roles.judge(
        arguments.judge,
        sampling=replace(JUDGING, **{k: v for k, v in drawing.items() if v is not None}),
        **{k: v for k, v in given.items() if v is not None},
    )


def statement_of(arguments: argparse.Namespace) -> str:
    """Return what is to be done in words, empty where no file was named; raises SettingsError for a file of none."""
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
        raise SettingsError(f"--statement {path} says nothing")
    return text
