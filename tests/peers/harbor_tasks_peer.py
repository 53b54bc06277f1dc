"""Run by hand: Harbor and `ssr eval` give the same rewards on tasks of every kind that the tests use.

Run: `python tests/peers/harbor_tasks_peer.py HARBOR IMAGE`, with the program `harbor` of another environment, Docker with
the compose plugin, and an image with Python, bash and git. It ends with 0 if all rewards are equal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from harbor_tasks import KINDS, write_task

_AGENTS = {"oracle": "gold", "nop": "empty"}
"""Harbor's agents, and the predictions that are the same."""
Rewards = dict[str, dict[str, float]]


def by_harbor(harbor: str, tasks: Path, agent: str, jobs: Path) -> Rewards:
    """Return the rewards of an agent by the task's name, as Harbor reports them."""
    command = [harbor, "run", "--yes", "--path", str(tasks), "--agent", agent, "--jobs-dir", str(jobs)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    results = [json.loads(path.read_text()) for path in jobs.glob("*/*/result.json")]
    return {row["task_name"].partition("/")[2]: row["verifier_result"]["rewards"] for row in results}


def by_ssr(tasks: Path, predictions: str, out: Path, store: Path) -> Rewards:
    """Return the rewards of predictions by the task's name, as `ssr eval` reports them."""
    command = [sys.executable, "-m", "harness.cli", "eval", str(tasks), "--predictions", predictions]
    subprocess.run([*command, "--out", str(out), "--store", str(store)], check=False, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return {row["task"]: row["rewards"] for row in rows}


def main(harbor: str, image: str) -> int:
    """Compare all rewards; return 0 if they are equal."""
    is_equal = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for kind in KINDS:
            write_task(folder / "tasks", kind, image)
        for agent, predictions in _AGENTS.items():
            theirs = by_harbor(harbor, folder / "tasks", agent, folder / agent)
            ours = by_ssr(folder / "tasks", predictions, folder / predictions, folder / "store")
            for kind in KINDS:
                is_equal &= theirs[kind] == ours[kind]
                mark = "equal" if theirs[kind] == ours[kind] else "DIFFERENT"
                print(f"{agent:6} {kind:20} {theirs[kind]} {ours[kind]} {mark}", flush=True)
    return 0 if is_equal else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
