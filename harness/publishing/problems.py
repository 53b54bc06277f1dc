"""Define the reasons why a folder is not published."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from pytest_ssr.errors import SettingsError

_SHOWN = 10


class ProblemKind(StrEnum):
    """The kind of a problem."""

    NOT_AN_EXPORT = "not-an-export"
    MISSING = "missing"
    CHANGED = "changed"
    UNLISTED = "unlisted"
    SECRET = "secret"
    PRIVATE = "private"
    FOREIGN = "foreign"
    TAG_TAKEN = "tag-taken"


_TEXTS = {
    ProblemKind.NOT_AN_EXPORT: "it is not a complete folder of ssr export",
    ProblemKind.MISSING: "a file of the export is missing",
    ProblemKind.CHANGED: "a file was changed after the export",
    ProblemKind.UNLISTED: "a file is not part of the export",
    ProblemKind.SECRET: "it looks like a secret; --allow PATTERN lets it pass",
    ProblemKind.PRIVATE: "it is about a machine or a person; --allow PATTERN lets it pass",
    ProblemKind.FOREIGN: "it is there already and was not published by ssr; --replace overwrites it",
    ProblemKind.TAG_TAKEN: "the tag marks something else",
}


class Problem(NamedTuple):
    """A reason against publishing a folder."""

    kind: ProblemKind
    place: str
    """The file, with the line or the member of an archive; the name of a tag."""
    found: str = ""
    """What was found there; only the beginning of a secret."""

    def __str__(self) -> str:
        found = f" ({self.found})" if self.found else ""
        return f"{self.place}{found}: {_TEXTS[self.kind]}"


class NotPublishableError(SettingsError):
    """A folder is not published, because of itself or of what is at its destination."""

    def __init__(self, folder: object, problems: Sequence[Problem]) -> None:
        shown = [str(problem) for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            shown.append(f"and {len(problems) - _SHOWN} more")
        super().__init__(f"{folder} is not published: {'; '.join(shown)}")
        self.problems = tuple(problems)
