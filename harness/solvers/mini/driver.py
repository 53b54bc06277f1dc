"""Run mini-swe-agent's agent and model in its own interpreter, with an environment that forwards its commands.

Our packages are not importable there. A job arrives as the first line of standard input; JSON lines are written to
the file descriptor in the first argument, and each request is answered by one line of standard input. Output that
packages print is not part of the protocol.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir, get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import FormatError, LimitsExceeded
from minisweagent.models import get_model
from minisweagent.models.litellm_model import LitellmModel
from minisweagent.models.utils.actions_toolcall import BASH_TOOL

_ROOT_THERE = "/testbed"


class Pipe:
    """Sends JSON lines, and reads the answers."""

    def __init__(self, descriptor: int) -> None:
        self._out = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")

    def send(self, event: str, **data: Any) -> None:
        """Send an event."""
        self._out.write(json.dumps({"event": event, **data}, default=repr) + "\n")
        self._out.flush()

    def request(self, event: str, **data: Any) -> dict[str, Any]:
        """Send an event and return the answer; ends this process if the other end is gone."""
        self.send(event, **data)
        return read_answer()


def read_answer() -> dict[str, Any]:
    """Return the next line of standard input."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    answer: dict[str, Any] = json.loads(line)
    return answer


class Model(LitellmModel):
    """Samples each reply with a separate seed, and reports its latency without earlier tries."""

    seed: int | None = None
    query_count = 0
    latency_s = 0.0

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        seed_argument = {} if self.seed is None else {"seed": self.seed + self.query_count}
        begin = time.monotonic()
        response = super()._query(messages, **seed_argument, **kwargs)
        self.latency_s = time.monotonic() - begin
        return response

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        """Query the model and add the latency to its message."""
        try:
            message: dict[str, Any] = super().query(messages, **kwargs)
        except FormatError as error:
            error.messages[0]["extra"]["latency_s"] = self.latency_s
            raise
        finally:
            self.query_count += 1
        message["extra"]["latency_s"] = self.latency_s
        return message


class Environment(LocalEnvironment):
    """Forwards each command to the other end of the pipe."""

    pipe: Pipe

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run the command at the other end, never here."""
        output = self.pipe.request("execute", command=action.get("command", ""))
        self._check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the variables without this process's environment, which contains keys."""
        return {**self.config.model_dump(), **platform.uname()._asdict(), **kwargs}


class Agent(DefaultAgent):
    """Forwards its messages, and asks for permission before each model call."""

    pipe: Pipe

    def add_messages(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """Add messages and forward them."""
        self.pipe.send("messages", messages=list(messages))
        added: list[dict[str, Any]] = super().add_messages(*messages)
        return added

    def query(self) -> dict[str, Any]:
        """Query the model, unless the answer of the other end stops the agent."""
        if stop := self.pipe.request("query").get("stop", ""):
            extra = {"exit_status": stop, "submission": ""}
            raise LimitsExceeded({"role": "exit", "content": stop, "extra": extra})
        message: dict[str, Any] = super().query()
        return message


def trajectory_of(agent: Agent) -> dict[str, Any]:
    """Return the agent's trajectory without the messages, which were sent before."""
    return {k: v for k, v in agent.serialize().items() if k != "messages"}


def main(descriptor: int) -> None:
    """Run the agent on the job."""
    pipe, job = Pipe(descriptor), read_answer()
    config = get_config_from_spec(builtin_config_dir / "benchmarks" / "swebench.yaml")
    templates = ("system_template", "instance_template")
    settings = {**config["agent"], **job["agent"]}
    settings |= {name: settings[name].replace(_ROOT_THERE, job["root"]) for name in templates}
    class_path = f"{Model.__module__}.{Model.__name__}"
    model = get_model(config={**config["model"], **job["model"], "model_class": class_path})
    model.seed = job["seed"]
    environment = Environment(cwd=job["root"], timeout=job["timeout"])
    agent = Agent(model, environment, **settings)
    agent.pipe = environment.pipe = pipe
    pipe.send("begin", data=trajectory_of(agent), tools=[BASH_TOOL])
    try:
        agent.run(job["task"])
    except Exception as error:
        # The agent's last message contains the error.
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    pipe.send("end", data=trajectory_of(agent))


if __name__ == "__main__":
    main(int(sys.argv[1]))
