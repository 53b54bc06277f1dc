"""Write the files that show what a run found.

The harness offers the page as an entry point, so that the plugin needs no templates. Whether everything can be written
is checked before a run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from pytest_ssr.campaign.findings import Findings
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice

GROUP = "pytest_ssr.report"
INDEX = "index.html"
PAGE_MARK = '<meta name="generator" content="pytest-ssr">'
"""What a page begins with; another page at the same path is not replaced."""
_MARK_WITHIN_BYTES = 1_000
PageWriter = Callable[[Findings], str]
"""Returns the page as HTML."""


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files to write after a run."""

    page: Path | None = None
    page_writer: PageWriter | None = None

    @classmethod
    def open(cls, *, html: Path | None = None) -> ReportFiles:
        """Return the files; raises MissingExtraError or SettingsError if one of them could not be written.

        html: the folder of the page, or its path if that ends in `.html`.
        """
        if html is None:
            return cls()
        writer, page = load_page_writer(), page_path(html)
        _require_writable(page)
        return cls(page, writer)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return self.page is not None

    def write(self, findings: Findings) -> Iterator[Path]:
        """Write the files, and yield the path of each; raises StoreWriteError."""
        if self.page is not None and self.page_writer is not None:
            write_report(self.page, self.page_writer(findings))
            yield self.page


def load_page_writer() -> PageWriter:
    """Return what writes the page; raises MissingExtraError if it is not installed."""
    for entry in entry_points(group=GROUP):
        load: Callable[[], PageWriter] = entry.load()
        return load()
    raise MissingExtraError("the writer of the page", "report")


def page_path(path: Path) -> Path:
    """Return the file of a page: the path itself if it ends in `.html`, else `index.html` in this folder."""
    return path if path.suffix == ".html" else path / INDEX


def _require_writable(page: Path) -> None:
    """Create the folder of a page; raises SettingsError if the page cannot be written, or is that of another tool."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("ab+") as file:
            file.seek(0)
            beginning = file.read(_MARK_WITHIN_BYTES)
        if not beginning:
            page.unlink()
    except OSError as error:
        raise SettingsError(f"{page} cannot be written: {os_error_advice(error, option='')}", option="html") from None
    if beginning and PAGE_MARK.encode() not in beginning:
        raise SettingsError(f"{page} exists and is not a report of pytest-ssr; choose another folder", option="html")


def write_report(path: Path, content: str) -> None:
    """Write a file of a report, replacing an existing one; raises StoreWriteError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error, option='')}") from None
