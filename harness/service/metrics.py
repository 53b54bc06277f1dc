"""Report metrics for Prometheus: of the store from its database, of requests from this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from harness.database.engine import database_time, describing, reading
from harness.database.schema import artifacts, candidates, episodes, jobs, rollouts, workers
from harness.service.health import Trouble, troubles
from harness.service.job import JobStatus
from harness.service.worker_row import LOST_S, WorkerStatus
from pytest_ssr.errors import StoreError
from pytest_ssr.records.decoding import json_object

_FRESH_S = 5.0
"""For how long sums are reported again: several servers may scrape one service."""
_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_REQUEST_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SANDBOXES = {
    "sandbox_starts": "Sandboxes that jobs have started.",
    "sandbox_failures": "Sandboxes of jobs that did not start.",
}
"""Counters of workers."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_Rows = Sequence[Any]
_Values = Mapping[Any, float | None]
"""Values by the values of their labels."""
_Run = Callable[[sa.Executable], _Rows]


class Metrics:
    """The metrics of a service."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engine: sa.Engine, folder: Path, count_streams: Callable[[], int]) -> None:
        """folder: of the store."""
        self._engine, self._folder = reading(engine), folder
        self._process = CollectorRegistry()
        self._requests = Histogram(
            "ssr_http_request_seconds",
            "Time until a request was answered.",
            ["method", "route", "status"],
            buckets=_REQUEST_BUCKETS_S,
            registry=self._process,
        )
        Gauge("ssr_event_streams", "Open event streams.", registry=self._process).set_function(count_streams)
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._read_at = float("-inf")

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. route: the pattern of its address, empty if it has none."""
        shown = method if method in _METHODS else "other"
        self._requests.labels(shown, route or "none", str(status)).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry) + generate_latest(self._process)

    def describe(self) -> list[Metric]:
        """Return nothing: the registry need not read the database to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the store; if the database cannot be used, only that."""
        with self._lock:
            up = GaugeMetricFamily("ssr_database_up", "Whether the database answers.")
            try:
                if time.monotonic() - self._read_at > _FRESH_S:
                    self._families = list(self._read())
                    self._read_at = time.monotonic()
            except StoreError:
                up.add_metric([], 0)
                yield up
                return
            up.add_metric([], 1)
            yield up
            yield from self._families

    def _read(self) -> Iterator[Metric]:
        with describing(self._engine.url), self._engine.connect() as connection:

            def run(statement: sa.Executable) -> _Rows:
                return connection.execute(statement).all()

            found = troubles(self._engine, self._folder)
            family = GaugeMetricFamily("ssr_degraded", "What is wrong with the service.", labels=["trouble"])
            for trouble in Trouble:
                family.add_metric([str(trouble)], trouble in found)
            yield family
            yield from _of_episodes(run)
            yield from _of_rollouts(run)
            now = database_time(connection)
            yield from _of_jobs(run, now)
            yield from _of_workers(run, now)
            for table, name in ((artifacts, "artifacts"), (candidates, "candidates")):
                count = run(sa.select(sa.func.count()).select_from(table))[0][0]
                yield _counter(f"ssr_{name}", f"Stored {name}.", {(): count})


def _of_episodes(run: _Run) -> Iterator[Metric]:
    columns = (episodes.c.valid, sa.func.count(), sa.func.sum(episodes.c.solved), sa.func.sum(episodes.c.graded))
    rows = run(sa.select(*columns).group_by(episodes.c.valid))
    counts = {("valid" if valid else "rejected",): count for valid, count, _, _ in rows}
    yield _counter("ssr_episodes", "Episodes by the verdict on their bug.", counts, ["verdict"])
    yield _counter("ssr_attempts_graded", "Graded attempts in episodes.", {(): sum(row[3] for row in rows)})
    yield _counter("ssr_attempts_solved", "Solved attempts in episodes.", {(): sum(row[2] for row in rows)})
    rejected = run(
        sa.select(episodes.c.check, sa.func.count()).where(episodes.c.check != "").group_by(episodes.c.check)
    )
    counts = {(check,): count for check, count in rejected}
    yield _counter("ssr_episodes_rejected", "Episodes by the check that rejected their bug.", counts, ["check"])
    rewards = run(sa.select(sa.func.count(episodes.c.reward), sa.func.sum(episodes.c.reward)))[0]
    yield _counter("ssr_injector_rewards", "Episodes in which the injector got a reward.", {(): rewards[0]})
    total = GaugeMetricFamily("ssr_injector_reward_sum", "Sum of the injector's rewards, which may be negative.")
    total.add_metric([], float(rewards[1] or 0))
    yield total
    yield _histogram(run, "ssr_episode_seconds", "Time of episodes.", episodes.c.seconds)


def _of_rollouts(run: _Run) -> Iterator[Metric]:
    sums = [sa.func.sum(rollouts.c[name]) for name in ("tokens", "cost_usd", "unpriced")]
    grouped = (rollouts.c.role, rollouts.c.player, rollouts.c.resolved, rollouts.c.valid)
    rows = run(sa.select(*grouped, sa.func.count(), *sums).group_by(*grouped))
    grades = {True: "resolved", False: "unresolved", None: "no-grade"}
    bugs = {True: "valid", False: "rejected", None: "no-grade"}
    labels = ["role", "model"]
    attempts: dict[tuple[str, ...], float] = {}
    for role, player, resolved, valid, count, *_ in rows:
        attempts[role, player, bugs[valid] if role == "injector" else grades[resolved]] = count
    yield _counter("ssr_attempts", "Attempts by role, model and grade.", attempts, [*labels, "grade"])
    texts = ("Tokens by model.", "Cost by model, without calls of unknown price.", "Calls of unknown price by model.")
    for index, (name, text) in enumerate(zip(("ssr_tokens", "ssr_cost_usd", "ssr_unpriced_calls"), texts, strict=True)):
        totals: dict[tuple[str, ...], float] = {}
        for row in rows:
            totals[row[0], row[1]] = totals.get((row[0], row[1]), 0.0) + float(row[5 + index] or 0)
        yield _counter(name, text, totals, labels)
    yield _histogram(run, "ssr_attempt_seconds", "Time of attempts.", rollouts.c.seconds)
    yield _histogram(run, "ssr_grading_seconds", "Time of gradings.", rollouts.c.grading_s)


def _of_jobs(run: _Run, now: float) -> Iterator[Metric]:
    rows = run(sa.select(jobs.c.kind, jobs.c.status, sa.func.count()).group_by(jobs.c.kind, jobs.c.status))
    family = GaugeMetricFamily("ssr_jobs", "Jobs by kind and status.", labels=["kind", "status"])
    for kind, status, count in rows:
        family.add_metric([kind, status], count)
    yield family
    length = GaugeMetricFamily("ssr_queue_length", "Jobs that wait for a worker.")
    length.add_metric([], sum(count for _, status, count in rows if status == JobStatus.QUEUED))
    yield length
    oldest = run(sa.select(sa.func.min(jobs.c.created_at)).where(jobs.c.status == JobStatus.QUEUED))[0][0]
    waiting = GaugeMetricFamily("ssr_queue_wait_seconds", "How long the first job in the queue has waited.")
    waiting.add_metric([], max(0.0, now - oldest) if oldest else 0.0)
    yield waiting
    yield _histogram(run, "ssr_job_seconds", "Time of jobs that have ended.", jobs.c.ended_at - jobs.c.started_at)


def _of_workers(run: _Run, now: float) -> Iterator[Metric]:
    rows = run(sa.select(workers.c.status, workers.c.seen_at, workers.c.counters))
    counts: dict[str, int] = {}
    sandboxes = dict.fromkeys(_SANDBOXES, 0.0)
    for status, seen_at, counters in rows:
        is_lost = status != WorkerStatus.STOPPED and now - seen_at > LOST_S
        shown = str(WorkerStatus.LOST) if is_lost else status
        counts[shown] = counts.get(shown, 0) + 1
        for name, value in (json_object(counters) or {}).items():
            if name in _SANDBOXES and isinstance(value, int | float):
                sandboxes[name] += value
    family = GaugeMetricFamily("ssr_workers", "Workers by status.", labels=["status"])
    for status, count in counts.items():
        family.add_metric([status], count)
    yield family
    for name, total in sandboxes.items():
        yield _counter(f"ssr_{name}", _SANDBOXES[name], {(): total})


def _counter(name: str, text: str, values: _Values, labels: Sequence[str] = ()) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=list(labels))
    for key, value in values.items():
        family.add_metric(list(key), float(value or 0))
    return family


def _histogram(run: _Run, name: str, text: str, seconds: sa.ColumnElement[Any]) -> HistogramMetricFamily:
    below = [sa.func.sum(sa.case((seconds <= bound, 1), else_=0)) for bound in _BUCKETS_S]
    *counts, count, total = run(sa.select(*below, sa.func.count(seconds), sa.func.sum(seconds)))[0]
    bounds = [str(bound) for bound in _BUCKETS_S]
    buckets = [(bound, float(value or 0)) for bound, value in zip(bounds, counts, strict=True)]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], [*buckets, ("+Inf", float(count))], sum_value=float(total or 0))
    return family
