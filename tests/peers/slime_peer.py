"""Run by hand: slime's own `Sample` class takes the rows that `ssr export --format slime-samples` writes.

Run: `python tests/peers/slime_peer.py SLIME FILE ...`, where SLIME is a checkout of slime and a FILE is a .jsonl. It needs
torch and what slime/utils/types.py imports in the environment that runs it. It ends with 0 when each row is a sample whose
lengths slime finds right, and which comes back as it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(slime: Path, files: list[Path]) -> None:
    """Read each row into a sample, and back."""
    sys.path.insert(0, str(slime))
    from slime.utils.types import Sample

    for file in files:
        rollouts: dict[int, int] = {}
        trained = masked = 0
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                sample = Sample.from_dict(row)
                sample._validate_response_metadata_lengths()
                again = sample.to_dict()
                if any(again[name] != value for name, value in row.items()):
                    raise SystemExit(f"{file}: a row is another after it was a sample: {line[:200]}")
                if not 0 < sample.effective_response_length <= sample.response_length < len(sample.tokens):
                    raise SystemExit(f"{file}: a sample has nothing to train on, or no prompt: {line[:200]}")
                trained += sum(row["loss_mask"])
                masked += len(row["loss_mask"]) - sum(row["loss_mask"])
                # A further turn can be put on: what slime does in a rollout of many turns.
                sample.append_response_tokens(tokens=[1, 2], trainable=False)
                sample.append_response_tokens(tokens=[3], log_probs=[-1.0], trainable=True)
                rollouts[row["rollout_id"]] = rollouts.get(row["rollout_id"], 0) + 1
        summary = f"{sum(rollouts.values())} samples of {len(rollouts)} rollouts"
        print(f"{file.name}: {summary}; {trained} tokens of the responses trained on, {masked} masked")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:]])
