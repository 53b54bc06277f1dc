"""The canonical record `ssr.rollout/1`: one rollout with its exact model calls, as one JSON object.

Prompts are kept as what is new in them: a call's prompt is the first `prefix_len` tokens of what was held before (the
prompt and the reply of the last call that has tokens), and then `prompt_suffix_ids`. So a rollout takes room that grows
with its tokens and not with their square. `Record.of` looks at every field: a record may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.exporters.calls import Call, read_calls, require_message
from harness.exporters.leaving import damaged, require_plain, require_text
from harness.trajectory import SCHEMA

ROLES = ("injector", "solver")
STATUSES = ("completed", "truncated", "failed", "aborted")


@dataclass(frozen=True, slots=True)
class Record:
    """One rollout."""

    data: Mapping[str, Any]
    """The JSON object."""
    calls: tuple[Call, ...]

    @classmethod
    def of(cls, data: object) -> Record:
        """Read a JSON object; raises LeftOutError naming the field for one that is no such record."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise damaged(f"it is no {SCHEMA}")
        ids = data.get("calls")
        require_plain({k: v for k, v in data.items() if k != "calls"}, "the record")
        for name in ("rollout_id", "group_id", "task_id", "exit_reason"):
            if not require_text(data.get(name), name):
                raise damaged(f"{name} is empty")
        _require_in(data, "role", ROLES)
        _require_in(data, "status", STATUSES)
        for name, kind in (
            *dict.fromkeys(("policy", "sampling", "task", "provenance", "verdict", "reward_components"), dict).items(),
            *dict.fromkeys(("messages", "tools", "flags"), list).items(),
            ("attempt", int),
        ):
            if type(data.get(name)) is not kind:
                raise damaged(f"{name} is no {kind.__name__}")
        reward = data.get("reward")
        if reward is not None and type(reward) not in (int, float):
            raise damaged("reward is no number")
        if reward is not None and data["status"] == "aborted":
            raise damaged("it was aborted and has a reward all the same")
        verdict = data["verdict"]
        ungraded = data["role"] == "solver" and verdict.get("resolved", False) is None
        if reward is not None and (verdict.get("infra") is True or ungraded):
            raise damaged("it has no grade and has a reward all the same")
        for name in ("repository", "tree_hash", "strategy"):
            require_text(data["task"].get(name, ""), name)
        require_text(data["policy"].get("model", ""), "model")
        require_text(data.get("patch") or "", "patch")
        rate, graded = data["task"].get("solve_rate"), data["task"].get("graded", 0)
        if (rate is not None and (type(rate) not in (int, float) or not 0 <= rate <= 1)) or type(graded) is not int:
            raise damaged("solve_rate is none")
        if not all(isinstance(flag, str) for flag in data["flags"]):
            raise damaged("flags are no texts")
        for message in data["messages"]:
            require_message(message)
        if not all(isinstance(t, Mapping) and isinstance(t.get("function"), Mapping) for t in data["tools"]):
            raise damaged("tools are none of the chat protocol")
        if not isinstance(ids, list):
            raise damaged("calls is no list")
        return cls(data, tuple(read_calls(ids, data["messages"])))

    @property
    def id(self) -> str:
        """Its rollout's."""
        return str(self.data["rollout_id"])

    @property
    def reward(self) -> float | None:
        """None where there is none: a fault of the machine or of a server, and no low number."""
        return self.data.get("reward")

    @property
    def repository(self) -> str:
        """The project's name; empty where it is not known."""
        return str(self.data["task"].get("repository", ""))

    @property
    def on_policy(self) -> bool:
        """Whether tokens and log-probabilities of every sampled reply are there, and some reply was sampled."""
        ours = [c for c in self.calls if c.trainable]
        return bool(ours) and all(c.has_ids and c.logprobs is not None for c in ours)

    @property
    def is_demonstration(self) -> bool:
        """Whether no reply of it was sampled."""
        return not any(c.trainable for c in self.calls)

    @property
    def tokens(self) -> int:
        """Of its longest call, prompt and reply: what a trainer's context has to hold."""
        return max((c.tokens for c in self.calls), default=0)

    def prompts(self) -> Iterator[tuple[Call, list[int] | None]]:
        """Yield each call with the tokens of its prompt; None where they are not known."""
        held: list[int] = []
        for call in self.calls:
            if call.suffix is None or call.token_ids is None:
                yield call, None
                continue
            prompt = [*held[: call.prefix_len], *call.suffix]
            yield call, prompt
            held = [*prompt, *call.token_ids]


def _require_in(data: Mapping[str, Any], name: str, allowed: Sequence[str]) -> None:
    if data.get(name) not in allowed:
        raise damaged(f"{name} is none of {', '.join(allowed)}")
