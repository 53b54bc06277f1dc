"""`ssr solve` and `ssr play`: arguments in, attempts and rounds out, as text or JSON."""

from __future__ import annotations

import argparse
import json
import math
import shlex
from pathlib import Path
from typing import Any

from harness.agents.limits import RolloutLimits
from harness.agents.process_reward import ProcessReward
from harness.commands import BROKEN, DONE, NO, rule_settings
from harness.episode import Episode, Rollout, missing
from harness.messages import Sampling
from harness.models.names import is_model, is_started_late
from harness.models.spending import Budget
from harness.play_report import lines, tables
from harness.rewards import interval
from harness.roles import Roles, read_bundles, writes
from harness.selfplay import EPISODES, PlaySettings, SelfPlay, Watch
from harness.solvers.protocol import Solver
from harness.solving import ROLLOUTS, Solving, proven, rates
from harness.terminal import Terminal
from pytest_ssr.artifact import BugArtifact, read_artifact
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.errors import SettingsError
from pytest_ssr.opening import load_injectors, open_workbench
from pytest_ssr.report import shown
from pytest_ssr.snapshot import require_directory
from pytest_ssr.store import Store, resolve_artifact
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import was_judged

_WORDS = {True: "resolved", False: "unresolved", None: "no grade"}
_KINDS = {True: "valid", False: "bad", None: "missed"}
_OWN_SERVERS = ("vllm:", "scripted:")
_OF_AN_INJECTOR = ("strategy", "rejections")
_POSITIVE = (
    *("steps", "rollout_limit", "command_limit", "rollout_tokens", "rollout_usd", "format_errors", "repeats"),
    *(
        "model_timeout",
        "vllm_ready",
        "output_chars",
        "max_tokens",
        "budget_usd",
        "budget_tokens",
        "budget_calls",
        "judge_votes",
    ),
)


def solve(arguments: argparse.Namespace) -> int:
    """Make attempts at one artifact; 0 when one of them resolved it, 1 when none did, 3 when none has a grade."""
    _require_counts(arguments, "attempts", "jobs")
    require_directory(arguments.repo)
    statement = _statement(arguments)
    with _roles(arguments) as roles:
        solver, judge = _solver(arguments, roles), _judge(arguments, roles)
        store = Store(arguments.store or arguments.repo / ".ssr")
        directory = resolve_artifact(arguments.artifact, store)
        artifact = read_artifact(directory)
        terminal = Terminal(quiet=arguments.json)
        terminal.status("copying the project")
        bench = open_workbench(
            arguments.repo,
            store,
            settings=rule_settings(arguments),
            sandbox=arguments.sandbox,
            python=arguments.python,
            # Whoever wrote an artifact that lies elsewhere may have been a model.
            model_written=writes(arguments.solver) or not _is_ours(artifact, directory, store),
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
            statement=statement,
            judge=judge,
        ).attempts(arguments.attempts, jobs=arguments.jobs, progress=lambda r: terminal.say(*_attempt_line(r)))
    return _tell_solved(arguments, terminal, solver, store, verdict, rollouts)


def _statement(arguments: argparse.Namespace) -> str:
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


def _is_ours(artifact: BugArtifact, directory: Path, store: Store) -> bool:
    """Tell whether an artifact was made here, and without a model."""
    injector = artifact.info.get("injector")
    # Failed repairs may be a model's.
    without_model = (
        isinstance(injector, dict) and injector.get("model") is None and injector.get("strategy") != "higher-order"
    )
    return (
        without_model
        and was_judged(store, directory.resolve().name)
        and directory.resolve().parent.parent == store.root.resolve()
    )


def _attempt_line(rollout: Rollout) -> tuple[str, str]:
    score = "" if rollout.score is None else f", its steps {rollout.score:+.2f}"
    return (
        f"attempt {rollout.attempt + 1}: {_WORDS[rollout.resolved]}, {rollout.seconds:.1f} s{score}: {rollout.reason}",
        _KINDS[rollout.resolved],
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
            "attempts": [r.to_json() for r in rollouts],
            "solved": solved,
            "graded": graded,
            "solve_rate": {"rate": solved / graded, "low": low, "high": high} if graded else None,
            "tokens": sum(r.tokens for r in rollouts),
            "cost_usd": round(sum(r.cost_usd for r in rollouts), 6),
            "unpriced_calls": sum(r.unpriced for r in rollouts),
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
    projects: list[Path] = arguments.source
    for project in projects:
        require_directory(project)
    settings = _play_settings(arguments)
    with _roles(arguments) as roles:
        by_model = is_model(arguments.injector)
        injectors = [] if by_model else load_injectors(arguments.injector)
        given = {name: getattr(arguments, name) for name in _OF_AN_INJECTOR if getattr(arguments, name) is not None}
        model = roles.injector(arguments.injector, **given) if by_model else None
        solver, judge = _solver(arguments, roles), _judge(arguments, roles)
        store = Store(arguments.store or (projects[0] if len(projects) == 1 else Path()) / ".ssr")
        terminal = Terminal(quiet=arguments.json)
        terminal.status("copying the projects and measuring their tests")
        run = SelfPlay(
            projects,
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
        model_written=writes(arguments.solver) or is_model(arguments.injector),
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
        if made.resolved is None:
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

    return Watch(terminal.status, attempt, rollout, episode)


def _require_counts(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(arguments, name) < 1:
            raise SettingsError(f"--{name} must be at least 1, not {getattr(arguments, name)}")


def _roles(arguments: argparse.Namespace) -> Roles:
    """Return what opens the models; raises SettingsError for options that make no sense or would do nothing."""
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
    return Roles(
        limits=RolloutLimits(**{k: v for k, v in limits.items() if v is not None}),
        sampling=Sampling(arguments.temperature, arguments.top_p, arguments.max_tokens),
        budget=Budget(usd=arguments.budget_usd, tokens=arguments.budget_tokens, calls=arguments.budget_calls),
        cache=Store(arguments.cache) if arguments.cache is not None else None,
        url=arguments.url,
        context_tokens=arguments.context,
        vllm_arguments=_words(arguments.vllm_args),
        bundles=read_bundles(arguments.bundles),
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
    if injector and is_model(injector) and arguments.fixed_mixture:
        raise SettingsError(f"--fixed-mixture is for operators, not for {injector}")
    for name in _OF_AN_INJECTOR:
        if injector and not is_model(injector) and getattr(arguments, name) is not None:
            raise SettingsError(f"--{name} is for a model that injects, not for {injector}")


def _require_sense(arguments: argparse.Namespace) -> None:
    """Raise SettingsError, naming the option, for a value that makes no sense."""
    for name in ("tries", "context", "temperature"):
        if not getattr(arguments, name) >= 0:
            raise SettingsError(f"--{name} must be at least 0, not {getattr(arguments, name):g}")
    if not 0 < arguments.top_p <= 1:
        raise SettingsError(f"--top-p lies in (0, 1], not {arguments.top_p:g}")
    if not math.isfinite(arguments.judge_coefficient):
        raise SettingsError(f"--judge-coefficient is a number, not {arguments.judge_coefficient}")
    for name, value in vars(arguments).items():
        if name in _POSITIVE and value is not None and not value > 0:
            raise SettingsError(f"--{name.replace('_', '-')} must be more than 0, not {value:g}")


def _solver(arguments: argparse.Namespace, roles: Roles) -> Solver:
    return roles.solver(arguments.solver, tries=arguments.tries, wall_s=arguments.rollout_limit)


def _judge(arguments: argparse.Namespace, roles: Roles) -> ProcessReward | None:
    if not arguments.judge:
        return None
    if not is_model(arguments.judge):
        raise SettingsError(f"--judge is a model: PROVIDER/MODEL, vllm:PATH; not {arguments.judge!r}")
    return roles.judge(arguments.judge, votes=arguments.judge_votes, coefficient=arguments.judge_coefficient)
