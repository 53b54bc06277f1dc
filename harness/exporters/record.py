"""Define the canonical record `ssr.rollout/1`: one rollout with its exact model calls, as one JSON object.

Only the new part of each prompt is stored: a call's prompt is the first `prefix_len` tokens of the prompt and reply of
the last call that has tokens, followed by `prompt_suffix_ids`. So the size of a record grows with its tokens and not
with their square. `Record.of` validates every field: a record may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.exporters.model_calls import Call, CallShape, MessageShape, read_calls
from harness.exporters.skipped import damaged, require_plain
from harness.records.trajectory import SCHEMA
from pytest_ssr.records.decoding import NonEmpty, Share, of_shape

Role = Literal["injector", "solver"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class _Task:
    repository: str = ""
    tree_hash: str = ""
    strategy: str = ""
    injector: str = ""
    solve_rate: Share | None = None
    graded: int = 0


@dataclass(frozen=True, slots=True)
class _Policy:
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Provenance:
    served_model: str = ""


@dataclass(frozen=True, slots=True)
class _Verdict:
    resolved: Any = False
    infra: Any = False


@dataclass(frozen=True, slots=True)
class _Tool:
    function: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields that every record has, and those that are read from it."""

    schema: Literal["ssr.rollout/1"]
    rollout_id: NonEmpty
    group_id: NonEmpty
    task_id: NonEmpty
    role: Role
    attempt: int
    policy: _Policy
    sampling: Mapping[str, Any]
    task: _Task
    tools: tuple[_Tool, ...]
    messages: tuple[MessageShape, ...]
    calls: tuple[CallShape, ...]
    status: Literal["completed", "truncated", "failed", "aborted"]
    exit_reason: NonEmpty
    reward_components: Mapping[str, Any]
    verdict: _Verdict
    flags: tuple[str, ...]
    provenance: _Provenance
    reward: float | None = None
    patch: str | None = None


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
        try:
            shape = of_shape(_Shape, data)
        except ValueError as error:
            raise damaged(str(error)) from None
        require_plain({k: v for k, v in data.items() if k != "calls"}, "the record")
        if shape.reward is not None and shape.status == "aborted":
            raise damaged("it was aborted but has a reward")
        ungraded = shape.role == "solver" and shape.verdict.resolved is None
        if shape.reward is not None and (shape.verdict.infra is True or ungraded):
            raise damaged("it has a reward but no grade")
        return cls(data, tuple(read_calls(shape.calls, data["calls"], data["messages"])))

    @property
    def id(self) -> str:
        """The id of the rollout."""
        return str(self.data["rollout_id"])

    @property
    def reward(self) -> float | None:
        """The reward; None, not a low number, after a fault of the machine or of a server."""
        return self.data.get("reward")

    @property
    def bug(self) -> str:
        """The id of the bug that it repairs or made, or of the task that was made from none; empty without one."""
        if self.data["role"] == "solver":
            return str(self.data["task_id"])
        artifact = self.data["task"].get("artifact")
        return artifact if isinstance(artifact, str) else ""

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
