"""Define what a command reports to the program that follows it: a JSON object on each line of standard error.

A line of another form comes from something else, such as a library or git, and is text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_ssr.records.decoding import decode_or_none, json_object


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
    about: Mapping[str, str] = field(default_factory=dict)
    """Where the results of the command are: `run` of self-play, `campaign` of an injection."""

    def to_line(self) -> str:
        """Return the report as a line of JSON, without what is empty."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: value for name, value in values.items() if value})

    @classmethod
    def from_line(cls, line: str) -> JobReport:
        """Return the report in a line of standard error."""
        data = json_object(line) if line.startswith("{") else None
        report = decode_or_none(cls, data) if data is not None else None
        return report if report is not None else cls(line=line)
