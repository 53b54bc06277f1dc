"""The process sandbox keeps its guarantees, and reports what it does not isolate."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.testing import SandboxContract


class TestProcess(SandboxContract):
    isolates = False

    @pytest.fixture
    def provider(self) -> ProcessProvider:
        return ProcessProvider()


def test_the_probe_reports_what_stays_reachable() -> None:
    availability = ProcessProvider().probe()
    assert availability.detail == "copies and limits only: host files, home and network stay reachable"
    assert availability.remedy == "for model-written code install bubblewrap: apt-get install bubblewrap"


def test_special_files_of_the_tree_are_left_out(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("x")
    with ProcessProvider().open(tmp_path, mount_at="/w") as sandbox:
        assert sorted(p.name for p in Path(sandbox.root).iterdir()) == ["file"]
