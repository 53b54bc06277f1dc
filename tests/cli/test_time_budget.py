"""A time budget, `--time` or `--ssr-time`, ends a run and keeps its results so far."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from plain import plain_python

from harness.executors.local import LocalExecutor
from pytest_ssr.campaign.parallel import run_candidates
from pytest_ssr.campaign.report import estimated_s
from pytest_ssr.errors import SettingsError
from pytest_ssr.interrupts import TimeBudgetError, raise_if_stopped, until
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.settings import budget_seconds

WITHOUT = ("-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")


def run_module(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False)


def inject(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    common = ["--sandbox", "process", "--python", str(plain_python())]
    return run_module(project, "harness.cli", "inject", ".", *common, *options)


def plugin(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    common = ["--ssr-sandbox=process", f"--ssr-python={plain_python()}"]
    return run_module(project, "pytest", *WITHOUT, "--ssr-inject", *common, *options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("10min", 600), ("1h30m", 5400), ("2h", 7200), ("1m 5s", 65), ("0.5", 0.5)],
)
def test_a_budget_is_parsed(text: str, seconds: float) -> None:
    assert budget_seconds(text, option="--time") == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "ten", "-5", "10m1h", "5 apples", "1d", "inf", "nan"])
def test_an_invalid_budget_names_the_option(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--ssr-time takes a time such as 90, 90s, 10m or 1h30m"):
        budget_seconds(text, option="--ssr-time")


class Slow:
    """Attempts of which the second runs until it is abandoned."""

    def __init__(self) -> None:
        self.settled: tuple[list[int], list[int]] | None = None

    def run(self, index: int) -> CandidateResult | None:
        try:
            while index == 1:
                time.sleep(0.01)
                raise_if_stopped()
        except TimeBudgetError:
            return None
        time.sleep(0.05)
        return CandidateResult(
            index, CandidateStatus.VALID, "mutation", "op", "a.py", 1, "f", "", "", artifact_id=f"a{index}"
        )

    def take(self, result: CandidateResult) -> None:
        pass

    def settle(self, wanted: Sequence[CandidateResult], finished: Sequence[CandidateResult]) -> None:
        self.settled = [a.index for a in wanted], [a.index for a in finished]

    def end(self) -> None:
        pass


def test_attempts_finished_beside_an_abandoned_one_count() -> None:
    source, reported = Slow(), list[int]()
    with until(time.monotonic() + 1):
        results = run_candidates(
            source,
            Goal(5),
            units=LocalExecutor(2).units(source),
            most=3,
            report=lambda a: reported.append(a.index),
        )
    assert [a.index for a in results] == reported == [0, 2]
    assert source.settled == ([0, 2], [0, 2])


SLOW = "import time\nimport calc\n\n\ndef test_slow():\n    time.sleep(3)\n    assert calc.add(1, 2) == 3\n"


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Return a project whose only test takes three seconds."""
    project = tmp_path / "slow"
    project.mkdir()
    (project / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (project / "test_calc.py").write_text(SLOW)
    (project / "pytest.ini").write_text("[pytest]\n")
    return project


@pytest.mark.parametrize("run", [inject, plugin])
def test_a_budget_that_ends_during_the_baseline_is_reported(slow: Path, run: type[object]) -> None:
    option = "--time" if run is inject else "--ssr-time"
    done = run(slow, option, "2s")  # type: ignore[call-arg]
    assert done.returncode == 1, done.stdout + done.stderr  # type: ignore[attr-defined]
    output = done.stdout + done.stderr  # type: ignore[attr-defined]
    assert "the time budget of 2 s ended while the baseline was measured" in output
    assert "Traceback" not in output


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> Iterator[Path]:
    """Yield the small project with its baseline and one artifact in the store."""
    project = tmp_path_factory.mktemp("measured") / "project"
    (project / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (project / name).write_text(text)
    done = inject(project, "--count", "1")
    assert done.returncode == 0, done.stderr
    yield project
    shutil.rmtree(project)


def attempts(project: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in project.glob(".ssr/attempts/*/*.json")}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_line_keeps_results_within_the_budget(measured: Path, jobs: str) -> None:
    before = attempts(measured)
    done = inject(measured, "--count", "60", "--jobs", jobs, "--time", "4", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["time_is_up"]) == (1, True), done.stderr
    assert report["ending"]["cut"] == "time"
    after = attempts(measured)
    assert before.items() <= after.items(), "existing attempts were not repeated"
    assert {f"{a['index']:05d}.json" for a in report["attempts"]} == after.keys()
    assert 1 <= len(report["valid"]) < 60
    assert set(report["valid"]) <= {p.name for p in (measured / ".ssr" / "artifacts").iterdir()}


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_the_plugin_keeps_results_within_the_budget(measured: Path, options: tuple[str, ...]) -> None:
    before = attempts(measured)
    done = plugin(measured, "--ssr-count", "60", "--ssr-time", "8s", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the time budget of 8 s has ended: " in done.stdout
    assert "of 60 reached; run the same command" in done.stdout
    assert before.items() <= attempts(measured).items()
    assert "Traceback" not in done.stdout + done.stderr


def test_a_budget_that_is_long_enough_changes_nothing(measured: Path) -> None:
    done = inject(measured, "--count", "1", "--time", "10m")
    assert done.returncode == 0, done.stderr
    assert "budget" not in done.stdout + done.stderr


def test_an_estimate_covers_only_the_remaining_bugs(measured: Path) -> None:
    more = inject(measured, "--count", "100", "--time", "1")
    assert re.search(r"about .* for \d+ more bugs, often", more.stdout), more.stdout
    done = inject(measured, "--count", "1")
    assert "often up to twice" not in done.stdout


def test_the_estimate_grows_with_the_suite_and_the_bugs_and_falls_with_the_workers() -> None:
    one = estimated_s(24.0, 1, 1)
    assert estimated_s(48.0, 1, 1) > one
    assert estimated_s(24.0, 10, 1) == pytest.approx(10 * one)
    assert one / 2 < estimated_s(24.0, 1, 2) < one
