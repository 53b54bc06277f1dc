"""Compile a project once, into a copy of its snapshot that holds bytecode beside the sources.

Without it every run compiles every module of the project and of its tests again. Python checks a compiled file by the
time and size of its source or by a hash of it (PEP 552). All files of a snapshot have the same time, long past, and a
file that a state changes has the time of its writing, so that it is never taken for the original.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import struct
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pytest_ssr.errors import SandboxError, StoreError
from pytest_ssr.execution.suite import run_environment, run_suite
from pytest_ssr.execution.test_runners import PYTEST, TestRunner
from pytest_ssr.interrupts import raise_if_stopped, uninterrupted
from pytest_ssr.patch import FileEntry
from pytest_ssr.progress import Progress
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.shared_files import EPOCH_S, SharedFiles
from pytest_ssr.project.snapshot import Snapshot, set_folder_times
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun
from pytest_ssr.sandbox.protocol import MIB, Limits, Sandbox, SandboxProvider

OTHER_SEED = 1
"""The hash seed of the process that only collects the tests: ids that depend on it differ from those of a first run."""
_WALL_S = 60.0
_MOST_BYTES = 256 * MIB
_NAME = re.compile(r"(?P<stem>.+)\.[a-z]+-\d+(?P<pytest>-pytest-[\w.]+)?\.pyc")
_PACK = """
import os, sys, tarfile
with tarfile.open(sys.argv[1], "w") as archive:
    for folder, folders, names in os.walk("."):
        folders.sort()
        if os.path.basename(folder) == "__pycache__":
            for name in sorted(names):
                archive.add(os.path.join(folder, name)[2:], recursive=False)
"""


def with_bytecode(
    snapshot: Snapshot,
    provider: SandboxProvider,
    interpreter: Interpreter,
    trees: Path,
    progress: Progress | None = None,
    *,
    test_runner: TestRunner = PYTEST,
    targets: Sequence[str] = (),
    kept: Path | None = None,
    collected: Callable[[SuiteRun], None] = lambda run: None,
) -> Snapshot:
    """Return the snapshot with compiled files in its directory, made by collecting its tests once unless they exist.

    targets: the files whose tests are collected; empty: those of the test runner's scope. A project whose tests
    cannot be collected gets none; its baseline will report the reason. kept: a folder that keeps the compiled files if
    the trees are removed, as links to the files that trees share. collected: called with the run that collects.
    """
    targets = targets or test_runner.scope
    final = trees / f"{snapshot.tree_hash}-{interpreter.environment_hash}-{provider.name}"
    if targets:
        digest = hashlib.sha256("\0".join([test_runner.name, *targets]).encode("utf-8", "surrogateescape"))
        final = final.with_name(f"{final.name}-{digest.hexdigest()[:8]}")
    if final.is_dir():
        return replace(snapshot, directory=final)
    kept = kept / final.name if kept is not None else None
    try:
        if kept is not None and kept.is_dir():
            compiled = {p.relative_to(kept).as_posix(): p.read_bytes() for p in kept.rglob("*.pyc")}
        else:
            shown, hidden = interpreter.readable, interpreter.hidden
            with CodebaseState(snapshot).open(provider, readable=shown, hidden=hidden) as sandbox:
                compiled = dict(_compiled(snapshot, sandbox, interpreter, progress, test_runner, targets, collected))
        shared = SharedFiles(trees)
        if kept is not None and not kept.is_dir():
            _fill((), snapshot, compiled, kept, shared)
        _fill(snapshot.files, snapshot, compiled, final, shared)
    except OSError as error:
        raise StoreError(f"cannot write {final}: {error.strerror or error}; nothing was lost") from None
    return replace(snapshot, directory=final)


def _compiled(
    snapshot: Snapshot,
    sandbox: Sandbox,
    interpreter: Interpreter,
    progress: Progress | None,
    test_runner: TestRunner,
    targets: Sequence[str],
    collected: Callable[[SuiteRun], None],
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each compiled file that belongs to an unchanged source of the snapshot."""
    limits = Limits(wall_s=_WALL_S)
    packed = f"{sandbox.scratch}/bytecode.tar"
    try:
        run = run_suite(
            sandbox,
            interpreter,
            targets=targets,
            limits=limits,
            hash_seed=OTHER_SEED,
            collect_only=True,
            write_bytecode=True,
            progress=progress,
            test_runner=test_runner,
        )
        collected(run)
        env = run_environment(sandbox, interpreter)
        sandbox.exec([str(interpreter.executable), "-I", "-c", _PACK, packed], limits=limits, env=env)
        raw = sandbox.read(packed, max_bytes=_MOST_BYTES)
    except (FileNotFoundError, SandboxError):
        return
    # What pytest compiles contains the file names of the tests, which must be right in other sandboxes, too.
    at_home = sandbox.root == str(snapshot.origin)
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                name = _NAME.fullmatch(PurePosixPath(member.name).name)
                if not member.isreg() or name is None or (name["pytest"] and not at_home):
                    continue
                source = str(PurePosixPath(member.name).parent.parent / f"{name['stem']}.py")
                file = archive.extractfile(member)
                data = file.read() if file is not None else b""
                if source in snapshot.files and _belongs(data, snapshot, source):
                    yield str(PurePosixPath(source).parent / "__pycache__" / name[0]), data
    except tarfile.TarError:
        return


def _belongs(data: bytes, snapshot: Snapshot, source: str) -> bool:
    """Return whether the header (PEP 552) has the source's time and size, or requires a check of its hash."""
    path = snapshot.directory / source
    if len(data) < 16 or path.is_symlink():
        return False
    flags, seconds, size = struct.unpack("<III", data[4:16])
    return flags == 0b11 or (flags == 0 and (seconds, size) == (EPOCH_S, path.stat().st_size & 0xFFFFFFFF))


@uninterrupted()
def _fill(
    paths: Collection[str], snapshot: Snapshot, compiled: Mapping[str, bytes], final: Path, shared: SharedFiles
) -> None:
    """Write a folder of the snapshot's files at these paths and of compiled ones."""
    final.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".tmp-", dir=final.parent))
    tree = staging / "tree"
    try:
        tree.mkdir()
        for folder in {os.path.dirname(path) for path in paths}:
            os.makedirs(tree / folder, exist_ok=True)
        for path in paths:
            raise_if_stopped()
            _link(f"{snapshot.directory}/{path}", f"{tree}/{path}")
        for path, data in compiled.items():
            shared.place(path, FileEntry(data, 0o100644), tree / path)
        set_folder_times(tree)
        try:
            tree.rename(final)
        except OSError:
            # Another process has made it in the meantime.
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
