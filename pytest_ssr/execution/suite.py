"""Run tests with our own reporter in a sandbox, and return a SuiteRun.

What the tests print is never read: outcomes come through a separate file, and the process's exit status must agree with
what was reported, or the run counts as crashed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.test_runners import PYTEST, Start, TestRunner
from pytest_ssr.interrupts import background, pause
from pytest_ssr.progress import Progress, counted
from pytest_ssr.project.interpreter import Interpreter
from pytest_ssr.project.pytest_config import IDENTITIES
from pytest_ssr.records.test_run import CaseResult, Outcome, RunStatus, SuiteRun
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits, Sandbox

_EVERY_S = 1.0
_COST_SHARE = 20
"""Reading takes at most one twentieth of the time."""
_MOST_BYTES = 256 * MIB
_DONE = b'"kind": "done"}\n'
_COLLECTED = b'"kind": "collected"}\n'


@runtime_checkable
class Peeking(Protocol):
    """A sandbox whose files can be read from another thread while a command runs in it."""

    def peek(self, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
        """Return a regular file's current content; otherwise like `read`."""


@contextlib.contextmanager
def report_progress(sandbox: Sandbox, channel: str, progress: Progress | None) -> Iterator[None]:
    """Call `progress` about once a second while a run writes to a channel."""
    if progress is None:
        yield
        return
    with background(lambda: _report(sandbox, channel, progress), name="progress"):
        yield


def _report(sandbox: Sandbox, channel: str, progress: Progress) -> None:
    collected = 0
    cost = 0.0
    while True:
        pause(max(_EVERY_S, _COST_SHARE * cost))
        begin = time.monotonic()
        raw = _read(sandbox, channel)
        collected = collected or collected_in(raw)
        progress(collected, raw.count(_DONE))
        cost = time.monotonic() - begin


def _read(sandbox: Sandbox, channel: str) -> bytes:
    if isinstance(sandbox, Peeking):
        with contextlib.suppress(FileNotFoundError, SandboxError):
            return sandbox.peek(channel, max_bytes=_MOST_BYTES)
    return b""


def collected_in(raw: bytes) -> int:
    """Return how many tests a channel lists as collected; 0 if it does not list them yet."""
    end = raw.find(_COLLECTED)
    if end < 0:
        return 0
    line = raw[raw.rfind(b"\n", 0, end) + 1 : end + len(_COLLECTED)]
    try:
        return len(json.loads(line)["ids"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0


_GUEST = Path(__file__).with_name("guest")
FOLDER = "ssr-run"
REACH = "reach"
CHANNEL = "channel"
_SUITE_MOST_BYTES = 256 * MIB
_MOST_MESSAGE = 200


def run_environment(sandbox: Sandbox, interpreter: Interpreter, *, hash_seed: int = 0) -> dict[str, str]:
    """Return the environment of every run: the interpreter first on PATH, the tree's import roots, fixed seeds."""
    binaries = interpreter.executable.parent
    return {
        "PATH": f"{sandbox.scratch}/ssr-bin:{binaries}:{interpreter.search_path}",
        "PYTHONPATH": f"{sandbox.root}/src:{sandbox.root}",
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def provide_interpreter(sandbox: Sandbox, interpreter: Interpreter) -> None:
    """Make `python` and `python3` start the chosen interpreter, even if it has another name."""
    script = f'#!/bin/sh\nexec "{interpreter.executable}" "$@"\n'.encode()
    for name in ("python", "python3"):
        if name not in interpreter.aliases:
            sandbox.write(f"{sandbox.scratch}/ssr-bin/{name}", script, executable=True)


def guest_source(name: str) -> bytes:
    """Return the source of a guest module, which runs inside the sandbox."""
    return (_GUEST / f"{name}.py").read_bytes()


def provide_guest(sandbox: Sandbox, *names: str) -> None:
    """Copy guest modules into `FOLDER` of the scratch directory."""
    for name in names:
        sandbox.write(f"{sandbox.scratch}/{FOLDER}/ssr_{name}.py", guest_source(name))


def run_suite(
    sandbox: Sandbox,
    interpreter: Interpreter,
    *,
    targets: Sequence[str] = (),
    limits: Limits,
    hash_seed: int = 0,
    order_seed: int | None = None,
    collect_only: bool = False,
    write_bytecode: bool = False,
    probed: Sequence[str] | None = None,
    watched: Sequence[str] = (),
    selection: Selection | None = None,
    other_ids: Sequence[str] | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    guests: Sequence[str] = (),
    progress: Progress | None = None,
    verbose: bool = False,
    test_runner: TestRunner = PYTEST,
) -> SuiteRun:
    """Run the tests in `targets` (files relative to the root; none: what the project's own configuration names).

    write_bytecode: leave compiled files in the sandbox's tree. probed: modules (relative paths) whose statements the
    probe records in the file `REACH` in `FOLDER` of the scratch directory. watched: changed modules; `exercised` of the
    result holds those that were loaded. selection: which of the collected tests to run. other_ids: the ids that another
    process has collected; functions whose ids differ are named by position, and listed in the result. options, env:
    more pytest options and environment variables. guests: more guest plugins, loaded before the others. progress:
    called about once a second while the tests run. verbose: let pytest report each test, and keep its output. Raises
    SandboxError if the sandbox fails; whatever the tests do gives a SuiteRun.
    """
    folder = f"{sandbox.scratch}/{FOLDER}"
    channel = f"{folder}/{CHANNEL}"
    provide_interpreter(sandbox, interpreter)
    env = {**run_environment(sandbox, interpreter, hash_seed=hash_seed), **(env or {})}
    if isinstance(test_runner, CommandRunner):
        run = test_runner.run(sandbox, folder, limits=limits, env=env)
        return run if verbose else replace(run, output=b"")
    provide_guest(sandbox, "system_calls", "channel", test_runner.reporter)
    sandbox.write(channel, b"")
    env = {**dict(test_runner.environment), **env, "SSR_CHANNEL": channel}
    if write_bytecode:
        del env["PYTHONDONTWRITEBYTECODE"]
    if order_seed is not None:
        env["SSR_ORDER_SEED"] = str(order_seed)
    plugins = [f"ssr_{test_runner.reporter}"]
    if probed is not None:
        provide_guest(sandbox, *test_runner.probes)
        sandbox.write(f"{folder}/files", "\0".join(probed).encode("utf-8", "surrogateescape"))
        env |= {"SSR_REACH": f"{folder}/{REACH}", "SSR_REACH_FILES": f"{folder}/files"}
        # Before the reporter: pytest may import what is tested.
        plugins[:0] = [f"ssr_{name}" for name in test_runner.probes]
    if watched:
        provide_guest(sandbox, "evidence")
        sandbox.write(f"{folder}/watched", "\0".join(watched).encode("utf-8", "surrogateescape"))
        env["SSR_WATCHED"] = f"{folder}/watched"
        plugins.insert(0, "ssr_evidence")
    if selection is not None:
        provide_guest(sandbox, "selection")
        sandbox.write(f"{folder}/selection", json.dumps(selection.to_json()).encode("utf-8", "surrogatepass"))
        env["SSR_SELECTION"] = f"{folder}/selection"
        plugins.append("ssr_selection")
    if other_ids is not None or IDENTITIES in options or (collect_only and test_runner.name == PYTEST.name):
        provide_guest(sandbox, "identities")
        plugins.append(IDENTITIES)
    if other_ids is not None:
        sandbox.write(f"{folder}/other_ids", json.dumps(list(other_ids)).encode())
        env["SSR_OTHER_IDS"] = f"{folder}/other_ids"
    provide_guest(sandbox, *guests)
    plugins[:0] = [f"ssr_{name}" for name in guests]
    if collect_only:
        env["SSR_COLLECT_ONLY"] = "1"
    argv = test_runner.argv(
        Start(
            str(interpreter.executable),
            folder,
            plugins,
            targets=targets,
            options=options,
            collect_only=collect_only,
            verbose=verbose,
        )
    )
    with report_progress(sandbox, channel, progress):
        done = sandbox.exec(argv, limits=limits, env=env)
    try:
        raw = sandbox.read(channel, max_bytes=_SUITE_MOST_BYTES)
    except FileNotFoundError:
        raw = b""
    except SandboxError as error:
        # The tests share the channel with the reporter: damage that they do to it is not a fault of the sandbox.
        return SuiteRun(RunStatus.CRASHED, reason=f"the reports cannot be read: {error}", seconds=done.seconds)
    run = read_channel(raw, done, runner=test_runner.name)
    return replace(run, output=done.stdout) if verbose else run


def read_channel(raw: bytes, done: ExecResult, *, runner: str = PYTEST.name) -> SuiteRun:
    """Convert the reporter's lines and the process's end into a SuiteRun; drop a torn last line.

    runner: the name of the test runner.
    """
    facts: dict[str, Any] = {}
    results: dict[str, CaseResult] = {}
    errors: dict[str, str] = {}
    started = ""
    for line in raw.splitlines():
        try:
            record = json.loads(line)
            kind = record["kind"]
            if kind == "done":
                _merge(results, record, done.seconds)
                started = ""
            elif kind == "start":
                started = str(record["id"])
            elif kind == "collect-error":
                errors[str(record["id"])] = str(record["reason"])
            elif kind in _SHAPES and all(_is_shaped(record[k], shape) for k, shape in _SHAPES[kind].items()):
                facts[kind] = record
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            continue
    run = SuiteRun(
        status=RunStatus.COMPLETED,
        results=results,
        unfinished=started,
        seconds=done.seconds,
        exit_code=done.exit_code,
        limit=done.limit,
        **_fields_from(facts),
    )
    status, reason = _status(done, facts, errors, started, runner)
    return replace(run, status=status, reason=reason)


def require_start(sandbox: Sandbox, interpreter: Interpreter) -> None:
    """Raise SandboxError if the interpreter cannot be started at all: the tests are not the cause.

    The sandbox must be a fresh one: in the sandbox of a run, the tests may be the cause.
    """
    env = run_environment(sandbox, interpreter)
    done = sandbox.exec([str(interpreter.executable), "-I", "-S", "-c", ""], limits=Limits(wall_s=30), env=env)
    if done.exit_code != 0:
        raise SandboxError(f"the interpreter did not start: {_tail(done.stderr)}")


_SHAPES: Mapping[str, Mapping[str, str]] = {
    "begin": {"addopts": "strings"},
    "collected": {
        "ids": "strings",
        "parameters": "parameters",
        "modules": "strings",
        "doctests": "strings",
        "before_selection": "strings",
    },
    "end": {"exit": "number", "sources": "strings", "foreign": "strings", "exercised": "strings"},
}


def _is_shaped(value: object, shape: str) -> bool:
    """Return whether a field has the shape that the reporter writes; the tests could have written the line."""
    if shape == "number":
        return isinstance(value, int)
    if shape == "strings":
        return isinstance(value, list) and all(isinstance(x, str) for x in value)
    return isinstance(value, dict) and all(
        isinstance(pairs, list)
        and all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], int) for p in pairs)
        for pairs in value.values()
    )


def _merge(results: dict[str, CaseResult], record: Mapping[str, Any], seconds: float) -> None:
    """Keep the worse of two results under one id: pytest can collect the same id twice.

    seconds: how long the run took. It bounds durations, because a test may stop the clock that times it.
    """
    if not isinstance(record["id"], str):
        raise TypeError(record["id"])
    duration_s, setup_s = (_clamp(float(record[name]), seconds) for name in ("duration", "setup"))
    new = CaseResult(Outcome(record["outcome"]), duration_s, setup_s, str(record.get("message", ""))[:_MOST_MESSAGE])
    old = results.get(record["id"])
    if old is None or old.outcome.is_pass:
        results[record["id"]] = new


def _clamp(value: float, upper: float) -> float:
    """Return the value limited to the range from 0 to `upper`; 0 if it is not a number."""
    if 0 <= value <= upper:
        return value
    return upper if value > upper else 0.0


def _fields_from(facts: Mapping[str, Any]) -> dict[str, Any]:
    collected = facts.get("collected", {})
    end = facts.get("end", {})
    parameters = collected.get("parameters", {})
    return {
        "collected": tuple(collected.get("ids", ())),
        "parameters": {i: tuple((str(a), int(n)) for a, n in p) for i, p in parameters.items()},
        "sources": tuple(end.get("sources", ())),
        "surface": _strings(end.get("surface")),
        "foreign": tuple(end.get("foreign", ())),
        "exercised": frozenset(end.get("exercised", ())),
        "doctests": frozenset(collected.get("doctests", ())),
        "before_selection": tuple(collected.get("before_selection", ())),
        "by_position": _strings(collected.get("by_position")),
        "parametrized": _strings(collected.get("parametrized")),
        "by_collectors": frozenset(_strings(collected.get("by_collectors"))),
        "names": _names_from(collected.get("names")),
        "addopts": tuple(facts.get("begin", {}).get("addopts", ())),
        "modules": tuple(collected.get("modules", ())),
    }


def _strings(value: object) -> tuple[str, ...]:
    """Return a field that the reporters of other test runners do not write."""
    return tuple(value) if isinstance(value, list) and _is_shaped(value, "strings") else ()


def _names_from(value: object) -> dict[str, tuple[str, ...]]:
    """Return the names that a reporter gives tests; pytest's gives none."""
    names = value.items() if isinstance(value, dict) else ()
    return {i: tuple(own) for i, own in names if _is_shaped(own, "strings")}


def _status(
    done: ExecResult, facts: Mapping[str, Any], errors: Mapping[str, str], started: str, runner: str
) -> tuple[RunStatus, str]:
    phase = ""
    if started:
        phase = f" during {started}"
    elif "collected" not in facts:
        phase = " before any test ran"
    if done.limit is Limit.WALL_TIME:
        return RunStatus.TIMED_OUT, f"no end after {done.seconds:.0f} s{phase}"
    if done.limit is not None:
        return RunStatus.LIMIT_EXCEEDED, f"the {done.limit} limit was exceeded{phase}"
    end = facts.get("end")
    if end is None or end["exit"] != done.exit_code:
        if done.exit_code == 4 and runner == PYTEST.name:
            return RunStatus.USAGE_ERROR, f"pytest did not start: {_tail(done.stderr)}"
        if not facts:
            return RunStatus.SILENT, f"exit status {done.exit_code} without any report: {_tail(done.stderr)}"
        code = done.exit_code or 0
        ending = f"signal {-code}" if code < 0 else f"exit status {code}"
        cause = f": {_tail(done.stderr)}" if "collected" not in facts else ""
        return RunStatus.CRASHED, f"the interpreter ended with {ending}{phase}{cause}"
    if end["exit"] == 3 and runner == PYTEST.name:
        return RunStatus.CRASHED, f"pytest failed internally: {_tail(done.stderr or done.stdout)}"
    if errors:
        first = next(iter(errors))
        others = f"; {counted(len(errors) - 1, 'more file')} cannot be collected" if len(errors) > 1 else ""
        return RunStatus.COLLECTION_ERROR, f"{first}: {errors[first]}{others}"
    if end["exit"] == 5:
        return RunStatus.NO_TESTS, f"{runner} collected no test"
    return RunStatus.COMPLETED, ""


def _tail(raw: bytes) -> str:
    """Return the last line, or the whole error if pytest shows one there, on one line."""
    lines = raw.decode(errors="replace").strip().splitlines()
    if not lines:
        return "nothing on standard error"
    refused = next((line.partition(": error: ")[2] for line in reversed(lines) if ": error: " in line), "")
    if refused:
        # What pytest says of its arguments; its files and folders follow.
        return refused[:300]
    error = [line[1:].strip() for line in itertools.takewhile(_is_error_line, reversed(lines))]
    return (" ".join(filter(None, reversed(error))) or lines[-1])[:300]


def _is_error_line(line: str) -> bool:
    """Return whether pytest shows a part of an exception's message on a line."""
    return line.startswith("E ") or line == "E"
