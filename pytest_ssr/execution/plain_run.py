"""Run blind tests in a sandbox without pytest in charge, in an environment that differs from that of other runs.

The clocks of Python's `time` module can be set ahead there; those of C code cannot, and the tree stays in its folder.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.errors import SandboxError, SsrError
from pytest_ssr.execution.copy_bound import CopyBound
from pytest_ssr.execution.suite import guest_source, provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits, Sandbox, Streaming
from pytest_ssr.sandbox.supervision.output_listener import listening

AGAIN = "again"
"""Suffix of the ids in the second round."""
_MOST_VALUES = 6 * MIB


@dataclass(frozen=True, slots=True)
class PlainCase:
    """One test, or one row of its parameters."""

    node_id: str
    """Its id in pytest."""
    rows: Mapping[str, int]
    """Parameter to the index of the row that its value comes from."""
    path: str = ""
    """The file that holds it, if that is not the one of its id."""
    rounds: int = 2
    """1 or 2."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a process."""

    hash_seed: int
    with_pytest: bool
    """Whether pytest is imported before the tests."""
    ahead_s: int
    """Seconds by which the clocks are ahead."""
    seed: int
    """Seed for how many objects are created between the tests, so that others get other addresses."""
    between_s: float = 0.0
    """CPU seconds for which the cases of two rounds are repeated between these, without being written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point of a run at which the host decides whether the other cases are run as well."""

    after: int
    """How many cases have been run by then, once each."""
    goes_on: Callable[[list[str]], bool]
    """Takes the lines written so far. The run does not wait for the result."""


class _EndedError(SsrError):
    """The host has ended a run at its checkpoint."""


def run_plain(
    sandbox: Sandbox,
    interpreter: Interpreter,
    cases: Sequence[PlainCase],
    surroundings: Surroundings,
    *,
    limits: Limits,
    bound: CopyBound | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[str], Limit | None]:
    """Run the cases; return the lines that the recorder writes, and the limit reached.

    If the sandbox does not stream, the cases before the checkpoint are run alone first. Raises SandboxError.
    """
    folder, path = (f"{sandbox.scratch}/{secrets.token_hex(4)}" for _ in range(2))
    program = f"{folder}/{secrets.token_hex(4)}.py"
    for name in ("blind_values", "blind_recorder", "blind_provenance"):
        sandbox.write(f"{folder}/ssr_{name}.py", guest_source(name))
    sandbox.write(program, guest_source("plain_runner"))
    sandbox.write(f"{folder}/home/.profile", b"")
    provide_interpreter(sandbox, interpreter)
    env = {
        **run_environment(sandbox, interpreter, hash_seed=surroundings.hash_seed),
        "SSR_VALUES": path,
        **(bound.environment() if bound is not None else {}),
        "HOME": f"{folder}/home",
        "USER": "guest",
        "LOGNAME": "guest",
        "LANG": "C",
        "TZ": "Asia/Tokyo",
    }
    mark = secrets.token_hex(16)
    job = {
        "pytest": surroundings.with_pytest,
        "ahead_s": surroundings.ahead_s,
        "moved": any(case.path for case in cases),
        "seed": surroundings.seed,
        "between_s": surroundings.between_s,
        "checkpoint": [checkpoint.after, mark] if checkpoint is not None else None,
    }

    def run(cases: Sequence[PlainCase]) -> ExecResult:
        sandbox.write(path, b"")
        rows = [[c.node_id, c.path or c.node_id.partition("::")[0], dict(c.rows), c.rounds] for c in cases]
        stdin = json.dumps({**job, "cases": rows}).encode()
        return sandbox.exec([str(interpreter.executable), program], limits=limits, env=env, stdin=stdin)

    def decide() -> None:
        lines = read_lines(sandbox, path)
        # What cannot be read now is judged at the end.
        if checkpoint is not None and lines is not None and not checkpoint.goes_on(lines):
            raise _EndedError("the run has ended at its checkpoint")

    try:
        if checkpoint is None or isinstance(sandbox, Streaming):
            with listening(_on_mark(mark.encode(), decide)):
                result = run(cases)
        else:
            result = run(cases[: checkpoint.after])
            if result.limit is None:
                decide()
                result = run(cases)
    except _EndedError:
        return read_lines(sandbox, path) or [], None
    return read_lines(sandbox, path) or [], result.limit


def _on_mark(mark: bytes, call: Callable[[], None]) -> Callable[[bytes], None]:
    """Return a listener that calls a function once, as soon as a mark has been written."""
    tail, is_found = b"", False

    def on_output(data: bytes) -> None:
        nonlocal tail, is_found
        if is_found:
            # Code that has found the mark may write it as often as it likes.
            return
        tail += data
        is_found = mark in tail
        tail = tail[-len(mark) :]
        if is_found:
            call()

    return on_output


def read_lines(sandbox: Sandbox, path: str) -> list[str] | None:
    """Return the lines of a file that tests can write to; None if there are more than the recorder can have written.

    The recorder stops at half of the number of bytes that are read.
    """
    try:
        return sandbox.read(path, max_bytes=_MOST_VALUES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        # The tests may have deleted it; then they have written nothing.
        return []
    except SandboxError:
        return None
