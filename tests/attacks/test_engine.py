"""Kill the Docker engine in the middle of a run; only if SSR_TEST_ENGINE names a command that starts it again."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from plain import plain_python

from pytest_ssr.sandbox.docker.container import LABEL

pytestmark = [pytest.mark.docker, pytest.mark.long]
COUNT = 3
CODE = """\
def grow{n}(values, by={n}):
    total = 0
    for value in values:
        if value > by:
            total += value - by
        else:
            total -= 1
    return total


"""
TESTS = "from code_of_it import *\n\n\n" + "".join(
    f"def test_grow{n}():\n    assert grow{n}([{n}, {n} + 5]) == 4\n\n\ndef test_none{n}():\n    assert grow{n}([]) == 0\n\n\n"
    for n in range(4)
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "code_of_it.py").write_text("".join(CODE.format(n=n) for n in range(4)))
    (folder / "test_it.py").write_text(TESTS)
    return folder


def command(store: Path) -> list[str]:
    arguments = ["inject", ".", "--sandbox", "docker", "--count", str(COUNT), "--store", str(store), "--json"]
    return [sys.executable, "-m", "harness.cli", *arguments, f"--python={plain_python()}"]


def containers() -> dict[str, str]:
    """Return the status and the owner of each container of ours, by its id.

    An engine that removes a container while it starts can list it until it starts again, although nothing of it exists.
    """
    client = docker.from_env()
    try:
        listed = client.api.containers(all=True, filters={"label": LABEL})
        return {c["Id"]: f"{c['Status']} {c['Labels'][LABEL]}" for c in listed if exists(client, c["Id"])}
    finally:
        client.close()


def exists(client: docker.DockerClient, container: str) -> bool:
    try:
        client.api.inspect_container(container)
    except docker.errors.NotFound:
        return False
    return True


def finished(store: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in store.glob("attempts/*/*.json")}


@pytest.mark.parametrize("daemons", ["dockerd|containerd"])
def test_a_killed_engine_costs_only_the_running_candidates(project: Path, tmp_path: Path, daemons: str) -> None:
    """It exits with one message and status 3; the same command resumes, and no container is left."""
    store = tmp_path / "store"
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    before = containers()
    with subprocess.Popen(
        command(store), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        deadline = time.monotonic() + 120
        while not finished(store) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert run.poll() is None, "it ended before the engine was killed: the test proves nothing"
        subprocess.run([*sudo, "pkill", "-9", "-x", f"({daemons})"], check=True)
        try:
            _, stderr = run.communicate(timeout=120)
        finally:
            while subprocess.run(["pgrep", "-x", f"({daemons})"], capture_output=True, check=False).returncode == 0:
                time.sleep(0.1)
            subprocess.run(shlex.split(os.environ["SSR_TEST_ENGINE"]), check=True, timeout=300)
    assert run.returncode == 3, stderr
    assert "Traceback" not in stderr
    assert "ngine" in stderr.strip().splitlines()[-1]
    before_restart = finished(store)
    assert before_restart
    again = subprocess.run(command(store), cwd=project, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert sum(a["status"] == "valid" for a in json.loads(again.stdout)["attempts"]) == COUNT
    assert {p: t for p, t in finished(store).items() if p in before_restart} == before_restart, (
        "finished candidates are not repeated"
    )
    assert containers().keys() <= before.keys()
