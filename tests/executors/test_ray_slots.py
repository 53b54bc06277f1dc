"""Nodes are drained for their own faults only, and slots remember what their workers had; without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray", reason="tox -e ray installs it")

import ray

from harness.executors import ray_executor, ray_slots
from harness.executors.node import NodeState
from harness.executors.ray_slots import Slot, Slots
from harness.executors.ray_worker import MOST_OPEN
from pytest_ssr.errors import SandboxUnavailableError

UNITS = ("u1", "u2", "u3", "u4")


class Killed(list[Any]):
    def kill(self, actor: Any) -> None:
        self.append(actor)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Killed:
    killed = Killed()
    monkeypatch.setattr(ray_slots.ray, "kill", killed.kill)
    return killed


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def slots(messages: list[str]) -> Slots:
    slots = Slots(threading.RLock(), lambda *_: None, lambda *_: None, lambda: None, messages.append)  # type: ignore
    for name in ("a", "b"):
        node = slots._alive[name] = NodeState(name, name, 1)
        slots._ready.add(Slot(node, f"actor-{name}"))
    return slots


def test_units_that_fail_everywhere_are_no_reason_to_drain(slots: Slots, messages: list[str]) -> None:
    for unit in UNITS:
        for node in slots.nodes:
            slots.count_fault(node, unit, "no sandbox")
    for unit in UNITS:
        slots.forgive(unit, {"a", "b"})
    assert messages == []
    assert [node.faults for node in slots.nodes] == [4, 4]
    assert not any(node.failed_since for node in slots.nodes)


def test_units_that_another_node_can_do_drain_a_node_with_the_cause(
    slots: Slots, killed: Killed, messages: list[str]
) -> None:
    first, second = slots.nodes
    for unit in UNITS[:3]:
        slots.count_fault(first, unit, f"no engine for {unit}")
    for unit in UNITS[:2]:
        slots.blame(unit, {"a"})
    assert not first.drained
    # Not one that another run has failed at: nothing is known of it here.
    slots.blame("other", {"a", "gone"})
    assert not first.drained
    slots.blame("u3", {"a"})
    assert first.drained == "no engine for u3"
    assert messages == ["a gets no more work: no engine for u3"]
    assert killed == ["actor-a"]
    assert not second.drained


def test_a_node_under_suspicion_gets_units_only_if_no_other_node_is_left(slots: Slots) -> None:
    first, second = slots.nodes
    for unit in UNITS[:3]:
        slots.count_fault(first, unit, "no engine")
    (other,) = [s for s in slots._ready if s.node is second]
    assert slots.nearest("work", "", set()) is other
    other.is_busy = True
    assert slots.nearest("work", "", set()) is None
    # A unit that failed on the other node may try this one.
    nearest = slots.nearest("work", "", {"b"})
    assert nearest is not None
    assert nearest.node is first
    slots.forgive("u3", {"a"})
    nearest = slots.nearest("work", "", set())
    assert nearest is not None
    assert nearest.node is first


def test_a_drained_nodes_worker_gives_its_slot_back_after_its_unit(slots: Slots, killed: Killed) -> None:
    (slot,) = [s for s in slots._ready if s.node.id == "a"]
    slot.is_busy = True
    slots._drain(slot.node, "faults")
    assert killed == []
    slots.release(slot)
    assert killed == ["actor-a"]
    assert len(slots) == 1


def test_what_is_remembered_of_a_worker_is_bounded(slots: Slots) -> None:
    (slot,) = [s for s in slots._ready if s.node.id == "a"]
    for number in range(1_000):
        slot.note_use("kept", "kept")
        slot.note_use(f"work-{number}", f"place-{number}")
    assert len(slot.works) == MOST_OPEN
    assert len(slot.places) == 64
    assert "kept" in slot.works
    assert "kept" in slot.places


def test_a_cluster_that_does_not_answer_is_reported_once(
    slots: Slots, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[Any] = iter([ConnectionError(), ConnectionError(), None, ConnectionError()])

    def look() -> None:
        answer = next(answers, StopIteration)
        if answer is StopIteration:
            slots._closed.set()
        elif answer is not None:
            raise answer

    monkeypatch.setattr(ray_slots, "_WATCH_S", 0.001)
    monkeypatch.setattr(slots, "_look", look)
    slots._watch()
    assert messages == ["the cluster does not answer: ConnectionError"] * 2


@pytest.mark.parametrize("error", [ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError])
def test_a_full_object_store_is_a_fault_with_advice(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def put(data: object) -> None:
        raise error("full")

    monkeypatch.setattr(ray_executor.ray, "put", put)
    with pytest.raises(SandboxUnavailableError) as caught:
        ray_executor._put(b"tree")
    assert caught.value.remedy
