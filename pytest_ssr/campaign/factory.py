"""Open a campaign or a runner from user settings: look up names, copy the project, choose the sandbox."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ssr.campaign.acceptances import read_acceptances
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.findings import record_start
from pytest_ssr.checks import NamedCheck
from pytest_ssr.errors import SettingsError
from pytest_ssr.execution.bytecode import with_bytecode
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.identities import put_collected
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PYTEST, PytestRunner, TestRunner
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.injectors.revision_filter import ProjectDiff, read_diff
from pytest_ssr.options import PluginSettings
from pytest_ssr.progress import Progress
from pytest_ssr.project.interpreter import find_in_image, find_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.protocol import SandboxProvider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, code_hash, key_of
from pytest_ssr.storage.stored_records import StoredRecords

RunnerSource = Callable[[TestRunner], Runner]
"""Returns a project's runner that starts the tests in this way."""
INJECTORS = {
    "mutation": "pytest_ssr.injectors.mutation:MutationInjector",
    "removal": "pytest_ssr.injectors.removal:RemovalInjector",
    "history": "pytest_ssr.injectors.history:HistoryInjector",
    "combination": "pytest_ssr.injectors.combination:CombinationInjector",
    "mutmut": "pytest_ssr.injectors.mutmut_table:MutmutInjector",
}


def load_injectors(names: str, extra: Mapping[str, Injector] | None = None) -> list[Injector]:
    """Return the injectors of a comma-separated list; raises SettingsError for an unknown name."""
    offered = extra or {}
    chosen: list[Injector] = []
    for name in dict.fromkeys(n.strip() for n in names.split(",")):
        if name in offered:
            chosen.append(offered[name])
        elif name in INJECTORS:
            module, _, attribute = INJECTORS[name].partition(":")
            chosen.append(getattr(importlib.import_module(module), attribute)())
        else:
            names_offered = ", ".join(sorted({*INJECTORS, *offered}))
            raise SettingsError(f"there is no injector {name!r}; choose among {names_offered}")
    return chosen


def open_runner(
    project: Path,
    store: Store,
    *,
    settings: RuleSettings,
    sandbox: str = "auto",
    python: Path | None = None,
    extra_sandboxes: Mapping[str, SandboxProvider] | None = None,
    compiled: bool = True,
    test_runner: TestRunner = PYTEST,
    targets: Sequence[str] = (),
    model_written: bool = False,
    shown_at: Path | None = None,
    trees: Path | None = None,
    progress: Progress | None = None,
    tree_hash: str = "",
) -> Runner:
    """Copy the project, find its interpreter and a working sandbox; raises SsrError if one of these fails.

    compiled: collect the tests once, so that no run has to compile the project again. test_runner: starts the tests.
    targets: the test files that will run; empty: all of the project. model_written: the code to run
    was written by a model or by others, so `auto` does not choose a sandbox without isolation. shown_at: the path at
    which sandboxes show the tree; None: the project's own. trees: the folder of the copies; None: the store's.
    progress: called while the tests are collected. tree_hash: as for `take_snapshot`.
    """
    provider = choose(sandbox, model_written=model_written, extra=extra_sandboxes or {})
    trees = trees or store.trees
    reads_logs = isinstance(test_runner, CommandRunner) or settings.by_script
    snapshot = take_snapshot(project, trees, needs_python=not reads_logs, tree_hash=tree_hash)
    if shown_at is not None:
        snapshot = replace(snapshot, origin=shown_at)
    needs_pytest = isinstance(test_runner, PytestRunner) and not settings.by_script
    interpreter = find_in_image(provider, project, python, needs_pytest=needs_pytest) or find_interpreter(
        project.resolve(), python, needs_pytest=needs_pytest
    )
    runs: list[SuiteRun] = []
    if compiled and not reads_logs:
        snapshot = with_bytecode(
            snapshot,
            provider,
            interpreter,
            trees,
            progress,
            test_runner=test_runner,
            targets=targets,
            kept=store.root / "bytecode" if trees != store.trees else None,
            collected=runs.append,
        )
    folder = key_of(
        code_hash(),
        snapshot.tree_hash,
        interpreter.environment_hash,
        provider.name,
        settings.time_limit_s,
        test_runner,
    )
    references = StoredRecords(store, f"blind/{folder}")
    for run in runs:
        put_collected(references, targets, run)
    return Runner(snapshot, provider, interpreter, settings, test_runner=test_runner, reference_store=references)


def runner_source(project: Path, store: Store, **options: Any) -> RunnerSource:
    """Return a function from a test runner to the project's runner with it, which is opened on its first use.

    options: other keyword arguments of `open_runner`.
    """
    opened: dict[TestRunner, Runner] = {}

    def runner_for(test_runner: TestRunner) -> Runner:
        if test_runner not in opened:
            opened[test_runner] = open_runner(project, store, **options, test_runner=test_runner)
        return opened[test_runner]

    return runner_for


def open_campaign(
    project: Path,
    store: Store,
    *,
    settings: RuleSettings,
    injectors: str = PluginSettings.injector,
    seed: int = 0,
    sandbox: str = "auto",
    python: Path | None = None,
    sources: Sequence[str] = (),
    tests: Sequence[str] = (),
    extra_injectors: Mapping[str, Injector] | None = None,
    extra_sandboxes: Mapping[str, SandboxProvider] | None = None,
    extra_checks: Sequence[NamedCheck] = (),
    model_written: bool = False,
    judges_only: bool = False,
    jobs: int = 1,
    revision: str | None = None,
    progress: Progress | None = None,
    test_runner: TestRunner = PYTEST,
    tree_hash: str = "",
    is_reported: bool = True,
    diff: ProjectDiff | None = None,
) -> Campaign:
    """Open a campaign, measuring the baseline unless the store has it.

    jobs: how many candidates are tried at a time, in this and in other processes. revision: inject only into functions
    that have changed since this git revision; see `read_diff` for the errors. progress: called while the baseline is
    measured. test_runner: starts the tests. model_written, tree_hash: as for `open_runner`. judges_only: as
    for `Campaign`. is_reported: whether it is the last run of the store, which reports show. diff: what has changed,
    if that is known already; takes the place of `revision`.
    """
    chosen = load_injectors(injectors, extra_injectors)
    acceptances = read_acceptances(project)
    if diff is None and revision:
        diff = read_diff(take_snapshot(project, store.trees, tree_hash=tree_hash), revision)
    runner = open_runner(
        project,
        store,
        settings=settings,
        sandbox=sandbox,
        python=python,
        extra_sandboxes=extra_sandboxes,
        progress=progress,
        test_runner=test_runner,
        model_written=model_written,
        tree_hash=tree_hash,
    )
    campaign = Campaign(
        runner,
        store,
        chosen,
        seed=seed,
        sources=sources,
        tests=tests,
        extra_checks=extra_checks,
        helpers=max(1, (os.cpu_count() or 1) // jobs),
        diff=diff,
        judges_only=judges_only,
        progress=progress,
        acceptances=acceptances.checked(runner.snapshot),
    )
    if is_reported:
        record_start(campaign)
    return campaign
