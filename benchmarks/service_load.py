"""Measure the service: requests per second and p99 with 100,000 episodes, and 1,000 event streams.

Run: `python benchmarks/service_load.py --out benchmarks/results/NAME.md`. PostgreSQL is started for it; `--sqlite` uses
a file instead. Client, server and database share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import sqlalchemy as sa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "support"))

import postgres  # noqa: E402

from harness.database.events import add_event  # noqa: E402
from harness.database.records import DatabaseRecords, records_of  # noqa: E402
from harness.database.schema import episodes, rollouts, rounds  # noqa: E402
from harness.database.sharing import share_store  # noqa: E402

CHECKS = ("", "", "bug-validity", "test-weakening", "inverse-mutation")
PER_ROUND = 20


def fill(records: DatabaseRecords, count: int) -> None:
    """Add episodes in rounds, with one attempt each."""
    rng = random.Random(1)
    for start in range(0, count, 5_000):
        rows = [episode(n, rng) for n in range(start, min(count, start + 5_000))]
        with records.engine.begin() as connection:
            connection.execute(sa.insert(episodes), rows)
            connection.execute(
                sa.insert(rounds), [round_of(rows[n : n + PER_ROUND]) for n in range(0, len(rows), PER_ROUND)]
            )
            connection.execute(sa.insert(rollouts), [rollout(row) for row in rows])
    with records.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")


def episode(n: int, rng: random.Random) -> dict[str, object]:
    """Return the row of an episode."""
    check = rng.choice(CHECKS)
    graded = 0 if check else 8
    solved = rng.randint(0, graded)
    return {
        "path": f"episodes/{n // PER_ROUND // 50:024x}/round-{n // PER_ROUND:05}.json",
        "position": n % PER_ROUND,
        "run": f"{n // PER_ROUND // 50:024x}",
        "round": n // PER_ROUND % 50,
        "project": f"project-{n % 37}",
        "artifact_id": "" if check else f"{n:020x}",
        "strategy": rng.choice(("mutation", "removal", "direct")),
        "operator": "lost-return",
        "file": f"package/module_{n % 211}.py",
        "scope": f"function_{n % 997}",
        "lines": 3,
        "fail_to_pass": 4,
        "order": 1,
        "valid": not check,
        "check": check,
        "solved": solved,
        "graded": graded,
        "solve_rate": solved / graded if graded else None,
        "reward": rng.uniform(-1, 1),
        "tokens": 1_000,
        "cost_usd": 0.01,
        "seconds": rng.expovariate(1 / 60),
        "stored_at": 1.7e9 + n,
    }


def round_of(rows: list[dict[str, object]]) -> dict[str, object]:
    """Return the row of a round."""
    first = rows[0]
    sums = {name: sum(row[name] for row in rows) for name in ("valid", "solved", "graded", "tokens", "cost_usd")}  # type: ignore[misc]
    own = {name: first[name] for name in ("path", "run", "round", "project", "stored_at")}
    return {**own, **sums, "episodes": len(rows), "rewards": 0.0, "rewarded": len(rows)}


def rollout(row: dict[str, object]) -> dict[str, object]:
    """Return the row of an attempt."""
    return {
        "id": f"{row['path']}-{row['position']}".replace("/", "-")[-60:],
        "artifact_id": row["artifact_id"],
        "role": "solver",
        "player": f"model-{row['position'] % 6}",  # type: ignore[operator]
        "attempt": 0,
        "resolved": bool(row["solved"]),
        "reason": "resolved",
        "exit_reason": "submitted",
        "status": "completed",
        "steps": 5,
        "tokens": 900,
        "cost_usd": 0.01,
        "unpriced": 0,
        "seconds": row["seconds"],
        "grading_s": 2.0,
        "stored_at": row["stored_at"],
    }


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Send a request on an open connection and read the answer."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head[:200]
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(length)


async def load(pid: int, port: int, path: str, *, clients: int, seconds: float) -> dict[str, float]:
    """Return requests per second, latencies and the time of the processor that the service took for a request, in ms.

    Each client sends one request after the other.
    """
    times: list[float] = []
    before = processor_s(pid)
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.perf_counter()) < end:
            await request(reader, writer, path)
            times.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    times.sort()
    ms = {f"p{share}_ms": round(1e3 * times[int(len(times) * share / 100)], 1) for share in (50, 99)}
    used_ms = 1e3 * (processor_s(pid) - before) / len(times)
    return {"requests_per_s": round(len(times) / seconds, 1), **ms, "processor_ms": round(used_ms, 1)}


async def streams(records: DatabaseRecords, pid: int, port: int, *, count: int, events: int) -> dict[str, object]:
    """Open event streams, let events happen, and return how late and how completely they arrived."""
    connections = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 20) for _ in range(count)]
    for _, writer in connections:
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    for reader, _ in connections:
        await reader.readuntil(b"retry: 1000\n\n")
    seen, late = [0] * count, []

    async def read(index: int) -> None:
        while seen[index] < events:
            line = await connections[index][0].readline()
            if line.startswith(b"data: "):
                seen[index] += 1
                late.append(time.time() - json.loads(line[6:])["at"])

    readers = asyncio.gather(*(read(n) for n in range(count)))
    memory = [resident_mb(pid)]
    for n in range(events):
        await asyncio.to_thread(add, records, n)
        await asyncio.sleep(0.02)
        if n % (events // 5) == 0:
            memory.append(resident_mb(pid))
    await asyncio.wait_for(readers, 120)
    memory.append(resident_mb(pid))
    late.sort()
    return {
        "streams": count,
        "events sent to each": events,
        "streams that got all": sum(number == events for number in seen),
        "p50 of the delay, s": round(late[len(late) // 2], 2),
        "p99 of the delay, s": round(late[int(len(late) * 0.99)], 2),
        "memory of the service in the course of it, MB": ", ".join(map(str, memory)),
    }


def add(records: DatabaseRecords, n: int) -> None:
    """Let an event happen."""
    with records.engine.begin() as connection:
        add_event(connection, "rollout", f"{n}", {"player": "model", "resolved": True, "reason": "resolved"})


def processor_s(pid: int) -> float:
    """Return the time that the processors have spent on a process."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 1e6, 1)


def report(lines: list[str], arguments: argparse.Namespace, filled_s: float) -> str:
    """Return the page of results."""
    head = (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, "
        f"`benchmarks/service_load.py --episodes {arguments.episodes} --clients {arguments.clients} --streams "
        f"{arguments.streams} --events {arguments.events}{' --sqlite' if arguments.sqlite else ''}`. One process of "
        f"`ssr serve --rate 0`; clients and database share the machine. The rows were written in {filled_s:.0f} s. "
        f"Load average of the machine at the end: {os.getloadavg()[0]:.1f}."
    )
    return "\n".join(["# The service under load", "", head, "", *lines, ""])


def requests_table(results: Mapping[str, Mapping[str, float]], clients: int) -> list[str]:
    """Return the table of the requests."""
    rows = [
        f"| {name} | {r['requests_per_s']} | {r['p50_ms']} | {r['p99_ms']} | {r['processor_ms']} |"
        for name, r in results.items()
    ]
    title = f"| request, {clients} clients | per second | p50, ms | p99, ms | processor time of the service, ms |"
    return [title, "|---|---|---|---|---|", *rows, ""]


def main() -> None:
    """Fill a database, serve it, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--sqlite", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        store, database = Path(folder) / "store", "sqlite"
        if not arguments.sqlite:
            url = stack.enter_context(postgres.server())
            with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE load")
            database = f"{url}/load"
        share_store(store, database=database)
        arguments.out.write_text(measured(store, arguments))
    print(arguments.out.read_text())


def measured(store: Path, arguments: argparse.Namespace) -> str:
    """Return the page of results of a store that is empty at first."""
    records = records_of(store)
    start = time.perf_counter()
    fill(records, arguments.episodes)
    filled_s = time.perf_counter() - start
    argv = [sys.executable, "-m", "harness.cli", "serve", str(store), "--port", "0", "--rate", "0", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        time.sleep(2)
        paths = {
            "50 episodes": "/api/v1/episodes",
            "50 episodes, filtered": "/api/v1/episodes?project=project-7&valid=true",
            "10 episodes": "/api/v1/episodes?limit=10",
            "one episode": f"/api/v1/episodes/{arguments.episodes // 2}",
            "50 attempts": "/api/v1/attempts",
            "50 runs": "/api/v1/runs",
            "models": "/api/v1/models",
            "metrics": "/metrics",
            "the page of episodes": "/episodes",
            "the overview": "/",
        }
        results = {}
        for name, path in paths.items():
            results[name] = asyncio.run(
                load(server.pid, port, path, clients=arguments.clients, seconds=arguments.seconds)
            )
            print(name, results[name], flush=True)
        found = asyncio.run(streams(records, server.pid, port, count=arguments.streams, events=arguments.events))
        print(found, flush=True)
        start = time.perf_counter()
        server.terminate()
        code = server.wait(30)
        ended_s = time.perf_counter() - start
    lines = requests_table(results, arguments.clients)
    lines += ["| event streams | |", "|---|---|", *(f"| {name} | {value} |" for name, value in found.items())]
    lines += ["", f"With all streams open, SIGTERM ended the service in {ended_s:.1f} s with exit code {code}."]
    return report(lines, arguments, filled_s)


if __name__ == "__main__":
    main()
