"""Run solvers on rows of real projects by `ssr run`: killed midway, run again, and their leaderboard.

Run: `python benchmarks/rows_run.py ROWS --repos CLONES --out benchmarks/results/NAME.md [--folder DIR] [--jobs 2]`.
ROWS are in SWE-bench's format (`benchmarks/mine_rows.py` creates some), CLONES their repositories. Three solvers:
`search`; a model behind real HTTP with tool calls, whose replies are fixed; and `scripted`, the same few replies to
each row. The replies of the HTTP model come from the rows: on half of them their solution, on others a comment or
nothing that can be used, so its figures show that a model's actions arrive in the leaderboard, and measure no model.
The run of `search` is killed with SIGKILL when a third of it is done: what was finished then must be unchanged at the
end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from model_server import Served, message, response, serving

COMMENT = "echo '# Looked at.' >> \"$(git ls-files '*.py' | grep -v test | head -1)\""
SCRIPT: list[Any] = [
    {"content": "", "tool_calls": [{"name": "bash", "arguments": {"command": command}}]}
    for command in ("git log --oneline | head -3; git ls-files | head -20", COMMENT)
] + [{"content": "", "tool_calls": [{"name": "submit", "arguments": {}}]}]


class ScriptedModel:
    """Chooses the next reply by the row whose statement is in the request and by its number of replies so far."""

    def __init__(self, rows: Sequence[dict[str, Any]], served: Served) -> None:
        self._rows, self._served = sorted(rows, key=lambda row: -len(row["problem_statement"])), served

    def __call__(self, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        text = "\n".join(m["content"] or "" for m in request["messages"] if m["role"] in ("system", "user"))
        row = next(row for row in self._rows if row["problem_statement"].strip() in text)
        reply_count = sum(m["role"] == "assistant" for m in request["messages"])
        plan = self._plan(row)
        self._served.replies.append(self)
        return 200, {}, json.dumps(response(plan[min(reply_count, len(plan) - 1)], request, self._served)).encode()

    @staticmethod
    def _plan(row: dict[str, Any]) -> list[dict[str, Any]]:
        kind = int(hashlib.sha256(row["instance_id"].encode()).hexdigest(), 16) % 4
        if kind == 3:
            return [message("I would have to think about it.")]
        command = f"git apply <<'END'\n{row['patch']}\nEND" if kind < 2 else COMMENT
        calls = [("bash", {"command": "git log --oneline; git ls-files | wc -l"}), ("bash", {"command": command})]
        return [message("", call) for call in (*calls, ("submit", {}))]


def ssr(*argv: object) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *map(str, argv)]


def run(argv: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def finished(store: Path) -> dict[str, str]:
    """Return the attempts that a store holds, as file names with hashes."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (store / "attempts").rglob("*.json")}


def kill_when(argv: Sequence[str], store: Path, enough: int) -> dict[str, str]:
    """Start a run, kill it with all its processes when `enough` attempts are finished, and return these."""
    started = subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True)
    while started.poll() is None and len(finished(store)) < enough:
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    return finished(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks/rows-run"), help="folder for the runs")
    for name, default in (("jobs", 2), ("attempts", 2), ("tries", 200), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    runs, store = arguments.folder, arguments.folder / "store"
    runs.mkdir(parents=True, exist_ok=True)
    (script := runs / "script.json").write_text(json.dumps(SCRIPT))

    def run_argv(solver: str, name: str, *more: object) -> list[str]:
        common = ["run", arguments.rows, "--repos", arguments.repos, "--out", runs / name, "--store", store, "--json"]
        return ssr(*common, "--solver", solver, "--name", name, "--no-logs", "-n", arguments.jobs, *more)

    begin = time.monotonic()
    limits = ["--tries", arguments.tries, "--rollout-limit", arguments.seconds]
    search = run_argv("search", "search", "--attempts", arguments.attempts, *limits)
    wanted = len(rows) * arguments.attempts
    before = kill_when(search, store, wanted // 3)
    summaries = {"search": run(search)}
    after = finished(store)
    untouched = sum(after.get(name) == content for name, content in before.items())
    with serving(max_model_len=32_768) as served:
        served.replies.append(ScriptedModel(rows, served))
        summaries["http"] = run(run_argv(f"vllm:{served.url}", "http", "--attempts", 1))
        request_count = len(served.asked)
    summaries["scripted"] = run(run_argv(f"scripted:{script}", "scripted", "--attempts", 1))
    minutes = (time.monotonic() - begin) / 60
    board = [runs / name for name in summaries]
    page, table = runs / "board.html", runs / "board.md"
    subprocess.run(
        ssr("leaderboard", *board, "--html", page, "--markdown", table), check=True, stdout=subprocess.DEVNULL
    )
    head = ["solver", "attempts", "resolved", "unresolved", "empty", "error", "timed out", "no grade"]
    keys = ["total", "resolved", "unresolved", "empty", "error", "timed_out", "infra"]
    text = [
        "# Solvers at rows of real projects",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/rows_run.py --jobs "
        f"{arguments.jobs} --attempts {arguments.attempts} --tries {arguments.tries} --seconds {arguments.seconds}`: "
        f"{len(rows)} rows of {len({row['repo'] for row in rows})} projects, {minutes:.0f} minutes. The words of the "
        "two models are fixed.",
        "",
        f"| {' | '.join(head)} |",
        "| --- |" + " --- |" * (len(head) - 1),
        *(f"| {name} | {' | '.join(str(one.get(key, '')) for key in keys)} |" for name, one in summaries.items()),
        "",
        f"The run of `search` was killed when {len(before)} of {wanted} attempts were finished. Run again it made "
        f"the others: {len(after)} in all, {untouched} of {len(before)} untouched. The HTTP server was asked "
        f"{request_count} times.",
        "",
        table.read_text().replace("\n# ", "\n## ").rstrip(),
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
