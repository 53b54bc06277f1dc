"""Results in the schema of Stryker's reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from findings_parts import SOURCE, campaign_of, change, example

from pytest_ssr.campaign.acceptances import Acceptance, Acceptances
from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.stryker import stryker_text
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.project.report_marks import is_report
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus

STATUSES = {"Killed", "Survived", "NoCoverage", "Ignored"}


def report_of(findings: Findings) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(stryker_text(findings))
    return content


def mutants_of(folder, *results: CandidateResult, acceptances: Acceptances | None = None) -> list[dict[str, Any]]:
    findings = Findings.of(campaign_of(("shop/cart.py",)), results, (), folder, acceptances=acceptances)
    mutants: list[dict[str, Any]] = report_of(findings)["files"]["shop/cart.py"]["mutants"]
    return mutants


def applied(source: str, mutant: dict[str, Any]) -> str:
    """Return a source with the replacement of a mutant in its place, as a viewer shows it."""
    lines = source.split("\n")

    def offset(position: dict[str, int]) -> int:
        line = lines[position["line"] - 1].encode("utf-16-le")[: 2 * (position["column"] - 1)].decode("utf-16-le")
        return sum(len(text) + 1 for text in lines[: position["line"] - 1]) + len(line)

    start, end = mutant["location"]["start"], mutant["location"]["end"]
    return source[: offset(start)] + mutant["replacement"] + source[offset(end) :]


def test_a_report_has_what_the_schema_requires(tmp_path):
    findings = example(tmp_path)
    report = report_of(findings)
    assert report["schemaVersion"] == "2.0"
    assert set(report["thresholds"]) == {"high", "low"}
    mutants = [mutant for file in report["files"].values() for mutant in file["mutants"]]
    assert len(mutants) == len({mutant["id"] for mutant in mutants}) == len(findings.results)
    for file in report["files"].values():
        assert file["language"] == "python"
        lines = file["source"].split("\n")
        for mutant in file["mutants"]:
            assert mutant["mutatorName"]
            assert mutant["status"] in STATUSES
            for place in mutant["location"].values():
                assert 1 <= place["line"] <= len(lines)
                assert 1 <= place["column"] <= len(lines[place["line"] - 1]) + 1
    known = {test["id"] for file in report["testFiles"].values() for test in file["tests"]}
    killers = {test for mutant in mutants for test in mutant.get("killedBy", ())}
    assert killers
    assert killers <= known


def test_viewers_compute_our_score(tmp_path):
    findings = example(tmp_path)
    statuses = [m["status"] for file in report_of(findings)["files"].values() for m in file["mutants"]]
    score = findings.score_of(findings.results)
    assert statuses.count("Killed") == score.noticed
    assert len(statuses) - statuses.count("Ignored") == score.tried


@pytest.mark.parametrize("line", ["    if total >= 100:", "    pass", "    é = '\U0001f40d' + x"])
def test_the_replacement_in_its_place_is_the_change(tmp_path, line):
    example(tmp_path)
    result = change(0, 7, line)
    (mutant,) = mutants_of(tmp_path, result)
    lines = SOURCE.split("\n")
    lines[6] = line
    assert applied(SOURCE, mutant) == "\n".join(lines)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"def f(a, b):\r\n    return a + b\r\n", id="crlf"),
        pytest.param("\ufeffdef f(a, b):\r\n    return a + b".encode(), id="bom-and-no-final-newline"),
        pytest.param("# -*- coding: latin-1 -*-  \xe9\r\n    return a + b\r\n".encode("latin-1"), id="latin-1"),
        pytest.param("s = '\U0001f40d'\n\treturn '\U0001f40d', a + b\n".encode(), id="emoji-and-tab"),
    ],
)
def test_the_replacement_is_known_in_every_kind_of_file(tmp_path, content):
    new = content.replace(b" + ", b" - ")
    example(tmp_path)
    (tmp_path / "shop" / "cart.py").write_bytes(content)
    patch = make_patch({"shop/cart.py": (FileEntry(content, 0o100644), FileEntry(new, 0o100644))})
    diff = patch.data.decode("utf-8", "replace")
    findings = Findings.of(campaign_of(("shop/cart.py",)), [replace(change(0, 2, ""), diff=diff)], (), tmp_path)
    file = report_of(findings)["files"]["shop/cart.py"]
    (mutant,) = file["mutants"]
    assert mutant["replacement"] == "-"
    assert applied(file["source"], mutant) == file["source"].replace(" + ", " - ")


@pytest.mark.parametrize(
    ("line", "text", "replacement"),
    [
        ("    if rate >= 0:", ">", ">="),
        ("    if rates > 0:", "rate", "rates"),
        ("    if 0 < rate:", "rate > 0", "0 < rate"),
    ],
)
def test_words_and_operators_are_replaced_as_a_whole(tmp_path, line, text, replacement):
    example(tmp_path)
    (mutant,) = mutants_of(tmp_path, change(0, 7, line))
    start, end = mutant["location"]["start"], mutant["location"]["end"]
    assert (start["line"], end["line"]) == (7, 7)
    assert SOURCE.split("\n")[6][start["column"] - 1 : end["column"] - 1] == text
    assert mutant["replacement"] == replacement


def test_accepted_and_equivalent_changes_are_ignored(tmp_path):
    example(tmp_path)
    missed = replace(change(0, 7, "    pass"), status=CandidateStatus.SURVIVED, sign="", identity="a-b")
    assert [m["status"] for m in mutants_of(tmp_path, missed)] == ["Survived"]
    accepted = Acceptances([Acceptance("a-b", "a sketch")])
    (mutant,) = mutants_of(tmp_path, missed, acceptances=accepted)
    assert (mutant["status"], "a sketch" in mutant["statusReason"]) == ("Ignored", True)
    assert [m["status"] for m in mutants_of(tmp_path, replace(missed, sign="logging"))] == ["Ignored"]


def test_a_diff_that_does_not_apply_still_has_its_line(tmp_path):
    example(tmp_path)
    (mutant,) = mutants_of(tmp_path, replace(change(0, 7, "    pass"), diff="-what\n+else\n"))
    assert mutant["location"]["start"] == {"line": 7, "column": 1}
    assert "replacement" not in mutant


def test_snapshots_leave_the_report_out(tmp_path):
    path = tmp_path / "mutation.json"
    path.write_text(stryker_text(example(tmp_path)))
    assert is_report(path)
