"""Check a folder of `ssr export`, and make of it what is published: its files, a card with figures, and plots."""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from harness.exporters.dataset_writer import CARD, MARK
from harness.exporters.manifest import NAME, digest_of_part, digests_of, read_manifest, write_manifest
from harness.publishing.contents import rows_of
from harness.publishing.figures import Figures, figures_of, table_of
from harness.publishing.problems import NotPublishableError, Problem, ProblemKind
from harness.publishing.sensitive import Machine, Search
from pytest_ssr.errors import MissingExtraError

_PLOTS = "plots"
_MOST_PROBLEMS = 1000
_FILES = "## Files\n"
"""The section of a card before which the figures are written."""
_FILE_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \| \d+ \| `[0-9a-f]{64}` \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published."""

    folder: Path
    """A copy of the export, with the figures and the plots."""
    figures: Figures

    def digests(self) -> dict[str, str]:
        """Return the hash of each file, but that of the list of hashes, by its path."""
        return digests_of(self.folder)

    def files(self) -> dict[str, int]:
        """Return the size of each file by its path."""
        names = (*self.digests(), NAME)
        return {name: (self.folder / name).stat().st_size for name in sorted(names)}

    def seal(self) -> None:
        """Bring the card's table of files and the list of hashes up to date with the files."""
        card = self.folder / CARD
        text = _FILE_ROW.sub(self._file_row, card.read_text(encoding="utf-8"))
        card.write_text(text, encoding="utf-8")
        write_manifest(self.folder)

    def _file_row(self, match: re.Match[str]) -> str:
        size, digest = digest_of_part(self.folder, match[1])
        return f"| `{match[1]}` | {match[2]} | {size} | `{digest}` |"


def prepare(source: Path, folder: Path, allowed: Sequence[re.Pattern[str]] = ()) -> Publication:
    """Write the published files of an export into an empty folder. allowed: findings that do not prevent publishing.

    Raises NotPublishableError for a folder that is not a complete export as it was written, or that has a secret or
    private data in it, and MissingExtraError without matplotlib.
    """
    digests = _checked(source)
    shutil.copytree(source, folder, dirs_exist_ok=True)
    figures = figures_of(rows_of(folder, digests))
    try:
        plots: Any = importlib.import_module("harness.publishing.plots")
    except ImportError:
        raise MissingExtraError("matplotlib", "publish") from None
    card = folder / CARD
    text = _with_figures(card.read_text(encoding="utf-8"), figures, list(plots.draw(figures, folder / _PLOTS)))
    card.write_text(text, encoding="utf-8")
    publication = Publication(folder, figures)
    publication.seal()
    problems = list(islice(Search(Machine.this(), allowed).problems(folder, digests), _MOST_PROBLEMS))
    if problems:
        raise NotPublishableError(source, problems)
    return publication


def _checked(source: Path) -> Mapping[str, str]:
    """Return the hashes of an export's files; raises NotPublishableError if they differ from those in its list."""
    card, manifest = source / CARD, source / NAME
    is_ours = card.is_file() and MARK in card.read_text(encoding="utf-8", errors="replace")
    listed = read_manifest(manifest.read_bytes()) if is_ours and manifest.is_file() else None
    if listed is None:
        raise NotPublishableError(source, [Problem(ProblemKind.NOT_AN_EXPORT, str(source))])
    problems = list(_differences(listed, digests_of(source)))
    if problems:
        raise NotPublishableError(source, problems)
    return listed


def _differences(listed: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Problem]:
    for path in sorted({*listed, *found}):
        if path not in found:
            yield Problem(ProblemKind.MISSING, path)
        elif path not in listed:
            yield Problem(ProblemKind.UNLISTED, path)
        elif listed[path] != found[path]:
            yield Problem(ProblemKind.CHANGED, path)


def _with_figures(card: str, figures: Figures, plots: Sequence[tuple[str, str]]) -> str:
    lines = ["## Figures", "", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in table_of(figures)]
    for path, caption in plots:
        lines += ["", f"![{caption}]({path})"]
    before, files, after = card.partition(_FILES)
    return "\n".join([before.rstrip("\n"), "", *lines, "", files + after])


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
