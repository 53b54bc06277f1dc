"""The record of a grade: a reason code, a status for each test, and two verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution import runner as runner_module
from pytest_ssr.execution.run_cache import MemoryRecords
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import MIN_DURATION_S, Grade, TestStatus, grade_patch
from pytest_ssr.grading import grade as grade_module
from pytest_ssr.grading.blind import measure as measure_module
from pytest_ssr.grading.blind.run import BlindResult
from pytest_ssr.grading.evidence import Evidence, fault_of
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import Flag, FlagCode, Reason, ReasonCode, Rule, flags_from_json, flags_to_json
from pytest_ssr.records.test_run import Limit, RunStatus, SuiteRun
from pytest_ssr.sandbox.protocol import ExecResult
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

CODE = "def mean(values):\n    return sum(values) / len(values)\n\n\ndef least(values):\n    return min(values)\n"
BUGGY = CODE.replace("/ len", "- len")
WRONG = CODE.replace("/ len", "* len")
FILE = "tests/test_memory.py"
TESTS = """from shop import least, mean


def test_known_to_fail():
    assert mean([2]) == 0


def test_least():
    assert least([2, 1]) == 1


def test_a():
    assert mean([2, 4]) == 3
    assert mean([5, 5]) == 5


def test_b():
    assert mean([1, 1, 1]) == 1
    assert mean([9]) == 9
"""
LEAST, FAILING = f"{FILE}::test_least", [f"{FILE}::test_a", f"{FILE}::test_b"]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("record")
    (folder / "project" / "tests").mkdir(parents=True)
    (folder / "project" / "shop.py").write_text(CODE)
    (folder / "project" / FILE).write_text(TESTS)
    settings = RuleSettings(time_limit_s=60)
    store = Store(folder / "store")
    return open_runner(folder / "project", store, settings=settings, sandbox="process", python=plain_python())


def graded(runner: Runner, text: str | bytes, *, path: str = "shop.py", script: str = "", **kwargs: Any) -> Grade:
    buggy = runner.original.replace({"shop.py": FileEntry(BUGGY.encode())})
    own = default_script((FILE,), options=())
    bug = buggy.patch_from(runner.original)
    artifact = BugArtifact(script.encode() + own, (FILE,), default_parser(), bug, Patch.parse(b""))
    data = text if isinstance(text, bytes) else text.encode()
    patch = buggy.replace({path: FileEntry(data)}).patch_from(buggy)
    kwargs = {"fail_to_pass": FAILING, "pass_to_pass": [LEAST], **kwargs}
    return grade_patch(runner.scoped(), artifact, patch, **kwargs)


def test_fail_to_pass_tests_that_fail_end_the_grade(runner: Runner) -> None:
    grade = graded(runner, WRONG)
    assert (grade.resolved, grade.tests, grade.reason.code) == (False, False, ReasonCode.TESTS_FAIL)
    assert grade.fail_to_pass == dict.fromkeys(FAILING, "failed")
    assert grade.pass_to_pass == {LEAST: "not-run"}, "FAIL_TO_PASS tests come first"


def test_a_full_grade_runs_all_tests(runner: Runner) -> None:
    grade = graded(runner, WRONG, full=True)
    assert grade.fail_to_pass == dict.fromkeys(FAILING, "failed")
    assert grade.pass_to_pass == {LEAST: "passed"}
    assert grade.reason.code is ReasonCode.TESTS_FAIL


def test_a_repair_is_resolved_in_both_orders(runner: Runner) -> None:
    """A test that is not recorded fails before one of PASS_TO_PASS, and does not stop the run."""
    for full in (False, True):
        grade = graded(runner, CODE + "# repaired\n", full=full)
        assert (grade.resolved, grade.tests) == (True, True), grade.reason
        assert grade.reason.code is ReasonCode.RESOLVED
        assert {*grade.fail_to_pass.values(), *grade.pass_to_pass.values()} == {"passed"}


def test_a_test_that_is_not_collected_is_missing(runner: Runner) -> None:
    gone = f"{FILE}::test_gone"
    grade = graded(runner, CODE + "# repaired\n", pass_to_pass=[LEAST, gone], full=True)
    assert grade.pass_to_pass == {gone: "missing", LEAST: "passed"}
    assert grade.tests is False


def test_passing_tests_and_failed_cross_checks_are_two_verdicts(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = Reason(ReasonCode.NOT_REPAIRED, "another input")
    cross_check = grade_module._CrossCheck(reason, BlindResult(unchecked=(FAILING[0],), unspecified=(FAILING[1],)))
    monkeypatch.setattr(grade_module._Grader, "_cross_check", lambda *_, **__: cross_check)
    grade = graded(runner, CODE + "# repaired\n")
    assert (grade.resolved, grade.tests, grade.reason) == (False, True, reason)
    assert (grade.verdict(Rule.STRICT), grade.verdict(Rule.TESTS)) == (False, True)
    assert (grade.unchecked, grade.unspecified) == ((FAILING[0],), (FAILING[1],))
    assert grade.flags == (Flag(FlagCode.UNCHECKED, (FAILING[0],)), Flag(FlagCode.UNSPECIFIED, (FAILING[1],)))
    assert grade.checked == 1 - 1 / len(grade.fail_to_pass)


def test_a_script_that_hits_its_time_limit_is_timed_out(runner: Runner) -> None:
    hasty = replace(runner, settings=replace(runner.settings, time_limit_s=4.0))
    grade = graded(hasty, CODE + "# slow\n", script="grep -q '# slow' shop.py && sleep 30\n")
    assert (grade.resolved, grade.tests, grade.reason.code) == (False, False, ReasonCode.TIMED_OUT)


def test_a_machine_on_which_the_original_takes_too_long_gives_no_grade(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SuiteRun(RunStatus.TIMED_OUT, reason="no end after 6 s", limit=Limit.WALL_TIME)
    monkeypatch.setattr(runner_module, "run_suite", lambda *_, **__: slow)
    grade = graded(runner, CODE + "# repaired\n", like_s=0.2)
    assert (grade.resolved, grade.tests, grade.reason.code) == (None, None, ReasonCode.SANDBOX_FAILED)


def test_a_run_without_expected_values_that_does_not_end_is_timed_out(runner: Runner) -> None:
    hasty = replace(runner, settings=replace(runner.settings, time_limit_s=4.0))
    code = CODE + "\nimport sys\nimport time\n\nif 'ssr_blind_recorder' in sys.modules:\n    time.sleep(60)\n"
    grade = graded(hasty, code)
    assert (grade.resolved, grade.tests, grade.reason.code) == (False, False, ReasonCode.TIMED_OUT)


@pytest.mark.long
def test_a_patch_that_hangs_is_bounded_by_the_original(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The absolute limit is 60 s."""
    limits, run = [], runner_module.run_plain

    def watched(*args: Any, **kwargs: Any) -> ExecResult:
        limits.append(kwargs["limits"].wall_s)
        return run(*args, **kwargs)

    monkeypatch.setattr(runner_module, "run_plain", watched)
    monkeypatch.setattr(measure_module, "MIN_DURATION_S", 0.1)
    hangs = BUGGY.replace("return sum", "while True:\n        pass\n    return sum")
    grade = graded(replace(runner, reference_store=MemoryRecords()), hangs)
    assert grade.reason.code is ReasonCode.TIMED_OUT
    # The original is run within the same limit: the patch is slow, and not the machine.
    assert limits[-1] == limits[-2] < runner.limits_after(MIN_DURATION_S).wall_s < 60
    assert grade.fail_to_pass == {}


def killed(numbers: Iterator[int]) -> Any:
    return lambda: next(numbers)


def test_a_kill_because_memory_ran_out_gives_no_grade(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of the failing test contains the word memory, which must not matter."""
    monkeypatch.setattr(grade_module, "oom_kill_count", killed(count()))
    grade = graded(runner, WRONG)
    assert (grade.resolved, grade.tests, grade.reason.code) == (None, None, ReasonCode.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("limit", "code"),
    [(Limit.MEMORY, ReasonCode.MEMORY_EXCEEDED), (Limit.MACHINE_MEMORY, ReasonCode.OUT_OF_MEMORY)],
)
def test_the_limit_shows_whose_memory_ran_out(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, limit: Limit, code: ReasonCode
) -> None:
    run = SuiteRun(RunStatus.LIMIT_EXCEEDED, limit=limit, reason="a limit was passed")
    statuses = graded(runner, WRONG, full=True)
    names = (*statuses.fail_to_pass, *statuses.pass_to_pass)
    evidence = Evidence(run, dict.fromkeys(names, TestStatus.NOT_RUN), fault_of(run))
    monkeypatch.setattr(grade_module, "evidence_of", lambda *_, **__: evidence)
    monkeypatch.setattr(grade_module, "oom_kill_count", killed(count()))
    grade = graded(runner, WRONG, full=True)
    assert grade.reason.code is code
    assert grade.resolved is (None if limit is Limit.MACHINE_MEMORY else False)


PYC = (3495).to_bytes(2, "little") + b"\r\n" + bytes(12)


@pytest.mark.parametrize(
    ("path", "data", "refused"),
    [
        ("helper.pyc", b"x", True),
        ("native.cpython-311-x86_64-linux-gnu.so", b"x", True),
        ("lib/libhelp.so.1.2", b"x", True),
        ("helper.PYD", b"x", True),
        ("data.bin", b"\x7fELF" + bytes(60), True),
        ("data.dat", PYC, True),
        ("logo.png", b"\x89PNG\r\n\x1a\n" + bytes(60), False),
        ("some.sophisticated.txt", b"text\n", False),
    ],
)
def test_code_that_cannot_be_read_is_refused_and_data_is_not(
    runner: Runner, path: str, data: bytes, refused: bool
) -> None:
    grade = graded(runner, data, path=path)
    assert (grade.reason.code is ReasonCode.ADDS_COMPILED_CODE) is refused
    assert (grade.resolved, grade.tests) == (False, False)
    assert bool(grade.fail_to_pass) is not refused


def test_a_grade_as_json(runner: Runner) -> None:
    data = json.loads(json.dumps(graded(runner, WRONG).to_json()))
    assert set(data) == {
        *("id", "resolved", "tests", "reason", "fail_to_pass", "pass_to_pass", "unchecked", "checked"),
        *("unspecified", "unvaried", "unmoved"),
        *("flags", "flag_details"),
    }
    assert set(data["reason"]) == {"code", "text", "detail"}
    assert data["reason"]["code"] == "tests-fail"


def test_every_code_has_a_text_and_is_read_back() -> None:
    for code in ReasonCode:
        for reason in (Reason(code), Reason(code, "a: b")):
            assert reason.text
            assert Reason.from_json(reason.to_json()) == reason
    flags = [Flag(code, (f"x {n}",) * n) for n, code in enumerate(FlagCode)]
    assert all(f.text for f in flags)
    assert flags_from_json(flags_to_json(flags)) == tuple(flags)


def test_a_reason_without_a_detail_keeps_the_text_that_was_recorded() -> None:
    """Earlier releases recorded the code and the text only."""
    data = {"code": "tests-fail", "text": "tests do not pass: 1 of 2"}
    reason = Reason.from_json(data)
    assert (reason.code, reason.text) == (ReasonCode.TESTS_FAIL, data["text"])
    assert reason.to_json() == data


@pytest.mark.parametrize(
    "data",
    [
        {"code": "new", "text": ""},
        {"code": "forged"},
        "forged",
        None,
        {"code": "forged", "text": 1},
        {"code": "forged", "text": "", "detail": 1},
    ],
)
def test_an_invalid_reason_is_rejected(data: Any) -> None:
    with pytest.raises(TypeError):
        Reason.from_json(data)


def test_a_rule_chooses_one_of_the_two_verdicts() -> None:
    for resolved, tests in ((True, True), (False, True), (False, False), (None, None)):
        assert Rule.STRICT.verdict(resolved=resolved, tests=tests) is resolved
        assert Rule.TESTS.verdict(resolved=resolved, tests=tests) is tests
