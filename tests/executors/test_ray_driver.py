"""A run that is killed, or that another run works beside, has each result once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")

from clusters import LocalCluster
from plain import plain_python


def command(project: Path, store: Path, address: str, count: int) -> list[str]:
    options = ["--count", str(count), "--store", str(store), "--python", str(plain_python()), "--json"]
    return [sys.executable, "-m", "harness.cli", "inject", str(project), *options, "--ray", address]


def test_a_killed_run_continues_with_what_is_stored(project: Path, cluster: LocalCluster, tmp_path: Path) -> None:
    argv = command(project, tmp_path / "store", cluster.address, 3)
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (stored := list(tmp_path.glob("store/attempts/*/*.json"))):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = {path: path.read_bytes() for path in stored}
    done = subprocess.run(argv, capture_output=True, check=True, timeout=200)
    valid = json.loads(done.stdout)["valid"]
    assert len(set(valid)) == 3
    # What was stored is not done again.
    assert all(path.read_bytes() == data for path, data in before.items())


def test_two_runs_share_a_cluster_and_a_store(project: Path, cluster: LocalCluster, tmp_path: Path) -> None:
    argv = command(project, tmp_path / "store", cluster.address, 2)
    runs = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    outputs = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    first, second = (json.loads(out)["valid"] for out, _ in outputs)
    assert first == second
    assert sorted(p.name for p in (tmp_path / "store" / "artifacts").iterdir()) == sorted(first)
