"""Near duplicates and caps of an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from export_parts import export, lines, report_of
from hypothesis import given
from hypothesis import strategies as st
from rollout_parts import add_task, keep, played, record, store

from harness.exporters.admission import Admission, Bug, Kind, Likeness, parse_caps
from harness.exporters.near_duplicates import Compared, TokenSets, tokens_of_diff, tokens_of_text
from harness.exporters.skipped import SkipCode, SkippedError
from pytest_ssr.errors import SettingsError

LESS = "    if price + tax < limit and customer.is_known(name) or order.total == 0:"
HEADER = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n"


def diff_of(line: str, to: str, path: str = "shop.py") -> str:
    return f"{HEADER.format(path)}-{line}\n+{to}\n"


ORIGINAL = diff_of(LESS, LESS.replace("<", "<="))
NEAR = diff_of(LESS, LESS.replace("<", ">"), "else/where.py")
OTHER = diff_of("    return self.items[first:last]", "    return self.items[first : last + 1]")


def add_bug(folder: Path, name: str, diff: str | None, *, repository: str = "calc", **injector: Any) -> None:
    facts = {"strategy": "mutation", "operator": "change-operator", "path": "shop.py", "scope": name, **injector}
    target = add_task(folder, name, repository, injector=facts)
    if diff is not None:
        (target / "bug_inject.diff").write_text(diff)


def row_of(name: str, patch: str, statement: str = "The sum is wrong.") -> dict[str, Any]:
    return {
        "repo": "acme/shop",
        "instance_id": name,
        "base_commit": "a" * 40,
        "patch": patch,
        "test_patch": diff_of("a", "b", "tests/test_shop.py"),
        "problem_statement": statement,
        "FAIL_TO_PASS": ["tests/test_shop.py::test_a"],
        "PASS_TO_PASS": [],
    }


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def bugs(tmp_path: Path) -> Path:
    """A store with three bugs, the first two of which are nearly the same, and two attempts at each."""
    folder = store(tmp_path / ".ssr")
    for number, (name, diff) in enumerate({"t1": ORIGINAL, "t2": NEAR, "t3": OTHER}.items()):
        add_bug(folder, name, diff)
        for attempt in range(2):
            keep(folder, f"{number}{attempt}" * 12, True, task=name, attempt=attempt)
    return folder


def kept(path: Path) -> list[str]:
    return [row["task_id"] for row in lines(path)]


def codes(report: dict[str, Any]) -> dict[str, int]:
    return {entry["code"]: entry["count"] for entry in report["left_out"]}


@given(
    st.lists(st.frozensets(st.sampled_from("abcdefghij"), min_size=1), max_size=12),
    st.frozensets(st.sampled_from("abcdefghij"), min_size=1),
    st.sampled_from((0.3, 0.5, 0.7, 0.8, 1.0)),
)
def test_the_search_finds_what_comparing_with_all_sets_finds(
    sets: list[frozenset[str]], wanted: frozenset[str], threshold: float
) -> None:
    searched = TokenSets(threshold)
    for number, tokens in enumerate(sets):
        searched.add(str(number), tokens)
    similarities = [len(wanted & tokens) / len(wanted | tokens) for tokens in sets]
    best = max(similarities, default=0.0)
    found = searched.most_similar(wanted)
    if best < threshold - 1e-9:
        assert found is None
    else:
        assert found == (str(similarities.index(best)), best)


def test_tokens_of_a_diff_are_those_of_changed_lines_without_paths() -> None:
    assert tokens_of_diff(diff_of("return a", "return b", "path.py").encode()) == {"return", "a", "b"}
    assert tokens_of_diff(ORIGINAL.encode()) == tokens_of_diff(diff_of(LESS.replace("<", "<="), LESS).encode())
    assert tokens_of_diff(b"") == tokens_of_text("") == frozenset()
    assert tokens_of_text("The Sum, the sum") == {"the", "sum", ","}


def test_near_duplicates_are_reported_and_kept(bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, bugs, "--format", "rollouts", "--out", tmp_path / "out")
    found = report["near_duplicates"]
    assert (report["rows"], found["compared"], found["not_compared"]) == (6, 3, 0)
    (duplicate,) = found["found"]
    assert (duplicate["id"], duplicate["original"], duplicate["compared"]) == ("t2", "t1", "diff")
    assert 0.8 <= duplicate["similarity"] < 1
    assert "| t2 | t1 | this export | diff |" in (tmp_path / "out/README.md").read_text()


def test_near_duplicates_are_dropped_with_all_attempts_at_them(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    report = report_of(capsys, bugs, "--format", "rollouts", "--near-duplicates", "drop", "--out", out)
    assert kept(out / "data/train.jsonl") == ["t1", "t1", "t3", "t3"]
    assert codes(report) == {SkipCode.NEAR_DUPLICATE: 2}
    assert [entry["id"] for entry in report["near_duplicates"]["found"]] == ["t2"]
    card = (out / "README.md").read_text()
    assert f"| {SkipCode.NEAR_DUPLICATE.text} | 2 |" in card
    assert "| t2 | t1 | this export | diff |" in card


@pytest.mark.parametrize(
    "argv", [["--similarity", "0.99"], ["--near-duplicates", "off"], ["--format", "sft", "--similarity", "1"]]
)
def test_no_near_duplicates_are_found(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    format_argv = [] if "--format" in argv else ["--format", "rollouts"]
    report = report_of(capsys, bugs, *format_argv, *argv, "--out", tmp_path / "out")
    assert report["near_duplicates"]["found"] == []


def test_a_bug_that_the_filters_exclude_hides_no_other(tmp_path: Path) -> None:
    folder = store(tmp_path / ".ssr")
    for name, diff, is_resolved in (("t1", ORIGINAL, False), ("t2", NEAR, True)):
        add_bug(folder, name, diff, scope="f")
        keep(folder, name * 12, is_resolved, task=name)
    argv = ("--near-duplicates", "drop", "--most-per", "function=1")
    assert export(folder, "--format", "sft", *argv, "--out", tmp_path / "out.jsonl") == 0
    assert kept(tmp_path / "out.jsonl") == ["t2"]


def test_a_bug_is_decided_once_and_a_refused_one_takes_no_place() -> None:
    admission = Admission({Kind.FUNCTION: 1}, Likeness.DROP)
    admission.require("b1", lambda: Bug("b1", "calc", function="f", diff=ORIGINAL.encode()))
    with pytest.raises(SkippedError) as refused:
        admission.require("b2", lambda: Bug("b2", "calc", function="g", diff=NEAR.encode()))
    assert refused.value.code is SkipCode.NEAR_DUPLICATE
    with pytest.raises(SkippedError) as refused:
        admission.require("b3", lambda: Bug("b3", "calc", function="f", diff=OTHER.encode()))
    assert refused.value.code is SkipCode.FUNCTION_CAP
    admission.require("b4", lambda: Bug("b4", "other", function="f", diff=OTHER.encode()))
    admission.require("b1", lambda: pytest.fail("it was decided before"))


def test_rollouts_of_injectors_count_to_the_bug_that_they_made(tmp_path: Path) -> None:
    artifacts = ("b1", "b2", "b1", None)
    with (tmp_path / "all.jsonl").open("w") as file:
        for number, artifact in enumerate(artifacts):
            rollout = played(f"r{number}", role="injector", task="tree", attempt=number)
            task = {"artifact": artifact, "operator": "model"}
            file.write(json.dumps(dict(record(rollout, task=task).data)) + "\n")
    argv = ("--format", "rollouts", "--most-per", "operator=1", "--out", tmp_path / "out.jsonl")
    assert export(tmp_path / "all.jsonl", *argv) == 0
    assert [row["rollout_id"] for row in lines(tmp_path / "out.jsonl")] == ["r0", "r2", "r3"]


def test_bugs_without_a_diff_are_counted_as_not_compared(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(bugs, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    report = report_of(capsys, tmp_path / "all.jsonl", "--format", "sft", "--out", tmp_path / "out.jsonl")
    found = report["near_duplicates"]
    assert (found["compared"], found["not_compared"]) == (0, 3)


@pytest.mark.parametrize("kind", ["rows", "harbor"])
def test_bugs_are_compared_with_benchmarks(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    # A benchmark holds the repair, which is the reverse of the bug.
    repair = diff_of("    return self.items[first : last + 1]", "    return self.items[first:last]", "library.py")
    if kind == "rows":
        benchmark = written(tmp_path / "rows.jsonl", row_of("acme__shop-1", repair), {"instance_id": "damaged"})
    else:
        benchmark = tmp_path / "tasks"
        (benchmark / "acme__shop-1/solution").mkdir(parents=True)
        (benchmark / "acme__shop-1/task.toml").write_text("")
        (benchmark / "acme__shop-1/instruction.md").write_text("The sum is wrong.")
        (benchmark / "acme__shop-1/solution/solve.sh").write_text(f"git apply <<END\n{repair}END\n")
    argv = ("--format", "rollouts", "--near-duplicates", "drop", "--similarity", "0.7", "--against", benchmark)
    report = report_of(capsys, bugs, *argv, "--out", tmp_path / "out.jsonl")
    assert kept(tmp_path / "out.jsonl") == ["t1", "t1"]
    assert codes(report) == {SkipCode.NEAR_DUPLICATE: 2, SkipCode.BENCHMARK_DUPLICATE: 2}
    found = report["near_duplicates"]
    assert found["benchmarks"] == {benchmark.name: 1}
    assert found["unreadable"] == ({benchmark.name: 1} if kind == "rows" else {})
    assert [(e["id"], e["original"], e["benchmark"]) for e in found["found"]] == [
        ("t2", "t1", ""),
        ("t3", "acme__shop-1", benchmark.name),
    ]


def test_tasks_of_datasets_are_compared_by_their_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement = "Adding two prices loses the tax of the second one if the customer is known."
    first, second = row_of("a__a-1", ORIGINAL, statement), row_of("a__a-2", OTHER, f"{statement} See above.")
    source = written(tmp_path / "rows.jsonl", first, second)
    argv = ("--format", "verl-prompts", "--near-duplicates", "drop")
    report = report_of(capsys, source, *argv, "--out", tmp_path / "out.jsonl")
    assert report["rows"] == 1
    (duplicate,) = report["near_duplicates"]["found"]
    assert (duplicate["id"], duplicate["original"], duplicate["compared"]) == ("a__a-2", "a__a-1", Compared.STATEMENT)


@pytest.mark.parametrize(
    ("caps", "expected", "code"),
    [
        ("function=1", ["t1", "t3", "t4", "t5"], SkipCode.FUNCTION_CAP),
        ("operator=2", ["t1", "t2", "t4", "t5"], SkipCode.OPERATOR_CAP),
        ("repository=1", ["t1", "t5"], SkipCode.REPOSITORY_CAP),
        ("function=1,operator=1", ["t1", "t4", "t5"], SkipCode.OPERATOR_CAP),
    ],
)
def test_caps_keep_the_first_bugs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caps: str, expected: list[str], code: SkipCode
) -> None:
    folder = store(tmp_path / ".ssr")
    add_bug(folder, "t1", None, scope="f", operator="a")
    add_bug(folder, "t2", None, scope="f", operator="a")
    add_bug(folder, "t3", None, scope="g", operator="a")
    add_bug(folder, "t4", None, scope="g", operator="b", path="other.py")
    add_bug(folder, "t5", None, repository="other", scope="", operator="")
    for number in range(1, 6):
        keep(folder, str(number) * 24, True, task=f"t{number}")
    argv = ("--format", "rollouts", "--most-per", caps)
    report = report_of(capsys, folder, *argv, "--out", tmp_path / "out.jsonl")
    assert kept(tmp_path / "out.jsonl") == expected
    assert codes(report)[code] >= 1
    assert sum(codes(report).values()) == 5 - len(expected)
    assert report["not_capped"] == {name: 1 for name in ("function", "operator") if name in caps}
    # Canonical records say as much about their bugs as a store does.
    export(folder, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    assert export(tmp_path / "all.jsonl", *argv, "--out", tmp_path / "again.jsonl") == 0
    assert kept(tmp_path / "again.jsonl") == expected


def test_artifacts_and_rows_of_datasets_are_capped(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--format", "verl-prompts", "--most-per", "repository=1,operator=1")
    report = report_of(capsys, bugs, *argv, "--out", tmp_path / "bugs.jsonl")
    assert (report["rows"], codes(report)) == (1, {SkipCode.OPERATOR_CAP: 2})
    source = written(tmp_path / "rows.jsonl", row_of("a__a-1", ORIGINAL), row_of("a__a-2", OTHER))
    report = report_of(capsys, source, *argv, "--out", tmp_path / "rows-out.jsonl")
    assert (report["rows"], codes(report)) == (1, {SkipCode.REPOSITORY_CAP: 1})
    assert report["not_capped"] == {"operator": 1}


@pytest.mark.parametrize("text", ["function", "function=0", "function=-1", "file=2", "function=2,function=3", "=", ","])
def test_caps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_caps(text)
    assert refused.value.option == "most-per"


@pytest.mark.parametrize(
    "argv",
    [
        ["--most-per", "file=2"],
        ["--similarity", "0"],
        ["--against", "missing.jsonl"],
        ["--near-duplicates", "off", "--against", "rows.jsonl"],
    ],
)
def test_mistakes_end_with_exit_code_2(bugs: Path, tmp_path: Path, argv: list[str]) -> None:
    assert export(bugs, "--format", "rollouts", "--out", tmp_path / "out", *argv) == 2
    assert not (tmp_path / "out").exists()
