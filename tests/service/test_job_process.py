"""Jobs run in a folder in which nobody else has settings."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

import pytest

from harness.service.job_process import JobProcess, remove_left_over
from harness.service.jobs import Plan

PROGRAM = """
import json
from pathlib import Path
from pytest_ssr.project.settings_table import project_file, read_project_table
path = project_file(Path.cwd())
print(json.dumps({"own": path.parent == Path.cwd(), "settings": read_project_table(path)}))
"""


def test_the_folders_of_killed_workers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = JobProcess(Plan([sys.executable, "-c", "import time; time.sleep(600)"]))
    # The numbers of processes end at 2^22: no process has these.
    killed, elsewhere, other = (tmp_path / name for name in ("ssr-job-9999998-a", "ssr-job-9999999-b", "ssr-job-x-c"))
    for folder in (killed, elsewhere, other):
        folder.mkdir()
    held = os.open(elsewhere, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    remove_left_over()
    os.close(held)
    assert set(tmp_path.iterdir()) == {process.folder, elsewhere, other}
    process.kill()
    process.remove()
    process.remove()


def test_variables_of_the_worker_are_no_settings_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_TRIES", "7")
    monkeypatch.setenv("SSR_OTHER", "kept")
    program = "import json, os; print(json.dumps({n: os.environ.get(n) for n in ('SSR_TRIES', 'SSR_OTHER')}))"
    process = JobProcess(Plan([sys.executable, "-c", program], unset=frozenset({"SSR_TRIES"})))
    while process.poll() is None:
        time.sleep(0.01)
    assert process.output() == {"SSR_TRIES": None, "SSR_OTHER": "kept"}
    process.remove()


def test_settings_above_the_folder_of_a_job_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ssr]\nsandbox = "bubblewrap"\n')
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = JobProcess(Plan([sys.executable, "-c", PROGRAM]))
    while process.poll() is None:
        time.sleep(0.01)
    assert process.output() == {"own": True, "settings": {}}
    process.remove()
    assert not process.folder.exists()
