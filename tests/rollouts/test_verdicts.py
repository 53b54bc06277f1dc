"""The verdict on an artifact is reached once, also if several ask for it at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proven import Proven

from harness.rollouts import runner as module
from harness.rollouts.runner import validated_verdict
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.bubblewrap


def test_of_several_callers_one_validates(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def validate(artifact: object, *_: Any, **__: Any) -> object:
        calls.append(artifact)
        return proven.verdict

    monkeypatch.setattr(module, "validate", validate)
    store = Store(tmp_path / "store")
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(validated_verdict, proven.artifact, proven.runner, store) for _ in range(4)]
        assert [each.result().artifact_id for each in found] == [proven.verdict.artifact_id] * 4
    assert len(calls) == 1
