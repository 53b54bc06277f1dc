"""Run by hand: Harbor's own agents get the same rewards over our environment and over real Docker.

Run: `python tests/peers/harbor_environment_peer.py TASKS` in an environment that has harbor and this package; TASKS is
what `ssr export --format harbor --network default --images PREFIX` has written into a folder. With `--docker COMPOSE`,
each agent also runs over Docker, with a Compose file that gives the service `main` the host's network, on which the
scripted model listens. The model repairs the tasks of every second instruction. `terminus-2` needs images with tmux,
`mini-swe-agent` those with its program and `uv`, or a network to install them. It ends with 0 if all rewards are as
expected.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from model_server import Served, message, response, serving

ENVIRONMENT = "harness.harbor_environment:SsrEnvironment"
AGENTS = ("oracle", "nop", "terminus-2", "mini-swe-agent")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class ScriptedModel:
    """Replies to two agents: a command that repairs the tasks of every second instruction, then the end."""

    def __init__(self, tasks: Sequence[Path]) -> None:
        self._commands = dict[str, str]()
        self._repairs = dict[str, bool]()
        for task in tasks:
            text = (task / "instruction.md").read_text().strip()
            repairs = len(self._commands) % 2 == 0 if text not in self._commands else "base64" in self._commands[text]
            repair = base64.b64encode((task / "solution" / "repair.tar.gz").read_bytes()).decode()
            command = f"echo {repair} | base64 -d | tar -xz -C /testbed" if repairs else "ls /testbed"
            assert self._commands.setdefault(text, command) == command, "one instruction has two repairs"
            self._repairs[task.name] = repairs
        self.served: Served | None = None

    def expected(self, agent: str, task: str) -> float:
        """Return the reward that an agent has to get."""
        return float(agent == "oracle" or (agent != "nop" and self._repairs[task]))

    def commands(self, request: dict[str, Any]) -> list[str]:
        """Return the commands for the instructions that a request contains."""
        asked = json.dumps(request["messages"])
        return [command for text, command in self._commands.items() if json.dumps(text)[1:-1] in asked]

    def __call__(self, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Return the response to a request, which contains the instruction of a task."""
        fitting = self.commands(request)
        assert len(fitting) == 1, f"{len(fitting)} tasks have this instruction"
        is_first = not any(m["role"] == "assistant" for m in request["messages"])
        if request.get("tools"):
            reply = message("", ("bash", {"command": fitting[0] if is_first else SUBMIT}))
        else:
            commands = [{"keystrokes": f"{fitting[0]}\n", "duration": 1.0}] if is_first else []
            reply = message(
                json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": not is_first})
            )
        assert self.served is not None
        # A server has one list of replies, from which each request takes one.
        self.served.replies.append(self)
        return 200, {}, json.dumps(response(reply, request, self.served)).encode()


def rewards(job: Path) -> dict[str, float | None]:
    """Return the reward of each task of a job."""
    found = {}
    for path in sorted(job.glob("*/result.json")):
        result = json.loads(path.read_text())
        if result["exception_info"] is not None:
            print(path.parent.name, result["exception_info"]["exception_message"][-500:], file=sys.stderr)
        given = (result["verifier_result"] or {}).get("rewards") or {}
        found[result["task_name"].rpartition("/")[2]] = given.get("reward")
    return found


def run(tasks: Path, agent: str, where: Sequence[str], url: str, jobs: Path, parallel: int) -> dict[str, float | None]:
    """Run an agent on all tasks and return its rewards."""
    name = f"{agent}-{'docker' if 'docker' in where else 'ours'}"
    harbor = Path(sysconfig.get_path("scripts"), "harbor")
    argv = [str(harbor), "run", "--path", str(tasks), "--agent", agent, *where, "--yes", "--quiet"]
    argv += ["--jobs-dir", str(jobs), "--job-name", name, "--n-concurrent", str(parallel)]
    if agent not in ("oracle", "nop"):
        argv += ["--model", "openai/tiny"]
        argv += ["--ak", "record_terminal_session=false"] if agent == "terminus-2" else []
        # Without a network, litellm's search for prices fails, and its import with it, now and then.
        argv += ["--ae", "LITELLM_LOCAL_MODEL_COST_MAP=True"] if agent == "mini-swe-agent" else []
    own = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(argv, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-2000:])
    return rewards(jobs / name)


def main() -> int:
    """Run all agents; return 1 if a reward differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--docker", type=Path, metavar="COMPOSE")
    parser.add_argument("--agents", nargs="+", default=AGENTS)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--mounts", help="Harbor's option: where an agent is that images do not have")
    arguments = parser.parse_args()
    model = ScriptedModel(sorted(path.parent for path in arguments.tasks.glob("*/task.toml")))
    places = [["--env", ENVIRONMENT, *(["--ek", f"cache={arguments.cache}"] if arguments.cache else [])]]
    if arguments.docker:
        # Its engine may have no network of its own.
        places.append(["--env", "docker", "--extra-docker-compose", str(arguments.docker)])
    if arguments.mounts:
        places = [[*where, "--mounts", arguments.mounts] for where in places]
    wrong = 0
    with serving(*[model] * 64) as served, tempfile.TemporaryDirectory() as temporary:
        model.served = served
        for agent in arguments.agents:
            for where in places:
                found = run(
                    arguments.tasks, agent, where, served.url, arguments.jobs or Path(temporary), arguments.parallel
                )
                different = {task: value for task, value in found.items() if value != model.expected(agent, task)}
                wrong += len(different)
                resolved = sum(value == 1.0 for value in found.values())
                print(
                    f"{agent} {where[1]}: {resolved} of {len(found)} resolved, not as expected: {different}", flush=True
                )
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
