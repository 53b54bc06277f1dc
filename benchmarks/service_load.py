"""Measure the service on PostgreSQL: requests per second and p99 with 100,000 episodes, and 1,000 event streams.

    SSR_DATABASE=postgresql://USER@HOST/EMPTY_DATABASE python benchmarks/service_load.py FOLDER

The database gets rows; FOLDER becomes the store. Client and server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import sqlalchemy as sa

from harness.database.events import add_event
from harness.database.records import DatabaseRecords
from harness.database.schema import episodes, rollouts, rounds
from harness.database.sharing import share_store

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


async def load(port: int, path: str, *, clients: int, seconds: float) -> dict[str, float]:
    """Return requests per second and latencies in ms of clients that each send one request after the other."""
    times: list[float] = []
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
    return {"requests_per_s": round(len(times) / seconds, 1), **ms}


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
    for _, writer in connections:
        writer.close()
    late.sort()
    return {
        "streams": count,
        "events": events,
        "complete": sum(number == events for number in seen),
        "p50_late_s": round(late[len(late) // 2], 2),
        "p99_late_s": round(late[int(len(late) * 0.99)], 2),
        "server_mb": memory,
    }


def add(records: DatabaseRecords, n: int) -> None:
    """Let an event happen."""
    with records.engine.begin() as connection:
        add_event(connection, "rollout", f"{n}", {"player": "model", "resolved": True, "reason": "resolved"})


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 1e6, 1)


def main() -> None:
    """Fill the database, serve it, and print what was measured as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=200)
    options = parser.parse_args()
    records = share_store(options.folder).shared
    assert isinstance(records, DatabaseRecords)
    fill(records, options.episodes)
    argv = [
        sys.executable,
        "-m",
        "harness.cli",
        "serve",
        str(options.folder),
        "--port",
        "0",
        "--workers",
        "0",
        "--json",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        time.sleep(2)
        paths = {
            "episodes": "/api/v1/episodes",
            "episodes, filtered": "/api/v1/episodes?project=project-7&valid=true",
            "episodes, limit 10": "/api/v1/episodes?limit=10",
            "episode": f"/api/v1/episodes/{options.episodes // 2}",
            "rollouts": "/api/v1/rollouts",
            "runs": "/api/v1/runs",
            "models": "/api/v1/models",
        }
        for name, path in paths.items():
            result = asyncio.run(load(port, path, clients=options.clients, seconds=options.seconds))
            print(json.dumps({"request": name, **result}), flush=True)
        found = asyncio.run(streams(records, server.pid, port, count=options.streams, events=options.events))
        print(json.dumps(found), flush=True)
        start = time.perf_counter()
        server.terminate()
        server.wait(30)
        print(json.dumps({"shutdown_s": round(time.perf_counter() - start, 1), "exit_code": server.returncode}))


if __name__ == "__main__":
    main()
