"""Reasons of checks are codes with details; each code has one text."""

from __future__ import annotations

import json

from harness.exporters.skipped import SkipCode
from pytest_ssr.records import check_reasons
from pytest_ssr.records.check_reasons import CheckCode, CheckReason, reason_from_json, reason_to_json
from pytest_ssr.records.test_run import SetAside


def test_every_code_has_a_text() -> None:
    assert set(check_reasons._TEXTS) == set(CheckCode)
    assert all(code.text for code in SkipCode)
    assert all(reason.text for reason in SetAside)


def test_a_reason_keeps_the_first_items_of_a_list_and_their_number() -> None:
    reason = CheckReason.of(CheckCode.FILE_MISSING, files={f"{n:03}.py" for n in range(200)})
    assert len(reason.details["files"]) == 50  # type: ignore[arg-type]
    assert reason.details["files_count"] == 200
    assert reason.text == "000.py, 001.py, 002.py and 197 more does not exist in the original"
    assert reason_from_json(json.loads(json.dumps(reason_to_json(reason)))) == reason


def test_a_state_stands_before_the_text() -> None:
    reason = CheckReason.of(CheckCode.NO_TEST_PASSES)
    assert reason.on("weakened").text == "on the weakened state: no test passes"
    assert reason.on("original").text == "on the original: no test passes"
