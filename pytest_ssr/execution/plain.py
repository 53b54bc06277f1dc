"""Run blind tests in a sandbox without pytest in charge, in surroundings that are not those of other runs.

The clocks of Python's `time` module can be put ahead there; those of C code cannot, nor the folder of the tree.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.execution.suite import guest_source, provide_interpreter, run_environment
from pytest_ssr.sandbox.protocol import Limits, Sandbox

AGAIN = "again"
"""What the ids of the second round end with."""


@dataclass(frozen=True, slots=True)
class PlainCase:
    """One test, or one row of its table."""

    node_id: str
    """Its id in pytest."""
    places: Mapping[str, int]
    """The row that each of its parameters is taken from."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process finds around itself."""

    hash_seed: int
    with_pytest: bool
    """Whether pytest is imported before the tests."""
    ahead_s: int
    """Seconds that the clocks are ahead."""
    seed: int
    """Of how many objects are made between the tests, so that others are at other addresses."""


def run_plain(
    sandbox: Sandbox,
    interpreter: Interpreter,
    cases: Sequence[PlainCase],
    surroundings: Surroundings,
    values: str,
    *,
    limits: Limits,
) -> None:
    """Run the cases twice; `values` is the file that the recorder writes to. Raises SandboxError."""
    folder = f"{sandbox.scratch}/{secrets.token_hex(4)}"
    program = f"{folder}/{secrets.token_hex(4)}.py"
    sandbox.write(f"{folder}/ssr_blind_recorder.py", guest_source("blind_recorder"))
    sandbox.write(program, guest_source("plain_runner"))
    sandbox.write(f"{folder}/home/.profile", b"")
    provide_interpreter(sandbox, interpreter)
    env = {
        **run_environment(sandbox, interpreter, hash_seed=surroundings.hash_seed),
        "SSR_VALUES": values,
        "HOME": f"{folder}/home",
        "USER": "guest",
        "LOGNAME": "guest",
        "LANG": "C",
        "TZ": "Asia/Tokyo",
    }
    job = {
        "cases": [[case.node_id, dict(case.places)] for case in cases],
        "pytest": surroundings.with_pytest,
        "ahead_s": surroundings.ahead_s,
        "seed": surroundings.seed,
    }
    sandbox.exec([str(interpreter.executable), program], limits=limits, env=env, stdin=json.dumps(job).encode())
