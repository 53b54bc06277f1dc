"""Run by hand, or by `tox -e trl`: TRL's own trainers take two steps on what `ssr export` writes.

Run: `python tests/peers/trl_peer.py [SOURCE ...]`. It needs torch, trl, transformers and datasets in the environment that
runs it, see docs/export.md. Without a SOURCE it works on rollouts made by hand. A tiny model of random weights is made on
the spot. For each format it says how many rows were loaded, what the loss was, and how many tokens are trained on; it ends
with 0 when all of them train, and when what is trained on is replies alone.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from rollout_parts import add_task, keep, store
from tiny_model import make_model

from harness.cli.main import main as ssr


def made_by_hand(folder: Path) -> Path:
    """Return a store with attempts at two tasks, of which some are resolved."""
    stored = store(folder)
    for task in ("t1", "t2"):
        add_task(stored, task, "calc")
        for n, (last, resolved) in enumerate((("make", True), ("rm", False))):
            keep(stored, f"{task}{n}".ljust(24, "0"), resolved, commands=("ls", last, "end"), task=task, attempt=n)
    return stored


def trained_text(trainer: Any, tokenizer: Any, *, as_bytes: bool) -> str:
    """Return what of the first row the loss is on."""
    batch = trainer.data_collator([trainer.train_dataset[0]])
    labels = [i for i in batch["labels"][0].tolist() if i != -100]
    return bytes(i for i in labels if i < 256).decode(errors="replace") if as_bytes else tokenizer.decode(labels)


def train(name: str, rows: Any, folder: Path) -> str:
    """Train two steps on rows; returns what to say about it."""
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    model, tokenizer = make_model(folder)
    common = {
        "output_dir": str(folder / "out"),
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "max_length": None,
        "disable_tqdm": True,
        "learning_rate": 1e-3,
    }
    trainer: Any
    if name == "dpo":
        trainer = DPOTrainer(model, args=DPOConfig(**common), train_dataset=rows, processing_class=tokenizer)
    elif name == "kto":
        trainer = KTOTrainer(model, args=KTOConfig(**common), train_dataset=rows, processing_class=tokenizer)
    else:
        own = {"assistant_only_loss": True} if name == "sft" else {}
        args = SFTConfig(**common, **own)
        trainer = SFTTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer)
    said = f"{rows.num_rows} rows"
    if name in ("sft", "sft-tokens", "bc"):
        text = trained_text(trainer, tokenizer, as_bytes=name == "sft-tokens")
        if not text or any(role in text for role in ("<tool>", "<user>", "output of", "be brief", "<|im_start|>")):
            raise SystemExit(f"{name}: the loss is on what no model said: {text!r}")
        said += f", the loss is on {len(text)} characters of the first: {text[:60]!r}..."
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    losses = [e["loss"] for e in trainer.state.log_history if "loss" in e]
    if len(losses) != 2 or not all(map(math.isfinite, losses)):
        raise SystemExit(f"{name}: two steps with a loss were wanted, not {losses}")
    if all(a.equal(b) for a, b in zip(before, trainer.model.parameters(), strict=True)):
        raise SystemExit(f"{name}: nothing was learned")
    return f"{said}; losses {', '.join(f'{loss:.4f}' for loss in losses)}"


def main(sources: list[str]) -> None:
    """Export, load and train, format after format."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        datasets.config.HF_DATASETS_CACHE = Path(temporary, "cache")
        for name in ("sft", "sft-tokens", "bc", "dpo", "kto"):
            for container in ("jsonl", "parquet"):
                folder = Path(temporary, f"{name}-{container}")
                folder.mkdir()
                wanted = sources or [str(made_by_hand(folder / "store"))]
                out = str(folder / "data")
                if ssr(["export", *wanted, "--format", name, "--out", out, "--as", container, "--json"]) != 0:
                    raise SystemExit(f"{name}: nothing to export")
                rows = datasets.load_dataset(out)["train"]
                print(f"{name} ({container}): {train(name, rows, folder)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
