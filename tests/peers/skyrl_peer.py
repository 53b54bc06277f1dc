"""Run by hand: SkyRL's own dataset reads the rows of `ssr export --format skyrl-prompts`.

Run: `python tests/peers/skyrl_peer.py prompts.jsonl`. It needs skyrl 0.3.0 (`pip install --no-deps`), datasets, loguru
and transformers. It ends with 1 if a row does not become a prompt, the name of our environment and its task.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from skyrl.train.dataset import PromptDataset


class Characters:
    """Counts characters as tokens: only the length of a prompt is asked for."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        """Return the text of some messages."""
        return "".join(message["content"] for message in messages)


def main(path: Path) -> int:
    """Read a file, and say how many rows are read as they are."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    dataset = PromptDataset(str(path), Characters(), max_prompt_length=1000, num_workers=1)  # type: ignore[arg-type]
    read = [dataset[index][:3] for index in range(len(dataset))]
    expected = [(row.pop("prompt"), row.pop("env_class"), row) for row in rows]
    print(f"{len(read)} of {len(rows)} rows read{'' if read == expected else ', and not as they are'}")
    return 0 if rows and read == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
