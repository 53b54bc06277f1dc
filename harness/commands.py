"""What each command of `ssr` does: parsed arguments in, printed text or JSON out, an exit code back."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.options import chosen_rule, running
from harness.promises import tried
from harness.terminal import Terminal
from pytest_ssr.artifact import BugArtifact, find_artifacts, read_artifact
from pytest_ssr.baselines import project_baseline
from pytest_ssr.errors import ArtifactError, ProjectError, SettingsError, StoreError
from pytest_ssr.execution.interpreter import Interpreter, find_interpreter
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import grade_patch
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import Patch
from pytest_ssr.sandbox import probe_all, reap
from pytest_ssr.sandbox.folders import discard, new_folder
from pytest_ssr.store import Store, resolve_artifact
from pytest_ssr.validator import Validation
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import Verdicts, trusts

DONE, NO, BROKEN = 0, 1, 3


def validate(arguments: argparse.Namespace) -> int:
    """Judge artifacts; 0 when all are valid, else 1."""
    directories = find_artifacts(arguments.path)
    terminal = Terminal(quiet=arguments.json)
    results: list[dict[str, Any]] = []
    with _bench(arguments, trusted=_trusted(arguments.store or arguments.repo / ".ssr", directories)) as bench:
        for number, directory in enumerate(directories, 1):
            terminal.status(f"{number} of {len(directories)}: {directory}")
            verdict = _verdict(directory, bench)
            results.append(_verdict_json(directory, verdict))
            if verdict.valid:
                terminal.say(f"valid     {directory}  {len(verdict.fail_to_pass)} FAIL_TO_PASS", "valid")
            else:
                failed = verdict.rejection
                why = f"{failed.name}: {failed.reason}" if failed else verdict.fault
                terminal.say(f"invalid   {directory}  {why}", "bad")
    if arguments.json:
        print(json.dumps({"artifacts": results}, indent=1))
    return DONE if all(r["valid"] for r in results) else NO


def _verdict(directory: Path, bench: Workbench) -> Verdict:
    try:
        artifact = read_artifact(directory)
    except ArtifactError as error:
        return Verdict("", bench.snapshot.tree_hash, fault=str(error))
    return Validation(artifact, bench.scoped()).verdict()


def _verdict_json(directory: Path, verdict: Verdict) -> dict[str, Any]:
    data = verdict.to_json()
    return {
        "path": str(directory),
        "id": verdict.artifact_id or None,
        "valid": verdict.valid,
        "reason": verdict.fault or (verdict.rejection.reason if verdict.rejection else ""),
        **{key: data[key] for key in ("checks", "controls", "repeats", "fail_to_pass", "pass_to_pass", "set_aside")},
    }


def list_store(arguments: argparse.Namespace) -> int:
    """List a store's artifacts."""
    store = _existing(arguments.store)
    rows, damaged = [], []
    for artifact_id in store.artifact_ids():
        try:
            rows.append({"id": artifact_id, **_facts(store.artifact(artifact_id))})
        except ArtifactError as error:
            damaged.append({"id": artifact_id, "error": str(error)})
    if arguments.json:
        print(json.dumps({"artifacts": rows, "damaged": damaged}, indent=1))
        return NO if damaged else DONE
    terminal = Terminal()
    for bad in damaged:
        terminal.say(f"{bad['id']}  damaged: {bad['error']}", "bad")
    for row in rows:
        terminal.say(
            f"{row['id']}  {row['strategy']:11} {row['operator']:22} {row['files']} files  "
            f"+{row['lines_added']} -{row['lines_removed']}  F2P {row['fail_to_pass']}  {row['place']}"
        )
    terminal.say(f"{len(rows)} artifacts")
    return NO if damaged else DONE


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
    """Return what an artifact says of itself, or nothing where that is not of the kind it should be."""
    value = info.get(key)
    return value if isinstance(value, kind) else kind()


def show(arguments: argparse.Namespace) -> int:
    """Show one artifact."""
    store = _existing(arguments.store) if arguments.store or Path(".ssr").is_dir() else None
    directory = resolve_artifact(arguments.artifact, store)
    artifact = read_artifact(directory)
    contents = {n: d.decode("utf-8", "replace") for n, d in artifact.contents().items()}
    if arguments.json:
        print(json.dumps({"path": str(directory), **_facts(artifact), "info": artifact.info, "files": contents}))
        return DONE
    terminal = Terminal()
    terminal.say(str(directory), "heading")
    for key, value in _facts(artifact).items():
        terminal.say(f"{key.replace('_', ' '):15} {value}")
    for name in _claim(artifact.info, "FAIL_TO_PASS", list)[:20]:
        terminal.say(f"FAIL_TO_PASS    {name}")
    verdict = None
    with contextlib.suppress(StoreError):
        verdict = Verdict.from_json(_claim(artifact.info, "verdict", dict))
    for result in verdict.results if verdict else ():
        terminal.say(f"{result.name:17} {'passed' if result.passed else 'failed'}  {result.reason}")
    for name in ("bug_inject.diff", "test_weaken.diff"):
        terminal.say("")
        for line in contents[name].splitlines():
            terminal.say(line, "added" if line.startswith("+") else "removed" if line.startswith("-") else "")
    return DONE


def grade(arguments: argparse.Namespace) -> int:
    """Grade a patch; 0 resolved by the rule, 1 not, 3 no grade."""
    rule = chosen_rule(arguments)
    store_path = arguments.store or arguments.repo / ".ssr"
    store = Store(store_path) if store_path.is_dir() else None
    artifact = read_artifact(resolve_artifact(arguments.artifact, store))
    patch = _patch(arguments.patch)
    # Who wrote the patch is not known.
    with _bench(arguments, trusted=False) as bench:
        verdict = _recorded(artifact, store, bench)
        if verdict is None:
            verdict = Validation(artifact, bench).verdict()
            if not verdict.valid:
                failed = verdict.rejection
                raise ArtifactError(f"the artifact is not valid, nothing to grade: {failed and failed.reason}")
        result = grade_patch(
            bench,
            artifact,
            patch,
            fail_to_pass=verdict.fail_to_pass,
            pass_to_pass=verdict.pass_to_pass,
            like_s=verdict.original_s or None,
            refuse_tests=arguments.test_changes == "refuse",
            full=arguments.full,
            baseline=functools.partial(project_baseline, bench, store) if store is not None else None,
        )
    decisive = result.verdict(rule)
    if arguments.json:
        print(json.dumps(result.to_json(), indent=1))
    else:
        terminal = Terminal()
        word = {True: "resolved", False: "unresolved", None: "no grade"}[decisive]
        terminal.say(f"{word}: {result.reason.text}", "valid" if decisive else "bad")
        for flag in result.flags:
            terminal.say(f"flag: {flag.text}", "missed")
    return {True: DONE, False: NO, None: BROKEN}[decisive]


def _recorded(artifact: BugArtifact, store: Store | None, bench: Workbench) -> Verdict | None:
    """Return our own verdict on exactly this artifact and tree; what an artifact claims of itself is not used."""
    verdict = Verdicts(store, bench).get(artifact.content_id(bench.snapshot.tree_hash)) if store else None
    return verdict if verdict is not None and verdict.valid else None


def _patch(path: Path) -> Patch:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from None
    return Patch.parse(data)


def doctor(arguments: argparse.Namespace) -> int:
    """Say what works here; 0 when a sandbox that isolates does, else 1. With a name: 0 when it keeps every promise."""
    if arguments.sandbox is not None:
        return _doctor_of(arguments.sandbox, as_json=arguments.json)
    probes = probe_all()
    interpreter: Interpreter | None = None
    try:
        interpreter = find_interpreter(Path.cwd(), arguments.python)
        python = f"{interpreter.executable} ({interpreter.version}) runs the tests of {Path.cwd()}"
    except ProjectError as error:
        python = str(error)
    left = reap()
    isolates = any(a.works for name, a in probes.items() if name != "process")
    if arguments.json:
        rows = {n: {"works": a.works, "detail": a.detail, "remedy": a.remedy} for n, a in probes.items()}
        path = str(interpreter.executable) if interpreter else None
        print(json.dumps({"sandboxes": rows, "python": path, "python_detail": python, "reaped": left}, indent=1))
        return DONE if isolates else NO
    terminal = Terminal()
    for name, found in probes.items():
        terminal.say(
            f"{name:11} {'works' if found.works else 'does not work'}: {found.detail}",
            "valid" if found.works else "bad",
        )
        if found.remedy:
            terminal.say(f"{'':11} {found.remedy}")
    terminal.say(f"{'python':11} {python}", "valid" if interpreter else "bad")
    if interpreter and interpreter.note:
        terminal.say(f"{'':11} {interpreter.note}")
    if left:
        terminal.say(f"{'cleaned':11} {left} folders that killed runs had left")
    return DONE if isolates else NO


def _doctor_of(name: str, *, as_json: bool) -> int:
    terminal = Terminal(quiet=as_json)
    found = tried(name, progress=lambda done, of: terminal.status(f"{name}: promise {min(done + 1, of)} of {of}"))
    if as_json:
        rows = [{"name": p.name, "says": p.says, "kept": p.kept, "why": p.why} for p in found]
        print(json.dumps({"sandbox": name, "promises": rows}, indent=1))
    for title, contains in (("what it keeps to", False), ("what it contains", True)):
        rows_here = [p for p in found if p.contains is contains]
        terminal.say(f"{name}: {title}: {sum(p.kept for p in rows_here)} of {len(rows_here)}")
        for promise in rows_here:
            terminal.say(f"  {'yes' if promise.kept else 'NO ':3}  {promise.says}", "valid" if promise.kept else "bad")
            if promise.why:
                terminal.say(f"       {promise.why}")
    return DONE if all(p.kept for p in found) else NO


@contextlib.contextmanager
def _bench(arguments: argparse.Namespace, *, trusted: bool) -> Iterator[Workbench]:
    """Open a workbench whose copy of the project lies in the store, or else in a folder that is removed after."""
    with contextlib.ExitStack() as stack:
        if arguments.store is None:
            scratch = new_folder()
            stack.callback(discard, scratch)
            folder = scratch / "store"
        else:
            folder = arguments.store
        yield open_workbench(arguments.repo, Store(folder), **running(arguments), model_written=not trusted)


def _trusted(store_path: Path, directories: Sequence[Path]) -> bool:
    """Tell whether all of these were made and proven in this store, and without a model."""
    if not store_path.is_dir():
        return False
    store = Store(store_path)
    return all(trusts(store, d) for d in directories)


def _existing(path: Path | None) -> Store:
    folder = path or Path(".ssr")
    if not (folder / "artifacts").is_dir():
        raise SettingsError(f"{folder} is no store: it has no folder `artifacts`")
    return Store(folder)
