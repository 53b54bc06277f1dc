"""The benchmarks report a command that failed, and measure nothing then."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_of_pytest_that_fails_is_not_a_measurement(tmp_path: Path) -> None:
    startup = benchmark("startup")
    assert startup.cpu_ms(str(tmp_path)) > 0
    (tmp_path / "conftest.py").write_text("raise RuntimeError\n")
    with pytest.raises(SystemExit, match="status"):
        startup.cpu_ms(str(tmp_path))
