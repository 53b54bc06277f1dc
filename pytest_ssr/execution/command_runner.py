"""Run the tests of a project by a shell command, and read their outcomes from what it prints.

For tests of which no other runner can report the outcomes: of other languages, or of a project's own tools. Such
evidence is weaker than a reporter's: tests, and the code that they test, can print what they like. A run records
the parser that read it, and grades show it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ssr.escaping import escaped_line
from pytest_ssr.execution.log_parsers import parse_log
from pytest_ssr.execution.test_runners import Environment, Start
from pytest_ssr.records.test_run import CaseResult, Limit, RunStatus, SuiteRun
from pytest_ssr.sandbox.protocol import ExecResult, Limits, Sandbox

_SCRIPT = """\
#!/usr/bin/env bash
# Runs the tests from the repository root; {parser} reads their outcomes from the output.
{command}
"""
_START = 'export PATH="$0:$PATH"; exec bash "$1" 2>&1'
_MOST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs tests with a shell command that runs all of them."""

    command: str
    """Lines of bash."""
    log_parser: str
    """A name in `LOG_PARSERS`."""
    name: str = "command"
    reporter: str = ""
    environment: Environment = ()
    probes: Sequence[str] = ()
    scope: Sequence[str] = ()

    def shown_command(self, files: Sequence[str] = (), *, brief: bool = False) -> str:
        """Return the command that runs the tests: always all of them."""
        return self.command

    def argv(self, start: Start) -> list[str]:
        """Return the command that runs the tests: always all of them."""
        return ["bash", "-c", self.script]

    @property
    def script(self) -> str:
        """The command as a script."""
        return _SCRIPT.format(parser=self.log_parser, command=self.command)

    def run(self, sandbox: Sandbox, folder: str, *, limits: Limits, env: Mapping[str, str]) -> SuiteRun:
        """Run the tests; raises SandboxError if the sandbox fails.

        folder: where to write the script. env: as for other runs; its PATH comes before that of the sandbox, which
        in an image names the tools of the project.
        """
        path = f"{folder}/test_command.sh"
        sandbox.write(path, self.script.encode("utf-8", "surrogateescape"), executable=True)
        rest = {name: value for name, value in env.items() if name != "PATH"}
        done = sandbox.exec(["bash", "-c", _START, env["PATH"], path], limits=limits, env=rest)
        return self.read(done)

    def read(self, done: ExecResult) -> SuiteRun:
        """Convert the output and the end of the process into a SuiteRun with the ids that the log names."""
        results = {test: CaseResult(outcome) for test, outcome in parse_log(self.log_parser, done.stdout).items()}
        status, reason = self._status(done, bool(results))
        return SuiteRun(
            status,
            results,
            collected=tuple(results),
            reason=reason,
            seconds=done.seconds,
            exit_code=done.exit_code,
            limit=done.limit,
            log_parser=self.log_parser,
            output=done.stdout,
        )

    def _status(self, done: ExecResult, has_results: bool) -> tuple[RunStatus, str]:
        if done.limit is Limit.WALL_TIME:
            return RunStatus.TIMED_OUT, f"no end after {done.seconds:.0f} s"
        if done.limit is not None:
            return RunStatus.LIMIT_EXCEEDED, f"the {done.limit} limit was exceeded"
        if done.exit_code is None or done.exit_code < 0:
            return RunStatus.CRASHED, f"the command ended with signal {-(done.exit_code or 0)}"
        if not has_results:
            ending = f"exit status {done.exit_code}, and {self.log_parser} finds no test in the output"
            return RunStatus.SILENT, f"{ending}: {_last_line(done.stdout)}"
        return RunStatus.COMPLETED, ""


def exports(variables: Mapping[str, str]) -> str:
    """Return lines of bash that set environment variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return escaped_line(lines[-1][:_MOST_SHOWN]) if lines else "nothing was printed"
