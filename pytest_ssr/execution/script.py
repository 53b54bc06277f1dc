"""Run an artifact's own test script, and its parser over the script's output, to get a status for each test id.

Both are untrusted. They run in separate sandboxes: the parser gets the output on its standard input and sees neither
the tree nor anything the script wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.records.decoding import decode, pack, unpack
from pytest_ssr.sandbox.protocol import Limit, Limits, Sandbox

PASSED = "passed"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """What a test script did."""

    output: bytes
    """Standard output and standard error, interleaved."""
    exit_code: int | None
    """The exit status; None if a limit ended it."""
    seconds: float
    """Wall time."""
    fault: str = ""
    """What ended it if it did not end by itself: the limit or the signal."""
    limit: Limit | None = None
    """The limit that ended it."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of parsing an output."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    """Test id to `passed` or `failed`."""
    raw: bytes = b""
    """The parser's standard output."""
    fault: str = ""
    """Why there are no statuses: not JSON, an unknown status, an exit status."""
    limit: Limit | None = None
    """The limit that ended the parser."""


def run_script(
    sandbox: Sandbox, interpreter: Interpreter, script: bytes, *, limits: Limits, hash_seed: int = 0
) -> ScriptOutput:
    """Run the script with bash from the root of the sandbox's tree."""
    path = f"{sandbox.scratch}/ssr-run/test_script.sh"
    sandbox.write(path, script, executable=True)
    provide_interpreter(sandbox, interpreter)
    env = run_environment(sandbox, interpreter, hash_seed=hash_seed)
    done = sandbox.exec(["bash", "-c", 'exec bash "$0" 2>&1', path], limits=limits, env=env)
    fault = ""
    if done.limit is not None:
        fault = f"the {done.limit} limit ended it after {done.seconds:.0f} s"
    elif done.exit_code is not None and done.exit_code < 0:
        fault = f"signal {-done.exit_code} ended it"
    return ScriptOutput(done.stdout, done.exit_code, done.seconds, fault, done.limit)


def run_parser(sandbox: Sandbox, interpreter: Interpreter, parser: bytes, output: bytes, *, limits: Limits) -> Parsed:
    """Run the parser over an output; if the parser fails, the result has a fault, and no exception is raised."""
    path = f"{sandbox.scratch}/ssr-run/parser_of_output.py"
    sandbox.write(path, parser)
    env = run_environment(sandbox, interpreter)
    done = sandbox.exec([str(interpreter.executable), "-I", path], limits=limits, env=env, stdin=output)
    if done.limit is not None:
        return Parsed(fault=f"the {done.limit} limit ended the parser", limit=done.limit)
    if done.exit_code != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Parsed(fault=f"the parser ended with status {done.exit_code}: {' '.join(last)[:200]}")
    return read_parsed(done.stdout)


def read_parsed(raw: bytes) -> Parsed:
    """Parse one JSON object of id to `passed` or `failed`; anything else is a fault."""
    try:
        statuses = json.loads(raw, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        return Parsed(raw=raw, fault=f"the parser's output is not one JSON object: {error}"[:300])
    if not isinstance(statuses, dict):
        return Parsed(raw=raw, fault=f"the parser's output is a {type(statuses).__name__}, not an object")
    for name, status in statuses.items():
        if status not in (PASSED, FAILED):
            return Parsed(raw=raw, fault=f"{name} has the status {status!r}; only passed and failed are known")
    return Parsed(statuses, raw)


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the same test id appears twice")
    return result


@dataclass(frozen=True)
class StatusRun:
    """One run of an artifact's script, parsed by its parser."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    """Test id to `passed` or `failed`."""
    output: bytes = b""
    """What the script printed."""
    parsed: bytes = b""
    """What the parser printed."""
    exit_code: int | None = None
    """The script's exit status."""
    seconds: float = 0.0
    """Wall time of the script."""
    fault: str = ""
    """Why the run proves nothing: a limit, a signal, a parser that failed."""
    limit: Limit | None = None
    """The limit that ended the script or its parser."""

    @cached_property
    def passing(self) -> frozenset[str]:
        """Ids that passed."""
        return frozenset(i for i, s in self.statuses.items() if s == PASSED)

    @property
    def contradiction(self) -> str:
        """Why exit status and parsed results cannot both be true, or an empty string."""
        failed = [i for i, s in self.statuses.items() if s != PASSED]
        if failed and self.exit_code == 0:
            return f"the script ended with status 0 though {failed[0]} failed"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; the outputs are compressed."""
        outputs = [pack(self.output), pack(self.parsed)]
        return {"statuses": self.statuses, "outputs": outputs, "exit_code": self.exit_code, "seconds": self.seconds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read plain data back; raises StoreError for other data."""
        stored = decode(_StoredRun, data)
        output, parsed = (unpack(cls, packed) for packed in stored.outputs)
        return cls(stored.statuses, output, parsed, stored.exit_code, stored.seconds)


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """The fields of a run as `to_json` writes them."""

    statuses: Mapping[str, str]
    outputs: tuple[str, str]
    """What the script and the parser printed, packed."""
    exit_code: int | None
    seconds: float
