"""Run `ssr validate`, `list` and `grade`, and show an artifact; each returns an exit code."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.diffs import AppliedDiff, DiffError, apply_diff, require_diff
from harness.executors.slots import measured_slots
from harness.records.job_reports import Stage
from harness.rollouts.runner import validated_verdict
from harness.settings.commands import GradeSettings, ListSettings, ValidateSettings
from pytest_ssr.campaign.ending import Cut
from pytest_ssr.campaign.factory import RunnerSource, open_runner, runner_source
from pytest_ssr.campaign.validation_shard import ValidationShard, validation_json
from pytest_ssr.checks.validator import Validation
from pytest_ssr.errors import ArtifactError, SettingsError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import runner_of_artifact, runner_of_script
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.grading import BaselineSource, Grade, grade_patch, unsolved_state
from pytest_ssr.patch import Patch
from pytest_ssr.progress import counted
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.records.artifact import MAX_FILE_BYTES, BugArtifact, find_artifacts, read_artifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.sandbox.filesystem.workdirs import discard, new_folder
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store, resolve_artifact
from pytest_ssr.storage.verdict_store import is_trusted

_LINE_KINDS = {"+": "added", "-": "removed"}


def validate(settings: ValidateSettings) -> int:
    """Validate artifacts, or a shard of them; return 0 if all are valid, else 1."""
    directories = find_artifacts(settings.path)
    terminal = Terminal(quiet=settings.json)
    results: list[dict[str, Any]] = []
    terminal.stage(Stage.VALIDATE)
    trusted = _trusted(_store_of(settings), directories)
    with _opened_runners(settings, trusted=trusted) as runners, _opened_shard(settings, directories, runners) as shard:
        own = shard.directories if shard is not None else dict(enumerate(directories))
        for number, (index, directory) in enumerate(own.items(), 1):
            terminal.status(f"{number} of {len(own)}: {directory}")
            verdict = _verdict(directory, runners)
            results.append(validation_json(str(directory), verdict))
            if shard is not None:
                shard.keep(index, results[-1])
            name = verdict.artifact_id
            if verdict.valid:
                terminal.echo(
                    f"valid     {directory}  {len(verdict.fail_to_pass)} FAIL_TO_PASS", "valid", artifact=name
                )
            else:
                terminal.echo(f"invalid   {directory}  {verdict.explanation}", "bad", artifact=name)
    if settings.json:
        print(json.dumps({"artifacts": results}, indent=1))
    part = f"shard {settings.shard}: " if settings.shard else ""
    terminal.echo(f"{part}{len(results)} of {counted(len(own), 'planned artifact')} validated")
    return ExitCode.DONE if all(r["valid"] for r in results) else ExitCode.NO


@contextlib.contextmanager
def _opened_shard(
    settings: ValidateSettings, directories: Sequence[Path], runners: RunnerSource
) -> Iterator[ValidationShard | None]:
    """Yield the shard, whose record is kept also if it is interrupted; None if all artifacts are validated."""
    part = settings.part
    if part is None:
        yield None
        return
    runner = runners(runner_of_artifact(directories[0]))
    shard = ValidationShard(Store(_store_of(settings)), part, directories, runner)
    shard.begin()
    try:
        yield shard
    except KeyboardInterrupt:
        shard.end(Cut.INTERRUPT)
        raise
    shard.end(Cut.NOTHING)


def _store_of(settings: ValidateSettings) -> Path:
    return settings.store or settings.repo / ".ssr"


def _verdict(directory: Path, runners: RunnerSource) -> Verdict:
    try:
        artifact = read_artifact(directory)
        test_runner = runner_of_script(artifact.script)
    except ArtifactError as error:
        fault = CheckReason.of(CheckCode.UNREADABLE, error=str(error))
        return Verdict("", runners(PYTEST).snapshot.tree_hash, fault=fault)
    runner = replace(runners(test_runner).scoped(), parallel=measured_slots())
    return Validation(artifact, runner).verdict()


def list_store(settings: ListSettings) -> int:
    """List a store's artifacts; return 1 if some are damaged, else 0."""
    store = _open_existing_store(settings.store)
    rows, damaged = [], []
    for artifact_id in store.artifact_ids():
        try:
            rows.append({"id": artifact_id, **_facts(store.artifact(artifact_id))})
        except ArtifactError as error:
            damaged.append({"id": artifact_id, "error": str(error)})
    if settings.json:
        print(json.dumps({"artifacts": rows, "damaged": damaged}, indent=1))
        return ExitCode.NO if damaged else ExitCode.DONE
    terminal = Terminal()
    for entry in damaged:
        terminal.echo(f"{entry['id']}  damaged: {entry['error']}", "bad")
    for row in rows:
        terminal.echo(
            f"{row['id']}  {row['strategy']:11} {row['operator']:22} {counted(row['files'], 'file')}  "
            f"+{row['lines_added']} -{row['lines_removed']}  F2P {row['fail_to_pass']}  {row['place']}"
        )
    terminal.echo(counted(len(rows), "artifact"))
    return ExitCode.NO if damaged else ExitCode.DONE


def _facts(artifact: BugArtifact) -> dict[str, Any]:
    info = artifact.info
    injector = _claim(info, "injector", dict)
    path = artifact.bug.paths[0] if artifact.bug.paths else "?"
    return {
        "strategy": str(injector.get("strategy", "?")),
        "operator": str(injector.get("operator", "?")),
        "place": f"{injector.get('path', path)}:{injector.get('line', '?')} {injector.get('scope', '')}",
        "fail_to_pass": len(_claim(info, "FAIL_TO_PASS", list)),
        "pass_to_pass": len(_claim(info, "PASS_TO_PASS", list)),
        **artifact.sizes(),
    }


def _claim(info: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    """Return a value from an artifact's own record, or an empty one if it has the wrong type."""
    value = info.get(key)
    return value if isinstance(value, kind) else kind()


def show_artifact(directory: Path, *, as_json: bool) -> int:
    """Show one artifact."""
    artifact = read_artifact(directory)
    contents = {n: d.decode("utf-8", "replace") for n, d in artifact.contents().items()}
    if as_json:
        print(json.dumps({"path": str(directory), **_facts(artifact), "info": artifact.info, "files": contents}))
        return ExitCode.DONE
    terminal = Terminal()
    terminal.echo(str(directory), "heading")
    for key, value in _facts(artifact).items():
        terminal.echo(f"{key.replace('_', ' '):15} {value}")
    for name in _claim(artifact.info, "FAIL_TO_PASS", list)[:20]:
        terminal.echo(f"FAIL_TO_PASS    {name}")
    verdict = None
    with contextlib.suppress(StoreError):
        verdict = Verdict.from_json(_claim(artifact.info, "verdict", dict))
    for result in verdict.results if verdict else ():
        terminal.echo(f"{result.name:17} {'passed' if result.passed else 'failed'}  {result.reason}")
    for name in ("bug_inject.diff", "test_weaken.diff"):
        terminal.echo("")
        for line in contents[name].splitlines():
            terminal.echo(line, _LINE_KINDS.get(line[:1], ""))
    return ExitCode.DONE


def grade(settings: GradeSettings) -> int:
    """Grade a patch; return 0 if the rule resolves it, 1 if not, 3 without a grade."""
    require_directory(settings.repo)
    store = Store(settings.store or settings.repo / ".ssr")
    artifact = read_artifact(resolve_artifact(settings.artifact, store))
    submitted = _submitted(settings.patch)
    terminal = Terminal(quiet=settings.json)
    terminal.status("copying the project")
    options = settings.execution.run_options(by_script=settings.by_script)
    test_runner = runner_of_script(artifact.script)
    # The author of the patch is unknown.
    runner = open_runner(settings.repo, store, **options, test_runner=test_runner, model_written=True)
    runner = replace(runner, parallel=measured_slots())
    verdict = validated_verdict(artifact, runner, store, begin=lambda: terminal.status("validating the artifact first"))
    terminal.status("grading the patch")
    baseline = functools.partial(project_baseline, runner, store)
    result = _grade(submitted, artifact, verdict, runner, settings, baseline)
    decisive = result.verdict(settings.rule)
    if settings.json:
        print(json.dumps(result.to_json(), indent=1))
    else:
        word = {True: "resolved", False: "unresolved", None: "no grade"}[decisive]
        terminal.echo(f"{word}: {result.reason.text}", "valid" if decisive else "bad")
        for flag in result.flags:
            terminal.echo(f"flag: {flag.text}", "missed")
    return {True: ExitCode.DONE, False: ExitCode.NO, None: ExitCode.BROKEN}[decisive]


def _grade(
    submitted: bytes,
    artifact: BugArtifact,
    verdict: Verdict,
    runner: Runner,
    settings: GradeSettings,
    baseline: BaselineSource,
) -> Grade:
    applied = AppliedDiff(Patch())
    try:
        if submitted:
            applied = apply_diff(submitted, unsolved_state(runner, artifact).entry)
    except DiffError as error:
        if error.code is ReasonCode.PATCH_UNREADABLE:
            raise
        name = artifact.content_id(runner.snapshot.tree_hash)
        return Grade(name, False, Reason(error.code, str(error)), tests=False)
    grade = grade_patch(
        runner,
        artifact,
        applied.patch,
        fail_to_pass=verdict.fail_to_pass,
        pass_to_pass=verdict.pass_to_pass,
        like_s=verdict.original_s or None,
        surface=verdict.surface,
        refuse_tests=settings.test_changes == "refuse",
        full=settings.full,
        baseline=baseline,
    )
    return replace(grade, flags=(*applied.flags, *grade.flags))


def _submitted(path: Path) -> bytes:
    """Return a submitted diff, empty if nothing was submitted; raises ArtifactError for what cannot be a diff."""
    try:
        # Not more than it takes to see that the diff is too large.
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from None
    if data.strip():
        require_diff(data)
        return data
    return b""


@contextlib.contextmanager
def _opened_runners(settings: ValidateSettings, *, trusted: bool) -> Iterator[RunnerSource]:
    """Yield what opens a runner; its copy of the project is in the store, or in a temporary folder without one."""
    with contextlib.ExitStack() as stack:
        if settings.store is None and settings.part is None:
            scratch = new_folder()
            stack.callback(discard, scratch)
            folder = scratch / "store"
        else:
            folder = _store_of(settings)
        options = settings.execution.run_options(per_hunk=settings.per_hunk, by_script=settings.by_script)
        yield runner_source(settings.repo, Store(folder), **options, model_written=not trusted)


def _trusted(store_path: Path, directories: Sequence[Path]) -> bool:
    """Return whether all artifacts were created and validated in this store, without a model."""
    if not store_path.is_dir():
        return False
    store = Store(store_path)
    return all(is_trusted(store, d) for d in directories)


def _open_existing_store(path: Path | None) -> Store:
    folder = path or Path(".ssr")
    if not (folder / "artifacts").is_dir():
        raise SettingsError(f"{folder} is not a store: it has no folder `artifacts`")
    return Store(folder)
