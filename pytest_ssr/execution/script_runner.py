"""Run the tests of an artifact by its own script alone, and read their outcomes with its own parser.

As in the paper (arXiv 2512.18552, section 2.3), which assumes no test framework and no language: nothing but the script
and the parser says what passed. Such evidence is weaker than a reporter's, because tests, and the code that they test,
can print what they like; verdicts and grades show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ssr.execution.script import OwnTests, StatusRun
from pytest_ssr.execution.test_runners import Environment, Start
from pytest_ssr.records.artifact import PARSER
from pytest_ssr.records.test_run import CaseResult, Limit, Outcome, RunStatus, SuiteRun

if TYPE_CHECKING:
    from pytest_ssr.execution.runner import Runner


@dataclass(frozen=True, slots=True)
class ScriptRunner:
    """Runs tests with an artifact's script and parser."""

    script: bytes
    parser: bytes
    name: str = "the script"
    reporter: str = ""
    environment: Environment = ()
    probes: Sequence[str] = ()
    scope: Sequence[str] = ()

    def shown_command(self, files: Sequence[str] = (), *, brief: bool = False) -> str:
        """Return the commands of the script, without comments: always those of all tests."""
        lines = self.script.decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))

    def argv(self, start: Start) -> list[str]:
        """Return the command that runs the tests: always all of them."""
        return ["bash", "-c", self.script.decode("utf-8", "surrogateescape")]


def for_artifact(runner: Runner, artifact: OwnTests) -> Runner:
    """Return the runner of an artifact's tests: that of its script alone, if the settings ask for it."""
    if not runner.settings.by_script:
        return runner
    own = ScriptRunner(artifact.script, artifact.parser)
    return replace(runner, test_runner=own, fork_server=None, selection=None)


def as_suite_run(run: StatusRun) -> SuiteRun:
    """Return a run of a script with its parser in the form of a run with a reporter."""
    results = {
        test: CaseResult(Outcome.PASSED if test in run.passing else Outcome.FAILED) for test in sorted(run.statuses)
    }
    status, reason = RunStatus.COMPLETED, ""
    if run.fault is not None:
        reason = run.fault.text
        status = RunStatus.CRASHED if run.limit is None else RunStatus.LIMIT_EXCEEDED
        status = RunStatus.TIMED_OUT if run.limit is Limit.WALL_TIME else status
    elif not results:
        status, reason = RunStatus.SILENT, "the parser finds no test in the script's output"
    return SuiteRun(
        status,
        results,
        collected=tuple(results),
        reason=reason,
        seconds=run.seconds,
        # The parser alone decides: a script may end with any status, as one that ends in `| tee log` does.
        exit_code=1 if len(run.passing) < len(results) else 0,
        limit=run.limit,
        log_parser=PARSER,
        output=run.output,
    )
