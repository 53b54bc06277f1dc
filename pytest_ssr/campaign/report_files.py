"""Write the files that show what a run found.

The harness offers the page as an entry point, so that the plugin needs no templates. Whether everything can be written
is checked before a run starts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from xml.etree import ElementTree as ET

from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.sarif import sarif_text, survivor_message
from pytest_ssr.campaign.stryker import stryker_text
from pytest_ssr.errors import MissingExtraError, SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.escaping import escaped
from pytest_ssr.project import report_marks
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.storage.synced_files import write_synced

_SKIPPED = (CandidateStatus.NOT_EXERCISED, CandidateStatus.UNDECIDED, CandidateStatus.TIMED_OUT)


def junit_text(findings: Findings) -> str:
    """Return the results as an XML document."""
    results = findings.results
    suite = ET.Element(
        "testsuite",
        name=escaped(findings.campaign.project),
        tests=str(len(results)),
        failures=str(len(findings.survivors)),
        errors="0",
        skipped=str(sum(result.status in _SKIPPED for result in results)),
        time=f"{sum(result.seconds for result in results):.3f}",
        timestamp=datetime.fromtimestamp(time.time(), UTC).isoformat(),
    )
    names: Counter[tuple[str, str]] = Counter()
    for result in results:
        case = _case(result)
        own = (case.attrib["classname"], case.attrib["name"])
        names[own] += 1
        if names[own] > 1:
            # Readers take two cases of one name for two runs of one.
            case.set("name", f"{own[1]} ({names[own]})")
        suite.append(case)
    top = ET.Element("testsuites", name="pytest-ssr")
    top.append(suite)
    ET.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(top, encoding="unicode") + "\n"


def _case(result: CandidateResult) -> ET.Element:
    module = ".".join(PurePosixPath(result.path).with_suffix("").parts)
    change = f"{result.operator or result.strategy} {result.detail}".rstrip()
    case = ET.Element(
        "testcase",
        classname=escaped(f"{module}.{result.scope}".rstrip(".")),
        name=escaped(f"line {result.line}: {change}"),
        file=escaped(result.path),
        line=str(result.line),
        time=f"{result.seconds:.3f}",
    )
    properties = ET.SubElement(case, "properties")
    ET.SubElement(properties, "property", name="status", value=str(result.status))
    if result.artifact_id:
        ET.SubElement(properties, "property", name="artifact", value=escaped(result.artifact_id))
    if result.status is CandidateStatus.SURVIVED:
        failure = ET.SubElement(case, "failure", type="survived", message=escaped(survivor_message(result)))
        failure.text = escaped(result.diff)
    elif result.status in _SKIPPED:
        ET.SubElement(case, "skipped", type=str(result.status), message=escaped(result.explanation))
    return case


GROUP = "pytest_ssr.report"
INDEX = "index.html"
Writer: TypeAlias = Callable[[Findings], str]
"""Returns the content of a file."""


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files to write after a run."""

    writers: Mapping[Path, Writer]
    """What returns the content of each."""

    @classmethod
    def open(
        cls,
        *,
        html: Path | None = None,
        sarif: Path | None = None,
        stryker: Path | None = None,
        junit: Path | None = None,
    ) -> ReportFiles:
        """Return the files; raises MissingExtraError or SettingsError if one of them could not be written.

        html: the folder of the page, or its path if that ends in `.html`.
        """
        writers: dict[Path, Writer] = {}
        if html is not None:
            writers[page_path(html)] = load_page_writer()
            _require_writable(page_path(html), "html", mark=report_marks.PAGE)
        if sarif is not None:
            writers[sarif] = sarif_text
            _require_writable(sarif, "sarif")
        if stryker is not None:
            writers[stryker] = stryker_text
            _require_writable(stryker, "stryker")
        if junit is not None:
            writers[junit] = junit_text
        return cls(writers)

    def write(self, findings: Findings) -> Iterator[Path]:
        """Write the files, and yield the path of each; raises StoreWriteError."""
        for path, writer in self.writers.items():
            write_report(path, writer(findings))
            yield path


def load_page_writer() -> Writer:
    """Return what writes the page; raises MissingExtraError if it is not installed."""
    for entry in entry_points(group=GROUP):
        load: Callable[[], Writer] = entry.load()
        return load()
    raise MissingExtraError("the writer of the page", "report")


def page_path(path: Path) -> Path:
    """Return the file of a page: the path itself if it ends in `.html`, else `index.html` in this folder."""
    return path if path.suffix == ".html" else path / INDEX


def _require_writable(path: Path, option: str, *, mark: str = "") -> None:
    """Create the folder of a file; raises SettingsError if the file cannot be written, or exists without the mark."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            beginning = file.read(max(1, len(mark)))
        if not beginning:
            path.unlink()
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {os_error_advice(error, option='')}", option=option) from None
    if beginning and not beginning.startswith(mark.encode()):
        raise SettingsError(f"{path} exists and is not a report of pytest-ssr; choose another path", option=option)


def write_report(path: Path, content: str) -> None:
    """Write a file of a report, replacing an existing one; raises StoreWriteError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode("utf-8", "backslashreplace")
        write_synced(path, data, staging=path.with_name(f".{path.name}.{os.getpid()}.part"))
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error, option='')}") from None
