"""Write the tests by which survivors are proven as patches that add test files, one patch for each task."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from harness.audit.card import Card
from harness.storage.atomic_write import write_bytes
from pytest_ssr.patch import FileEntry, Patch, make_patch

_COMMENT = re.compile(r"^ *#.*\n", re.MULTILINE)
"""What a test notices: the same test may notice several survivors."""
_UNSAFE = re.compile(r"[^\w.-]+")


def write_patches(folder: Path, cards: Sequence[Card]) -> list[Path]:
    """Write a patch for each task with proven survivors; return their paths. Raises OSError."""
    paths = []
    for card in cards:
        patch = additional_tests(card)
        if patch.files:
            path = folder / f"{_file_name(card.task)}.diff"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, patch.data)
            paths.append(path)
    return paths


def _file_name(task: str) -> str:
    """Return a name for the files of a task; other ids have other names."""
    name = _UNSAFE.sub("_", task)
    return name if name == task else f"{name}-{hashlib.sha256(task.encode()).hexdigest()[:8]}"


def additional_tests(card: Card) -> Patch:
    """Return the patch that adds the tests of a task's survivors, a file for each, beside the tests of the code."""
    changes = card.sharp.changes if card.sharp is not None else ()
    tests: dict[tuple[str, str], str] = {}
    for change in changes:
        if change.is_proven:
            tests.setdefault((change.test_file, _COMMENT.sub("", change.test)), change.test)
    added = {}
    for number, ((file, _), test) in enumerate(tests.items(), 1):
        added[_beside(file, number)] = (None, FileEntry(test.encode(), 0o100644))
    return make_patch(added)


def _beside(file: str, number: int) -> str:
    """Return a path beside a test file whose name begins and ends like it, so that pytest collects both."""
    stem = file.removesuffix(".py")
    end = "_test" if stem.endswith("_test") else ""
    return f"{stem.removesuffix(end)}_audit_{number}{end}.py"
