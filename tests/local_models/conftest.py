"""A tiny Llama of random weights. Without PyTorch, `tox -e train` runs these tests."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from tiny_gguf import make_llama

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
collect_ignore_glob: list[str] = []
if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "gguf")):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the model."""
    folder = tmp_path_factory.mktemp("llama") / "model"
    make_llama(folder)
    return folder
