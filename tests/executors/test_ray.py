"""A cluster of nodes does units once each, whatever happens to the nodes; the results are those of one machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")

import cluster_works
from clocks import DAY_S
from cluster_works import Probe
from clusters import LocalCluster
from ray import cloudpickle
from ray._private import worker as ray_worker

from harness.executors import ray_executor, ray_slots
from harness.executors.outcomes import Versions
from harness.executors.protocol import TRIES, WorkerLostError, completed
from harness.executors.ray_connection import connect
from harness.executors.ray_executor import RayExecutor
from harness.executors.ray_worker import versions
from pytest_ssr.errors import SandboxError, SandboxUnavailableError, SettingsError, SsrError
from pytest_ssr.storage.store import Store

cloudpickle.register_pickle_by_value(cluster_works)


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def executor(cluster: LocalCluster, tmp_path: Path, messages: list[str]) -> Iterator[RayExecutor]:
    with RayExecutor(cluster.address, Store(tmp_path / "store"), notify=messages.append) as executor:
        yield executor


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path / "trace")


def test_units_run_on_all_nodes_and_their_records_reach_the_store(
    executor: RayExecutor, probe: Probe, tmp_path: Path
) -> None:
    arguments = [f"sleep:0.{n:02}" for n in range(20, 40)]
    with executor.units(probe) as units:
        results = {argument: future.result() for argument, future in completed(units, arguments)}
    assert {a: r.split()[0] for a, r in results.items()} == {a: a for a in arguments}
    assert len({r.split()[1] for r in results.values()}) == 2
    store = Store(tmp_path / "store")
    for argument in arguments:
        assert store.record("attempts/probe", argument.replace(":", "-")) == {"result": results[argument]}
        assert len(probe.begun(argument)) == 1
    assert sum(node.done for node in executor.nodes) == 20


def test_the_clocks_of_the_nodes_differ_and_their_durations_do_not(executor: RayExecutor, probe: Probe) -> None:
    wait_until(lambda: "of 2 workers" in executor.summary())
    with executor.units(probe) as units:
        futures = [units.submit(f"clock:{n}") for n in range(2)]
        one, other = sorted(float(future.result().split()[1]) for future in futures)
    assert DAY_S - 60 < other - one < DAY_S + 60
    assert all(0.5 <= node.seconds < 60 for node in executor.nodes)


def test_what_the_store_has_is_not_done_again(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units:
        assert units.submit("stored").result() == "stored"
    assert probe.begun("stored") == []


def test_a_lost_worker_costs_one_attempt_and_the_unit_runs_elsewhere(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units:
        result = units.submit("die:1").result()
    first, second = probe.begun("die:1")
    assert first != second
    assert result == f"die:1 {second}"
    assert sum(node.lost for node in executor.nodes) == 1


def test_a_unit_that_kills_its_workers_has_no_result_and_no_node_is_to_blame(
    executor: RayExecutor, probe: Probe
) -> None:
    with executor.units(probe) as units:
        with pytest.raises(WorkerLostError):
            units.submit("die").result()
        assert units.submit("after").result().startswith("after")
    assert len(probe.begun("die")) == TRIES
    assert not any(node.drained for node in executor.nodes)


def test_a_unit_is_not_to_blame_for_workers_of_nodes_that_are_gone(
    executor: RayExecutor, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor._slots, "answers", lambda node: False)
    with executor.units(probe) as units:
        name = f"die:{TRIES}"
        assert units.submit(name).result().startswith(name)
    assert len(probe.begun(name)) == TRIES + 1


def test_a_machine_fault_is_tried_elsewhere_and_then_is_the_error(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units:
        assert units.submit("fault:1").result().startswith("fault:1")
        with pytest.raises(SandboxError):
            units.submit("fault").result()
    for argument in ("fault:1", "fault"):
        assert len(set(probe.begun(argument))) == 2
        assert len(probe.begun(argument)) == 2


def test_a_full_disk_of_a_node_is_its_fault(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units:
        assert units.submit("full:1").result().startswith("full:1")
    assert len(set(probe.begun("full:1"))) == 2


def test_a_frozen_worker_is_ended_and_its_unit_runs_elsewhere(
    executor: RayExecutor, probe: Probe, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_slots, "_ASK_S", 0.5)
    monkeypatch.setattr(ray_slots, "_SILENT_S", 4.0)
    with executor.units(probe) as units:
        result = units.submit("freeze:1").result()
    first, second = probe.begun("freeze:1")
    assert first != second
    assert result == f"freeze:1 {second}"
    assert len(messages) == 1
    assert [node.lost for node in executor.nodes if node.lost] == [1]


def test_an_unforeseen_error_ends_the_unit_at_once(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units, pytest.raises(SsrError, match=r"cluster_works\.py"):
        units.submit("error:x").result()
    assert len(probe.begun("error:x")) == 1


def test_a_cancelled_unit_stops_and_its_worker_goes_on(executor: RayExecutor, probe: Probe) -> None:
    with executor.units(probe) as units:
        futures = [units.submit(f"wait:{seconds}") for seconds in (600, 601, 602)]
        wait_until(lambda: bool(probe.begun("wait:600") and probe.begun("wait:601")))
        begin = time.monotonic()
        for future in futures:
            assert future.cancel()
        assert units.submit("after").result().startswith("after")
    assert time.monotonic() - begin < 30
    assert probe.begun("wait:602") == []


def test_what_a_waiting_unit_needs_is_fetched_where_it_will_run(executor: RayExecutor, probe: Probe) -> None:
    wait_until(lambda: len(executor.nodes) == 2 and executor.slots == 2)
    with executor.units(probe) as units:
        short, long = units.submit("wait:4"), units.submit("wait:600")
        wait_until(lambda: bool(probe.begun("wait:4") and probe.begun("wait:600")))
        waiting = [units.submit("image:a"), units.submit("image:b")]
        wait_until(lambda: bool(probe.begun("fetch-image:a") and probe.begun("fetch-image:b")))
        assert not short.done()
        # Each node got one of them.
        assert probe.begun("fetch-image:a") != probe.begun("fetch-image:b")
        fetched = {name: probe.begun(f"fetch-image:{name}") for name in "ab"}
        (first,) = [name for name in "ab" if fetched[name] == probe.begun("wait:4")]
        # The unit whose image is there may wait behind another one.
        waiting["ab".index(first)].result()
        long.cancel()
    assert all(len(probe.begun(f"fetch-image:{name}")) == 1 for name in "ab")


def test_a_run_that_waits_for_the_slots_of_another_one_reports_it_once(
    cluster: LocalCluster, probe: Probe, messages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_slots, "_LONG_START_S", 1.0)
    # The first run must not disconnect the second one.
    connect(cluster.address)
    first = RayExecutor(cluster.address, Store(tmp_path / "store"))
    wait_until(lambda: "of 2 workers" in first.summary())
    with RayExecutor(cluster.address, Store(tmp_path / "other"), notify=messages.append) as second:
        wait_until(lambda: bool(messages))
        assert second.summary() != first.summary()
        first.__exit__()
        with second.units(probe) as units:
            assert units.submit("after").result().startswith("after")
        time.sleep(3)
        assert len(messages) == 1


def test_nodes_of_another_version_are_refused_with_both(
    cluster: LocalCluster, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Versions("feed", "9.9", "3.99")
    monkeypatch.setattr(ray_executor, "versions", lambda: here)
    with RayExecutor(cluster.address, Store(tmp_path / "store")) as executor:
        with executor.units(probe) as units, pytest.raises(SandboxUnavailableError) as caught:
            units.submit("never").result()
        assert all(str(version) in str(caught.value) for version in (here, versions()))
    assert probe.begun("never") == []


def test_messages_of_ray_are_not_shown(executor: RayExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    ray_worker.print_to_stdstream({"lines": ["a node is dead"], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    assert capsys.readouterr() == ("", "")


def test_a_node_that_is_killed_is_replaced_by_one_that_joins(
    cluster: LocalCluster, executor: RayExecutor, probe: Probe
) -> None:
    with executor.units(probe) as units:
        names = [f"sleep:3.{n}" for n in range(6)]
        futures = {name: units.submit(name) for name in names}
        wait_until(lambda: any(probe.begun(name) for name in names))
        (gone,) = [node for node in executor.nodes if node.id == cluster.workers[0].node_id]
        assert executor._slots.answers(gone)
        cluster.kill(cluster.workers[0])
        assert not executor._slots.answers(gone)
        cluster.add()
        assert {name: future.result().split()[0] for name, future in futures.items()} == {name: name for name in names}
    assert all(1 <= len(probe.begun(name)) <= 2 for name in names)


@pytest.mark.long
def test_what_a_node_does_while_it_is_cut_off_is_not_used(
    cluster: LocalCluster, executor: RayExecutor, probe: Probe, tmp_path: Path
) -> None:
    node = cluster.add()
    name = f"node-{cluster.made}"
    try:
        wait_until(lambda: "of 3 workers" in executor.summary())
        with executor.units(probe) as units:
            arguments = [f"wait:4.{n}" for n in range(3)]
            futures = {argument: units.submit(argument) for argument in arguments}
            wait_until(lambda: all(probe.begun(argument) for argument in arguments))
            (cut_off,) = [argument for argument in arguments if probe.begun(argument) == [name]]
            cluster.signal(node, signal.SIGSTOP)
            results = {argument: future.result() for argument, future in futures.items()}
            cluster.signal(node, signal.SIGCONT)
        first, second = probe.begun(cut_off)
        assert results[cut_off] == f"{cut_off} {second}"
        assert first == name != second
        record = Store(tmp_path / "store").record("attempts/probe", cut_off.replace(":", "-"))
        assert record == {"result": results[cut_off]}
        assert [n.has_left for n in executor.nodes].count(True) == 1
    finally:
        cluster.kill(node)


def test_a_node_without_a_cache_is_drained_and_the_others_work(
    cluster: LocalCluster, executor: RayExecutor, probe: Probe, messages: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    bad = cluster.add(SSR_NODE_CACHE=str(tmp_path / "file"))
    try:
        wait_until(lambda: any(node.drained for node in executor.nodes))
        with executor.units(probe) as units:
            results = [future.result() for _, future in completed(units, [f"n{n}" for n in range(8)])]
        assert not any(result.endswith(tmp_path.name) for result in results)
        (drained,) = [node for node in executor.nodes if node.drained]
        assert any(message.startswith(drained.name) for message in messages)
    finally:
        cluster.kill(bad)


def test_a_node_that_lacks_something_is_drained_with_its_name_and_the_others_work(
    cluster: LocalCluster, executor: RayExecutor, probe: Probe, messages: list[str]
) -> None:
    bad = cluster.add(SSR_TEST_LACKS="bubblewrap")
    try:
        wait_until(lambda: "of 3 workers" in executor.summary())
        with executor.units(probe) as units:
            arguments = [f"n{n}" for n in range(20)]
            results = {argument: future.result() for argument, future in completed(units, arguments)}
        assert set(results) == set(arguments)
        (drained,) = [node for node in executor.nodes if node.drained]
        assert drained.done == 0
        # It gets no fourth unit until the others have a result of these three, however long that takes.
        assert drained.faults == 3
        # The node of an earlier test may leave only now.
        assert f"{drained.name} gets no more work: {drained.drained}" in messages
        assert "bubblewrap" in drained.drained
        # A unit that failed there was begun once.
        assert all(len(probe.begun(argument)) == 1 for argument in arguments)
    finally:
        cluster.kill(bad)


def test_a_process_uses_one_cluster(cluster: LocalCluster, executor: RayExecutor) -> None:
    assert not connect(cluster.address)
    assert not connect("auto")
    port = cluster.address.rpartition(":")[2]
    for other in ("127.0.0.1:9", f"192.0.2.1:{port}"):
        with pytest.raises(SettingsError) as caught:
            connect(other)
        assert caught.value.option == "ray"


def test_an_address_without_a_cluster_is_an_error_of_the_option(tmp_path: Path) -> None:
    import ray

    ray.shutdown()
    with pytest.raises(SettingsError) as caught:
        RayExecutor("127.0.0.1:9", Store(tmp_path / "store"))
    assert caught.value.option == "ray"


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)
