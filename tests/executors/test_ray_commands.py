"""Commands on a cluster give the records that they give on this machine, and episodes run in its slots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")

from clusters import LocalCluster
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from rows import write_project, written

from harness.cli.main import main
from harness.environments import StoreTasks
from harness.environments.episodes import EnvironmentSettings
from harness.environments.remote_episodes import EXECUTOR, RemoteEpisodes, open_episodes
from harness.executors.ray_session import RaySession
from pytest_ssr.errors import ActionError, SandboxError

TIMES = ("seconds", "runs", "forks")
"""What differs from run to run on one machine, too: times, and how many runs a cache has saved."""


def comparable(data: Any) -> Any:
    """Return a record without times."""
    if isinstance(data, dict):
        return {k: comparable(v) for k, v in data.items() if k not in TIMES and not k.endswith("_s")}
    return [comparable(v) for v in data] if isinstance(data, list) else data


def records(store: Path, *kinds: str) -> dict[str, Any]:
    """Return the results of some kinds in a store, without times."""
    paths = [p for kind in kinds for p in sorted((store / kind).rglob("*")) if p.is_file()]
    return {
        str(p.relative_to(store)): comparable(json.loads(p.read_bytes())) if p.suffix == ".json" else p.read_bytes()
        for p in paths
        # Times are part of what pytest printed.
        if p.suffix not in (".jsonl", ".txt") or "artifacts" in p.parts
    }


def test_play_has_the_records_of_one_machine(project: Path, cluster: LocalCluster, tmp_path: Path) -> None:
    command = ["play", str(project), "--count", "2", "--attempts", "2", "--tries", "5", "--higher-order", "0"]
    command += ["--python", str(plain_python())]
    codes = [
        main([*command, "--store", str(tmp_path / name), *options])
        for name, options in (("here", []), ("there", ["--ray", cluster.address]))
    ]
    kinds = ("artifacts", "attempts", "episodes", "rollouts", "verdicts", "wanted")
    here, there = (records(tmp_path / name, *kinds) for name in ("here", "there"))
    assert codes == [0, 0]
    assert here.items() <= there.items()
    # Two workers try, and prove, some candidates that turn out not to be needed, as two jobs do.
    assert {path.split("/")[0] for path in there.keys() - here.keys()} <= {"attempts", "verdicts"}
    assert {path.split("/")[0] for path in here} == set(kinds)


def test_eval_and_run_have_the_records_of_one_machine(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones, rows = write_project(tmp_path)
    dataset = written(tmp_path / "rows.jsonl", rows)
    common = ["--repos", str(clones), "--python", str(plain_python()), "--sandbox", "process"]
    for command in (["eval", str(dataset), "--predictions", "gold"], ["run", str(dataset), "--tries", "10"]):
        command += ["--solver", "search"] if command[0] == "run" else []
        for name, options in (("here", []), ("there", ["--ray", f"ray://{cluster.address}"])):
            out = tmp_path / f"{command[0]}-{name}"
            main([*command, *common, "--out", str(out), *options])
        here, there = (
            records(tmp_path / f"{command[0]}-{name}" / ".ssr", "attempts", "outcomes", "rollouts")
            for name in ("here", "there")
        )
        assert here
        assert here == there
    assert "slots  units  lost  faults" in capsys.readouterr().err


def test_audit_has_the_cards_of_one_machine(cluster: LocalCluster, tmp_path: Path) -> None:
    clones, rows = write_project(tmp_path)
    dataset = written(tmp_path / "rows.jsonl", rows)
    common = ["--repos", str(clones), "--python", str(plain_python()), "--sandbox", "process"]
    common += ["--changes", "6", "--time", "10m"]
    cards = {}
    for name, options in (("here", []), ("there", ["--ray", f"ray://{cluster.address}"])):
        main(["audit", str(dataset), *common, "--out", str(tmp_path / name), *options])
        lines = (tmp_path / name / "cards.jsonl").read_text().splitlines()
        cards[name] = [{key: value for key, value in json.loads(line).items() if key != "cost"} for line in lines]
    assert [card["sharp"]["counted"] > 0 for card in cards["here"]] == [True, True]
    assert cards["here"] == cards["there"]


def test_episodes_run_in_a_slot_of_the_cluster(
    proven: Proven, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTOR, f"ray://{cluster.address}")
    tasks = StoreTasks(proven.project, proven.store.root, python=plain_python())
    episodes = open_episodes(tasks, EnvironmentSettings())
    assert isinstance(episodes, RemoteEpisodes)
    try:
        for command, reward in ((FIX, 1.0), (NO_FIX, -1.0)):
            episode = episodes.begin(task=proven.verdict.artifact_id)
            assert episode.task_id == proven.verdict.artifact_id
            steps = episode.steps_left
            assert not episodes.write(command).terminated
            assert episodes.current.steps_left < steps
            turn = episodes.write(SUBMIT)
            assert (turn.reward, turn.terminated) == (reward, True)
            assert episodes.current.outcome == turn.outcome
        assert episodes.has(proven.verdict.artifact_id)
        assert episodes.current.trajectory.task_id == proven.verdict.artifact_id
    finally:
        episodes.close()
        episodes.close()
    with pytest.raises(ActionError):
        episodes.begin()


def test_a_session_on_a_lost_node_is_a_fault_of_the_sandbox(cluster: LocalCluster) -> None:
    session = RaySession(cluster.address, Victim)
    with pytest.raises(SandboxError):
        session.call("end")
    session.close()


class Victim:
    """An object that ends its process."""

    def end(self) -> None:
        import os

        os._exit(1)
