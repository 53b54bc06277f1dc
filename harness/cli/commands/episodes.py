"""List the episodes of a store, and sum them up: `ssr episodes`, `ssr stats`."""

from __future__ import annotations

import json
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.database.sharing import fetch_all
from harness.records.episode import Episode
from harness.selfplay.report import lines, tables
from harness.selfplay.round_store import stored_episodes
from harness.settings.results import EpisodesSettings, StatsSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import STORE_MARK
from pytest_ssr.progress import counted


def episodes(settings: EpisodesSettings) -> int:
    """List the episodes of the finished rounds, the last ones with --last; return 1 if there are none."""
    found = _read(settings.store, settings.run)
    found = found[-settings.last :] if settings.last else found
    if settings.json:
        rows = [{"run": run, **episode.to_json()} for run, episode in found]
        print(json.dumps({"episodes": rows}, indent=1))
    terminal = Terminal(quiet=settings.json)
    for run, episode in found:
        terminal.echo(_line(run, episode), "valid" if episode.valid else "bad")
    terminal.echo(counted(len(found), "episode"), "heading")
    return ExitCode.DONE if found else ExitCode.NO


def stats(settings: StatsSettings) -> int:
    """Sum up the episodes by strategy, operator, size, round and project; return 1 if there are none."""
    found = [episode for _, episode in _read(settings.store, settings.run)]
    summary = tables(found, alpha=settings.alpha, kind=settings.reward)
    if settings.json:
        print(json.dumps({"episodes": len(found), "tables": summary}, indent=1))
    terminal = Terminal(quiet=settings.json)
    if not found:
        terminal.echo("there are no episodes yet: ssr play makes them", "missed")
        return ExitCode.NO
    attempts = max(len(episode.rollouts) for episode in found) or 1
    for kind, line in lines(summary, found, attempts=attempts, alpha=settings.alpha, kind=settings.reward):
        terminal.echo(line, kind)
    return ExitCode.DONE


def _read(path: Path, run: str) -> list[tuple[str, Episode]]:
    root = next((folder for folder in (path, path / ".ssr") if (folder / STORE_MARK).is_file()), None)
    if root is None:
        raise SettingsError(f"{path} is neither a store nor a project with one; ssr play makes .ssr in the project")
    fetch_all(root)
    found = [(name, episode) for name, episode in stored_episodes(root) if name.startswith(run)]
    runs = {name for name, _ in found}
    if run and len(runs) != 1:
        problem = "no run of this store begins" if not runs else f"{len(runs)} runs begin"
        raise SettingsError(f"{problem} with {run!r}", option="run")
    return found


def _line(run: str, episode: Episode) -> str:
    solved = sum(bool(rollout.verdict) for rollout in episode.rollouts)
    graded = sum(rollout.verdict is not None for rollout in episode.rollouts)
    reward = episode.reward()
    result = f"resolved {solved} of {graded}" if episode.valid else f"rejected by {episode.rejected_by}"
    parts = [
        run[:8],
        f"round {episode.round}",
        episode.project,
        episode.artifact_id or "no artifact",
        f"{episode.strategy} {episode.operator}",
        f"{episode.path} {episode.scope}".strip(),
        result,
        *([] if reward is None else [f"injector {reward:+.2f}"]),
    ]
    return "  ".join(parts)
