"""Units run in threads of this process, a bounded number at a time, and arguments are taken as they are needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from harness.executors.local import LocalExecutor
from harness.executors.node import CollectedRecords, Node, keep_files
from harness.executors.outcomes import Failure
from harness.executors.protocol import WorkerLostError, completed
from pytest_ssr.errors import MissingExtraError, SandboxError, SsrError
from pytest_ssr.storage.store import Store


@dataclass
class Doubling:
    """A work that records how many units run at the same time."""

    most: int = 0
    running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, argument: int) -> int:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        threading.Event().wait(0.01)
        with self.lock:
            self.running -= 1
        if argument < 0:
            raise SandboxError("no sandbox")
        return 2 * argument


def test_units_end_in_any_order_with_their_arguments() -> None:
    work = Doubling()
    with LocalExecutor(3).units(work) as units:
        done = {argument: future.result() for argument, future in completed(units, range(20))}
    assert done == {n: 2 * n for n in range(20)}
    assert work.most == 3


def test_arguments_are_taken_as_workers_become_free() -> None:
    taken = []

    def arguments() -> Iterator[int]:
        for number in range(1_000):
            taken.append(number)
            yield number

    with LocalExecutor(2).units(Doubling()) as units:
        for count, _ in enumerate(completed(units, arguments()), 1):
            assert len(taken) <= count + 4
            if count == 5:
                break


def test_the_error_of_a_unit_is_that_of_its_future() -> None:
    with LocalExecutor().units(Doubling()) as units:
        future = units.submit(-1)
        with pytest.raises(SandboxError):
            future.result()


@pytest.mark.parametrize("error", [WorkerLostError("gone", remedy="wait"), MissingExtraError("Ray", "ray")])
def test_an_error_comes_back_as_its_own_class(error: SsrError) -> None:
    found = Failure.of(error).error()
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_an_unforeseen_error_comes_back_with_its_place() -> None:
    try:
        _ = {}["name"]
    except KeyError as error:
        found = Failure.of(error).error()
    assert type(found) is SsrError
    assert "test_local.py" in str(found)


def test_what_a_unit_stores_reaches_the_store_of_the_run(store: Store, node: Node) -> None:
    node.store.put_record("attempts/key", "00001", {"valid": True})
    node.store.put_record("seconds", "row", {"seconds": 1})
    folder = node.store.root / "rollouts" / "r1"
    folder.mkdir(parents=True)
    (folder / "trajectory.jsonl").write_bytes(b"{}\n")
    node.store.keep("rollouts/r1")
    files = node.take_files()
    assert sorted(files) == ["attempts/key/00001.json", "rollouts/r1/trajectory.jsonl"]
    keep_files(store, files)
    assert store.record("attempts/key", "00001") == {"valid": True}
    assert store.file("rollouts/r1", "trajectory.jsonl") == b"{}\n"
    # Another unit of the same worker starts without them.
    assert node.take_files() == {}
    assert node.store.record("attempts/key", "00001") is None
    assert not folder.exists()


def test_a_moved_artifact_has_its_new_place() -> None:
    collected = CollectedRecords()
    collected.put({"artifacts/a/bug_inject.diff": b"1", "artifacts/b/bug_inject.diff": b"2"})
    collected.move("artifacts/a", "spare/a")
    assert sorted(collected.take()) == ["artifacts/b/bug_inject.diff", "spare/a/bug_inject.diff"]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("run") / "store")


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node.open(tmp_path_factory.mktemp("node") / "cache", 1, 1, {})
