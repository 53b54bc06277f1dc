"""Define the canonical record `ssr.rollout/1`: one rollout with its exact model calls, as one JSON object.

Only the new part of each prompt is stored: a call's prompt is the first `prefix_len` tokens of the prompt and reply of
the last call that has tokens, followed by `prompt_suffix_ids`. So the size of a record grows with its tokens and not
with their square. `Record.of` validates every field: a record may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.exporters.model_calls import Call, read_calls, require_message
from harness.exporters.skipped import damaged, require_plain, require_text
from harness.records.trajectory import SCHEMA

ROLES = ("injector", "solver")
STATUSES = ("completed", "truncated", "failed", "aborted")


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one rollout."""

    data: Mapping[str, Any]
    """The JSON object."""
    calls: tuple[Call, ...]

    @classmethod
    def of(cls, data: object) -> Record:
        """Validate a JSON object; raises SkippedError, naming the field, if it is not such a record."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise damaged(f"it is not a record of {SCHEMA}")
        calls = data.get("calls")
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
                raise damaged(f"{name} is not of type {kind.__name__}")
        reward = data.get("reward")
        if reward is not None and type(reward) not in (int, float):
            raise damaged("reward is not a number")
        if reward is not None and data["status"] == "aborted":
            raise damaged("it was aborted but has a reward")
        verdict = data["verdict"]
        ungraded = data["role"] == "solver" and verdict.get("resolved", False) is None
        if reward is not None and (verdict.get("infra") is True or ungraded):
            raise damaged("it has a reward but no grade")
        for name in ("repository", "tree_hash", "strategy", "injector"):
            require_text(data["task"].get(name, ""), name)
        require_text(data["policy"].get("model", ""), "model")
        require_text(data["provenance"].get("served_model", ""), "served_model")
        require_text(data.get("patch") or "", "patch")
        rate, graded = data["task"].get("solve_rate"), data["task"].get("graded", 0)
        if (rate is not None and (type(rate) not in (int, float) or not 0 <= rate <= 1)) or type(graded) is not int:
            raise damaged("solve_rate or graded is invalid")
        if not all(isinstance(flag, str) for flag in data["flags"]):
            raise damaged("flags are not strings")
        for message in data["messages"]:
            require_message(message)
        if not all(isinstance(t, Mapping) and isinstance(t.get("function"), Mapping) for t in data["tools"]):
            raise damaged("tools do not follow the chat protocol")
        if not isinstance(calls, list):
            raise damaged("calls is not a list")
        return cls(data, tuple(read_calls(calls, data["messages"])))

    @property
    def id(self) -> str:
        """The id of the rollout."""
        return str(self.data["rollout_id"])

    @property
    def reward(self) -> float | None:
        """The reward; None, not a low number, after a fault of the machine or of a server."""
        return self.data.get("reward")

    @property
    def repository(self) -> str:
        """The project's name; empty if unknown."""
        return str(self.data["task"].get("repository", ""))

    @property
    def model(self) -> str:
        """The name of the model, or of the program, that made the rollout; empty if unknown."""
        return str(self.data["policy"].get("model", ""))

    @property
    def served_model(self) -> str:
        """The id under which a server served the model; empty if the model's name has it, or in old records."""
        return str(self.data["provenance"].get("served_model", ""))

    @property
    def on_policy(self) -> bool:
        """Whether a reply was sampled, and every sampled reply has tokens and log-probabilities."""
        sampled = [c for c in self.calls if c.trainable]
        return bool(sampled) and all(c.has_ids and c.logprobs is not None for c in sampled)

    @property
    def is_demonstration(self) -> bool:
        """Whether none of its replies was sampled."""
        return not any(c.trainable for c in self.calls)

    @property
    def tokens(self) -> int:
        """Tokens of its longest call, prompt and reply together: the context that a trainer needs."""
        return max((c.tokens for c in self.calls), default=0)

    def prompts(self) -> Iterator[tuple[Call, list[int] | None]]:
        """Yield each call with the tokens of its prompt; None if they are unknown."""
        previous: list[int] = []
        for call in self.calls:
            if call.suffix is None or call.token_ids is None:
                yield call, None
                continue
            prompt = [*previous[: call.prefix_len], *call.suffix]
            yield call, prompt
            previous = [*prompt, *call.token_ids]


def _require_in(data: Mapping[str, Any], name: str, allowed: Sequence[str]) -> None:
    if data.get(name) not in allowed:
        raise damaged(f"{name} is not one of {', '.join(allowed)}")
