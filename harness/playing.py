"""`ssr solve` and `ssr play`: arguments in, attempts and rounds out, as text or JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.commands import BROKEN, DONE, NO
from harness.episode import Episode, Rollout, missing
from harness.options import (
    OF_AN_INJECTOR,
    chosen_judge,
    chosen_rule,
    chosen_solver,
    open_roles,
    open_store,
    require_counts,
    rule_settings,
    running,
    statement_of,
)
from harness.play_report import heading, lines, tables
from harness.play_report import line as table_line
from harness.rewards import interval
from harness.roles import writes
from harness.selfplay import EPISODES, PlaySettings, SelfPlay, Watch
from harness.solvers.protocol import Solver
from harness.solving import ROLLOUTS, Solving, proven, rates
from harness.sources import is_dataset, projects_of, require_sources
from harness.terminal import Terminal
from pytest_ssr.artifact import read_artifact
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.baselines import project_baseline
from pytest_ssr.opening import load_injectors, open_workbench
from pytest_ssr.report import shown
from pytest_ssr.snapshot import require_directory
from pytest_ssr.store import Store, resolve_artifact
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import trusts

_WORDS = {True: "resolved", False: "unresolved", None: "no grade"}
_KINDS = {True: "valid", False: "bad", None: "missed"}


def solve(arguments: argparse.Namespace) -> int:
    """Make attempts at one artifact; 0 when one of them resolved it, 1 when none did, 3 when none has a grade."""
    require_counts(arguments, "attempts", "jobs")
    require_directory(arguments.repo)
    statement = statement_of(arguments)
    with open_roles(arguments, arguments.repo) as roles:
        solver, judge = chosen_solver(arguments, roles), chosen_judge(arguments, roles)
        store = open_store(arguments, arguments.repo)
        directory = resolve_artifact(arguments.artifact, store)
        artifact = read_artifact(directory)
        terminal = Terminal(quiet=arguments.json)
        terminal.status("copying the project")
        bench = open_workbench(
            arguments.repo,
            store,
            **running(arguments),
            model_written=writes(arguments.solver) or not trusts(store, directory),
        )
        verdict = proven(artifact, bench, store, begin=lambda: terminal.status("proving the artifact first"))
        terminal.status(f"{solver.name}: measuring the task's tests")
        rollouts = Solving(
            bench.scoped(),
            artifact,
            verdict,
            solver,
            store,
            seed=arguments.seed,
            grade_unsubmitted=arguments.grade_unsubmitted,
            rule=chosen_rule(arguments),
            statement=statement,
            judge=judge,
            baseline=lambda: project_baseline(bench, store),
        ).attempts(arguments.attempts, jobs=arguments.jobs, progress=lambda r: terminal.say(*_attempt_line(r)))
    return _tell_solved(arguments, terminal, solver, store, verdict, rollouts)


def _attempt_line(rollout: Rollout) -> tuple[str, str]:
    score = "" if rollout.score is None else f", its steps {rollout.score:+.2f}"
    return (
        f"attempt {rollout.attempt + 1}: {_WORDS[rollout.verdict]}, {rollout.seconds:.1f} s{score}: {rollout.reason}",
        _KINDS[rollout.verdict],
    )


def _tell_solved(
    arguments: argparse.Namespace,
    terminal: Terminal,
    solver: Solver,
    store: Store,
    verdict: Verdict,
    rollouts: list[Rollout],
) -> int:
    solved, graded = rates(rollouts)
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
        terminal.say(f"resolved {solved} of {graded}: {solved / graded:.2f} ({low:.2f} to {high:.2f}, 95 %)", "heading")
        terminal.say(f"trajectories and patches: {shown(store.root / ROLLOUTS)}")
    else:
        terminal.say(f"no attempt has a grade: {rollouts[0].reason}", "bad")
    return BROKEN if not graded else DONE if solved else NO


def play(arguments: argparse.Namespace) -> int:
    """Play rounds of self-play; 0 when every round had a valid bug, else 1; 3 when attempts have no grade."""
    require_sources(arguments)
    settings = _play_settings(arguments)
    only = arguments.source[0] if len(arguments.source) == 1 and arguments.source[0].is_dir() else Path()
    place = Path() if is_dataset(only) else only
    with open_roles(arguments, place) as roles:
        by_model = writes(arguments.injector)
        injectors = [] if by_model else load_injectors(arguments.injector)
        given = {name: getattr(arguments, name) for name in OF_AN_INJECTOR if getattr(arguments, name) is not None}
        model = roles.injector(arguments.injector, **given) if by_model else None
        solver, judge = chosen_solver(arguments, roles), chosen_judge(arguments, roles)
        store = open_store(arguments, place)
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
    _tell_played(arguments, terminal, settings, run, episodes)
    if missing(episodes):
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
        model_written=writes(arguments.solver) or writes(arguments.injector),
        sandbox=arguments.sandbox,
        python=arguments.python,
        rule=rule_settings(arguments),
    )


def _tell_played(
    arguments: argparse.Namespace, terminal: Terminal, settings: PlaySettings, run: SelfPlay, episodes: list[Episode]
) -> None:
    found = tables(episodes, alpha=settings.alpha, kind=settings.reward)
    if arguments.json:
        told = [e.to_json(alpha=settings.alpha, kind=settings.reward) for e in episodes]
        refused = [{"id": e.artifact_id, "project": e.project, "reason": e.refused} for e in episodes if e.refused]
        data = {
            "run": run.key,
            "store": str(run.store.root),
            "tables": found,
            "refused": refused,
            "episodes": told,
        }
        print(json.dumps(data, indent=1))
        return
    shape: dict[str, Any] = {"attempts": settings.attempts, "alpha": settings.alpha, "kind": settings.reward}
    for kind, line in lines(found, episodes, **shape):
        terminal.say(line, kind)
    terminal.say(f"episodes: {shown(run.store.root / EPISODES / run.key)}")


def _watch(terminal: Terminal, settings: PlaySettings, *, by_model: bool) -> Watch:
    def attempt(number: int, project: str, made: Attempt) -> None:
        where = f"round {number + 1}  {project}"
        if made.status is AttemptStatus.VALID:
            place = f"{made.path}:{made.line} {made.scope}".rstrip()
            order = "bug of second order" if made.strategy == "higher-order" else "bug"
            terminal.say(
                f"{where}  {order} {made.artifact_id}  {made.operator}  {place}, breaks {made.fail_to_pass}", "valid"
            )
        elif by_model:
            why = ": ".join(filter(None, (made.check, made.reason)))
            terminal.say(f"{where}  no bug by {made.operator}: {' '.join(why.split())}", "bad")

    def rollout(draft: Episode, made: Rollout) -> None:
        if made.verdict is None:
            terminal.say(
                f"round {draft.round}  {draft.project}  {draft.artifact_id}  no grade: {made.reason}", "missed"
            )

    def episode(done: Episode) -> None:
        if not done.valid or done.repeated:
            return
        solved, graded = rates(done.rollouts)
        reward = done.reward(alpha=settings.alpha, kind=settings.reward)
        tail = "" if reward is None else f", injector {reward:+.2f}"
        said = f"refused: {done.refused}" if done.refused else f"resolved {solved} of {graded}{tail}"
        terminal.say(f"round {done.round}  {done.project}  {done.artifact_id}  {said}", "bad" if done.refused else "")

    def after(number: int, episodes: Sequence[Episode]) -> None:
        if number < settings.rounds:
            found = tables(episodes, alpha=settings.alpha, kind=settings.reward)
            terminal.say(heading(f"after round {number}"), "heading")
            for row in (*found["strategy"], *found["all"]):
                terminal.say(table_line(row))
            tokens, usd = (sum(row[name] for row in found["all"]) for name in ("tokens", "cost_usd"))
            if tokens:
                terminal.say(f"{tokens} tokens, {usd:.4f} USD in this round")

    return Watch(terminal.status, attempt, rollout, episode, after)
