"""Run `ssr play`, and report rounds as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.players import chosen_judge, chosen_solver, note_remarks, open_players, unscored_line
from harness.cli.preflight import Preflight
from harness.cli.projects import extensions_of_sources, is_dataset, projects_of, require_sources, scope_line
from harness.cli.remote_players import PlayersRecipe
from harness.cli.terminal import Terminal
from harness.executors.protocol import is_remote
from harness.injectors.lm import lm_injectors, lm_names
from harness.injectors.model import ModelInjector
from harness.models.factory import suggestion
from harness.records.attempt import Attempt, count_unscored
from harness.records.episode import Episode, count_ungraded
from harness.records.job_reports import Stage
from harness.rollouts.player_factory import injector_writes_code, solver_writes_code
from harness.rollouts.runner import count_resolved
from harness.selfplay.play_settings import PlaySettings as RoundSettings
from harness.selfplay.project_play import Watch
from harness.selfplay.report import heading, lines, tables
from harness.selfplay.report import line as table_line
from harness.selfplay.round_store import EPISODES
from harness.selfplay.rounds import SelfPlay
from harness.settings.commands import PlaySettings
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.sandbox import require_slots
from pytest_ssr.sandbox.mirrors import use_mirrors
from pytest_ssr.storage.store import Store

_VERDICT_NAMES = {True: "resolved", False: "unresolved", None: "no grade"}
_KINDS = {True: "valid", False: "bad", None: "missed"}


def play(settings: PlaySettings) -> int:
    """Play rounds of self-play; return 3 if rollouts have no grade, else 0 if every round had a valid bug, else 1."""
    require_sources(settings.source, settings.instances, settings.execution, settings.typed)
    use_mirrors(settings.instances.mirror)
    rounds = _round_settings(settings)
    source = settings.source[0] if len(settings.source) == 1 and settings.source[0].is_dir() else Path()
    directory = Path() if is_dataset(source) else source
    store_path = settings.store or directory / ".ssr"
    extensions = extensions_of_sources(settings.source, conftest=settings.conftest, ray=settings.ray)
    with open_players(settings.players, store_path, extensions) as players:
        by_model = injector_writes_code(settings.injector)
        injectors = [] if by_model else _operators(settings.injector, extensions, store_path)
        model = None
        ready = Preflight()
        if by_model:
            model = ready.take(
                lambda: players.injector(
                    settings.injector,
                    strategy=settings.strategy,
                    rejections=settings.rejections,
                    store=store_path,
                )
            )
        solver = ready.take(lambda: chosen_solver(settings.players, players))
        judge = ready.take(lambda: chosen_judge(settings.players.judge, players))
        ready.end(players, store_path)
        store = Store(store_path)
        terminal = Terminal(quiet=settings.json)
        note_remarks(players, terminal.note)
        terminal.stage(Stage.MEASURE)
        terminal.status("copying the projects and measuring their tests")
        projects = [
            project
            for source in settings.source
            for project in projects_of(
                source, store, settings.selection, settings.instances, settings.execution.python, terminal.status
            )
        ]
        for line in filter(None, map(scope_line, projects)):
            terminal.echo(line)
        if isinstance(model, ModelInjector) and not is_remote(settings.ray):
            # The machines of a cluster do not have the clones of rows.
            model = replace(model, histories={p.folder.resolve(): p.history for p in projects if p.history is not None})
        recipe = PlayersRecipe.of(settings)
        with open_executor(settings.ray, settings.jobs, store, terminal) as executor:
            run = SelfPlay(
                projects,
                store,
                solver,
                rounds,
                injectors=injectors,
                model=model,
                judge=judge,
                watch=_watch(terminal, rounds, by_model=by_model),
                executor=executor,
                players=recipe.open_solver,
                model_recipe=recipe.open_injector if by_model else None,
                extensions=extensions,
            )
            if isinstance(model, ModelInjector) and not is_remote(settings.ray):
                # Each attempt keeps its own sandbox while its bug is validated in another one.
                for runner in run.runners:
                    require_slots(runner.provider, settings.jobs + 1)
            terminal.about(run=run.key)
            episodes = run.play()
            nodes = [node.to_json() for node in executor.nodes]
        note_remarks(players, terminal.note)
    _report_played(settings, terminal, rounds, run, episodes, nodes)
    if count_ungraded(episodes):
        return ExitCode.BROKEN
    reached = {e.round for e in episodes if e.valid and e.counts}
    return ExitCode.DONE if len(reached) == rounds.rounds else ExitCode.NO


def _operators(names: str, extensions: Extensions, store: Path) -> list[Injector]:
    models = lm_injectors(names, store)
    try:
        return load_injectors(names, {**extensions.injectors(), **models})
    except SettingsError as error:
        raise SettingsError(f"{error}{suggestion(names)}") from None


def _round_settings(settings: PlaySettings) -> RoundSettings:
    players = settings.players
    return RoundSettings(
        rounds=settings.rounds,
        count=settings.count,
        attempts=players.solver.attempts,
        seed=settings.seed,
        jobs=settings.jobs,
        alpha=settings.alpha,
        reward=settings.reward,
        adaptive=not settings.fixed_mixture,
        higher_order=settings.higher_order,
        higher_order_form=settings.higher_order_form,
        grade_unsubmitted=players.model.grade_unsubmitted,
        grade_by=settings.rule,
        model_written=solver_writes_code(players.solver.name)
        or injector_writes_code(settings.injector)
        or bool(lm_names(settings.injector)),
        sandbox=settings.execution.sandbox,
        python=settings.execution.python,
        rule=settings.execution.rules(by_script=settings.by_script and injector_writes_code(settings.injector)),
    )


def _report_played(
    settings: PlaySettings,
    terminal: Terminal,
    rounds: RoundSettings,
    run: SelfPlay,
    episodes: list[Episode],
    nodes: list[dict[str, Any]],
) -> None:
    summary = tables(episodes, alpha=rounds.alpha, kind=rounds.reward)
    if settings.json:
        episode_records = [e.to_json(alpha=rounds.alpha, kind=rounds.reward) for e in episodes]
        refused = [
            {"id": e.artifact_id, "project": e.project, "code": str(e.refused.code), "reason": e.refused.text}
            for e in episodes
            if e.refused is not None
        ]
        data = {
            "run": run.key,
            "store": str(run.store.root),
            "tables": summary,
            "refused": refused,
            "episodes": episode_records,
            **({"nodes": nodes} if nodes else {}),
        }
        print(json.dumps(data, indent=1))
        return
    shape: dict[str, Any] = {"attempts": rounds.attempts, "alpha": rounds.alpha, "kind": rounds.reward}
    for kind, line in lines(summary, episodes, **shape):
        terminal.echo(line, kind)
    if settings.players.judge.model and (unscored := count_unscored(r for e in episodes for r in e.rollouts)):
        terminal.echo(unscored_line(unscored), "missed")
    terminal.echo(f"episodes: {display_path(run.store.root / EPISODES / run.key)}")


def _watch(terminal: Terminal, settings: RoundSettings, *, by_model: bool) -> Watch:
    def attempt(number: int, project: str, result: CandidateResult) -> None:
        prefix = f"round {number + 1}  {project}"
        if result.status is CandidateStatus.VALID:
            location = f"{result.path}:{result.line} {result.scope}".rstrip()
            order = "bug of second order" if result.strategy == "higher-order" else "bug"
            terminal.echo(
                f"{prefix}  {order} {result.artifact_id}  {result.operator}  {location}, breaks {result.fail_to_pass}",
                "valid",
                artifact=result.artifact_id,
            )
        elif by_model:
            terminal.echo(f"{prefix}  no bug by {result.operator}: {' '.join(result.explanation.split())}", "bad")

    def rollout(draft: Episode, result: Attempt) -> None:
        line = f"round {draft.round}  {draft.project}  {draft.artifact_id}  {_VERDICT_NAMES[result.verdict]}"
        show = terminal.echo if result.verdict is None else terminal.log
        show(f"{line}: {result.reason}", _KINDS[result.verdict], attempt=result.id)

    def episode(finished: Episode) -> None:
        if not finished.valid or finished.repeated:
            return
        solved, graded = count_resolved(finished.rollouts)
        reward = finished.reward(alpha=settings.alpha, kind=settings.reward)
        tail = "" if reward is None else f", injector {reward:+.2f}"
        outcome = f"refused: {finished.refused.text}" if finished.refused else f"resolved {solved} of {graded}{tail}"
        terminal.echo(
            f"round {finished.round}  {finished.project}  {finished.artifact_id}  {outcome}",
            "bad" if finished.refused else "",
            artifact=finished.artifact_id,
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

    return Watch(terminal.status, terminal.stage, attempt, rollout, episode, after)
