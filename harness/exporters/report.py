"""Count the rows of an export and what it skips."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from harness.exporters.admission import Admission
from harness.exporters.protocol import Row
from harness.exporters.skipped import SkipCode, SkippedError

_EXAMPLES = 3


@dataclass(slots=True)
class Report:
    """The counts of an export; its size grows with reasons, projects and near duplicates, not with rows."""

    rows: Counter[str] = field(default_factory=Counter)
    """Rows of each part."""
    repositories: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Rows of each project, by part."""
    on_policy: Counter[bool] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    left_out: Counter[SkipCode] = field(default_factory=Counter)
    """Skipped items, by reason."""
    examples: dict[SkipCode, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By reason, the name and detail of the first few items."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By file name: sha256, bytes and rows."""
    admission: Admission = field(default_factory=Admission)
    """The bugs that were taken or refused, with what was found about them."""

    @property
    def total(self) -> int:
        """The number of all rows."""
        return self.rows.total()

    def row(self, part: str, repository: str, row: Row) -> None:
        """Count a row that was written."""
        self.rows[part] += 1
        self.repositories[repository][part] += 1
        if isinstance(row.get("on_policy"), bool):
            self.on_policy[row["on_policy"]] += 1
        if isinstance(row.get("model"), str):
            self.models[row["model"]] += 1

    def leave(self, name: str, error: SkippedError) -> None:
        """Count a skipped item, and keep the first few names of each reason."""
        self.left_out[error.code] += 1
        examples = self.examples[error.code]
        if len(examples) < _EXAMPLES:
            # File names may contain lone surrogates, which a card cannot.
            escaped = (text.encode("utf-8", "backslashreplace").decode() for text in (name, error.detail))
            examples.append((next(escaped), next(escaped)))

    def add(self, other: Report) -> None:
        """Add the counts of later rows; files and bugs are not counted here."""
        self.rows += other.rows
        for repository, parts in other.repositories.items():
            self.repositories[repository] += parts
        self.on_policy += other.on_policy
        self.models += other.models
        self.left_out += other.left_out
        for code, examples in other.examples.items():
            self.examples[code] = (self.examples[code] + examples)[:_EXAMPLES]

    def reasons(self) -> list[tuple[SkipCode, int]]:
        """Return the reasons for skipped items with their counts, the most frequent first."""
        return sorted(self.left_out.items(), key=lambda item: (-item[1], item[0].text))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "rows": self.total,
            "parts": dict(sorted(self.rows.items())),
            "repositories": {name: dict(sorted(c.items())) for name, c in sorted(self.repositories.items())},
            "on_policy": {"yes": self.on_policy[True], "no": self.on_policy[False]} if self.on_policy else None,
            "left_out": [
                {
                    "code": str(code),
                    "reason": code.text,
                    "count": count,
                    "examples": [f"{item}: {detail}" if detail else item for item, detail in self.examples[code]],
                }
                for code, count in self.reasons()
            ],
            **self.admission.to_json(),
            "files": self.files,
        }
