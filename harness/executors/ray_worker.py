"""Run units in a worker of a Ray cluster: an actor that has one sandbox slot of its node."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import ray

from harness.executors.cache_room import cache_limit
from harness.executors.node import Node, cache_folder
from harness.executors.outcomes import Failure, Outcome, Versions
from harness.executors.protocol import OpenWork, VersionsDifferError
from harness.storage.code_version import code_hash
from pytest_ssr.errors import SandboxError, SettingsError, StoreError
from pytest_ssr.interrupts import Background, background

MOST_OPEN = 4
"""How many works a worker keeps open."""
_MACHINE_ERRORS = (SandboxError, StoreError, OSError, MemoryError)
"""Errors of a unit whose cause may be the machine."""


def versions() -> Versions:
    """Return the versions of this process."""
    return Versions(code_hash(), version("pytest-ssr"), platform.python_version())


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is told at its start."""

    run: str
    """The name of the run's cache on its node."""
    slots: int
    """How many workers the node has."""
    workers: int
    """How many workers all nodes have."""
    store: Mapping[str, object]
    """The description of a store whose database and blobs all nodes reach; empty if results are sent back."""
    expected: Versions
    folder: str
    """The current folder of the run: relative paths of its settings start there, if the node has it."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetches data from Ray's object store."""

    reference: Any

    def __call__(self) -> bytes:
        """Return the data; raises SandboxError if the object is lost."""
        try:
            data: bytes = ray.get(self.reference)
        except ray.exceptions.RayError as error:
            raise SandboxError(f"data of the run cannot be fetched: {type(error).__name__}") from None
        return data


class SlotWorker:
    """Does one unit at a time, and keeps the works that it used last open."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._opened: OrderedDict[str, OpenWork[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._current: tuple[str, Background[Any]] | None = None
        self._stopped: set[str] = set()

    def prepare(self) -> Outcome:
        """Return the name of the machine; a failure if it has other versions or its cache cannot be written."""
        here, expected = versions(), self._settings.expected
        if here != expected:
            message = f"{socket.gethostname()} has {here}, and the run was started with {expected}"
            return Outcome(failure=Failure.of(VersionsDifferError(message)), is_fault=True)
        with contextlib.suppress(OSError):
            os.chdir(self._settings.folder)
        try:
            cache_limit()
            _ = self._node
        except (*_MACHINE_ERRORS, SettingsError) as error:
            return Outcome(failure=Failure.of(error), is_fault=True)
        return Outcome(socket.gethostname())

    @cached_property
    def _node(self) -> Node:
        folder = cache_folder() / self._settings.run
        return Node.open(folder, self._settings.slots, self._settings.workers, self._settings.store)

    def run(self, unit: str, work: str, recipe: list[Any], argument: Any) -> Outcome:
        """Do a unit. recipe: a list with the reference of the recipe, which is fetched if the work is not open."""
        begin = time.monotonic()
        with self._lock:
            if unit in self._stopped:
                return Outcome(is_stopped=True)
            task = background(lambda: self._run(work, recipe, argument), name="unit")
            self._current = (unit, task)
        try:
            outcome = task.result()
        except KeyboardInterrupt:
            outcome = Outcome(is_stopped=True)
        finally:
            with self._lock:
                self._current = None
                self._stopped.clear()
        files = self._node.take_files()
        return replace(outcome, files=files, seconds=time.monotonic() - begin)

    def _run(self, work: str, recipe: list[Any], argument: Any) -> Outcome:
        try:
            opened = self._open(work, recipe)
        except Exception as error:
            # It is open where the run was started: what is missing is missing here.
            return Outcome(failure=Failure.of(error), is_fault=True, is_unopened=True)
        try:
            result = opened.run(argument)
            fault = opened.fault(result)
            return Outcome(result, is_fault=fault is not None, cause=str(fault or ""))
        except _MACHINE_ERRORS as error:
            return Outcome(failure=Failure.of(error), is_fault=True)
        except Exception as error:
            return Outcome(failure=Failure.of(error))

    def fetch(self, ahead: Callable[[Node], object]) -> None:
        """Do something for a unit that waits; if it fails, the unit itself reports the cause."""
        with contextlib.suppress(Exception):
            ahead(self._node)

    def answer(self) -> None:
        """Return at once, which shows that this process runs."""

    def stop(self, unit: str) -> None:
        """Stop a unit that runs, or will be started."""
        with self._lock:
            current = self._current
            if current is None or current[0] != unit:
                self._stopped.add(unit)
                return
        current[1].stop()

    def _open(self, work: str, recipe: list[Any]) -> OpenWork[Any, Any]:
        if work in self._opened:
            self._opened.move_to_end(work)
            return self._opened[work]
        while len(self._opened) >= MOST_OPEN:
            self._opened.popitem(last=False)[1].close()
        opened: OpenWork[Any, Any] = ray.get(recipe[0])(self._node)
        self._opened[work] = opened
        return opened
