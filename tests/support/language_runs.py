"""Run `ssr train` for language models, and read what a run leaves."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.main import main

SHORT = (
    "--updates",
    "50",
    "--accumulation",
    "1",
    "--batch",
    "2",
    "--learning-rate",
    "0.02",
    "--checkpoint-every",
    "25",
)
_IMPORTED = (
    *(f"trl.trainer.{method}_trainer" for method in ("sft", "dpo", "kto", "grpo")),
    *("datasets", "matplotlib.pyplot", "peft", "transformers.models.llama.modeling_llama"),
    "transformers.models.qwen2.modeling_qwen2",
)
"""What takes long to import: a server imports it once and forks for each process that is killed."""


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def report(folder: Path) -> dict[str, Any]:
    """Return the report of a run."""
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return loaded


def train(method: str, source: Path, model: Path, out: Path, *options: str) -> int:
    """Run `ssr train`."""
    return main(["train", method, str(source), "--model", str(model), "--out", str(out), *options])


def curve(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without measured times."""
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines(folder)]


def killed(argv: Sequence[str], out: Path, *, after: int) -> None:
    """Run `ssr` in another process, and kill it once its metrics have a number of lines."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTED])
    process = context.Process(target=_in_its_own_session, args=(argv,))
    process.start()
    metrics = out / "metrics.jsonl"
    while process.is_alive():
        if metrics.exists() and metrics.read_text().count("\n") >= after:
            assert process.pid is not None
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _in_its_own_session(argv: Sequence[str]) -> None:
    os.setsid()  # So that its sandboxes are killed with it.
    sys.exit(main(list(argv)))


def require_adapter(base: Path, folder: Path) -> None:
    """Fail unless an adapter loads with PEFT, changes the model, and can be merged."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids = torch.arange(8)[None]
    model = AutoModelForCausalLM.from_pretrained(base)
    before = model(ids).logits
    adapted = PeftModel.from_pretrained(model, folder)
    after = adapted(ids).logits
    assert not torch.allclose(before, after, atol=1e-4)
    assert torch.allclose(after, adapted.merge_and_unload()(ids).logits, atol=1e-4)
