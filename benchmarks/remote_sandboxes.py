"""Measure remote sandboxes beside local ones: many are open, connections are lost at random, and nothing may be left.

Run: `python benchmarks/remote_sandboxes.py --out benchmarks/results/NAME.md`. Server, proxy and clients share the
machine. The calls of all ways alternate in one run, so that they meet the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.remote_sandboxes.http_transport import HttpTransport  # noqa: E402
from harness.remote_sandboxes.provider import RemoteProvider  # noqa: E402
from pytest_ssr.sandbox import load_provider  # noqa: E402
from pytest_ssr.sandbox.protocol import Limits, Sandbox, SandboxProvider  # noqa: E402

LIMITS = Limits(wall_s=60)
LEASE_S = 5
LOCAL, DIRECT, CUT = "local", "remote", "remote, connections lost"
COUNT = ["sh", "-c", "echo x >> counter"]


@dataclass
class Held:
    """An open sandbox, one call at a time."""

    sandbox: Sandbox
    lock: threading.Lock = field(default_factory=threading.Lock)
    executed: int = 0


def make_tree(folder: Path) -> Path:
    """Create a tree of 200 files."""
    for number in range(200):
        path = folder / f"package{number % 10}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" * 100)
    return folder


@contextmanager
def server(slots: int, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address and the process of a server whose sandboxes are in a folder."""
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "sandbox-server",
        "--port",
        "0",
        "--sandbox",
        "bubblewrap",
        "--json",
    ]
    command += ["--slots", str(slots), "--lease", str(LEASE_S)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        while True:
            with suppress(httpx.HTTPError):
                httpx.get(f"{url}/health")
                break
        yield url, process
    finally:
        process.kill()
        process.wait()


def serve_proxy(target: int, every_s: float) -> None:
    """Pass bytes to a port, and reset one connection at random about every `every_s` seconds; runs until killed."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    print(listening.getsockname()[1], flush=True)
    pairs: list[tuple[socket.socket, socket.socket]] = []
    rng, lost = random.Random(1), 0

    def drop() -> None:
        nonlocal lost
        while True:
            time.sleep(rng.expovariate(1 / every_s))
            if pairs:
                lost += 1
                print(lost, flush=True)
                for end in pairs.pop(rng.randrange(len(pairs))):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def pass_on(source: socket.socket, target_: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target_.sendall(data)
        with suppress(OSError):
            target_.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=drop, daemon=True).start()
    while True:
        client, _ = listening.accept()
        upstream = socket.create_connection(("127.0.0.1", target))
        for end in (client, upstream):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pairs.append((client, upstream))
        for pair in ((client, upstream), (upstream, client)):
            threading.Thread(target=pass_on, args=pair, daemon=True).start()


@contextmanager
def proxy(url: str, every_s: float) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the address of a proxy in another process, and a function that returns how many connections it has cut."""
    target = url.rpartition(":")[2]
    command = [sys.executable, __file__, "--proxy", target, "--every", str(every_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port, counts = process.stdout.readline().strip(), [0]
    stdout = process.stdout

    def count() -> None:
        for line in stdout:
            counts[0] = int(line)

    threading.Thread(target=count, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}", lambda: counts[0]
    finally:
        process.kill()
        process.wait()


def one_call(held: Held, kind: str) -> None:
    """Make a call of a kind."""
    if kind == "exec":
        done = held.sandbox.exec(COUNT, limits=LIMITS)
        assert done.exit_code == 0, done
        held.executed += 1
    elif kind == "read":
        assert held.sandbox.read("package3/module3.py").startswith(b"# 3\n")
    else:
        held.sandbox.write("package3/written.py", b"x" * 4_000)


def measure(ways: dict[str, SandboxProvider], tree: Path, count: int, calls: int, threads: int) -> dict[str, Any]:
    """Open sandboxes in every way, make calls in random order, and return their times, in ms."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    held: dict[str, list[Held]] = {}
    begin = time.monotonic()
    for way, provider in ways.items():
        held[way] = []
        for _ in range(count):
            start = time.perf_counter()
            held[way].append(Held(provider.open(tree, mount_at="/work")))
            times[way, "open"].append(1e3 * (time.perf_counter() - start))
    rng = random.Random(2)
    # Twice as many commands as reads and writes.
    plan = [
        (way, rng.randrange(count), rng.choice(("exec", "exec", "read", "write"))) for way in ways for _ in range(calls)
    ]
    rng.shuffle(plan)

    def work(item: tuple[str, int, str]) -> None:
        way, index, kind = item
        with held[way][index].lock:
            start = time.perf_counter()
            one_call(held[way][index], kind)
            times[way, kind].append(1e3 * (time.perf_counter() - start))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, plan))
    wrong = 0
    for way, sandboxes in held.items():
        for each in sandboxes:
            lines = each.sandbox.read("counter").count(b"x") if each.executed else 0
            wrong += lines != each.executed
            start = time.perf_counter()
            each.sandbox.close()
            times[way, "close"].append(1e3 * (time.perf_counter() - start))
    return {"times": times, "wrong": wrong, "seconds": time.monotonic() - begin}


def left_over(url: str, process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """Return what the server holds."""
    health = httpx.get(f"{url}/health").json()
    folders = [path for path in folder.glob("ssr-*") if not (path / "trees").is_dir() and not (path / "etc").is_dir()]
    return {
        "open sandboxes": health["sandboxes"],
        "leases": health["leases"],
        "running calls": health["running_calls"],
        "folders of sandboxes": len(folders),
        "processes below the server": len(children(process.pid)),
    }


def children(pid: int) -> list[int]:
    """Return the processes below one."""
    parents: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            own, rest = stat.read_text().rsplit(")", 1)
            parents[int(rest.split()[1])].append(int(own.split()[0]))
    found, pending = [], [pid]
    while pending:
        below = parents[pending.pop()]
        found += below
        pending += below
    return found


def abandon(url: str, tree: Path, count: int) -> None:
    """Open sandboxes, start a command in each, and wait to be killed."""
    provider = RemoteProvider([HttpTransport(url)])
    for _ in range(count):
        sandbox = provider.open(tree, mount_at="/work")
        threading.Thread(target=sandbox.exec, args=(["sleep", "600"],), kwargs={"limits": Limits(wall_s=900)}).start()
    print("open", flush=True)
    time.sleep(600)


def killed_client(url: str, tree: Path, count: int) -> tuple[int, float]:
    """Return how many sandboxes a killed client has left, and after how many seconds the last of them was gone."""
    command = [sys.executable, __file__, "--abandon", url, "--tree", str(tree), "--sandboxes", str(count)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    client.stdout.readline()
    opened = httpx.get(f"{url}/health").json()["sandboxes"]
    client.kill()
    client.wait()
    begin = time.monotonic()
    while httpx.get(f"{url}/health").json()["sandboxes"]:
        time.sleep(0.1)
    return opened, time.monotonic() - begin


def quantile(values: list[float], share: float) -> float:
    """Return a quantile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(measured: dict[str, Any], left: dict[str, dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return the page of results."""
    times = measured["times"]
    lines = ["| call | way | calls | p50, ms | p99, ms | p99 over local, ms |", "|---|---|---|---|---|---|"]
    for kind in ("open", "exec", "read", "write", "close"):
        local = quantile(times[LOCAL, kind], 0.99)
        for way in (LOCAL, DIRECT, CUT):
            values = times[way, kind]
            p99 = quantile(values, 0.99)
            over = "" if way == LOCAL else f"{p99 - local:+.1f}"
            lines.append(f"| {kind} | {way} | {len(values)} | {statistics.median(values):.1f} | {p99:.1f} | {over} |")
    lines += ["", "| left over | " + " | ".join(left) + " |", "|---|" + "---|" * len(left)]
    for name in next(iter(left.values())):
        lines.append(f"| {name} | " + " | ".join(str(column[name]) for column in left.values()) + " |")
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandboxes", type=int, default=64)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two lost connections, on average")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--proxy", type=int)
    parser.add_argument("--abandon")
    parser.add_argument("--tree", type=Path)
    args = parser.parse_args()
    if args.proxy is not None:
        serve_proxy(args.proxy, args.every)
    if args.abandon:
        abandon(args.abandon, args.tree, args.sandboxes)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "server")
        folder.mkdir()
        tree = make_tree(Path(top, "tree"))
        with server(2 * args.sandboxes, folder) as (url, process):
            with proxy(url, args.every) as (cut_url, count_cut):
                remote, cut = (RemoteProvider([HttpTransport(each)]) for each in (url, cut_url))
                ways = {LOCAL: load_provider("bubblewrap"), DIRECT: remote, CUT: cut}
                measured = measure(ways, tree, args.sandboxes, args.calls, args.threads)
                lost = count_cut()
                remote.close()
                cut.close()
            left = {"after the calls": left_over(url, process, folder)}
            opened, seconds = killed_client(url, tree, args.sandboxes)
            left["after a client was killed"] = left_over(url, process, folder)
            memory_mb = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
            process.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            code = process.wait(60)
            facts = {
                "connections lost": lost,
                "sandboxes whose commands did not act exactly once": measured["wrong"],
                "seconds for all calls": round(measured["seconds"], 1),
                f"a killed client left {opened} sandboxes with a running command; with leases of {LEASE_S} s, all were "
                "gone after seconds": round(seconds, 1),
                "memory of the server at the end, MB": round(memory_mb, 1),
                "SIGTERM": f"exit code {code} after {time.monotonic() - begin:.1f} s, "
                f"{len(list(folder.glob('ssr-*')))} folders left",
                "load average of the machine before": round(load, 1),
            }
    page = report(measured, left, facts)
    print(page)
    if args.out:
        args.out.write_text(page)


if __name__ == "__main__":
    main()
