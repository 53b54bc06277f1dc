"""Sealed Harbor tasks in real containers: their images are pinned, and a verifier's reward cannot be bought."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import verifier_image
from plain import plain_python

from harness.cli.main import main

pytestmark = [pytest.mark.long, pytest.mark.docker]

REGISTRY = os.environ.get("SSR_TEST_REGISTRY", "")
# Code of a repair that runs with the tests: it repairs itself by the answer, and writes the reward.
CHEATS = """
try:
    exec(open("/opt/ssr/task/project/calc.py").read())
except OSError:
    pass
try:
    open("/logs/verifier/reward.txt", "w").write("1")
except OSError:
    pass
"""


def run(*arguments: object) -> str:
    done = subprocess.run(["docker", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> Iterator[Path]:
    """A sealed task with pinned images."""
    if not REGISTRY:
        pytest.skip("SSR_TEST_REGISTRY names no registry")
    folder = tmp_path_factory.mktemp("harbor")
    project = folder / "calc"
    for name, text in calculator.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    inject = ["inject", str(project), "--count", "1", "--injector", "mutation", "--sandbox", "process"]
    assert main([*inject, "--python", str(plain_python())]) == 0
    with verifier_image() as image:
        export = ["export", str(project), "--format", "harbor", "--image", image, "--out", str(folder / "tasks")]
        assert main([*export, "--images", f"{REGISTRY}/ssr-harbor"]) == 0
        yield next((folder / "tasks" / "train").iterdir())


def test_a_published_folder_names_the_images_that_were_pushed(task: Path, tmp_path: Path) -> None:
    project = task.parents[2] / "calc"
    base = tomllib.loads((task / "task.toml").read_text())["environment"]["docker_image"]
    run("pull", "--quiet", base)
    exported, remote = tmp_path / "tasks", tmp_path / "remote.git"
    assert main(["export", str(project), "--format", "harbor", "--image", base, "--out", str(exported)]) == 0
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    publish = ["publish", str(exported), "--to", f"git:{remote}#main", "--images", f"{REGISTRY}/ssr-published"]
    assert main(publish) == 0
    subprocess.run(["git", "clone", "--quiet", "--branch", "main", remote, tmp_path / "clone"], check=True)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "clone", check=True)
    described = tomllib.loads((tmp_path / "clone" / "train" / task.name / "task.toml").read_text())
    assert f"{REGISTRY}/ssr-published/{task.name}@sha256:" in described["environment"]["docker_image"]
    assert "docker_image" not in (exported / "train" / task.name / "task.toml").read_text()


def graded(task: Path, change: str, folder: Path) -> dict[str, float]:
    """Return the rewards for what a command leaves in the agent's container, as Harbor passes it on."""
    described = tomllib.loads((task / "task.toml").read_text())
    agent, verifier = (s["docker_image"] for s in (described["environment"], described["verifier"]["environment"]))
    assert "@sha256:" in agent
    assert "@sha256:" in verifier
    container = run("create", "--network", "none", "-v", f"{task / 'solution'}:/solution:ro", agent, "sh", "-c", change)
    try:
        run("start", "--attach", container)
        run("cp", f"{container}:/testbed", folder / "submitted")
    finally:
        run("rm", "--force", container)
    rewards = folder / "rewards"
    rewards.mkdir()
    mounts = ["-v", f"{folder / 'submitted'}:/testbed", "-v", f"{rewards}:/logs/verifier"]
    run("run", "--rm", "--network", "none", *mounts, verifier, "/tests/test.sh")
    assert {path.name for path in rewards.iterdir()} == {"grade.json", "reward.json"}
    found: dict[str, float] = json.loads((rewards / "reward.json").read_text())
    return found


def test_the_reference_solution_gets_one_and_nothing_gets_zero(task: Path, tmp_path: Path) -> None:
    for name, change, reward in (("oracle", "sh /solution/solve.sh", 1.0), ("nop", "true", 0.0)):
        (tmp_path / name).mkdir()
        rewards = graded(task, change, tmp_path / name)
        assert (rewards["reward"], rewards["tests"], rewards["pass_to_pass"]) == (reward, reward, 1.0)


def test_code_of_the_agent_neither_reads_the_answer_nor_writes_the_reward(task: Path, tmp_path: Path) -> None:
    (tmp_path / "cheat.py").write_text(CHEATS)
    with tarfile.open(task / "solution" / "cheat.tar", "w") as archive:
        archive.add(tmp_path / "cheat.py", "cheat.py")
    assert graded(task, "tar -xOf /solution/cheat.tar >> calc.py", tmp_path)["reward"] == 0.0
