"""Count what a training leaves out, by reason, with examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.exporters.skipped import SkipCode, SkippedError
from pytest_ssr.errors import SsrError

_EXAMPLES = 3


class LeftOutCode(StrEnum):
    """Why a row is not trained on; rows that an exporter skips have its codes."""

    TOO_LONG = "too-long"
    NOTHING_TO_LEARN = "nothing-to-learn"
    TEMPLATE_CHANGES_TURNS = "template-changes-turns"
    TEMPLATE_FAILS = "template-fails"
    OTHER_TOKENIZER = "other-tokenizer"
    UNUSABLE_TASK = "unusable-task"

    @property
    def text(self) -> str:
        """The reason as one sentence."""
        return _TEXTS[self]


_TEXTS = {
    LeftOutCode.TOO_LONG: "it has more tokens than --max-length or the model's context",
    LeftOutCode.NOTHING_TO_LEARN: "none of its tokens is trained on",
    LeftOutCode.TEMPLATE_CHANGES_TURNS: "the chat template changes earlier turns of its conversation; see bc",
    LeftOutCode.TEMPLATE_FAILS: "the chat template does not accept its conversation; see --chat-template",
    LeftOutCode.OTHER_TOKENIZER: "its recorded token ids are unknown to the tokenizer, or are not those of its text",
    LeftOutCode.UNUSABLE_TASK: "its task cannot be played here; another task was played in its place",
}


class LeftOutError(SsrError):
    """A row is not trained on."""

    def __init__(self, code: LeftOutCode, detail: str = "") -> None:
        super().__init__(code.text)
        self.code, self.detail = code, detail


@dataclass(slots=True)
class LeftOut:
    """The rows that are left out."""

    counts: Counter[SkipCode | LeftOutCode] = field(default_factory=Counter)
    examples: dict[SkipCode | LeftOutCode, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, error: SkippedError | LeftOutError) -> None:
        """Count a row. name: of the row or of its rollout."""
        self.counts[error.code] += 1
        if len(self.examples[error.code]) < _EXAMPLES:
            self.examples[error.code].append(f"{name}: {error.detail}" if error.detail else name)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data for JSON, the most frequent reason first."""
        return [
            {"code": str(code), "reason": code.text, "count": count, "examples": list(self.examples[code])}
            for code, count in self.counts.most_common()
        ]
