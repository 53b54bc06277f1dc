"""The plugin's options come from flags, `SSR_*` variables, the ini file and `[tool.ssr]`, in this order."""

from __future__ import annotations

import pytest

from pytest_ssr.errors import SettingsError
from pytest_ssr.plugin.options import campaign_arguments, number, option, python_path

TABLE = """\
[tool.ssr]
count = 3
seed = 5
source = ["src", "lib"]
python = "env/bin/python"
solver.name = "replay:x"

[tool.ssr.execution]
time-limit = 60
"""


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COUNT", "SEED", "SOURCE", "PYTHON", "SOLVER", "TIME_LIMIT"):
        monkeypatch.delenv(f"SSR_{name}", raising=False)


def test_the_table_of_the_project_is_read(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(TABLE)
    config = pytester.parseconfig()
    assert (number(config, "count"), number(config, "time_limit")) == (3, 60.0)
    assert option(config, "solver") == "replay:x"
    assert str(python_path(config)) == str(pytester.path / "env/bin/python")
    assert campaign_arguments(config)["sources"] == ["src", "lib"]


def test_the_other_sources_come_first(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyprojecttoml(TABLE + "\n[tool.pytest.ini_options]\nssr_count = '4'\nssr_seed = '6'\n")
    monkeypatch.setenv("SSR_SEED", "7")
    config = pytester.parseconfig("--ssr-time-limit=8")
    values = [number(config, name) for name in ("count", "seed", "time_limit")]
    assert values == [4, 7, 8.0]


@pytest.mark.parametrize("text", ["[tool.ssr\n", "[tool]\nssr = 3\n"])
def test_a_damaged_table_is_an_error(pytester: pytest.Pytester, text: str) -> None:
    pytester.makepyprojecttoml("")
    config = pytester.parseconfig()
    (pytester.path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"\[tool\.ssr\]"):
        number(config, "count")
