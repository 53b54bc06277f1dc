"""Run `ssr train` for language models, and print the report."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.exit_code import ExitCode
from harness.cli.instances import chosen_instances
from harness.cli.players import limits_of
from harness.cli.preflight import Preflight
from harness.cli.projects import is_dataset, require_sources
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.rollouts.player_factory import PlayerFactory
from harness.settings.training import RewardSettings, TrainLanguageSettings, TrainPolicySettings, TrainRowsSettings
from harness.training.language.plan import (
    LINES,
    SOLVER,
    Method,
    Plan,
)
from pytest_ssr.errors import SettingsError
from pytest_ssr.progress import counted
from pytest_ssr.records.reasons import Rule
from pytest_ssr.sandbox.mirrors import use_mirrors
from pytest_ssr.storage.free_space import require_space

if TYPE_CHECKING:
    from harness.agents.limits import RolloutLimits
    from harness.environments import DatasetTasks, StoreTasks
    from harness.training.language.policy_rollouts import PolicyEnvironment


def train_on_rows(settings: TrainRowsSettings) -> int:
    """Train on rows; return 0."""
    from harness.training.language import training

    plan = plan_of(settings, {"sources": sorted(_location(source) for source in settings.source)})
    terminal = Terminal(quiet=settings.json)
    require_space(settings.out, "out")
    with _alone(settings.out):
        report = training.train_on_rows(settings.source, plan, terminal.status)
    print_report(report, terminal, as_json=settings.json)
    return ExitCode.DONE


def train_in_environment(settings: TrainPolicySettings) -> int:
    """Train on the model's own rollouts; return 0."""
    from harness.training.language import reinforcement
    from harness.training.language.contamination import Excluded, require_clean

    _require_sources(settings)
    preflight, judge = Preflight(), settings.reward.judge
    with PlayerFactory() as players:
        if judge:
            preflight.take(lambda: players.judge(judge))
        preflight.end(players, settings.out, "out")
    excluded = Excluded(settings.data.exclude)
    namesakes = require_clean(_names(settings), excluded, forced=settings.data.allow_contaminated)
    policy = asdict(settings.policy)
    if settings.policy.form != LINES:
        del policy["form"]  # Runs of earlier versions have none.
    limits = limits_of(settings.limits)
    plain = {
        "projects": [_location(source) for source in settings.source],
        "selection": asdict(settings.selection),
        "strategy": policy.pop("strategy"),
        "policy": policy,
        "limits": asdict(limits),
        "alpha": settings.alpha,
        **({"rule": str(settings.rule)} if settings.rule is not Rule.STRICT else {}),
        **({"reward": asdict(settings.reward)} if settings.reward != RewardSettings() else {}),
        **({"tools": settings.tools} if settings.tools else {}),
    }
    plan = plan_of(settings, plain)
    terminal = Terminal(quiet=settings.json)
    with _alone(settings.out):
        environment = _environment(settings, limits)
        report = reinforcement.train_in_environment(plan, settings.policy, environment, terminal.status, namesakes)
    print_report(report, terminal, as_json=settings.json)
    return ExitCode.DONE


def _require_sources(settings: TrainPolicySettings) -> None:
    """Raise SettingsError for projects and datasets that cannot be trained on together or in these roles."""
    require_sources(settings.source, settings.instances, settings.execution, settings.typed)
    use_mirrors(settings.instances.mirror)
    datasets = [source for source in settings.source if is_dataset(source)]
    if datasets and settings.policy.roles != SOLVER:
        raise SettingsError(
            f"{datasets[0]} is a dataset, whose rows are repaired and not injected into; use --roles solver",
            option="roles",
        )
    if datasets and settings.policy.form == LINES:
        raise SettingsError(
            f"{datasets[0]} is a dataset, and --form lines is for the bugs of projects, whose place is known",
            option="form",
        )
    if settings.instances.images and len(datasets) < len(settings.source):
        raise SettingsError("--images is for datasets; train on projects without it", option="images")
    if settings.store is not None and len(settings.source) > len(datasets) + 1:
        raise SettingsError("--store is for one project; several have theirs in .ssr", option="store")


def _names(settings: TrainPolicySettings) -> set[str]:
    """Return the names of all projects, and of the repositories and instances of all datasets."""
    from harness.training.language.contamination import names_of_project

    names: set[str] = set()
    for source in settings.source:
        if is_dataset(source):
            for instance in chosen_instances(source, settings.selection):
                names |= {instance.id, instance.repo}
        else:
            names |= set(names_of_project(source))
    return names


def _location(source: Path) -> str:
    """Return the absolute path of a source, or its name on the hub."""
    return str(source.resolve()) if source.exists() else str(source)


def _environment(settings: TrainPolicySettings, limits: RolloutLimits) -> PolicyEnvironment:
    from harness.environments import EnvironmentSettings, ProjectTasks
    from harness.environments.episodes import Episodes
    from harness.training.language.policy_rollouts import PolicyEnvironment

    how = settings.execution
    solver: dict[str, StoreTasks | DatasetTasks] = {}
    injector: dict[str, ProjectTasks] = {}
    for source in settings.source:
        name = str(source)
        solver[name] = _solver_tasks(settings, source)
        if not is_dataset(source):
            store = settings.store or source / ".ssr"
            injector[name] = ProjectTasks(
                [name], store, settings.policy.strategy, sandbox=how.sandbox, python=how.python, settings=how.rules()
            )
    played = EnvironmentSettings(
        limits=limits,
        scores=_weights(settings) or None,
        judge=settings.reward.judge,
        tools=settings.tools,
        bundles=settings.bundles,
        record=settings.out / "trajectories",
    )
    # It refuses unknown names now, before a model is loaded.
    Episodes(next(iter(solver.values())), played).close()
    return PolicyEnvironment(solver, injector, played, settings.alpha)


def _weights(settings: TrainPolicySettings) -> dict[str, float]:
    """Return the weight of each score that is set; raises SettingsError for one that cannot be used."""
    from harness.environments.scores import PROCESS, TESTS

    weights: dict[str, float] = {}
    for text in settings.reward.scores:
        name, _, weight = text.partition("=")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            raise SettingsError(f"--score {text!r} is not NAME=WEIGHT, such as process=0.2", option="score") from None
    if TESTS in weights and settings.policy.roles != SOLVER:
        raise SettingsError("--score tests is for repairs; use --roles solver", option="score")
    if settings.reward.judge and PROCESS not in weights:
        raise SettingsError("--judge has no effect without --score process=WEIGHT", option="judge")
    if PROCESS in weights and not settings.reward.judge:
        raise SettingsError("--score process needs a model; name it with --judge", option="judge")
    return weights


def _solver_tasks(settings: TrainPolicySettings, source: Path) -> StoreTasks | DatasetTasks:
    """Return the bugs of a project, or the rows of a dataset."""
    from harness.datasets.loading import Selection
    from harness.environments import DatasetTasks, LineTasks, StoreTasks
    from harness.environments.scores import TESTS

    how, full_grades = settings.execution, TESTS in _weights(settings)
    if not is_dataset(source):
        store = settings.store or source / ".ssr"
        kind = LineTasks if settings.policy.form == LINES else StoreTasks
        return kind(
            project=source,
            store=store,
            sandbox=how.sandbox,
            python=how.python,
            settings=how.rules(),
            rule=settings.rule,
            full_grades=full_grades,
        )
    chosen = settings.selection
    return DatasetTasks(
        dataset=str(source),
        store=settings.store or Path(".ssr"),
        repos=settings.instances.repos,
        selection=Selection(chosen.only, chosen.shuffle, chosen.slice),
        split=chosen.split,
        sandbox=how.sandbox,
        images=settings.instances.images or "",
        python=how.python,
        settings=how.rules(),
        rule=settings.rule,
        full_grades=full_grades,
    )


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder of a run, and report what cannot be written there."""
    from harness.training.language.run_folder import RunFolder

    # Trackers print to stdout, which is for the report.
    with writing(out), RunFolder(out).alone(), contextlib.redirect_stdout(sys.stderr):
        yield


def plan_of(settings: TrainLanguageSettings, environment: dict[str, Any] | None = None) -> Plan:
    """Return the plan of a training; raises SettingsError if it has no folder."""
    if not settings.out.is_dir() and (settings.out.exists() or settings.out.is_symlink()):
        raise SettingsError(f"--out {settings.out} is not a folder", option="out")
    return Plan(
        settings.method,
        settings.out,
        settings.base,
        settings.adapter,
        settings.data,
        settings.optimization,
        settings.saving,
        settings.tracking,
        settings.seed,
        environment or {},
    )


def print_report(report: dict[str, Any], terminal: Terminal, *, as_json: bool) -> None:
    """Print the report of a training."""
    if as_json:
        print(json.dumps(report, indent=1))
        return
    for item in report["left_out"]:
        terminal.echo(f"left out {item['count']:>6}: {item['reason']} ({item['examples'][0]})", "missed")
    tokens = f", {report['trained_tokens']} of {report['tokens']} tokens trained on" if "tokens" in report else ""
    for origin in report.get("origins", ()):
        tokenized = f", {origin['with_token_ids']} with recorded token ids" if origin["with_token_ids"] else ""
        terminal.echo(f"rollouts of {origin['model'] or 'an unknown model'}: {origin['rollouts']}{tokenized}")
    for name in report.get("namesakes", ()):
        terminal.echo(f"{name} is named as a repository of an evaluation set; --exclude it if it is a fork", "missed")
    if unknown := report.get("of_unknown_origin"):
        terminal.echo(f"rows that name no repository, and may be of an evaluation set: {unknown}", "missed")
    terminal.echo(f"{report['method']}: {report['rows']} rows ({_row_meaning(report)}){tokens}")
    for name in ("loss", "reward"):
        first, last = report[f"{name}_first"], report[f"{name}_last"]
        if first is not None:
            terminal.echo(f"{report['updates']} updates on {report['device']}: {name} {first:.4f} to {last:.4f}")
    for line in (*_lost(report.get("rollouts", {})), *_equal(report)):
        terminal.echo(line, "missed")
    if speed := _speed(report):
        terminal.echo(speed)
    terminal.echo(f"model: {report['model']}", "heading")


def _row_meaning(report: dict[str, Any]) -> str:
    """Return what a row is for the method of a report."""
    meanings = {
        Method.SFT: "a row is a rollout",
        Method.BC: "a row is a reply",
        Method.DPO: "a row is a pair of replies",
        Method.KTO: "a row is a labelled reply",
    }
    # A report of an earlier version has no number of tasks.
    in_order = f": {counted(report['tasks'], 'task')} in random order, repeated" if "tasks" in report else ""
    return meanings.get(Method(report["method"]), f"a row is a task to play{in_order}")


def _equal(report: dict[str, Any]) -> Iterator[str]:
    """Yield a line about the updates whose rewards have taught nothing."""
    if equal := report.get("equal_updates"):
        yield (
            f"{equal} of {report['updates']} updates had equal rewards in every group, so these rewards changed no "
            "weight; try easier tasks, a larger --group, a higher --temperature, --score outcome=1 --score tests=0.2 "
            "--roles solver, or ssr train sft first"
        )


def _lost(counts: dict[str, int]) -> Iterator[str]:
    """Yield a line for each reason for which rollouts taught nothing or were ended early."""
    texts = {
        "failed": "have no reward, because their sandbox failed",
        "untried": "have no reward: they injected a valid bug that no solver of the update tried",
        "context_full": "were ended because the context (--max-length or the model's) had no room for another reply",
        "completion_full": "were ended because all tokens of a completion (--completion-tokens) were used",
        "cut": "have a reply that a limit (--reply-tokens or --completion-tokens) has cut",
    }
    for name, text in texts.items():
        if counts.get(name):
            yield f"{counts[name]} of {counts['played']} rollouts {text}"


def _speed(report: dict[str, Any]) -> str:
    """Return a line about time and memory, as far as they were measured."""
    texts = {
        "seconds_per_update": "{:.2f} s for an update",
        "tokens_per_second": "{:,.0f} tokens/s",
        "peak_gpu_gib": "{:.1f} GiB of GPU memory",
    }
    return ", ".join(text.format(report[name]) for name, text in texts.items() if report.get(name) is not None)
