"""Measure what a sandbox costs: a command in each backend that works here, against the same command in a bare process.

Run: `python benchmarks/sandbox_overhead.py --out benchmarks/results/NAME.md [--rounds 40] [sandbox ...]`.
*Warm*: `true` in an open sandbox. *Opened*: open a sandbox on a tree of 100 files, run `true`, close it, as a run of
tests does; Docker then uses a container again. *Fresh*: the same with nothing kept from before, so that Docker creates
and removes a container. The backends take turns, so that a busy machine is as busy for each.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pytest_ssr.sandbox import SANDBOXES, load_provider
from pytest_ssr.sandbox.protocol import Limits, SandboxProvider

LIMITS = Limits(wall_s=60)
TARGETS = {
    ("bubblewrap", "warm"): 15,
    ("docker", "warm"): 80,
    ("docker", "fresh"): 600,
}


def call_ms(act: Callable[[], object]) -> float:
    """Return how long a call takes, in milliseconds."""
    begin = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - begin)


def opened(provider: SandboxProvider, tree: Path) -> None:
    with provider.open(tree, mount_at="/tmp/ssr-tree") as sandbox:
        assert sandbox.exec(["true"], limits=LIMITS).exit_code == 0


def fresh(provider: SandboxProvider, tree: Path) -> None:
    opened(provider, tree)
    if hasattr(provider, "close"):
        provider.close()


def run_bare() -> object:
    return subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def measure(names: list[str], tree: Path, rounds: int) -> dict[tuple[str, str], list[float]]:
    providers = {name: load_provider(name) for name in names}
    boxes = {name: p.open(tree, mount_at="/tmp/ssr-tree") for name, p in providers.items()}
    others = {name: load_provider(name) for name in names}
    timings: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for name in names:
            kinds = {
                "warm": lambda box=boxes[name]: box.exec(["true"], limits=LIMITS),
                "opened": lambda p=providers[name]: opened(p, tree),
            }
            if number % 4 == 0:
                kinds["fresh"] = lambda p=others[name]: fresh(p, tree)
            for kind, act in kinds.items():
                bare = call_ms(run_bare)
                if number:
                    timings.setdefault(("bare", "warm"), []).append(bare)
                    timings.setdefault((name, kind), []).append(call_ms(act))
                else:
                    act()
    for box in boxes.values():
        box.close()
    return timings


def line(key: tuple[str, str], values: list[float], bare: float) -> list[str]:
    low, middle, high = statistics.quantiles(values, n=4)
    target = TARGETS.get(key)
    over = middle - bare
    met = "" if target is None else f"under {target}: {'met' if over < target else 'MISSED'}"
    return [*key, str(len(values)), f"{middle:.1f} ({low:.1f} to {high:.1f})", f"{over:.1f}", met]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sandboxes", nargs="*", default=list(SANDBOXES))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if unknown := set(arguments.sandboxes) - set(SANDBOXES):
        parser.error(f"unknown sandbox: {', '.join(unknown)}; choose from {', '.join(SANDBOXES)}")
    probed = {name: load_provider(name).probe() for name in arguments.sandboxes}
    works = [name for name, probe in probed.items() if probe.works]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        for number in range(100):
            (tree / f"file{number}.py").write_text(f"x = {number}\n" * 100)
        timings = measure(works, tree, arguments.rounds)
    bare = statistics.median(timings[("bare", "warm")])
    head = ["sandbox", "kind", "runs", "ms, median (quartiles)", "more than bare, ms", "target"]
    rows = [line(key, values, bare) for key, values in timings.items() if len(values) > 1]
    text = [
        "# What a sandbox costs",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `--rounds {arguments.rounds}`. "
        "Made by `benchmarks/sandbox_overhead.py`, whose docstring defines the kinds.",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)),
        "",
        *(f"- {name}: {probe.detail}" for name, probe in probed.items()),
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
