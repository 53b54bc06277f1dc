"""Records are read from stores that were edited, truncated, or written by another release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from pytest_ssr.errors import StoreError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.execution.script import StatusRun
from pytest_ssr.records.decoding import decode, decode_or_none, json_bytes, json_fields, pack, parse_json, unpack
from pytest_ssr.records.verdict import Verdict


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Whole:
    colour: Colour
    count: int
    parts: tuple[Part, ...] = ()
    ids: frozenset[str] = frozenset()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    scores: tuple[float, ...] | None = None


GOOD: dict[str, Any] = {
    "colour": "red",
    "count": 1,
    "parts": [{"name": "a", "seconds": 2}],
    "ids": ["x", "x"],
    "files": {"\udcff.py": ["t"]},
    "free": {"n": 10**400, "\udcff": float("nan")},
    "scores": [-1, float("-inf")],
    "from_a_newer_release": {"a": 1},
}


def test_plain_data_becomes_a_record() -> None:
    record = decode(Whole, json.loads(json.dumps(GOOD)))
    assert record.colour is Colour.RED
    assert record.parts == (Part("a", 2.0),)
    assert type(record.parts[0].seconds) is float
    assert record.ids == frozenset("x")
    assert record.files == {"\udcff.py": ("t",)}
    assert record.scores == (-1.0, float("-inf"))
    assert decode(Whole, {"colour": "red", "count": 0}) == Whole(Colour.RED, 0)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"colour": "blue"}, "$.colour"),
        ({"colour": "\udcff"}, ""),
        ({"count": None}, "$.count"),
        ({"count": "1"}, "$.count"),
        ({"count": True}, "$.count"),
        ({"count": 1.5}, "$.count"),
        ({"count": 2**63}, "$.count"),
        ({"parts": [{"name": "a"}, {}]}, "$.parts[1]"),
        ({"parts": [{"name": "a"}, {"name": "b", "seconds": float("nan")}]}, "$.parts[1].seconds"),
        ({"parts": [{"name": "a", "seconds": float("inf")}]}, "$.parts[0].seconds"),
        ({"parts": [{"name": "a", "seconds": 10**400}]}, "$.parts[0].seconds"),
        ({"parts": "a"}, "$.parts"),
        ({"ids": [1]}, "$.ids[0]"),
        ({"files": {"a": ["b", 5]}}, "$.files[...][1]"),
        ({"free": []}, "$.free"),
    ],
)
def test_an_error_names_the_record_and_the_field(change: dict[str, Any], path: str) -> None:
    with pytest.raises(StoreError) as caught:
        decode(Whole, {**GOOD, **change})
    assert "Whole" in str(caught.value)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert decode_or_none(Whole, {**GOOD, **change}) is None


def test_a_default_does_not_stand_in_for_a_field_that_must_be_there() -> None:
    whole = {"colour": "red", "count": 0}
    assert decode(Part, {"name": "a", "seconds": 0.0}, is_complete=True) == Part("a")
    with pytest.raises(StoreError, match="`parts`"):
        decode(Whole, whole, is_complete=True)


@pytest.mark.parametrize("name", ["doctests", "disturbed", "reach"])
def test_a_baseline_of_a_release_that_measured_less_is_refused(name: str) -> None:
    baseline = Baseline((), frozenset(), {}, {}, {}, (), (), 1.0, 0.1)
    data = json.loads(json.dumps(baseline.to_json()))
    assert Baseline.from_json(data) == baseline
    del data[name]
    assert Baseline.from_json(data) is None


def test_a_verdict_without_its_time_on_the_original_is_read() -> None:
    data = Verdict("a", "b").to_json()
    del data["original_s"]
    assert Verdict.from_json(data) == Verdict("a", "b")
    del data["checks"]
    with pytest.raises(StoreError, match="`checks`"):
        Verdict.from_json(data)


@pytest.mark.parametrize(
    "data", [None, 5, "x", [], {}, {**GOOD, "schema_version": 3}, {**GOOD, "schema_version": "2"}, GOOD]
)
def test_a_record_of_another_schema_version_is_refused(data: object) -> None:
    assert decode_or_none(Whole, data, version=2) is None
    assert decode(Whole, {**GOOD, "schema_version": 2}, version=2)


def test_bytes_are_packed() -> None:
    assert unpack(Whole, pack(b"\0\xff" * 100)) == b"\0\xff" * 100
    for damage in ("~", "\x00", pack(b"a")[:-5], ""):
        with pytest.raises(StoreError, match="Whole"):
            unpack(Whole, damage)


@pytest.mark.parametrize(
    "change",
    [
        {"tests": None},
        {"spots": "x"},
        {"spots": pack(b"[]")},
        {"spots": pack(b"{")},
        {"spots": pack(b'[{"x.py": [[1, 0, 5]]}, []]')},
        {"spots": pack(b'[{}, ["no"]]')},
        {"at_import": {"x.py": [[1]]}},
        {"always": "no"},
        {"opens": {"x": 5}},
        {"collected_by_processes": 1},
    ],
)
def test_a_damaged_coverage_map_is_refused(change: dict[str, Any]) -> None:
    whole = CoverageMap(("t",), {"x.py": {(1, 0): 1}}, {"x.py": {(2, 0)}}, 0, {"y": 1})
    data = json.loads(json.dumps(whole.to_json()))
    assert CoverageMap.from_json(data) == whole
    with pytest.raises(StoreError):
        CoverageMap.from_json({**data, **change})


@pytest.mark.parametrize(
    "change", [{"outputs": []}, {"outputs": ["x", "y"]}, {"statuses": {"t": 1}}, {"exit_code": "0"}, {"seconds": None}]
)
def test_a_damaged_run_of_a_script_is_refused(change: dict[str, Any]) -> None:
    whole = StatusRun({"t": "passed"}, b"out\xff", b"{}", 0, 1.0)
    data = json.loads(json.dumps(whole.to_json()))
    assert StatusRun.from_json(data) == whole
    with pytest.raises(StoreError):
        StatusRun.from_json({**data, **change})


def test_json_is_read_and_written_like_the_standard_library_does() -> None:
    for text in ('{"a": [1, 2.5, null, "\\u00e9"]}', '{"a": NaN}', '"\\ud800"', '\ufeff{"a": 1}', "1e999", str(10**30)):
        assert repr(parse_json(text.encode())) == repr(json.loads(text.encode()))
    with pytest.raises(ValueError):
        parse_json(b'{"a": ')
    value = {"é": [1, 0.1, -0.0, True, None, "\x00\u2028"], "tuple": (1,), "array": np.float64(0.5)}
    assert json.loads(json_bytes(value)) == json.loads(json.dumps(value))
    with pytest.raises(TypeError):
        json_bytes({"a": object()})


def test_fields_of_json_are_read_without_the_others() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        name: str = ""

    assert json_fields(Named, b'{"name": "a", "more": [1, {"name": 2}]}') == Named("a")
    assert json_fields(Named, b'{"name": 1}') is None
    assert json_fields(Named, b'{"name": "a"') is None
