"""A run with few slots does not wait for itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python
from remote_hosts import served_host

from harness.cli.main import main
from harness.remote_sandboxes.host import HostSettings
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.fork_server import ForkRequest, ForkServer
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.sandbox import load_provider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.bubblewrap


@pytest.fixture
def url() -> Iterator[str]:
    settings = HostSettings(slots=1, python=plain_python(), readable=[Path(sys.base_prefix)])
    with served_host(load_provider("bubblewrap"), settings) as (address, _):
        yield address


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n")
    (folder / "test_calc.py").write_text(
        "from calc import add, double\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_double():\n    assert double(4) == 8\n"
    )
    return folder


def test_a_warm_process_gives_way(url: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.remote_sandboxes.provider._WAIT_S", 0.0)
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox=f"remote:{url}")
    warm = ForkServer(runner.snapshot, runner.provider, runner.interpreter, runner.limits)
    for _ in range(2):
        assert warm.run(ForkRequest(runner.original)).status is RunStatus.COMPLETED
        runner.open(runner.original).close()
    warm.close()


@pytest.mark.long
def test_bugs_are_injected_with_one_slot(url: str, project: Path, tmp_path: Path) -> None:
    argv = ["inject", str(project), "--count", "1", "--injector", "mutation", "--store", str(tmp_path / "store")]
    assert main([*argv, "--sandbox", f"remote:{url}"]) == 0


def test_a_run_that_needs_more_slots_is_refused(
    url: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "replies.json").write_text("[]")
    argv = ["play", str(project), "--injector", f"scripted:{tmp_path}/replies.json", "--strategy", "removal"]
    assert main([*argv, "--store", str(tmp_path / "store"), "--sandbox", f"remote:{url}", "--jobs", "3", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["kind"] == "SettingsError"
    assert " 4 " in error["error"]
