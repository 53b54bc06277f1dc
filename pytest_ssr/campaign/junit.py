"""Write results as JUnit XML: a test case for each change that was tried, in place of one for each step.

As in the reports of other mutation testers, a change that the tests notice passes, and a survivor is a failure.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import PurePosixPath
from xml.etree import ElementTree as ET

from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.sarif import survivor_message
from pytest_ssr.escaping import escaped
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus

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
