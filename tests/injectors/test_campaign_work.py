"""A machine that is much slower than the one that measured the baseline tries no candidates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from plain import plain_python

from harness.injectors.campaign_work import require_pace
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PYTEST
from pytest_ssr.records.test_run import RunStatus, SuiteRun
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


@dataclass
class Slow:
    """A runner whose runs end in time or not."""

    status: RunStatus
    test_runner: object = PYTEST
    original: None = None
    runs: list[tuple[list[str], float]] = field(default_factory=list)

    def fresh(self, state: None, files: list[str], *, like_s: float) -> SuiteRun:
        self.runs.append((files, like_s))
        return SuiteRun(self.status)


def baseline_of(**seconds: float) -> Baseline:
    ids = tuple(f"test_{name}.py::test" for name in seconds)
    durations = dict(zip(ids, seconds.values(), strict=True))
    return Baseline(ids, frozenset(ids), {}, durations, {}, (), (), sum(seconds.values()), 0.0)


@pytest.mark.parametrize(
    ("seconds", "file"),
    [({"short": 0.1, "long": 4.0, "longest": 60.0}, "test_long.py"), ({"a": 90.0, "b": 60.0}, "test_b.py")],
)
def test_the_pace_is_that_of_a_file_that_takes_a_while(seconds: dict[str, float], file: str) -> None:
    runner, baseline = Slow(RunStatus.COMPLETED), baseline_of(**seconds)
    require_pace(cast(Runner, runner), baseline)
    assert runner.runs == [([file], baseline.seconds_of_files([file]))]


def test_a_machine_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "test_a.py").write_text("import time\n\n\ndef test():\n    time.sleep(4)\n")
    store, settings = Store(tmp_path / "store"), RuleSettings(time_limit_s=2)
    runner = open_runner(tmp_path / "project", store, settings=settings, sandbox="process", python=plain_python())
    with pytest.raises(SandboxUnavailableError):
        require_pace(runner, baseline_of(a=0.01))
