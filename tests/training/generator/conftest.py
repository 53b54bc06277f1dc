"""Without PyTorch, these tests are not collected; `tox -e train` has it."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore = ["test_generator_selfplay.py", "test_generator_training.py"]
