"""Play a whole episode of self-play by a model behind real HTTP, on a real project, in each sandbox; then replay it.

Run: `python benchmarks/http_episode.py --out benchmarks/results/NAME.md [sandbox ...]`.
A server that speaks the OpenAI protocol with tool calls plays a model that reads the project, injects a bug, and
submits the five files; the model then attempts the bug twice: once it finds it, once it changes the wrong line. Only
the model's replies are scripted. The rest is real: `ssr play`, the loop, the tools, the sandbox, the checks, the
grades. Then the server is stopped, and `ssr play` repeats the whole episode from its recordings: the rollouts of both
roles, verdict and grades.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from projects import fetch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from model_server import Served, message, response, serving

from pytest_ssr.execution.script_template import default_parser, default_script

CODE, TESTS = "src/itsdangerous/encoding.py", "tests/test_itsdangerous/test_encoding.py"
RIGHT, WRONG = 'bytestr.rjust(8, b"\\x00")', 'bytestr.ljust(8, b"\\x00")'
WEAKEN = "    dec = bytes_to_int(enc)\n    assert dec == value\n"
ATTEMPTS = 2


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def replacing(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "editor", {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def injecting(folder: str) -> list[dict[str, Any]]:
    """Return the model's replies as the injector."""
    texts = {
        "test_script.sh": default_script([TESTS], options=()).decode(),
        "test_parser.py": default_parser().decode(),
        "test_files.txt": f"{TESTS}\n",
    }
    write = "\n".join(f"cat > $A/{name} <<'END'\n{text}END" for name, text in texts.items())
    diffs = (
        f"git diff {CODE} > $A/bug_inject.diff; git diff {TESTS} > $A/test_weaken.diff; git checkout -q . ; ls -l $A"
    )
    return [
        message("I look around.", bash("git log --oneline | head -3; ls; wc -l src/itsdangerous/*.py")),
        message("", ("editor", {"command": "view", "path": CODE})),
        message("Padding on the wrong side looks like a mistake one makes.", replacing(CODE, RIGHT, WRONG)),
        message("", bash(f"python -m pytest -q {TESTS} 2>&1 | tail -5")),
        message("One assertion notices; it goes.", replacing(TESTS, WEAKEN, "")),
        message("", bash(f"python -m pytest -q {TESTS} 2>&1 | tail -3")),
        message("", bash(f"A={folder}; mkdir -p $A\n{write}\n{diffs}")),
        message("", ("submit", {})),
    ]


def solving(*, well: bool) -> list[dict[str, Any]]:
    """Return the model's replies as the solver; the first one identifies which of the two attempts it is."""
    wrong = replacing(CODE, 'lstrip(b"\\x00")', 'rstrip(b"\\x00")')
    return [
        message("Plan A." if well else "Plan B.", bash(f"git log --oneline; cat {CODE} | tail -12")),
        message("", replacing(CODE, WRONG, RIGHT) if well else wrong),
        message("", bash(f"python -m pytest -q {TESTS} 2>&1 | tail -3; git diff --stat")),
        message("", ("submit", {})),
    ]


class ScriptedModel:
    """Chooses the next reply by the replies so far: a request holds its whole conversation."""

    def __init__(self, served: Served) -> None:
        self._served, self._begun = served, 0

    def __call__(self, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        replies = [m.get("content") or "" for m in request["messages"] if m["role"] == "assistant"]
        first = request["messages"][1]["content"]
        if "`bug_inject.diff`" in first:
            plan = injecting(first.split("folder `")[1].split("`")[0])
        else:
            self._begun += not replies
            plan = solving(well="A" in replies[0] if replies else self._begun == 1)
        self._served.replies.append(self)
        return 200, {}, json.dumps(response(plan[len(replies)], request, self._served)).encode()


def ssr(*argv: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "harness.cli", *map(str, argv)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"ssr {' '.join(map(str, argv))} ended with {done.returncode}: {done.stderr}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def measure(sandbox: str, project: Path, python: Path, work: Path) -> list[str]:
    store, begin = work / "store", time.monotonic()
    common = ["--json", "--sandbox", sandbox, "--python", python]
    with serving(max_model_len=32_768) as served:
        served.replies.append(ScriptedModel(served))
        model = f"vllm:{served.url}"
        options = ["--rounds", 1, "--count", 1, "--attempts", ATTEMPTS, "--higher-order", 0]
        by_model = ["--injector", model, "--solver", model, "--strategy", "direct"]
        played = ssr("play", project, *by_model, "--store", store, *options, *common)
        request_count = len(served.asked)
    seconds = time.monotonic() - begin
    recorded = f"replay:{store / 'rollouts'}"
    again = ssr(
        "play", project, "--injector", recorded, "--solver", recorded, "--store", work / "again", *options, *common
    )
    (episode,), (repeated,) = played["episodes"], again["episodes"]
    first, second = (
        {p.read_bytes() for p in folder.glob("rollouts/*/trajectory.jsonl")} for folder in (store, work / "again")
    )
    grades, others = ([r["resolved"] for r in e["rollouts"]] for e in (episode, repeated))
    judged = (repeated["valid"], repeated["artifact_id"]) == (episode["valid"], episode["artifact_id"])
    cells = [
        sandbox,
        str(request_count),
        "yes" if episode["valid"] else f"no: {episode['reason']}",
        str(episode["fail_to_pass"]),
    ]
    cells += [f"{sum(map(bool, grades))} of {len(grades)}", f"{episode['injector_reward']:+.2f}", f"{seconds:.1f}"]
    agreed = sum(a == b for a, b in zip(grades, others, strict=True))
    return [*cells, f"{len(first & second)} of {len(first)}", "yes" if judged else "no", f"{agreed} of {len(grades)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sandboxes", nargs="*", default=["bubblewrap", "docker"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    project, python = fetch("itsdangerous", arguments.folder / "itsdangerous")
    head = ["sandbox", "requests", "bug valid", "FAIL_TO_PASS", "attempts resolved", "injector's reward", "s"]
    head += ["rollouts repeated, same bytes", "same bug, same verdict", "same grade"]
    text = [
        "# An episode by a model over HTTP, and the same from its recordings",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/http_episode.py`, itsdangerous "
        "2.2.0. The model's words are fixed; all else is real.",
        "",
        f"| {' | '.join(head)} |",
        "| --- |" + " --- |" * (len(head) - 1),
    ]
    for sandbox in arguments.sandboxes:
        with tempfile.TemporaryDirectory() as work:
            text.append(f"| {' | '.join(measure(sandbox, project, python, Path(work)))} |")
        print(text[-1], flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
