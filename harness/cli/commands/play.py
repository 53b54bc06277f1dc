"""Run `ssr solve` and `ssr play`, and report rollouts and rounds as text or JSON."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.cli.commands.artifacts import BROKEN, DONE, NO
from harness.cli.options import (
    INJECTOR_OPTIONS,
    chosen_instances,
    chosen_judge,
    chosen_rule,
    chosen_solver,
    open_players,
    open_store,
    require_counts,
    require_own_images,
    rule_settings,
    run_options,
    statement_of,
)
from harness.cli.terminal import Terminal
from harness.datasets.environments import Environments
from harness.datasets.instance_task import tree_of
from harness.datasets.loading import is_saved
from harness.datasets.repositories import Repositories
from harness.records.episode import Episode, Rollout, count_ungraded
from harness.records.rewards import interval
from harness.rollouts.player_factory import writes_code
from harness.rollouts.runner import ROLLOUTS, RolloutRunner, count_resolved, validated_verdict
from harness.selfplay.report import heading, lines, tables
from harness.selfplay.report import line as table_line
from harness.selfplay.rounds import EPISODES, PlaySettings, Project, SelfPlay, Watch
from harness.solvers.protocol import Solver
from pytest_ssr.campaign.factory import load_injectors, open_runner
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, resolve_artifact
from pytest_ssr.storage.verdict_store import is_trusted

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_dataset(source: Path) -> bool:
    """Return whether a source is a dataset: a file, a folder that `datasets` saved, or a name on the hub."""
    return source.is_file() or is_saved(source) or (not source.exists() and bool(_HUB_NAME.fullmatch(str(source))))


def require_sources(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for options about instances without a dataset, and for a source that does not exist."""
    datasets = [s for s in arguments.source if is_dataset(s)]
    given = [n for n in ("split", "only", "shuffle", "slice", "images") if getattr(arguments, n) not in ("", None)]
    if given and not datasets:
        raise SettingsError(f"--{given[0]} is for instances of a dataset; {arguments.source[0]} is not a dataset")
    require_own_images(arguments)
    for source in arguments.source:
        if source not in datasets:
            require_directory(source)


def projects_of(arguments: argparse.Namespace, store: Store, report: Callable[[str], None]) -> list[Project]:
    """Return the projects of all sources; those of instances are written, each with its environment.

    report: called before a slow step, with a line that describes it. Raises InstanceError.
    """
    return [project for source in arguments.source for project in _projects_of_source(source, arguments, store, report)]


def _projects_of_source(
    source: Path, arguments: argparse.Namespace, store: Store, report: Callable[[str], None]
) -> Iterator[Project]:
    if not is_dataset(source):
        yield Project(source)
        return
    repositories = Repositories(store, arguments.repos, report=report)
    environments = Environments(store, arguments.python, report)
    for instance in chosen_instances(arguments, str(source)):
        folder = tree_of(instance, repositories, store)
        if arguments.images:
            yield Project(folder, sandbox=instance.sandbox(arguments.images))
        else:
            yield Project(folder, environments.python_of(instance, folder))


_VERDICT_NAMES = {True: "resolved", False: "unresolved", None: "no grade"}
_KINDS = {True: "valid", False: "bad", None: "missed"}


def solve(arguments: argparse.Namespace) -> int:
    """Run rollouts on one artifact; return 0 if one resolves it, 1 if none does, 3 if none has a grade."""
    require_counts(arguments, "attempts", "jobs")
    require_directory(arguments.repo)
    statement = statement_of(arguments)
    with open_players(arguments, arguments.repo) as players:
        solver, judge = chosen_solver(arguments, players), chosen_judge(arguments, players)
        store = open_store(arguments, arguments.repo)
        directory = resolve_artifact(arguments.artifact, store)
        artifact = read_artifact(directory)
        terminal = Terminal(quiet=arguments.json)
        terminal.status("copying the project")
        runner = open_runner(
            arguments.repo,
            store,
            **run_options(arguments),
            model_written=writes_code(arguments.solver) or not is_trusted(store, directory),
        )
        verdict = validated_verdict(
            artifact, runner, store, begin=lambda: terminal.status("validating the artifact first")
        )
        terminal.status(f"{solver.name}: measuring the task's tests")
        rollouts = RolloutRunner(
            runner.scoped(),
            artifact,
            verdict,
            solver,
            store,
            seed=arguments.seed,
            grade_unsubmitted=arguments.grade_unsubmitted,
            rule=chosen_rule(arguments),
            statement=statement,
            judge=judge,
            baseline=lambda: project_baseline(runner, store),
        ).attempts(arguments.attempts, jobs=arguments.jobs, progress=lambda r: terminal.echo(*_attempt_line(r)))
    return _report_solved(arguments, terminal, solver, store, verdict, rollouts)


def _attempt_line(rollout: Rollout) -> tuple[str, str]:
    score = "" if rollout.score is None else f", its steps {rollout.score:+.2f}"
    verdict = _VERDICT_NAMES[rollout.verdict]
    line = f"attempt {rollout.attempt + 1}: {verdict}, {rollout.seconds:.1f} s{score}: {rollout.reason}"
    return line, _KINDS[rollout.verdict]


def _report_solved(
    arguments: argparse.Namespace,
    terminal: Terminal,
    solver: Solver,
    store: Store,
    verdict: Verdict,
    rollouts: list[Rollout],
) -> int:
    solved, graded = count_resolved(rollouts)
    low, high = interval(solved, graded)
    if arguments.json:
        data = {
            "id": verdict.artifact_id,
            "solver": solver.name,
            "rule": arguments.rule,
            "attempts": [r.to_json() for r in rollouts],
            "solved": solved,
            "graded": graded,
            "solve_rate": {"rate": solved / graded, "low": low, "high": high} if graded else None,
            "tokens": sum(r.tokens for r in rollouts),
            "cost_usd": round(sum(r.cost_usd for r in rollouts), 6),
            "unpriced_calls": sum(r.unpriced for r in rollouts),
            "estimated_calls": sum(r.estimated for r in rollouts),
            "store": str(store.root),
        }
        print(json.dumps(data, indent=1))
    elif graded:
        terminal.echo(
            f"resolved {solved} of {graded}: {solved / graded:.2f} ({low:.2f} to {high:.2f}, 95 %)", "heading"
        )
        terminal.echo(f"trajectories and patches: {display_path(store.root / ROLLOUTS)}")
    else:
        terminal.echo(f"no attempt has a grade: {rollouts[0].reason}", "bad")
    return BROKEN if not graded else DONE if solved else NO


def play(arguments: argparse.Namespace) -> int:
    """Play rounds of self-play; return 3 if rollouts have no grade, else 0 if every round had a valid bug, else 1."""
    require_sources(arguments)
    settings = _play_settings(arguments)
    source = arguments.source[0] if len(arguments.source) == 1 and arguments.source[0].is_dir() else Path()
    directory = Path() if is_dataset(source) else source
    with open_players(arguments, directory) as players:
        by_model = writes_code(arguments.injector)
        injectors = [] if by_model else load_injectors(arguments.injector)
        given = {name: getattr(arguments, name) for name in INJECTOR_OPTIONS if getattr(arguments, name) is not None}
        model = players.injector(arguments.injector, **given) if by_model else None
        solver, judge = chosen_solver(arguments, players), chosen_judge(arguments, players)
        store = open_store(arguments, directory)
        terminal = Terminal(quiet=arguments.json)
        terminal.status("copying the projects and measuring their tests")
        run = SelfPlay(
            projects_of(arguments, store, terminal.status),
            store,
            solver,
            settings,
            injectors=injectors,
            model=model,
            judge=judge,
            watch=_watch(terminal, settings, by_model=by_model),
        )
        episodes = run.play()
    _report_played(arguments, terminal, settings, run, episodes)
    if count_ungraded(episodes):
        return BROKEN
    reached = {e.round for e in episodes if e.valid and e.counts}
    return DONE if len(reached) == settings.rounds else NO


def _play_settings(arguments: argparse.Namespace) -> PlaySettings:
    return PlaySettings(
        rounds=arguments.rounds,
        count=arguments.count,
        attempts=arguments.attempts,
        seed=arguments.seed,
        jobs=arguments.jobs,
        alpha=arguments.alpha,
        reward=arguments.reward,
        adaptive=not arguments.fixed_mixture,
        higher_order=arguments.higher_order,
        grade_unsubmitted=arguments.grade_unsubmitted,
        grade_by=chosen_rule(arguments),
        model_written=writes_code(arguments.solver) or writes_code(arguments.injector),
        sandbox=arguments.sandbox,
        python=arguments.python,
        rule=rule_settings(arguments),
    )


def _report_played(
    arguments: argparse.Namespace, terminal: Terminal, settings: PlaySettings, run: SelfPlay, episodes: list[Episode]
) -> None:
    summary = tables(episodes, alpha=settings.alpha, kind=settings.reward)
    if arguments.json:
        episode_records = [e.to_json(alpha=settings.alpha, kind=settings.reward) for e in episodes]
        refused = [{"id": e.artifact_id, "project": e.project, "reason": e.refused} for e in episodes if e.refused]
        data = {
            "run": run.key,
            "store": str(run.store.root),
            "tables": summary,
            "refused": refused,
            "episodes": episode_records,
        }
        print(json.dumps(data, indent=1))
        return
    shape: dict[str, Any] = {"attempts": settings.attempts, "alpha": settings.alpha, "kind": settings.reward}
    for kind, line in lines(summary, episodes, **shape):
        terminal.echo(line, kind)
    terminal.echo(f"episodes: {display_path(run.store.root / EPISODES / run.key)}")


def _watch(terminal: Terminal, settings: PlaySettings, *, by_model: bool) -> Watch:
    def attempt(number: int, project: str, result: CandidateResult) -> None:
        prefix = f"round {number + 1}  {project}"
        if result.status is CandidateStatus.VALID:
            location = f"{result.path}:{result.line} {result.scope}".rstrip()
            order = "bug of second order" if result.strategy == "higher-order" else "bug"
            terminal.echo(
                f"{prefix}  {order} {result.artifact_id}  {result.operator}  {location}, breaks {result.fail_to_pass}",
                "valid",
            )
        elif by_model:
            terminal.echo(f"{prefix}  no bug by {result.operator}: {' '.join(result.explanation.split())}", "bad")

    def rollout(draft: Episode, result: Rollout) -> None:
        if result.verdict is None:
            terminal.echo(
                f"round {draft.round}  {draft.project}  {draft.artifact_id}  no grade: {result.reason}", "missed"
            )

    def episode(finished: Episode) -> None:
        if not finished.valid or finished.repeated:
            return
        solved, graded = count_resolved(finished.rollouts)
        reward = finished.reward(alpha=settings.alpha, kind=settings.reward)
        tail = "" if reward is None else f", injector {reward:+.2f}"
        outcome = f"refused: {finished.refused}" if finished.refused else f"resolved {solved} of {graded}{tail}"
        terminal.echo(
            f"round {finished.round}  {finished.project}  {finished.artifact_id}  {outcome}",
            "bad" if finished.refused else "",
        )

    def after(number: int, episodes: Sequence[Episode]) -> None:
        if number < settings.rounds:
            summary = tables(episodes, alpha=settings.alpha, kind=settings.reward)
            terminal.echo(heading(f"after round {number}"), "heading")
            for row in (*summary["strategy"], *summary["all"]):
                terminal.echo(table_line(row))
            tokens, usd = (sum(row[name] for row in summary["all"]) for name in ("tokens", "cost_usd"))
            if tokens:
                terminal.echo(f"{tokens} tokens, {usd:.4f} USD in this round")

    return Watch(terminal.status, attempt, rollout, episode, after)
