"""Grade patches on tasks of Harbor by their own verifiers, after the reference solution has shown that these work.

A patch is the work on the first step of a task. The work on several steps is several diffs, each of which begins with a
line `From HASH ...`, as `git format-patch --stdout` writes them: one for each step, in order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.datasets.instance import EmptyResolvesError, Instance, InstanceError, ReferenceFailsError
from harness.diffs import apply_diff
from harness.harbor.containers import Engine, temporary_folder
from harness.harbor.task import TaskError
from harness.harbor.trial import Changes, Fault, Trial, TrialResult
from harness.storage.code_version import code_hash
from pytest_ssr.errors import ArtifactError, ProjectError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import Patch
from pytest_ssr.project.interpreter import find_in_image
from pytest_ssr.project.snapshot import Snapshot, take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode
from pytest_ssr.records.test_run import abbreviate
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, key_of

RECORDS = "harbor"
_SERIES = re.compile(r"^From [0-9a-f]{40,64} .*$", re.MULTILINE)
_SEPARATOR = "From {:040d} Mon Sep 17 00:00:00 2001\n"
"""The line between the diffs of two steps; git writes this date, which stands for none."""
_SHOWN = 300
"""Characters of a verifier's output in an error."""
_FAULTS = {
    Fault.NO_REWARD: ReasonCode.RUN_FAILED,
    Fault.INVALID_REWARD: ReasonCode.RUN_FAILED,
    Fault.SETUP_FAILED: ReasonCode.RUN_FAILED,
    Fault.TOO_LARGE: ReasonCode.RUN_FAILED,
    Fault.TIMED_OUT: ReasonCode.TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class HarborGrade:
    """The grade of a patch by a task's verifier."""

    resolved: bool
    """Whether the whole reward was earned, which is 1."""
    reason: Reason
    rewards: Mapping[str, float]
    flags: tuple[Flag, ...]
    log: str


@dataclass(frozen=True, slots=True)
class Forged:
    """What became of a script that ran as the agent of a task."""

    accepted: bool | None
    """Whether the verifier gave the whole reward, in the container in which the script ran, as in Harbor.

    None if a limit of the caller ended the verifier.
    """
    patch: str
    """What the script changed in the working directory; `OpenTask.grade` takes it."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the reference solution of a task has shown; stored, so that it is run once."""

    start: str
    """The hash of the tree at the beginning."""
    solved: str
    """The hash of the tree after the reference solution; empty without one."""
    shows_tests: bool
    """Whether the agent's image holds files in /tests."""
    text: str
    """The reference solution as a patch, or a series of one for each step; empty without one."""


@dataclass(slots=True)
class OpenTask:
    """A task, ready to grade and to be solved."""

    instance: Instance
    trial: Trial
    workdir: str
    first: CodebaseState
    """The tree at the beginning."""
    reference: str
    """The reference solution as a patch, or a series of one for each step; empty without one."""
    original: CodebaseState
    """The solved tree, or the one at the beginning of a task without a reference solution, as a snapshot alone."""
    flags: tuple[Flag, ...]
    """What is notable about its grades."""
    store: Store

    def grade(self, text: str) -> HarborGrade:
        """Grade a patch or a series; raises DiffError for one that cannot be read or does not apply."""
        work: list[Changes] = []
        flags = list(self.flags)
        for index, part in enumerate(parts_of(text, len(self.trial.task.steps))):
            changes, found = self.work(index, work, part)
            work.append(changes)
            flags += found
        result = self.trial.grade(work)
        return HarborGrade(_is_resolved(result), _reason(result), result.rewards, tuple(flags), result.log)

    def forge(self, script: str, *, script_s: float, verifier_s: float) -> Forged:
        """Run a script as the agent of the last step, after the reference solution of the others.

        script_s: its time. verifier_s: that of the verifier, if the task gives it more. Raises SandboxError.
        """
        last = len(self.trial.task.steps) - 1
        parts = parts_of(self.reference, last + 1)
        work: list[Changes] = []
        for index, part in enumerate(parts[:-1]):
            work.append(self.work(index, work, part)[0])
        before = self.start(last, work)
        with temporary_folder() as temporary:
            folder = temporary / "tree"
            result = self.trial.within(verifier_s).forge(work, script, folder, seconds=script_s)
            snapshot = take_snapshot(_existing(folder), temporary / "trees", needs_python=False)
            diff = _state_of(snapshot, before.snapshot).patch_from(before).data.decode("utf-8", "surrogateescape")
        is_cut = result.fault is Fault.TIMED_OUT and verifier_s < self.trial.task.steps[last].verification.timeout_s
        accepted = None if is_cut else _is_resolved(TrialResult(result.rewards, (result,)))
        return Forged(accepted, "" if not diff else diff if last == 0 else series([*parts[:-1], diff]))

    def work(self, index: int, earlier: Sequence[Changes], diff: str) -> tuple[Changes, Sequence[Flag]]:
        """Return the files that a diff changes at the beginning of a step, and what is notable about the diff.

        Raises DiffError if it does not apply.
        """
        if not diff.strip():
            return {}, ()
        start = self.start(index, earlier)
        applied = apply_diff(diff.encode("utf-8", "surrogateescape"), start.entry)
        return _changes(start, start.apply(applied.patch)), applied.flags

    def start(self, index: int, work: Sequence[Changes]) -> CodebaseState:
        """Return the tree at the beginning of a step, after this work on the earlier ones."""
        if index == 0:
            return self.first
        return _state_of(_written_tree(self.trial, index, work, self.store), self.first.snapshot)

    def runner(self, settings: RuleSettings) -> Runner:
        """Return a runner on the solved tree in the agent's image; raises InstanceError without a Python in it."""
        provider = DockerProvider(self.trial.engine.image(self.trial.task.place))
        snapshot = self.original.snapshot
        try:
            interpreter = find_in_image(provider, snapshot.directory, None, needs_pytest=False)
        except ProjectError as error:
            raise InstanceError(f"{self.instance.id}: solvers need a Python in the image: {error}") from None
        assert interpreter is not None
        own = replace(snapshot, origin=Path(self.workdir))
        return Runner(own, provider, interpreter, replace(settings, by_script=True))

    @property
    def artifact(self) -> BugArtifact:
        """The task as a bug: what turns the solved tree into the one at the beginning."""
        start = _state_of(self.first.snapshot, self.original.snapshot)
        try:
            bug = start.patch_from(self.original)
        except ArtifactError:
            bug = Patch()
        return BugArtifact(script=b"", test_files=(), parser=b"", bug=bug, weaken=Patch())


def stored_reference(instance: Instance, store: Store) -> str | None:
    """Return the reference solution of a task that was opened before; None if the store does not have it."""
    try:
        return decode(_Reference, store.record(RECORDS, _key(instance))).text
    except StoreError:
        return None


def _key(instance: Instance) -> str:
    """Return the name of what a reference has shown: another release verifies it again."""
    return key_of(code_hash(), instance.key)


def series(diffs: Sequence[str]) -> str:
    """Return the diffs of several steps as one text, which `parts_of` reads."""
    return "".join(_SEPARATOR.format(number) + diff for number, diff in enumerate(diffs, 1))


def open_harbor_task(instance: Instance, engine: Engine, store: Store) -> OpenTask:
    """Open a task, and verify once that its reference solution is resolved and that nothing at all is not.

    Raises InstanceError if the task does not hold on this machine, SandboxError if a container fails.
    """
    task = instance.harbor
    assert task is not None
    trial = Trial(engine, task)
    try:
        workdir = trial.workdir
        if workdir.strip("/") == "":
            raise InstanceError(
                f"{instance.id}: its image has no working directory; set WORKDIR or [environment] workdir"
            )
        with store.alone(f"instance-{instance.key}"):
            reference = _reference(instance, trial, store)
    except TaskError as error:
        raise InstanceError(f"{instance.id}: {error}") from None
    first = CodebaseState(_stored(reference.start, workdir, store))
    original = CodebaseState(_stored(reference.solved, workdir, store)) if reference.solved else first
    flags = []
    if not reference.solved:
        flags.append(Flag(FlagCode.NO_REFERENCE))
    if reference.shows_tests:
        flags.append(Flag(FlagCode.TESTS_SHOWN))
    return OpenTask(instance, trial, workdir, first, reference.text, original, tuple(flags), store)


def _reference(instance: Instance, trial: Trial, store: Store) -> _Reference:
    """Return what the reference solution shows, from the store if its trees are still there."""
    data = store.record(RECORDS, _key(instance))
    if data is not None:
        try:
            known = decode(_Reference, data)
            for name in filter(None, (known.start, known.solved)):
                _stored(name, trial.workdir, store)
            return known
        except StoreError:
            pass
    known = _run_reference(instance, trial, store)
    store.put_record(
        RECORDS,
        _key(instance),
        asdict(known),
    )
    return known


def _run_reference(instance: Instance, trial: Trial, store: Store) -> _Reference:
    begin = _written_tree(trial, 0, (), store)
    reference = _Reference(begin.tree_hash, "", trial.shows_tests(), "")
    if trial.task.has_solution:
        reference = _solved(instance, trial, begin, reference, store)
    if _is_resolved(trial.grade([])):
        raise EmptyResolvesError(f"{instance.id}: its verifier gives the whole reward for nothing at all", ())
    return reference


def _solved(instance: Instance, trial: Trial, begin: Snapshot, known: _Reference, store: Store) -> _Reference:
    """Return what a task is known to show with its reference solution, once its verifier accepts that."""
    work, diffs, elsewhere = list[Changes](), list[str](), list[str]()
    for index in range(len(trial.task.steps)):
        start = _written_tree(trial, index, work, store) if index else begin
        with temporary_folder() as temporary:
            folder = temporary / "tree"
            elsewhere += trial.solve(index, work, folder)
            solved = take_snapshot(_existing(folder), store.trees, needs_python=False)
        before, after = CodebaseState(start), _state_of(solved, start)
        work.append(_changes(before, after))
        diffs.append(after.patch_from(before).data.decode("utf-8", "surrogateescape"))
    result = trial.grade(work)
    if not _is_resolved(result):
        hint = f"; it changes what is no part of the work: {abbreviate(elsewhere)}" if elsewhere else ""
        shown = " ".join(result.log.split())[-_SHOWN:]
        printed = f"; the verifier printed: ... {shown}" if shown else ""
        message = f"its reference solution is not resolved: {_reason(result).text}{hint}{printed}"
        if result.fault is not None:
            # The machine may be the cause.
            raise InstanceError(f"{instance.id}: {message}")
        raise ReferenceFailsError(f"{instance.id}: {message}", ())
    return replace(known, solved=solved.tree_hash, text=diffs[0] if len(diffs) == 1 else series(diffs))


def _written_tree(trial: Trial, index: int, work: Sequence[Changes], store: Store) -> Snapshot:
    with temporary_folder() as temporary:
        folder = temporary / "tree"
        trial.write_tree(index, work, folder)
        return take_snapshot(_existing(folder), store.trees, needs_python=False)


def _existing(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stored(tree_hash: str, workdir: str, store: Store) -> Snapshot:
    return take_snapshot(Path(workdir), store.trees, needs_python=False, tree_hash=tree_hash)


def _state_of(snapshot: Snapshot, base: Snapshot) -> CodebaseState:
    """Return the state of one snapshot as changes of another."""
    changed = {p for p, stamp in snapshot.files.items() if base.files.get(p) != stamp}
    gone = base.files.keys() - snapshot.files.keys()
    return CodebaseState(base).replace({**{p: snapshot.entry(p) for p in changed}, **dict.fromkeys(gone)})


def _changes(before: CodebaseState, after: CodebaseState) -> Changes:
    paths = {*before.changes, *after.changes}
    return {path: after.entry(path) for path in sorted(paths) if after.entry(path) != before.entry(path)}


def parts_of(text: str, count: int) -> list[str]:
    """Return the diff of each step; a text without lines `From HASH ...` is the first. Surplus diffs join the last."""
    marks = list(_SERIES.finditer(text)) if count > 1 else []
    if not marks:
        return [text, *[""] * (count - 1)]
    ends = [*[mark.start() for mark in marks[1:]], len(text)]
    parts = [text[mark.end() : end].lstrip("\n") for mark, end in zip(marks, ends, strict=True)]
    parts[count - 1 :] = ["".join(parts[count - 1 :])]
    return [*parts, *[""] * (count - len(parts))]


def _is_resolved(result: TrialResult) -> bool:
    return result.fault is None and result.reward is not None and result.reward >= 1


def _reason(result: TrialResult) -> Reason:
    if _is_resolved(result):
        return Reason(ReasonCode.RESOLVED)
    if result.fault is not None:
        assert result.fault.fault is not None
        return Reason(_FAULTS[result.fault.fault], result.fault.detail)
    if result.reward is None:
        return Reason(
            ReasonCode.RUN_FAILED, f"none of its rewards is called reward: {abbreviate(sorted(result.rewards))}"
        )
    return Reason(ReasonCode.TESTS_FAIL, f"the verifier gave {result.reward:g}")
