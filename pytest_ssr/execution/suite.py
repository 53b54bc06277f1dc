"""Run tests with pytest and our own reporter in a sandbox; a SuiteRun comes out.

What the tests print is never read: outcomes come over a file of our own, and the process's exit status must agree
with what was reported, or the run counts as crashed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.interpreter import Interpreter
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite_progress import reported
from pytest_ssr.outcomes import CaseResult, Outcome, RunStatus, SuiteRun
from pytest_ssr.progress import Progress
from pytest_ssr.sandbox.protocol import MIB, ExecResult, Limit, Limits, Sandbox

_GUEST = Path(__file__).with_name("guest")
FOLDER = "ssr-run"
REACH = "reach"
CHANNEL = "channel"
_MOST_BYTES = 256 * MIB


def run_environment(sandbox: Sandbox, interpreter: Interpreter, *, hash_seed: int = 0) -> dict[str, str]:
    """Return the variables every run gets: the interpreter first on PATH, the tree's import roots, fixed seeds."""
    binaries = interpreter.executable.parent
    return {
        "PATH": f"{sandbox.scratch}/ssr-bin:{binaries}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{sandbox.root}/src:{sandbox.root}",
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def provide_interpreter(sandbox: Sandbox, interpreter: Interpreter) -> None:
    """Make `python` and `python3` start the chosen interpreter, also where it has another name."""
    text = f'#!/bin/sh\nexec "{interpreter.executable}" "$@"\n'.encode()
    for name in ("python", "python3"):
        if not (interpreter.executable.parent / name).exists():
            sandbox.write(f"{sandbox.scratch}/ssr-bin/{name}", text, executable=True)


def guest_source(name: str) -> bytes:
    """Return the text of a module that runs inside."""
    return (_GUEST / f"{name}.py").read_bytes()


def provide_guest(sandbox: Sandbox, *names: str) -> None:
    """Put modules that run inside into the scratch directory's `FOLDER`."""
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
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    guests: Sequence[str] = (),
    progress: Progress | None = None,
) -> SuiteRun:
    """Run pytest on `targets` (files relative to the root; none: what the project's own configuration says).

    write_bytecode: leave compiled files in the sandbox's tree. probed: modules (relative paths) whose statements the
    probe records in the file `REACH` of the scratch directory's `FOLDER`. watched: changed modules; `exercised` of the
    result holds those that were loaded. selection: the tests to run of those that are collected. options, env: further
    ones, and variables. guests: further plugins of ours, loaded before the others. progress: called about once a second
    while the tests run. Raises SandboxError when the sandbox breaks; whatever the tests do is a SuiteRun.
    """
    folder = f"{sandbox.scratch}/{FOLDER}"
    channel = f"{folder}/{CHANNEL}"
    provide_guest(sandbox, "system_calls", "reporter")
    sandbox.write(channel, b"")
    provide_interpreter(sandbox, interpreter)
    env = {**run_environment(sandbox, interpreter, hash_seed=hash_seed), **(env or {}), "SSR_CHANNEL": channel}
    if write_bytecode:
        del env["PYTHONDONTWRITEBYTECODE"]
    if order_seed is not None:
        env["SSR_ORDER_SEED"] = str(order_seed)
    plugins = ["ssr_reporter"]
    if probed is not None:
        provide_guest(sandbox, "reach_probe")
        sandbox.write(f"{folder}/files", "\0".join(probed).encode("utf-8", "surrogateescape"))
        env |= {"SSR_REACH": f"{folder}/{REACH}", "SSR_REACH_FILES": f"{folder}/files"}
        # Before pytest, which may import what is tested.
        plugins.insert(0, "ssr_reach_probe")
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
    provide_guest(sandbox, *guests)
    plugins[:0] = [f"ssr_{name}" for name in guests]
    argv = [str(interpreter.executable), "-c", _START, folder, ",".join(plugins)]
    argv += [*pytest_arguments(sandbox), *options]
    argv += ["--collect-only"] if collect_only else []
    with reported(sandbox, channel, progress):
        done = sandbox.exec([*argv, *targets], limits=limits, env=env)
    try:
        raw = sandbox.read(channel, max_bytes=_MOST_BYTES)
    except FileNotFoundError:
        raw = b""
    except SandboxError as error:
        # The tests share the channel with the reporter: what they make of it is no fault of the sandbox.
        return SuiteRun(RunStatus.CRASHED, reason=f"the reports cannot be read: {error}", seconds=done.seconds)
    return read_channel(raw, done)


def pytest_arguments(sandbox: Sandbox) -> list[str]:
    """Return the options that every run of ours gives to pytest."""
    options = ["-q", "--tb=no", "--continue-on-collection-errors"]
    return [*options, "-o", f"cache_dir={sandbox.scratch}/{FOLDER}/cache", "-p", "no:randomly"]


# As `python -m pytest` does it: the tree's root is first on the path; the plugins are handed over as objects.
_START = (
    "import sys, os; d, p = sys.argv[1:3]; del sys.argv[1:3]; sys.path[0] = os.getcwd(); sys.path.insert(0, d); "
    "p = [__import__(n) for n in p.split(',')]; sys.path.remove(d); "
    "import pytest; sys.exit(pytest.main(sys.argv[1:], plugins=p))"
)


def read_channel(raw: bytes, done: ExecResult) -> SuiteRun:
    """Turn the reporter's lines and the process's end into a SuiteRun; a torn last line is dropped."""
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
        **_from(facts),
    )
    status, reason = _status(done, facts, errors, started)
    return replace(run, status=status, reason=reason)


def require_start(sandbox: Sandbox, interpreter: Interpreter) -> None:
    """Raise SandboxError when the interpreter cannot be started at all: no tests can be blamed for that.

    The sandbox is a fresh one: in that of a run, the tests may have seen to it.
    """
    env = run_environment(sandbox, interpreter)
    done = sandbox.exec([str(interpreter.executable), "-I", "-S", "-c", ""], limits=Limits(wall_s=30), env=env)
    if done.exit_code != 0:
        raise SandboxError(f"the interpreter did not start: {_tail(done.stderr)}")


_SHAPES: Mapping[str, Mapping[str, str]] = {
    "begin": {"addopts": "texts"},
    "collected": {
        "ids": "texts",
        "parameters": "parameters",
        "modules": "texts",
        "doctests": "texts",
        "before_selection": "texts",
    },
    "end": {"exit": "number", "sources": "texts", "foreign": "texts", "exercised": "texts"},
}


def _is_shaped(value: object, shape: str) -> bool:
    """Tell whether a field is what the reporter writes; the tests could have written the line."""
    if shape == "number":
        return isinstance(value, int)
    if shape == "texts":
        return isinstance(value, list) and all(isinstance(x, str) for x in value)
    return isinstance(value, dict) and all(
        isinstance(pairs, list)
        and all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], int) for p in pairs)
        for pairs in value.values()
    )


def _merge(results: dict[str, CaseResult], record: Mapping[str, Any], seconds: float) -> None:
    """Keep the worse of two results under one id: pytest can collect the same id twice.

    seconds: that the run took. A test may stop the clock that it is timed by.
    """
    if not isinstance(record["id"], str):
        raise TypeError(record["id"])
    took, setup = (_within(float(record[name]), seconds) for name in ("duration", "setup"))
    new = CaseResult(Outcome(record["outcome"]), took, setup)
    old = results.get(record["id"])
    if old is None or old.outcome.is_pass:
        results[record["id"]] = new


def _within(value: float, most: float) -> float:
    """Return a value, at least 0 and at most `most`."""
    return value if 0 <= value <= most else most if value > most else 0.0


def _from(facts: Mapping[str, Any]) -> dict[str, Any]:
    collected = facts.get("collected", {})
    end = facts.get("end", {})
    parameters = collected.get("parameters", {})
    return {
        "collected": tuple(collected.get("ids", ())),
        "parameters": {i: tuple((str(a), int(n)) for a, n in p) for i, p in parameters.items()},
        "sources": tuple(end.get("sources", ())),
        "foreign": tuple(end.get("foreign", ())),
        "exercised": frozenset(end.get("exercised", ())),
        "doctests": frozenset(collected.get("doctests", ())),
        "before_selection": tuple(collected.get("before_selection", ())),
        "addopts": tuple(facts.get("begin", {}).get("addopts", ())),
        "modules": tuple(collected.get("modules", ())),
    }


def _status(
    done: ExecResult, facts: Mapping[str, Any], errors: Mapping[str, str], started: str
) -> tuple[RunStatus, str]:
    where = f" during {started}" if started else " before any test ran" if "collected" not in facts else ""
    if done.limit is Limit.WALL_TIME:
        return RunStatus.TIMED_OUT, f"no end after {done.seconds:.0f} s{where}"
    if done.limit is not None:
        return RunStatus.LIMIT_EXCEEDED, f"the {done.limit} limit was passed{where}"
    end = facts.get("end")
    if end is None or end["exit"] != done.exit_code:
        if done.exit_code == 4:
            return RunStatus.USAGE_ERROR, f"pytest refused its options: {_tail(done.stderr)}"
        if not facts:
            return RunStatus.SILENT, f"exit status {done.exit_code} and not one report: {_tail(done.stderr)}"
        code = done.exit_code or 0
        ending = f"signal {-code}" if code < 0 else f"exit status {code}"
        return RunStatus.CRASHED, f"the interpreter ended with {ending}{where}"
    if end["exit"] == 3:
        return RunStatus.CRASHED, f"pytest broke: {_tail(done.stderr or done.stdout)}"
    if errors:
        first = next(iter(errors))
        return RunStatus.COLLECTION_ERROR, f"{first}: {errors[first]}"
    if end["exit"] == 5:
        return RunStatus.NO_TESTS, "pytest collected no test"
    return RunStatus.COMPLETED, ""


def _tail(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing on standard error"
