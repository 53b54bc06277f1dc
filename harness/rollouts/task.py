"""Prepare the task of a solver from a validated artifact: a fresh tree and the specification, without the answer.

Everything that the solver can read besides its tree is searched for copies of the fix, and copies are hidden. Typical
copies are an installed package that is also developed in the project, and one that a system tool has installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.rollouts import leak_scan
from harness.solvers.protocol import SolverTask
from pytest_ssr.errors import LeakError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_runner import for_artifact
from pytest_ssr.patch import Patch
from pytest_ssr.project.solver_checkout import Leak, find_leaks, write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.sandbox.supervision.rpc_session import SupportsRpcSessions

_CONTEXT_LINES, _MAX_ROUNDS = 2, 5
_MAX_BYTES, _MAX_S = 8 * 1024**2, 120.0
_ARCHIVES_BYTES, _ARCHIVES_S = 512 * 1024**2, 40.0


def open_task(
    runner: Runner, artifact: BugArtifact, folder: Path, *, statement: str = "", reads_machine: bool = True
) -> SolverTask:
    """Write a task into a folder; raises LeakError, with the location, if a solver could read the fix.

    statement: the problem statement, which replaces the specification. reads_machine: whether the solver could read
    anything besides the tree; if not, nothing else is searched for copies of the fix.
    """
    runner = for_artifact(runner, artifact)
    weakened = runner.original.apply(artifact.bug).apply(artifact.weaken)
    task_id = artifact.content_id(runner.snapshot.tree_hash)
    tree = folder / "tree"
    if not tree.exists():
        write_solver_tree(weakened, tree)
    visible = find_leaks(artifact, runner.original, [tree])
    if not visible and reads_machine:
        runner, visible = without_copies(artifact, runner)
    if visible:
        sandbox = (
            "choose a sandbox that hides copies (--sandbox), " if isinstance(runner.provider, ProcessProvider) else ""
        )
        raise LeakError(
            f"a solver could read the fix of {task_id} in {visible[0].path}: {visible[0].text!r}; {sandbox}"
            "install the project with `pip install -e .`, or choose an interpreter without a copy of it (--python)"
        )
    return SolverTask(
        id=task_id,
        folder=tree,
        origin=runner.snapshot.origin,
        specification=Patch.parse(b"") if statement else artifact.weaken.reverse(),
        statement=statement,
        interpreter=runner.interpreter,
        provider=runner.provider,
        settings=runner.settings,
        scratch=folder / "scratch",
        test_runner=runner.test_runner,
    )


def without_copies(artifact: BugArtifact, runner: Runner) -> tuple[Runner, list[Leak]]:
    """Return a runner whose sandboxes hide copies of the fix, and the copies that are still visible."""
    visible = find_copies(artifact, runner)
    for _ in range(_MAX_ROUNDS if not isinstance(runner.provider, ProcessProvider) else 0):
        copies = [leak.path for leak in visible if not leak.is_of_library]
        if not copies:
            break
        hidden = dict.fromkeys((*runner.interpreter.hidden, *copies))
        runner = replace(runner.scoped(), interpreter=replace(runner.interpreter, hidden=tuple(hidden)))
        visible = find_copies(artifact, runner)
    return runner, visible


def find_copies(artifact: BugArtifact, runner: Runner) -> list[Leak]:
    """Return the copies, visible in the sandbox besides the tree, of files that the bug changes.

    A line of a fix, such as `return self._value`, may occur anywhere by chance; it counts only together with its
    neighbours. A copy has the file's name, or is compiled from a file of that name, alone or in an archive; copies
    under other names would have to be made on purpose. `process` shows the whole machine, including the project, so
    only the interpreter's directories are searched there. Raises ProjectError if the search fails.
    """
    passages = list(_passages(artifact, runner.original))
    if not passages:
        return []
    process = isinstance(runner.provider, ProcessProvider)
    with runner.open(runner.original) as sandbox:
        # Some sandboxes show the tree a second time, for warm processes.
        again = [sandbox.lower] if isinstance(sandbox, SupportsRpcSessions) else []
        query = {
            "roots": [str(p) for p in runner.interpreter.readable] if process else ["/"],
            "left_out": [sandbox.root, *again, "/proc", "/sys", "/dev"],
            "files": list(_files(artifact, runner.original)),
            "passages": [w.decode("latin-1") for w in passages],
            "most_bytes": _MAX_BYTES,
            "archives_bytes": _ARCHIVES_BYTES,
            "archives_s": _ARCHIVES_S,
        }
        query_path = f"{sandbox.scratch}/asked.json"
        sandbox.write(query_path, json.dumps(query).encode())
        command = [str(runner.interpreter.executable), "-IS", "-c", Path(leak_scan.__file__).read_text(), query_path]
        done = sandbox.exec(command, limits=Limits(wall_s=_MAX_S), cwd=sandbox.scratch)
    try:
        matches = json.loads(done.stdout)
    except ValueError:
        reason = done.limit or done.stderr.decode(errors="replace").strip()[-200:]
        raise ProjectError(f"searching the sandbox for copies of the fix failed: {reason}") from None
    lines = [w.decode(errors="replace").split("\n") for w in passages]
    texts = [line[min(_CONTEXT_LINES, len(line) - 1)] for line in lines]
    return [
        Leak(path, (f"{member}: " if member else "") + (texts[n] if n >= 0 else "the compiled code"), is_of_library)
        for path, n, member, is_of_library in matches
    ]


def _files(artifact: BugArtifact, original: CodebaseState) -> Iterator[dict[str, str]]:
    """Yield the name and both contents of each file that the bug changes."""
    buggy = original.apply(artifact.bug)
    for path in artifact.bug.paths:
        old, new = (state.entry(path) for state in (original, buggy))
        if old is not None:
            both = {"original": old.data, "buggy": new.data if new is not None else b""}
            yield {"name": Path(path).name, **{kind: data.decode("latin-1") for kind, data in both.items()}}


def _passages(artifact: BugArtifact, original: CodebaseState) -> Iterator[bytes]:
    """Yield each line that the fix restores, with the lines around it."""
    buggy = original.apply(artifact.bug)
    for path in artifact.bug.paths:
        old, new = original.entry(path), buggy.entry(path)
        if old is None:
            continue
        remaining = set(_squeezed(new.data).split(b"\n")) if new is not None else set()
        lines = _squeezed(old.data).split(b"\n")
        for index, line in enumerate(lines):
            if line not in remaining and len(line) > 4:
                yield b"\n".join(lines[max(0, index - _CONTEXT_LINES) : index + _CONTEXT_LINES + 1])


def _squeezed(data: bytes) -> bytes:
    """Return the lines of a file without blank lines and surrounding whitespace."""
    return b"\n".join(filter(None, (line.strip() for line in re.split(rb"\r?\n", data))))
