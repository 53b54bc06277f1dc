"""Run `ssr train` for language models, and print the report."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

from harness.cli.exit_code import ExitCode
from harness.cli.players import limits_of
from harness.cli.terminal import Terminal
from harness.cli.writing import writing
from harness.settings.language import TrainLanguageSettings, TrainPolicySettings, TrainRowsSettings
from harness.training.language.plan import Adapter, Base, Data, Method, Optimization, Plan, Policy, Saving, Tracking
from pytest_ssr.errors import SettingsError

if TYPE_CHECKING:
    from harness.agents.limits import RolloutLimits
    from harness.training.language.policy_rollouts import PolicyEnvironment

_Part = TypeVar("_Part")


def train_sft(settings: TrainRowsSettings) -> int:
    """Train by sft; return 0."""
    return _train_on_rows(settings, Method.SFT)


def train_bc(settings: TrainRowsSettings) -> int:
    """Train by bc; return 0."""
    return _train_on_rows(settings, Method.BC)


def train_dpo(settings: TrainRowsSettings) -> int:
    """Train by dpo; return 0."""
    return _train_on_rows(settings, Method.DPO)


def train_kto(settings: TrainRowsSettings) -> int:
    """Train by kto; return 0."""
    return _train_on_rows(settings, Method.KTO)


def _train_on_rows(settings: TrainRowsSettings, method: Method) -> int:
    from harness.training.language.training import train_on_rows

    terminal = Terminal(quiet=settings.json)
    with writing(settings.out):
        report = train_on_rows(settings.source, plan_of(settings, method), terminal.status)
    print_report(report, terminal, as_json=settings.json)
    return ExitCode.DONE


def train_grpo(settings: TrainPolicySettings) -> int:
    """Train by grpo; return 0."""
    return _train_in_environment(settings, Method.GRPO)


def train_reinforce(settings: TrainPolicySettings) -> int:
    """Train by reinforce; return 0."""
    return _train_in_environment(settings, Method.REINFORCE)


def _train_in_environment(settings: TrainPolicySettings, method: Method) -> int:
    from harness.training.language.contamination import excluded_names, require_clean
    from harness.training.language.reinforcement import train_in_environment

    if settings.store is not None and len(settings.source) > 1:
        raise SettingsError("--store is for one project; several have theirs in .ssr", option="store")
    names = {project.resolve().name for project in settings.source}
    require_clean(names, excluded_names(settings.data.exclude), forced=settings.data.allow_contaminated)
    policy = _part(Policy, settings.policy)
    limits = limits_of(settings.limits)
    plain = {
        "projects": [str(project.resolve()) for project in settings.source],
        "policy": asdict(policy),
        "limits": asdict(limits),
        "strategy": settings.policy.strategy,
        "alpha": settings.alpha,
    }
    plan = plan_of(settings, method, plain)
    terminal = Terminal(quiet=settings.json)
    with writing(settings.out):
        report = train_in_environment(plan, policy, _environment(settings, limits), terminal.status)
    print_report(report, terminal, as_json=settings.json)
    return ExitCode.DONE


def _environment(settings: TrainPolicySettings, limits: RolloutLimits) -> PolicyEnvironment:
    from harness.environments import EnvironmentSettings, ProjectTasks, StoreTasks
    from harness.training.language.policy_rollouts import PolicyEnvironment

    how = settings.execution
    solver, injector = {}, {}
    for project in settings.source:
        name, store = str(project), settings.store or project / ".ssr"
        solver[name] = StoreTasks(
            project=project, store=store, sandbox=how.sandbox, python=how.python, settings=how.rules()
        )
        injector[name] = ProjectTasks(
            [name], store, settings.policy.strategy, sandbox=how.sandbox, python=how.python, settings=how.rules()
        )
    record = settings.out / "trajectories"
    return PolicyEnvironment(solver, injector, EnvironmentSettings(limits=limits, record=record), settings.alpha)


def plan_of(settings: TrainLanguageSettings, method: Method, environment: dict[str, Any] | None = None) -> Plan:
    """Return the plan of a training; raises SettingsError for values that do not go together."""
    if settings.out.exists() and not settings.out.is_dir():
        raise SettingsError(f"--out {settings.out} is not a folder", option="out")
    if settings.base.bits not in (0, 4, 8):
        raise SettingsError(f"--bits {settings.base.bits} is not 0, 4 or 8", option="bits")
    if settings.seed < 0:
        raise SettingsError(f"--seed {settings.seed} must be at least 0", option="seed")
    return Plan(
        method,
        settings.out,
        _part(Base, settings.base),
        _part(Adapter, settings.adapter),
        _part(Data, settings.data),
        _part(Optimization, settings.optimization),
        _part(Saving, settings.saving),
        _part(Tracking, settings.tracking),
        settings.seed,
        environment or {},
    )


def _part(kind: type[_Part], section: Any) -> _Part:
    """Return a part of the plan from the section of settings whose fields have the same names."""
    names = [item.name for item in fields(kind) if hasattr(section, item.name)]  # type: ignore[arg-type]
    return kind(**{name: getattr(section, name) for name in names})


def print_report(report: dict[str, Any], terminal: Terminal, *, as_json: bool) -> None:
    """Print the report of a training."""
    if as_json:
        print(json.dumps(report, indent=1))
        return
    for item in report["left_out"]:
        terminal.echo(f"left out {item['count']:>6}: {item['reason']} ({item['examples'][0]})", "missed")
    tokens = f", {report['trained_tokens']} of {report['tokens']} tokens trained on" if "tokens" in report else ""
    terminal.echo(f"{report['method']}: {report['rows']} rows{tokens}")
    for name in ("loss", "reward"):
        first, last = report[f"{name}_first"], report[f"{name}_last"]
        if first is not None:
            terminal.echo(f"{report['updates']} updates on {report['device']}: {name} {first:.4f} to {last:.4f}")
    terminal.echo(f"model: {report['model']}", "heading")
