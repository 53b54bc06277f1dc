"""An episode of an environment in a sandbox of another machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven, project, proven
from remote_hosts import served_host

from harness.environments import StoreTasks
from harness.environments.episodes import EnvironmentSettings, Episodes
from harness.remote_sandboxes.host import HostSettings
from pytest_ssr.sandbox import load_provider

__all__ = ["project", "proven"]


@pytest.mark.bubblewrap
def test_an_episode_runs_in_a_remote_sandbox(proven: Proven, tmp_path_factory: pytest.TempPathFactory) -> None:
    readable = [tmp_path_factory.getbasetemp(), Path(sys.prefix), Path(sys.base_prefix), plain_python().parents[1]]
    with served_host(load_provider("bubblewrap"), HostSettings(readable=readable)) as (url, _):
        tasks = StoreTasks(proven.project, proven.store.root, sandbox=f"remote:{url}", python=plain_python())
        episodes = Episodes(tasks, EnvironmentSettings())
        episodes.begin(seed=1)
        edit = {"command": "str_replace", "path": "calc.py", "old_str": "return a - b", "new_str": "return a + b"}
        assert "+    return a + b" in episodes.call("editor", edit).diff
        assert episodes.call("submit", {}).reward == 1.0
        episodes.close()
