"""A tiny model, a store of rollouts, and a run of the command line. Without PyTorch and TRL, `tox -e train` has them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

import pytest
from proven import project, proven
from rollout_parts import add_task, keep, store

__all__ = ["project", "proven"]
if importlib.util.find_spec("trl") is None:
    collect_ignore = [
        "test_coming_from.py",
        "test_cpu_trainers.py",
        "test_ends.py",
        "test_notebook.py",
        "test_rows.py",
        "test_policy.py",
        "test_vllm.py",
        "test_writer.py",
    ]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny model of random weights."""
    from tiny_model import make_model

    return Path(make_model(tmp_path_factory.mktemp("tiny"))[0])


@pytest.fixture(scope="session")
def rollouts(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """Return a store with a good and a bad attempt at each of three tasks; those at `t1` have token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    folder = store(tmp_path_factory.mktemp("rollouts") / "store")
    for task in ("t1", "t2", "t3"):
        add_task(folder, task, "calc")
        for attempt, (last, resolved) in enumerate((("make", True), ("rm", False))):
            name = f"{task}{attempt}".ljust(24, "0")
            commands = ("ls", last, "end")
            keep(
                folder, name, resolved, commands=commands, task=task, attempt=attempt, ids=task == "t1", model="model",
                encode=lambda text: tokenizer(text)["input_ids"],
            )  # fmt: skip
    return folder
