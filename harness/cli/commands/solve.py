"""Run `ssr solve`, and report its rollouts as text or JSON."""

from __future__ import annotations

import json

from harness.cli.exit_code import ExitCode
from harness.cli.players import (
    chosen_judge,
    chosen_solver,
    note_remarks,
    open_players,
    read_statement,
    unscored_line,
)
from harness.cli.preflight import Preflight
from harness.cli.terminal import Terminal
from harness.executors.local import LocalExecutor
from harness.records.attempt import Attempt, count_unscored
from harness.records.job_reports import Stage
from harness.rollouts.player_factory import solver_writes_code
from harness.rollouts.runner import ROLLOUTS, RolloutRunner, count_resolved, validated_verdict
from harness.settings.commands import SolveSettings
from harness.solvers.protocol import Solver
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.campaign.report import display_path
from pytest_ssr.execution.script_template import runner_of_script
from pytest_ssr.installed_plugins import load_extensions
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.rate_interval import interval
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, resolve_artifact
from pytest_ssr.storage.verdict_store import is_trusted

_VERDICT_NAMES = {True: "resolved", False: "unresolved", None: "no grade"}
_KINDS = {True: "valid", False: "bad", None: "missed"}


def solve(settings: SolveSettings) -> int:
    """Run rollouts on one artifact; return 0 if one resolves it, 1 if none does, 3 if none has a grade."""
    require_directory(settings.repo)
    solver_name, store_path = settings.players.solver.name, settings.store or settings.repo / ".ssr"
    statement = read_statement(settings.statement)
    extensions = load_extensions(settings.repo)
    with open_players(settings.players, store_path, extensions) as players:
        ready = Preflight()
        solver = ready.take(lambda: chosen_solver(settings.players, players))
        judge = ready.take(lambda: chosen_judge(settings.players.judge, players))
        ready.end(players, store_path)
        store = Store(store_path)
        directory = resolve_artifact(settings.artifact, store)
        artifact = read_artifact(directory)
        terminal = Terminal(quiet=settings.json)
        note_remarks(players, terminal.note)
        terminal.stage(Stage.MEASURE)
        terminal.status("copying the project")
        runner = open_runner(
            settings.repo,
            store,
            **settings.execution.run_options(by_script=settings.by_script),
            test_runner=runner_of_script(artifact.script),
            model_written=solver_writes_code(solver_name) or not is_trusted(store, directory),
            extra_sandboxes=extensions.sandboxes(),
        )
        verdict = validated_verdict(
            artifact, runner, store, begin=lambda: terminal.status("validating the artifact first")
        )
        wanted = settings.players.solver.attempts
        terminal.stage(Stage.SOLVE)
        terminal.status(f"{solver.name}: {wanted} attempt{'s' if wanted > 1 else ''}")
        done: list[Attempt] = []

        def show(rollout: Attempt) -> None:
            done.append(rollout)
            terminal.echo(*_attempt_line(rollout, is_judged=judge is not None), attempt=rollout.id)
            terminal.status(f"{solver.name}: {len(done)} of {wanted} attempts done" if len(done) < wanted else "")

        solving = RolloutRunner(
            runner.scoped(),
            artifact,
            verdict,
            solver,
            store,
            seed=settings.seed,
            grade_unsubmitted=settings.players.model.grade_unsubmitted,
            rule=settings.rule,
            statement=statement,
            judge=judge,
            baseline=lambda: project_baseline(runner, store),
        )
        rollouts = solving.attempts(
            wanted,
            units=LocalExecutor(settings.jobs).units(solving),
            progress=show,
        )
        note_remarks(players, terminal.note)
    return _report_solved(settings, terminal, solver, store, verdict, rollouts, is_judged=judge is not None)


def _attempt_line(rollout: Attempt, *, is_judged: bool) -> tuple[str, str]:
    score = "" if rollout.score is None else f", its steps {rollout.score:+.2f}"
    if is_judged and count_unscored([rollout]):
        score = ", no valid vote on its steps"
    verdict = _VERDICT_NAMES[rollout.verdict]
    line = f"attempt {rollout.attempt + 1}: {verdict}, {rollout.seconds:.1f} s{score}: {rollout.reason}"
    return line, _KINDS[rollout.verdict]


def _report_solved(
    settings: SolveSettings,
    terminal: Terminal,
    solver: Solver,
    store: Store,
    verdict: Verdict,
    rollouts: list[Attempt],
    *,
    is_judged: bool,
) -> int:
    solved, graded = count_resolved(rollouts)
    unscored = count_unscored(rollouts) if is_judged else 0
    low, high = interval(solved, graded)
    if settings.json:
        data = {
            "id": verdict.artifact_id,
            "solver": solver.name,
            "rule": settings.rule,
            "attempts": [r.to_json() for r in rollouts],
            "solved": solved,
            "graded": graded,
            "without_vote": unscored,
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
        if unscored:
            terminal.echo(unscored_line(unscored), "missed")
        terminal.echo(f"trajectories and patches: {display_path(store.root / ROLLOUTS)}")
    else:
        terminal.echo(f"no attempt has a grade: {rollouts[0].reason}", "bad")
    return ExitCode.BROKEN if not graded else ExitCode.DONE if solved else ExitCode.NO
