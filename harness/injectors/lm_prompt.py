"""The prompt of a model that writes bugs; its replies have the form of those of a model that writes repairs."""

from __future__ import annotations

from harness.solvers.writer.prompt import BEGIN, END, Message, question
from harness.solvers.writer.regions import Region

_TASK = (
    f"A Python function has no bug in the lines between {BEGIN} and {END}. "
    "Write these lines with a bug that a test finds."
)


def bug_question(region: Region) -> list[Message]:
    """Return the messages that ask for the lines of a region with a bug."""
    return question(region, task=_TASK)
