"""Run `ssr merge`: join the results of all shards, and report them as one run does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.commands.store import require_store
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.settings.commands import MergeSettings
from pytest_ssr.campaign.acceptances import read_acceptances
from pytest_ssr.campaign.ending import Ending
from pytest_ssr.campaign.findings import findings_with
from pytest_ssr.campaign.github import annotation_lines, append_job_summary, is_github
from pytest_ssr.campaign.merge import (
    Result,
    Shards,
    candidate_results,
    find_shards,
    joined_facts,
    put_injection,
    put_validation,
    remark_line,
    tree_of,
    validation_results,
)
from pytest_ssr.campaign.report import display_path
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.campaign.results_json import results_json
from pytest_ssr.campaign.score import GateCode, gate_line, score_of
from pytest_ssr.campaign.shard_record import ShardKind
from pytest_ssr.campaign.summary import SummaryStyle, summary_lines
from pytest_ssr.errors import StoreError
from pytest_ssr.progress import counted
from pytest_ssr.project.snapshot import Snapshot, read_manifest
from pytest_ssr.records.candidate_result import CandidateResult, Goal
from pytest_ssr.storage.store import Store


def merge(settings: MergeSettings) -> int:
    """Write the joined results; return 1 if the shards are not whole, or the gate or a verdict says no, else 0."""
    for path in settings.stores:
        require_store(path)
    terminal = Terminal(quiet=settings.json)
    shards = find_shards({str(path): Store(path) for path in dict.fromkeys(settings.stores)})
    if not shards.found:
        return _refused(shards, settings, terminal)
    if shards.record.kind is ShardKind.VALIDATE:
        return _merge_validation(settings, shards, terminal)
    return _merge_injection(settings, shards, terminal)


def _merge_injection(settings: MergeSettings, shards: Shards, terminal: Terminal) -> int:
    record = shards.record
    report_files = ReportFiles.open(
        html=settings.html, sarif=settings.sarif, stryker=settings.stryker, junit=settings.junit
    )
    found, facts, tree = candidate_results(shards), joined_facts(shards), tree_of(shards)
    if not shards.is_whole or tree is None:
        return _refused(shards, settings, terminal)
    store = Store(settings.into)
    put_injection(store, shards, found, tree)
    results = [result.value for result in found]
    goal = Goal(record.wanted, record.changes, range(record.planned))
    read = _snapshot(store, facts.tree_hash).read
    gate = settings.fail_under if settings.fail_under is not None else record.fail_under
    accepted = read_acceptances(Path())
    score = score_of(results, read, goal, accepted, is_complete=record.is_all)
    ending = Ending.of(goal, results, is_complete=record.is_all)
    findings = findings_with(store, record.key, results, accepted)
    reports = list(report_files.write(findings))
    if is_github(os.environ):
        append_job_summary(findings, os.environ)
    passed = gate is None or score.gate(gate) is GateCode.PASSED
    if settings.json:
        content = results_json(
            facts,
            goal,
            results,
            score,
            read=read,
            acceptances=accepted,
            ending=ending,
            fail_under=gate,
            seconds=_seconds(results),
            store=store.root,
        )
        content["run"]["remarks"] = _remarks(shards)
        print(json.dumps(content, indent=1))
        return ExitCode.DONE if passed else ExitCode.NO
    _show_remarks(shards, terminal)
    style = SummaryStyle(settings.diffs, "--diffs")
    for kind, line in summary_lines(facts, results, style, read=read, acceptances=accepted):
        terminal.echo(line, kind)
    terminal.echo(score.line, "heading")
    if gate is not None:
        terminal.echo(gate_line(score, gate), "valid" if passed else "bad")
    if not facts.judges_only:
        terminal.echo(f"artifacts: {display_path(store.root / 'artifacts')}")
    for path in reports:
        terminal.echo(f"report: {display_path(path)}")
    if _annotates(settings, shards):
        for line in annotation_lines(findings):
            terminal.echo(line)
    terminal.echo(f"{counted(record.of, 'shard')}: {ending.line}")
    return ExitCode.DONE if passed else ExitCode.NO


def _merge_validation(settings: MergeSettings, shards: Shards, terminal: Terminal) -> int:
    found = validation_results(shards)
    if not shards.is_whole:
        return _refused(shards, settings, terminal)
    put_validation(Store(settings.into), shards, found)
    is_valid = all(result.value.get("valid") is True for result in found)
    if settings.json:
        print(json.dumps({"artifacts": [result.value for result in found], "remarks": _remarks(shards)}, indent=1))
        return ExitCode.DONE if is_valid else ExitCode.NO
    _show_remarks(shards, terminal)
    for result in found:
        terminal.echo(*_validation_line(result))
    terminal.echo(f"{counted(shards.record.of, 'shard')}: {counted(len(found), 'artifact')} validated")
    return ExitCode.DONE if is_valid else ExitCode.NO


def _validation_line(result: Result[dict[str, Any]]) -> tuple[str, str]:
    value = result.value
    if value.get("valid") is True:
        return f"valid     {value.get('path')}  {len(value.get('fail_to_pass', ()))} FAIL_TO_PASS", "valid"
    return f"invalid   {value.get('path')}  {value.get('reason')}", "bad"


def _refused(shards: Shards, settings: MergeSettings, terminal: Terminal) -> int:
    """Show why nothing is joined."""
    if settings.json:
        print(json.dumps({"remarks": _remarks(shards)}, indent=1))
    _show_remarks(shards, terminal)
    terminal.echo("nothing was joined", "bad")
    return ExitCode.NO


def _remarks(shards: Shards) -> list[dict[str, Any]]:
    return [remark.to_json() for remark in shards.remarks]


def _show_remarks(shards: Shards, terminal: Terminal) -> None:
    for remark in shards.remarks:
        terminal.echo(remark_line(remark), "bad" if remark.code.is_problem else "missed")


def _annotates(settings: MergeSettings, shards: Shards) -> bool:
    if settings.annotations == "auto":
        return is_github(os.environ) and "diff" in shards.record.conditions
    return settings.annotations == "on"


def _seconds(results: Sequence[CandidateResult]) -> float:
    """Return how long all changes took together: no clock has seen the whole run."""
    return sum(result.seconds for result in results)


def _snapshot(store: Store, tree_hash: str) -> Snapshot:
    folder: Path = store.trees / tree_hash
    files = read_manifest(folder)
    if files is None:
        raise StoreError(f"{folder} was removed or damaged")
    return Snapshot(folder / "tree", files, tree_hash, folder / "tree")
