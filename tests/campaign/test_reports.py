"""What a run found as SARIF, as JUnit XML, and for GitHub Actions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from findings_parts import HOSTILE, SOURCE, campaign_of, change, example

from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.github import MOST_ANNOTATIONS, annotation_lines, append_job_summary, job_summary
from pytest_ssr.campaign.report_files import ReportFiles, junit_text
from pytest_ssr.campaign.sarif import sarif_text
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason


def found(folder, *results, root=""):
    return Findings.of(campaign_of(("shop/cart.py",), root=root), results, (), folder)


def test_the_score_counts_what_has_an_outcome(tmp_path):
    findings = example(tmp_path)
    score = findings.score_of(findings.results)
    assert (score.noticed, score.tried) == (2, 5)
    assert score.rate == 0.4
    low, high = score.interval
    # Wilson's interval of 2 of 5, as scipy and statsmodels compute it.
    assert (round(low, 4), round(high, 4)) == (0.1176, 0.7693)
    assert findings.score_of(()).rate is None
    assert findings.score_of(()).interval == (0.0, 1.0)


def test_sarif_has_what_the_schema_requires(tmp_path):
    log = json.loads(sarif_text(example(tmp_path)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == 3
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", location["physicalLocation"]["artifactLocation"]["uri"])
    assert [result["level"] for result in run["results"]] == ["warning", "warning", "note"]


def test_fingerprints_survive_moved_lines_and_are_unique(tmp_path):
    moved = f"# one\n# two\n{SOURCE}"
    first = fingerprints(found(tmp_path, change(0, 7, "    if 1:"), change(1, 9, "    return 0")))
    second = fingerprints(
        found(tmp_path, change(0, 9, "    if 1:", source=moved), change(1, 11, "    return 0", source=moved))
    )
    assert first == second
    assert len(set(fingerprints(found(tmp_path, change(0, 7, "    if 1:"), change(1, 7, "    if 1:"))))) == 2


def fingerprints(findings):
    results = json.loads(sarif_text(findings))["runs"][0]["results"]
    return [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]


def test_paths_start_at_the_top_of_the_repository(tmp_path):
    findings = found(tmp_path, change(0, 7, "", path="a b.py"), root="python/shop")
    result = json.loads(sarif_text(findings))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "python/shop/a%20b.py"
    assert next(annotation_lines(findings)).startswith("::warning file=python/shop/a b.py,line=7,")


def test_junit_has_a_case_for_each_change(tmp_path):
    top = ET.fromstring(junit_text(example(tmp_path)))
    (suite,) = top
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "3", "2")
    cases = [(case.get("classname"), case.get("name")) for case in suite]
    assert len(cases) == len(set(cases))
    failures = suite.findall("testcase/failure")
    assert len(failures) == 3
    assert all("--- a/shop/cart.py" in failure.text for failure in failures)
    assert suite[0].get("classname") == "shop.cart.total"


def test_commands_are_escaped_and_one_for_each_line(tmp_path):
    hostile = "100 %,\r\n::error::x:y"
    findings = found(
        tmp_path,
        change(0, 7, "    if 1:", path="a,b:c%.py", detail=hostile),
        change(1, 7, "    if 2:", path="a,b:c%.py"),
    )
    (line,) = annotation_lines(findings)
    assert line.startswith("::warning file=a%2Cb%3Ac%25.py,line=7,title=")
    assert "100 %25,%0D" in line or "100 %25,\\r%0A" in line
    assert "\n" not in line
    many = [change(n, 7, "    if 1:", path=f"f{n}.py") for n in range(30)]
    assert len(list(annotation_lines(found(tmp_path, *many)))) == MOST_ANNOTATIONS


def test_the_job_summary_is_appended_and_escaped(tmp_path):
    findings = example(tmp_path / "project")
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_job_summary(findings, {"GITHUB_STEP_SUMMARY": str(path)})
    text = path.read_text()
    assert text == f"before\n{job_summary(findings)}"
    assert "40 % (95 % interval 12 to 77 %)" in text
    assert HOSTILE not in text
    assert "<script>" not in text
    append_job_summary(findings, {})


def test_reached_and_not_reached_survivors_differ(tmp_path):
    result = change(0, 7, "    if 1:")
    missed = replace(result, reason=CheckReason(CheckCode.NOT_REACHED))
    assert result.status is CandidateStatus.SURVIVED
    levels = [r["level"] for r in json.loads(sarif_text(found(tmp_path, result, missed)))["runs"][0]["results"]]
    assert levels == ["warning", "note"]


def test_equivalent_survivors_are_notes_and_have_no_annotation(tmp_path):
    signs = ("bound", "message", "")
    findings = found(tmp_path, *(replace(change(n, 7 + n, "    if 1:"), sign=s) for n, s in enumerate(signs)))
    results = json.loads(sarif_text(findings))["runs"][0]["results"]
    assert [result["level"] for result in results] == ["note", "note", "warning"]
    marks = [(r["properties"].get("equivalent"), r["properties"].get("probablyEquivalent")) for r in results]
    assert marks == [("bound", None), (None, "message"), (None, None)]
    (line,) = annotation_lines(findings)
    assert ",line=9," in line


def test_a_page_of_another_tool_is_not_replaced(tmp_path):
    (tmp_path / "index.html").write_text("<p>mine")
    with pytest.raises(SettingsError) as raised:
        ReportFiles.open(html=tmp_path)
    assert raised.value.option == "html"
    assert (tmp_path / "index.html").read_text() == "<p>mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError):
        ReportFiles.open(sarif=tmp_path / "file" / "out.sarif")


def test_a_report_is_replaced_and_nothing_is_left_before_the_run(tmp_path):
    findings = example(tmp_path / "project")
    files = ReportFiles.open(html=tmp_path / "out", sarif=tmp_path / "out.sarif")
    assert list((tmp_path / "out").iterdir()) == []
    assert [p.name for p in files.write(findings)] == ["index.html", "out.sarif"]
    assert len(list(ReportFiles.open(html=tmp_path / "out").write(findings))) == 1
