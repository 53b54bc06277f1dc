"""Define the error for what an export skips, and validate values that rows may contain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from harness.records.messages import MAX_DEPTH
from pytest_ssr.errors import SsrError

_LARGEST = 2**63 - 1


class SkipCode(StrEnum):
    """Why something yields no row of an export."""

    DAMAGED = "damaged"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near-duplicate"
    BENCHMARK_DUPLICATE = "benchmark-duplicate"
    FUNCTION_CAP = "function-cap"
    OPERATOR_CAP = "operator-cap"
    REPOSITORY_CAP = "repository-cap"
    INVALID_ROW = "invalid-row"
    OTHER_LANGUAGE = "other-language"
    UNSUPPORTED_TASK = "unsupported-task"
    NO_TESTS = "no-tests"
    NO_STATEMENT = "no-statement"
    NO_SPLIT = "no-split"
    NO_TREE = "no-tree"
    NO_VERDICT = "no-verdict"
    NOT_PYTEST = "not-pytest"
    SPACE_IN_IDS = "space-in-ids"
    POSITIONAL_IDS = "positional-ids"
    OTHER_ROLE = "other-role"
    OTHER_MODEL = "other-model"
    OTHER_STRATEGY = "other-strategy"
    NO_GRADE = "no-grade"
    NO_RATE = "no-rate"
    NOT_POSITIVE = "not-positive"
    REWARD_OUT_OF_BOUNDS = "reward-out-of-bounds"
    CALLS_OUT_OF_BOUNDS = "calls-out-of-bounds"
    TOO_MANY_TOKENS = "too-many-tokens"
    FLAGGED = "flagged"
    RATE_UNKNOWN = "rate-unknown"
    RATE_OUT_OF_BOUNDS = "rate-out-of-bounds"
    NOT_AUDITED = "not-audited"
    NOT_SOUND = "not-sound"
    SHARPNESS_UNKNOWN = "sharpness-unknown"
    NOT_SHARP = "not-sharp"
    OFF_POLICY = "off-policy"
    DEMONSTRATION = "demonstration"
    NO_CALLS = "no-calls"
    NO_IDS = "no-ids"
    NOT_SAMPLED = "not-sampled"
    MALFORMED = "malformed"
    MALFORMED_IN_CONVERSATION = "malformed-in-conversation"
    CUT = "cut"
    CUT_IN_CONVERSATION = "cut-in-conversation"
    TURNS_OMITTED = "turns-omitted"
    FIRST_PROMPT_EMPTY = "first-prompt-empty"
    PROMPT_EMPTY = "prompt-empty"
    PARTLY_TRAINABLE = "partly-trainable"
    FOREIGN_MESSAGES = "foreign-messages"
    NOT_TRAINABLE = "not-trainable"
    UNPAIRED = "unpaired"
    SAME_PROMPT = "same-prompt"
    NO_TRAJECTORY = "no-trajectory"
    MEDIA = "media"
    SUBAGENT = "subagent"
    CONTINUATION = "continuation"
    COPIED_CONTEXT = "copied-context"

    @property
    def text(self) -> str:
        """The reason as one sentence."""
        return _TEXTS[self]


_TEXTS: Mapping[SkipCode, str] = {
    SkipCode.DAMAGED: "the record is damaged",
    SkipCode.DUPLICATE: "it is a duplicate: the same rollout, replayed or in another store, or the same instance",
    SkipCode.NEAR_DUPLICATE: "its bug or task is a near duplicate of an earlier one (--near-duplicates)",
    SkipCode.BENCHMARK_DUPLICATE: "its bug or task is a near duplicate of a task of a benchmark (--against)",
    SkipCode.FUNCTION_CAP: "enough other bugs are in the same function (--most-per)",
    SkipCode.OPERATOR_CAP: "enough other bugs were made by the same operator (--most-per)",
    SkipCode.REPOSITORY_CAP: "enough other bugs are in the same repository (--most-per)",
    SkipCode.INVALID_ROW: "the row of the dataset cannot be read",
    SkipCode.UNSUPPORTED_TASK: "the task directory cannot be used here",
    SkipCode.OTHER_LANGUAGE: "the row is of another language, and nothing here runs its tests",
    SkipCode.NO_TESTS: "no test is named, so that its rows could not be graded",
    SkipCode.NO_STATEMENT: "the row has no problem statement",
    SkipCode.NO_SPLIT: "its project is unknown, so it belongs to no split",
    SkipCode.NO_TREE: "the store no longer has the project's files, which the start commit needs",
    SkipCode.NOT_PYTEST: "its tests are not pytest's, or it names no image",
    SkipCode.NO_VERDICT: "its artifact.json holds no verdict of the checks; validate it first",
    SkipCode.SPACE_IN_IDS: "SWE-smith needs a FAIL_TO_PASS and a PASS_TO_PASS test without a space in its id",
    SkipCode.POSITIONAL_IDS: "the ids of its failing tests change from run to run: no other harness finds them",
    SkipCode.OTHER_ROLE: "it has another role",
    SkipCode.OTHER_MODEL: "it was made by another model",
    SkipCode.OTHER_STRATEGY: "its bug was made by another strategy",
    SkipCode.NO_GRADE: "it has no reward: the machine or a server was at fault, not the rollout",
    SkipCode.NO_RATE: (
        "it has no reward: its bug has no solve rate, has several from different runs, or repeats an earlier bug"
    ),
    SkipCode.NOT_POSITIVE: "its reward is not above 0, and training would imitate it (--min-reward)",
    SkipCode.REWARD_OUT_OF_BOUNDS: "its reward is out of bounds",
    SkipCode.CALLS_OUT_OF_BOUNDS: "its number of calls is out of bounds",
    SkipCode.TOO_MANY_TOKENS: "it has more than --max-tokens tokens",
    SkipCode.FLAGGED: "its grade has a flag",
    SkipCode.RATE_UNKNOWN: "its solve rate is unknown",
    SkipCode.RATE_OUT_OF_BOUNDS: "its solve rate is out of bounds",
    SkipCode.NOT_AUDITED: "its task has no audit (--audit)",
    SkipCode.NOT_SOUND: "its task is not sound (--audit)",
    SkipCode.SHARPNESS_UNKNOWN: "the sharpness of its task is unknown (--min-sharpness)",
    SkipCode.NOT_SHARP: "its task's tests notice too few wrong solutions (--min-sharpness)",
    SkipCode.OFF_POLICY: "it is not on-policy: token ids or log-probabilities of its replies are missing",
    SkipCode.DEMONSTRATION: "it is not on-policy: none of its replies was sampled",
    SkipCode.NO_CALLS: "it made no model calls: there are no messages to learn from",
    SkipCode.NO_IDS: "the server returned no token ids: its tokens are unknown, and it is not on-policy",
    SkipCode.NOT_SAMPLED: "none of its replies was sampled",
    SkipCode.MALFORMED: "a reply calls a tool with arguments that are not a JSON object; trainers accept only objects",
    SkipCode.MALFORMED_IN_CONVERSATION: (
        "a reply calls a tool with arguments that are not a JSON object; trainers accept only objects; see bc"
    ),
    SkipCode.CUT: "a reply was cut off at a limit: as text it would teach a model to stop in the middle",
    SkipCode.CUT_IN_CONVERSATION: (
        "a reply was cut off at a limit: as text it would teach a model to stop in the middle; see bc and sft-tokens"
    ),
    SkipCode.TURNS_OMITTED: (
        "its prompts omit turns: it is not one conversation, and turns would be trained on twice; see bc and sft-tokens"
    ),
    SkipCode.FIRST_PROMPT_EMPTY: "its first prompt is empty",
    SkipCode.PROMPT_EMPTY: "its prompt is empty",
    SkipCode.PARTLY_TRAINABLE: (
        "some of its replies must not be trained on, which messages cannot express; see bc and sft-tokens"
    ),
    SkipCode.FOREIGN_MESSAGES: "its prompts contain assistant messages that no call produced",
    SkipCode.NOT_TRAINABLE: "the reply must not be trained on",
    SkipCode.UNPAIRED: "no other attempt gave a different reply to one of its prompts and got a different reward",
    SkipCode.SAME_PROMPT: "its prompt is already a row",
    SkipCode.NO_TRAJECTORY: "its trial has no trajectory.json: the agent wrote none",
    SkipCode.MEDIA: "an image or a sound is left out, with the replies after it: records contain only text",
    SkipCode.SUBAGENT: "the trajectory of a subagent is left out: the reward is that of the whole rollout",
    SkipCode.CONTINUATION: "the trajectory continues in another file, which is missing or lies in another folder",
    SkipCode.COPIED_CONTEXT: "a reply that was copied from an earlier trajectory is context and not trained on",
}


class SkippedError(SsrError):
    """Something yields no row of this export."""

    def __init__(self, code: SkipCode, detail: str = "") -> None:
        """code: skipped items are counted by it. detail: of this item only."""
        super().__init__(f"{code.text}: {detail}" if detail else code.text)
        self.code, self.detail = code, detail


def damaged(detail: str) -> SkippedError:
    """Return the error to raise for a damaged record."""
    return SkippedError(SkipCode.DAMAGED, detail)


def require_plain(value: object, label: str) -> None:
    """Raise SkippedError unless a value can be written as JSON in UTF-8 that every reader accepts.

    Rejected are lone surrogates, infinity and NaN, integers of more than 64 bits (which tables cannot store), keys that
    are not strings, and nesting deeper than 50 levels. label: names the value in the message.
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii():
                    require_text(item, label)
            elif kind is dict:
                for key in item:
                    if type(key) is not str or not key.isascii():
                        require_text(key, f"a key in {label}")
                inner += item.values()
            elif kind is list or kind is tuple:
                inner += item
            elif kind is int or kind is float:
                if not -_LARGEST <= item <= _LARGEST:
                    _require_number(item, label)
            elif kind is not bool and item is not None:
                _require_number(item, label)
        if not inner:
            return
        level = inner
    raise damaged(f"{label} is nested too deeply")


def _require_number(value: object, label: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise damaged(f"{label} contains {value}, which JSON cannot represent")
    elif isinstance(value, int):
        if abs(value) > _LARGEST:
            raise damaged(f"{label} contains an integer of more than 64 bits")
    else:
        raise damaged(f"{label} contains a {type(value).__name__}")


def require_text(value: Any, label: str) -> str:
    """Return a string that UTF-8 can encode; raises SkippedError for anything else."""
    if not isinstance(value, str):
        raise damaged(f"{label} is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise damaged(f"{label} contains a lone surrogate, which UTF-8 cannot encode") from None
    return value
