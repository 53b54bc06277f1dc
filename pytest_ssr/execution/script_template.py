"""Generate the `test_script.sh` and `test_parser.py` of the artifacts that this package makes.

The script needs only bash, python and pytest. Besides pytest's verbose output it prints one marked line of ASCII JSON
for each test, because no scraping of pytest's text can delimit ids that contain spaces, brackets or ` - `.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.script_runner import ScriptRunner
from pytest_ssr.execution.suite import guest_source
from pytest_ssr.execution.test_runners import (
    PYTEST,
    PYTEST_ADDOPTS,
    RESERVED_VARIABLES,
    RUNNERS,
    Environment,
    ProgramRunner,
    PytestRunner,
    Start,
    TestRunner,
)
from pytest_ssr.project.pytest_config import IDENTITIES, options_of_script
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.decoding import decode

MARK = "#ssr-result "
_RUNNER, _FIRST_LINES = "# ssr-runner ", 10

_SCRIPT = """\
#!/usr/bin/env bash
# Runs the oracle tests from the repository root, verbosely, and prints each test's id and outcome on a line of its own.
set -u
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1@ENVIRONMENT@
plugin="$(mktemp -d)" || exit 1
trap 'rm -rf "$plugin"' EXIT
cat > "$plugin/ssr_lines.py" <<'PLUGIN'
import json, os
_fd = os.dup(1)
_seen = {}
_failures = 0
def pytest_runtest_makereport(item):
    # To show failures in full takes longer than the tests, where hundreds fail.
    if _failures >= 20:
        item.config.option.tbstyle = "line"
def pytest_runtest_logreport(report):
    global _failures
    _failures += report.outcome == "failed"
    seen = _seen.setdefault(report.nodeid, [])
    # A test with skipped subtests, whose reports have a context, is not skipped.
    if report.outcome != "skipped" or not hasattr(report, "context"):
        seen.append((report.when, report.outcome, hasattr(report, "wasxfail")))
def pytest_runtest_logfinish(nodeid):
    seen = _seen.pop(nodeid, [])
    if any(outcome == "failed" for _, outcome, _ in seen):
        status = "failed"
    elif any(outcome == "skipped" for _, outcome, _ in seen):
        status = "xfailed" if any(x for _, _, x in seen) else "skipped"
    else:
        status = "passed"
    line = json.dumps({"id": nodeid, "status": status})
    os.write(_fd, ("\\n#ssr-result " + line + "\\n").encode())
PLUGIN
@IDENTITIES@PYTHONPATH="$plugin:$PYTHONPATH" python -m pytest -p ssr_lines -o addopts= @OPTIONS@ \\
  -v --tb=short -p no:randomly -o cache_dir="$plugin/cache" --continue-on-collection-errors \\
  @FILES@
"""

_PARSER = '''\
"""Reads the output of test_script.sh on standard input; prints {test id: "passed" | "failed"} as JSON.

Tests that were skipped or were expected to fail have neither status and are left out.
"""

import json
import sys

MARK = b"#ssr-result "
statuses = {}
for line in sys.stdin.buffer.read().split(b"\\n"):
    if not line.startswith(MARK):
        continue
    try:
        record = json.loads(line[len(MARK):])
        name, status = record["id"], record["status"]
    except (ValueError, KeyError, TypeError):
        continue
    if status == "failed":
        statuses[name] = "failed"
    elif status == "passed":
        statuses.setdefault(name, "passed")
json.dump(statuses, sys.stdout, indent=0, sort_keys=True)
print()
'''


def default_script(test_files: Sequence[str], *, options: Sequence[str], environment: Environment = ()) -> bytes:
    """Return a script that runs these files with these pytest options: the project's own, without dropped ones.

    environment: variables for the tests, besides `PYTEST_ADDOPTS`, whose options are among the project's own.
    """
    quoted = " \\\n  ".join(shlex.quote(p) for p in test_files)
    script = _default(environment, by_position=IDENTITIES in options).replace("@OPTIONS@", shlex.join(options))
    return script.replace("@FILES@", quoted).encode("utf-8", "surrogateescape")


def _default(environment: Environment, *, by_position: bool) -> str:
    """Return the script without options and files. by_position: with the plugin that names parameter sets so."""
    plugin = f"cat > \"$plugin/{IDENTITIES}.py\" <<'PLUGIN'\n{guest_source('identities').decode()}PLUGIN\n"
    return _with_environment(_SCRIPT, environment).replace("@IDENTITIES@", plugin if by_position else "")


def _with_environment(script: str, environment: Environment) -> str:
    exported = (f" {name}={shlex.quote(value)}" for name, value in environment if name != PYTEST_ADDOPTS)
    return script.replace("@ENVIRONMENT@", "".join(exported))


def is_default(script: bytes, parser: bytes, environment: Environment = ()) -> bool:
    """Return whether an artifact's script and parser are ours, which run its tests as `Runner.suite` does."""
    by_position = IDENTITIES in options_of_script(script)
    template = _default(environment, by_position=by_position).encode("utf-8", "surrogateescape")
    start, _, rest = template.partition(b"@OPTIONS@")
    between, _, end = rest.partition(b"@FILES@")
    middle = script.removeprefix(start).removesuffix(end)
    return parser == default_parser() and script == start + middle + end and middle.count(between) == 1


_PROGRAM_SCRIPT = """\
#!/usr/bin/env bash
# Runs the tests from the repository root with the project's own runner, and prints each test's id and outcome.
@RUNNER@
set -u
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1@ENVIRONMENT@
guest="$(mktemp -d)" || exit 1
trap 'rm -rf "$guest"' EXIT
export SSR_CHANNEL="$guest/channel"
@GUESTS@
@COMMAND@
status=$?
python - "$guest/channel" <<'PRINT'
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    lines = list(file)
for line in lines:
    record = json.loads(line)
    if record["kind"] == "done":
        status = "failed" if record["outcome"] == "error" else record["outcome"]
        print("#ssr-result " + json.dumps({"id": record["id"], "status": status}))
PRINT
exit $status
"""


def script_of(test_runner: TestRunner, test_files: Sequence[str], *, options: Sequence[str]) -> bytes:
    """Return a script that runs these files with a test runner; options are those of pytest, as in `default_script`."""
    if isinstance(test_runner, CommandRunner):
        return test_runner.script.encode("utf-8", "surrogateescape")
    if isinstance(test_runner, PytestRunner):
        return default_script(test_files, options=options, environment=test_runner.environment)
    assert isinstance(test_runner, ProgramRunner)
    guests = [
        f"cat > \"$guest/ssr_{name}.py\" <<'GUEST'\n{guest_source(name).decode()}GUEST"
        for name in ("system_calls", "channel", test_runner.reporter)
    ]
    start = Start("python", "@GUEST@", [f"ssr_{test_runner.reporter}"], targets=test_files, verbose=True)
    command = shlex.join(test_runner.argv(start)).replace("@GUEST@", '"$guest"')
    script = _with_environment(_PROGRAM_SCRIPT, test_runner.environment)
    script = script.replace("@RUNNER@", _RUNNER + json.dumps(_facts(test_runner), sort_keys=True))
    script = script.replace("@GUESTS@", "\n".join(guests)).replace("@COMMAND@", command)
    return script.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _RunnerFacts:
    """What a script records of its test runner, so that its tests can be run again without it."""

    name: str
    """A name in `RUNNERS`."""
    arguments: tuple[str, ...] = ()
    """Options besides the runner's own."""
    environment: dict[str, str] = field(default_factory=dict)
    scope: tuple[str, ...] = ()


def _facts(runner: ProgramRunner) -> dict[str, object]:
    known = RUNNERS[runner.name]
    assert isinstance(known, ProgramRunner)
    return {
        "name": runner.name,
        "arguments": list(runner.program[len(known.program) :]),
        "environment": dict(runner.environment),
        "scope": list(runner.scope),
    }


def runner_of_script(script: bytes) -> PytestRunner | ProgramRunner:
    """Return the test runner that a script made by this package records; pytest for any other script.

    Raises ArtifactError for a record that names no known runner, or sets variables that runs set themselves.
    """
    line = next((line for line in script.splitlines()[:_FIRST_LINES] if line.startswith(_RUNNER.encode())), None)
    if line is None:
        return PYTEST
    try:
        facts = decode(_RunnerFacts, json.loads(line[len(_RUNNER) :]))
        known = RUNNERS[facts.name]
    except (ValueError, KeyError, RecursionError, StoreError):
        raise ArtifactError("the test runner that test_script.sh records is not known") from None
    reserved = [name for name in facts.environment if RESERVED_VARIABLES.fullmatch(name)]
    if reserved or not isinstance(known, ProgramRunner):
        raise ArtifactError(f"the test runner of test_script.sh cannot be used: {reserved or facts.name}")
    return replace(
        known,
        program=(*known.program, *facts.arguments),
        environment=tuple(sorted(facts.environment.items())),
        scope=facts.scope,
    )


def runner_of_artifact(directory: Path) -> TestRunner:
    """Return the test runner of an artifact; pytest for one that cannot be read, which others report."""
    try:
        return runner_of_script(read_artifact(directory).script)
    except ArtifactError:
        return PYTEST


def is_generated(script: bytes, parser: bytes, test_runner: TestRunner, test_files: Sequence[str]) -> bool:
    """Return whether an artifact's script and parser run the tests as a test runner does."""
    if isinstance(test_runner, ScriptRunner):
        return True
    if isinstance(test_runner, PytestRunner):
        return is_default(script, parser, test_runner.environment)
    return parser == default_parser() and script == script_of(test_runner, test_files, options=())


def default_parser() -> bytes:
    """Return the parser that goes with `default_script`."""
    return _PARSER.encode()
