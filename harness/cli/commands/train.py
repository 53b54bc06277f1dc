"""Run `ssr train search`: train a policy for the solver `search`, and report what it gives."""

from __future__ import annotations

import importlib.util
import json

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.settings.training import TrainSearchSettings
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import MissingExtraError, SettingsError


def train_search(settings: TrainSearchSettings) -> int:
    """Train the policy; return 0."""
    if importlib.util.find_spec("lightgbm") is None:
        raise MissingExtraError("LightGBM", "search")
    from harness.training.search.sources import open_sources
    from harness.training.search.training import TrainingSettings, train

    load_injectors(settings.injector)
    terminal = Terminal(quiet=settings.json)
    held_out = open_sources(settings.held_out)
    folders = {s.folder.resolve() for s in held_out}
    sources = [s for s in open_sources(settings.source) if s.folder.resolve() not in folders]
    if settings.out.exists() and not settings.out.is_dir():
        raise SettingsError(f"--out {settings.out} is not a folder", option="out")
    report = train(
        sources,
        held_out,
        settings.out,
        TrainingSettings(settings.bugs, settings.injector, settings.seed, settings.jobs, settings.share),
        watch=terminal.status,
        finished=lambda name, bugs, covered: terminal.echo(f"{name}: {bugs} bugs, {covered} with a right candidate"),
    )
    if settings.json:
        print(json.dumps({"policy": str(settings.out), **report.to_json()}, indent=1))
        return ExitCode.DONE
    bugs, covered = (sum(counts[i] for counts in report.projects.values()) for i in (0, 1))
    terminal.echo(
        f"{len(report.projects)} projects: {bugs} bugs, {covered} with a right candidate; {report.trees} trees"
    )
    if report.comparison is not None:
        comparison = report.comparison
        terminal.echo(
            f"held out: {len(report.held_out)} projects, {comparison.bugs} bugs, {comparison.covered} with a right "
            "candidate. Share of all whose right candidate is among the first N of their function:",
            "heading",
        )
        for before, after in zip(comparison.patterns, comparison.policy, strict=True):
            low, high = after.by_project
            terminal.echo(
                f"  {before.budget:4d}: {before.rate:.2f} by patterns, {after.rate:.2f} by the policy "
                f"(95 % by project: {low:.2f} to {high:.2f})"
            )
    terminal.echo(f"policy: {settings.out}; use it: --solver search:policy={settings.out}")
    return ExitCode.DONE
