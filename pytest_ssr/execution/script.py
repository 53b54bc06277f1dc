"""Run an artifact's own test script, and its parser over the script's output, to get a status for each test id.

Both are untrusted. They run in separate sandboxes: the parser gets the output on its standard input and sees neither
the tree nor anything the script wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self

from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.decoding import decode, pack, unpack
from pytest_ssr.sandbox.protocol import Limit, Limits, Sandbox

PASSED = "passed"
FAILED = "failed"


class OwnTests(Protocol):
    """The part of an artifact that runs its tests."""

    @property
    def script(self) -> bytes:
        """`test_script.sh`."""

    @property
    def parser(self) -> bytes:
        """`test_parser.py`."""


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """What a test script did."""

    output: bytes
    """Standard output and standard error, interleaved."""
    exit_code: int | None
    """The exit status; None if a limit ended it."""
    seconds: float
    """Wall time."""
    fault: CheckReason | None = None
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
    fault: CheckReason | None = None
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
    fault = None
    if done.limit is not None:
        fault = CheckReason.of(CheckCode.SCRIPT_LIMIT, limit=str(done.limit), seconds=round(done.seconds))
    elif done.exit_code is not None and done.exit_code < 0:
        fault = CheckReason.of(CheckCode.SCRIPT_SIGNAL, signal=-done.exit_code)
    return ScriptOutput(done.stdout, done.exit_code, done.seconds, fault, done.limit)


def run_parser(sandbox: Sandbox, interpreter: Interpreter, parser: bytes, output: bytes, *, limits: Limits) -> Parsed:
    """Run the parser over an output; if the parser fails, the result has a fault, and no exception is raised."""
    path = f"{sandbox.scratch}/ssr-run/parser_of_output.py"
    sandbox.write(path, parser)
    env = run_environment(sandbox, interpreter)
    done = sandbox.exec([str(interpreter.executable), "-I", path], limits=limits, env=env, stdin=output)
    if done.limit is not None:
        return Parsed(fault=CheckReason.of(CheckCode.PARSER_LIMIT, limit=str(done.limit)), limit=done.limit)
    if done.exit_code != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        error = " ".join(last)[:200]
        return Parsed(fault=CheckReason.of(CheckCode.PARSER_FAILED, status=str(done.exit_code), error=error))
    return read_parsed(done.stdout)


def read_parsed(raw: bytes) -> Parsed:
    """Parse one JSON object of id to `passed` or `failed`; anything else is a fault."""
    try:
        statuses = json.loads(raw, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        return Parsed(raw=raw, fault=CheckReason.of(CheckCode.OUTPUT_NOT_JSON, error=str(error)[:250]))
    if not isinstance(statuses, dict):
        return Parsed(raw=raw, fault=CheckReason.of(CheckCode.OUTPUT_NOT_OBJECT, type=type(statuses).__name__))
    for name, status in statuses.items():
        if status not in (PASSED, FAILED):
            fault = CheckReason.of(CheckCode.UNKNOWN_STATUS, test=name[:200], status=repr(status)[:100])
            return Parsed(raw=raw, fault=fault)
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
    fault: CheckReason | None = None
    """Why the run proves nothing: a limit, a signal, a parser that failed."""
    limit: Limit | None = None
    """The limit that ended the script or its parser."""

    @cached_property
    def passing(self) -> frozenset[str]:
        """Ids that passed."""
        return frozenset(i for i, s in self.statuses.items() if s == PASSED)

    @property
    def contradiction(self) -> CheckReason | None:
        """Why exit status and parsed results cannot both be true; None if they can."""
        failed = [i for i, s in self.statuses.items() if s != PASSED]
        if failed and self.exit_code == 0:
            return CheckReason.of(CheckCode.EXIT_STATUS_CONTRADICTS, test=failed[0])
        return None

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
