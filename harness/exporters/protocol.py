"""Define the interface of export formats: each turns the group of one task into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.datasets.instance import Instance
from harness.exporters.record import Record
from harness.exporters.skipped import SkipCode, SkippedError
from pytest_ssr.records.artifact import BugArtifact

TEXT, TEXTS, NUMBER, WHOLE, TRUTH = "text", "texts", "number", "whole", "truth"
IDS, BITS, NUMBERS = "ids", "bits", "numbers"
JSON, OBJECTS = "json", "objects"
"""Kinds of columns: `ids`, `bits` and `numbers` are lists of integers, of 0 and 1, and of floats; `objects` is a list
of JSON objects whose keys may differ."""

CONTAINERS = ("jsonl", "jsonl.zst", "parquet")
"""The kinds of files that rows are written to."""
TARS = ("tar", "tar.zst")
FOLDERS = "folders"
"""A folder for each task."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """An artifact of a store, with its metadata."""

    id: str
    repository: str
    """The project's name."""
    tree_hash: str
    """Hash of the project's files without the bug."""
    strategy: str
    operator: str
    function: str
    """The file and the function that the bug is in, as `calc.py::Parser.parse`; empty if unknown."""
    order: int
    solve_rate: float | None
    graded: int
    """Number of attempts behind the solve rate."""
    folder: Path
    """The folder of the artifact."""
    tree: Path
    """The folder in which the store keeps the project's files; it may not exist."""
    artifact: Callable[[], BugArtifact]
    """Read the five files; raises SkippedError if they are damaged."""


class Group(Protocol):
    """The rollouts of one role at one task, or an artifact."""

    @property
    def task(self) -> Task | None:
        """The artifact; None if the rollouts do not belong to one."""

    @property
    def repository(self) -> str:
        """The project of what was read last, for rows that do not name it; empty if unknown."""

    def records(self) -> Iterator[Record]:
        """Yield the records that the filters keep, one at a time; each call reads them again."""

    def record(self, rollout: str) -> Record:
        """Return the record of a rollout; raises KeyError if the group has none of that id."""

    def leave(self, name: str, error: SkippedError) -> None:
        """Report something that yields no row. name: its id."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The user's options for rows."""

    samples: str = "step"
    """For slime: `step` writes one sample per reply, `segment` one per sequence of tokens."""
    segment_reward: str = "full"
    """The reward of each sample of a rollout: all of it (`full`), an equal share (`split`), or only on the `last`."""
    image: str = ""
    """The container image that tasks run in; it contains the project without the bug."""
    workdir: str = "/testbed"
    """The path of the project in the image."""
    owner: str = "ssr"
    """The owner of projects in names of the SWE-bench family."""
    plain: bool = False
    """Of Harbor: the verifier only runs the recorded tests."""
    images: str = ""
    """Of Harbor: the prefix of images that are built and pushed; empty: none."""
    network: str = "none"
    """Of Harbor: `none`, or `default` for engines that cannot take the network away."""
    repos: Path | None = None
    """The folder for repositories with the start commits of tasks; None: do not write them."""


@dataclass(frozen=True, slots=True)
class Format:
    """An export format."""

    name: str
    readers: str
    """The programs that read it, in a few words."""
    columns: Mapping[str, str]
    """The kind of each column, by name."""
    rows: Callable[[Group, Choices], Iterator[Row]]
    instance_row: Callable[[Instance, Choices], Row] | None = None
    """The row of an instance of a dataset, which raises SkippedError if it has none; None: datasets are no source."""
    names_tests: bool = True
    """Whether the row of an instance names its tests, so that an instance without them has none."""
    of_tasks: bool = False
    """Whether rows are made from artifacts and not from rollouts."""
    imitates: bool = False
    """Whether training imitates the rows: by default only rollouts with a reward above 0 are exported."""
    rewarded: bool = True
    """Whether rollouts without a reward are skipped."""
    containers: tuple[str, ...] = CONTAINERS
    """How it can be written, the default first. In tars and folders, a row has the `files` of a task."""
    facts: tuple[str, ...] = ()
    """The path of the object in each row that has room for more facts about its task; empty if there are columns."""
    notes: tuple[str, ...] = field(default=())
    """Notes for readers, shown on the card."""


def statement_of(instance: Instance) -> str:
    """Return the task of an instance in prose; raises SkippedError if its row has no statement."""
    if not instance.statement.strip():
        raise SkippedError(SkipCode.NO_STATEMENT)
    return instance.statement
