"""Small projects to learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = '''\
"""Amounts."""


def {a}_total(items, rate, limit):
    """Return the sum of items, with a rate, up to a limit."""
    total = 0
    for item in items:
        if item is None or item < 0:
            continue
        total = total + item * rate
    if total > limit:
        total = limit
    return total


def {a}_share(part, whole):
    if whole == 0:
        return 0
    return part / whole


def {a}_names(people, default="nobody"):
    names = []
    for person in people:
        if person.name and not person.hidden:
            names.append(person.name.strip())
    return sorted(names) or [default]


class {b}:
    def __init__(self, size, step):
        self.size = size
        self.step = step

    def grow(self, times):
        size = self.size
        for _ in range(times):
            size = size + self.step
        return size

    def fits(self, other):
        return self.size <= other.size and self.step == other.step
'''


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    top = tmp_path_factory.mktemp("projects")
    folders = []
    for a, b in (("bill", "Box"), ("tax", "Crate"), ("fee", "Bag"), ("cost", "Case")):
        folder = top / a
        folder.mkdir()
        (folder / "amounts.py").write_text(TEXT.format(a=a, b=b))
        folders.append(folder)
    return folders
