"""What the blind tests of one artifact write on the original and on the buggy code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_ssr.grading.blind.assertions import Site
from pytest_ssr.grading.blind.compare import Records, read_records
from pytest_ssr.grading.blind.suite import BlindSuite, PlainSuite


@dataclass(frozen=True)
class BlindReference:
    """The blind tests of one artifact, and the lines that they write on the original and on the buggy code."""

    suite: BlindSuite
    sites: Mapping[int, Site]
    """The assertions of the blind tests, by number."""
    names: Mapping[str, str]
    """The real id of each blind test."""
    collected: tuple[str, ...]
    """The tests that the original collects."""
    first_lines: tuple[str, ...] = ()
    """Lines on the original, with the tests' own inputs and with others."""
    full_lines: tuple[str, ...] = ()
    """Lines of a second run on the original, in which the tests hold and write the values they expect."""
    buggy_lines: tuple[str, ...] = ()
    """Lines on the buggy code, with other inputs alone."""
    plain: BlindReference | None = None
    """The same for FAIL_TO_PASS tests without pytest, whose copies are run only there; None if none of them can be."""

    @cached_property
    def first(self) -> Records:
        """The values on the original."""
        return read_records(self.first_lines)

    @cached_property
    def full(self) -> Records:
        """The values on the original, with those that the tests expect."""
        return read_records(self.full_lines)

    @cached_property
    def buggy(self) -> Records:
        """The values on the buggy code."""
        return read_records(self.buggy_lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "suite": self.suite.to_json(),
            "sites": [[number, *site] for number, site in self.sites.items()],
            "names": dict(self.names),
            "collected": self.collected,
            "lines": [self.first_lines, self.full_lines, self.buggy_lines],
            "plain": self.plain.to_json() if self.plain is not None else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlindReference | None:
        """Read plain data back; None if it is damaged."""
        try:
            plain = cls.from_json(data["plain"]) if data["plain"] is not None else None
            kind = PlainSuite if "cases" in data["suite"] else BlindSuite
            first, full, buggy = (tuple(lines) for lines in data["lines"])
            return cls(
                kind.from_json(data["suite"]),
                {number: Site(tuple(ops), tuple(recorded), choice) for number, ops, recorded, choice in data["sites"]},
                dict(data["names"]),
                tuple(data["collected"]),
                first,
                full,
                buggy,
                plain,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
