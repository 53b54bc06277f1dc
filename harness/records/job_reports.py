"""Define what a command reports to the program that follows it: a JSON object on each line of standard error.

A line of another form comes from something else, such as a library or git, and is text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from enum import StrEnum

from pytest_ssr.records.decoding import decode_or_none, json_object

STATUS_LINES = "SSR_STATUS_LINES"
"""A variable with which all progress is written to standard error as reports, for a program that follows it."""
_ID = re.compile("[0-9a-f]{0,64}")


class Stage(StrEnum):
    """A part of a command's work."""

    FETCH = "fetch"
    """The project is copied or cloned."""
    MEASURE = "measure"
    """The project's tests run on the original code."""
    INJECT = "inject"
    """Changes are tried, and bugs are validated."""
    VALIDATE = "validate"
    """Artifacts are validated."""
    SOLVE = "solve"
    """Solvers run, and their patches are graded."""
    WRITE = "write"
    """Results are written."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """One report of a command."""

    status: str = ""
    """What the command is doing now; the next status replaces it."""
    line: str = ""
    """A line to keep."""
    kind: str = ""
    """The kind of the line, as in `Terminal.echo`: valid, bad, missed, survived, heading, or empty."""
    artifact: str = ""
    """The id of the artifact that the line is about."""
    attempt: str = ""
    """The id of the attempt that the line is about."""
    stage: Stage | None = None
    """The stage that begins."""
    run: str = ""
    """The id of the run of self-play that has the results."""
    campaign: str = ""
    """The id of the campaign that has the results."""
    private: str = ""
    """A cause that has addresses of the infrastructure: for the log of the worker, and not for that of the job."""

    def to_line(self) -> str:
        """Return the report as a line of JSON, without what is empty."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: value for name, value in values.items() if value})

    def send(self) -> None:
        """Write the report, if a program follows."""
        if os.environ.get(STATUS_LINES):
            # In one piece, because several threads report.
            sys.stderr.write(f"{self.to_line()}\n")
            sys.stderr.flush()

    @classmethod
    def from_line(cls, line: str) -> JobReport:
        """Return the report in a line of standard error; a line of another form, or with other ids, is text."""
        data = json_object(line) if line.startswith("{") else None
        report = decode_or_none(cls, data) if data is not None else None
        ids = (report.artifact, report.attempt, report.run, report.campaign) if report is not None else ("-",)
        return report if report is not None and all(map(_ID.fullmatch, ids)) else cls(line=line)
