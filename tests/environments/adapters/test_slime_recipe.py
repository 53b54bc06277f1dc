"""slime takes what a recipe passes."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from recipe_parts import SMALL, Recipe
from rows import write_project, written


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", write_project(tmp_path / "instances")[1])


def test_slime_has_the_flags(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(os.environ["SSR_TEST_SLIME"])
    monkeypatch.syspath_prepend(checkout)
    # The parser of slime's own flags does not use what it imports.
    for name in ("ray", "sglang.srt.server_args", "sglang_router.launch_router", "wandb"):
        stub: Any = ModuleType(name)
        stub.ServerArgs = stub.RouterArgs = None
        monkeypatch.setitem(sys.modules, name, stub)
    from slime.utils.arguments import get_slime_extra_args_provider

    parser = get_slime_extra_args_provider()(ArgumentParser(allow_abbrev=False))
    [(called, _)] = Recipe("slime", dataset, *SMALL).calls("train.sh")
    args, others = parser.parse_known_args(called[2:])
    assert (args.actor_num_nodes, args.load, args.n_samples_per_prompt) == (2, args.save, 2)
    # Those of Megatron and SGLang: slime's own scripts pass them, too.
    scripts = "".join(path.read_text() for path in checkout.glob("scripts/**/*.sh"))
    known = set(re.findall(r"(?<!\S)--[a-z0-9-]+", scripts))
    assert {flag for flag in others if flag.startswith("--")} <= known
