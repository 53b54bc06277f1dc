"""Run blind tests in a sandbox without pytest in charge, in an environment that differs from that of other runs.

The clocks of Python's `time` module can be set ahead there; those of C code cannot, and the tree stays in its folder.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.execution.copy_bound import CopyBound
from pytest_ssr.execution.suite import guest_source, provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.sandbox.protocol import ExecResult, Limits, Sandbox

AGAIN = "again"
"""Suffix of the ids in the second round."""


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


def run_plain(
    sandbox: Sandbox,
    interpreter: Interpreter,
    cases: Sequence[PlainCase],
    surroundings: Surroundings,
    values_path: str,
    *,
    limits: Limits,
    bound: CopyBound | None = None,
) -> ExecResult:
    """Run the cases; the recorder writes to the file `values_path`. Raises SandboxError."""
    folder = f"{sandbox.scratch}/{secrets.token_hex(4)}"
    program = f"{folder}/{secrets.token_hex(4)}.py"
    for name in ("blind_values", "blind_recorder", "blind_provenance"):
        sandbox.write(f"{folder}/ssr_{name}.py", guest_source(name))
    sandbox.write(program, guest_source("plain_runner"))
    sandbox.write(f"{folder}/home/.profile", b"")
    provide_interpreter(sandbox, interpreter)
    env = {
        **run_environment(sandbox, interpreter, hash_seed=surroundings.hash_seed),
        "SSR_VALUES": values_path,
        **(bound.environment() if bound is not None else {}),
        "HOME": f"{folder}/home",
        "USER": "guest",
        "LOGNAME": "guest",
        "LANG": "C",
        "TZ": "Asia/Tokyo",
    }
    job = {
        "cases": [[c.node_id, c.path or c.node_id.partition("::")[0], dict(c.rows), c.rounds] for c in cases],
        "pytest": surroundings.with_pytest,
        "ahead_s": surroundings.ahead_s,
        "moved": any(case.path for case in cases),
        "seed": surroundings.seed,
        "between_s": surroundings.between_s,
    }
    return sandbox.exec([str(interpreter.executable), program], limits=limits, env=env, stdin=json.dumps(job).encode())
