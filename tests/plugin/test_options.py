"""The plugin's options come from flags, `SSR_*` variables, the ini file and `[tool.ssr]`, in this order."""

from __future__ import annotations

import pytest

from pytest_ssr.errors import SettingsError
from pytest_ssr.plugin.options import (
    campaign_arguments,
    options_without_effect,
    python_path,
    resolve_paths,
    rule_settings,
    store_path,
)
from pytest_ssr.plugin.sources import number, option

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
    for name in ("COUNT", "SEED", "SOURCE", "STORE", "PYTHON", "SOLVER", "TIME_LIMIT"):
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


@pytest.mark.parametrize(
    ("flags", "table", "variable", "expected"),
    [
        ((), "", "", False),
        (("--ssr-per-hunk",), "per-hunk = false", "", True),
        ((), "per-hunk = true", "", True),
        ((), "per-hunk = true", "no", False),
    ],
)
def test_a_switch_has_the_same_sources(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    table: str,
    variable: str,
    expected: bool,
) -> None:
    monkeypatch.setenv("SSR_PER_HUNK", variable)
    pytester.makepyprojecttoml(f"[tool.ssr]\n{table}\nexecution.max-broken-fraction = 0.25\n")
    rules = rule_settings(pytester.parseconfig(*flags))
    assert (rules.per_hunk, rules.max_broken_fraction) == (expected, 0.25)


def test_a_switch_that_is_neither_on_nor_off_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSR_PER_HUNK", "maybe")
    with pytest.raises(SettingsError):
        rule_settings(pytester.parseconfig())


def test_scripts_alone_judge_artifacts_that_are_given(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyprojecttoml("[tool.ssr]\nby-script = true\n")
    assert rule_settings(pytester.parseconfig("--ssr-validate=x")).by_script
    assert not rule_settings(pytester.parseconfig("--ssr-inject")).by_script
    with pytest.raises(SettingsError, match="--ssr-by-script is for --ssr-validate and --ssr-solve"):
        rule_settings(pytester.parseconfig("--ssr-inject", "--ssr-by-script"))
    monkeypatch.setenv("SSR_BY_SCRIPT", "yes")
    with pytest.raises(SettingsError, match="SSR_BY_SCRIPT is for"):
        rule_settings(pytester.parseconfig("--ssr-inject"))


@pytest.fixture
def command_line(pytester: pytest.Pytester) -> None:
    """Register the keys of `ssr` as an installed distribution does."""
    folder = pytester.mkdir("ssr_keys-1.dist-info")
    (folder / "entry_points.txt").write_text("[pytest_ssr.settings]\nharness = harness.cli.app:all_keys\n")
    pytester.syspathinsert()


def test_sections_are_those_of_the_command_line(pytester: pytest.Pytester, command_line: None) -> None:
    pytester.makepyprojecttoml("[tool.ssr]\nbudget.usd = 2\nlimits = {tokens = 3, steps = 4}\nsolver.tries = 5\n")
    config = pytester.parseconfig()
    assert [number(config, name) for name in ("budget_usd", "rollout_tokens", "steps")] == [2.0, 3, 4]


def test_the_nearest_table_counts(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(TABLE)
    below = pytester.mkdir("below")
    (below / "pytest.ini").write_text("[pytest]\n")
    assert number(pytester.parseconfig("--rootdir=below"), "count") == 3


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("cuont = 1", "did you mean count"),
        ("solvr.tries = 1", "did you mean solver.tries"),
        ("inject.count = 1", "inject.count"),
        ("execution = 1", "execution"),
        ("count = [1]", "count"),
        ("time-limit = 1\nexecution.time-limit = 2", "execution.time-limit"),
        ("sandbox = 'process'", "--ssr-sandbox"),
        ("execution.sandbox = 'process'", "--ssr-sandbox"),
    ],
)
def test_a_wrong_key_or_value_of_the_table(pytester: pytest.Pytester, command_line: None, text: str, key: str) -> None:
    path = pytester.makepyprojecttoml(f"[tool.ssr]\n{text}\n")
    with pytest.raises(SettingsError, match=key) as error:
        number(pytester.parseconfig(), "seed")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("value", ["x", "0", "1.5"])
def test_a_wrong_number_names_its_source(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    pytester.makepyprojecttoml(f"[tool.ssr]\ncount = '{value}'\n")
    with pytest.raises(SettingsError, match=r"^count in .*pyproject\.toml "):
        number(pytester.parseconfig(), "count")
    pytester.makeini(f"[pytest]\nssr_count = {value}\n")
    with pytest.raises(SettingsError, match=r"^ssr_count in .*tox\.ini "):
        number(pytester.parseconfig(), "count")
    monkeypatch.setenv("SSR_COUNT", value)
    with pytest.raises(SettingsError, match=r"^SSR_COUNT "):
        number(pytester.parseconfig(), "count")
    with pytest.raises(SettingsError, match=r"^--ssr-count "):
        number(pytester.parseconfig(f"--ssr-count={value}"), "count")


def test_a_relative_store_starts_where_its_source_does(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyprojecttoml("[tool.ssr]\nstore = 'kept'\n")
    below = pytester.mkdir("below")
    monkeypatch.chdir(below)
    assert store_path(pytester.parseconfig()) == pytester.path / "kept"
    config = pytester.parseconfig("--ssr-store=kept")
    assert store_path(config) == below / "kept"
    resolve_paths(config)
    assert config.option.ssr_store == str(below / "kept"), "workers of xdist may have another current directory"


@pytest.mark.parametrize("text", ["[tool.ssr\n", "[tool]\nssr = 3\n", "tool = 3\n"])
def test_a_damaged_table_is_an_error(pytester: pytest.Pytester, text: str) -> None:
    pytester.makepyprojecttoml("")
    config = pytester.parseconfig()
    (pytester.path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"pyproject\.toml"):
        number(config, "count")


@pytest.mark.parametrize("job", ["--ssr-inject", "--ssr-solve=x", "--ssr-validate=x"])
def test_a_wrong_table_is_a_usage_error_of_every_job(pytester: pytest.Pytester, job: str) -> None:
    pytester.makepyprojecttoml("[tool.ssr]\nsandbox = 'process'\n")
    result = pytester.runpytest(job)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.no_fnmatch_line("*Traceback*")


def test_a_run_without_a_job_does_not_read_the_table(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.ssr]\nsandbox = 'process'\n")
    pytester.makepyfile("def test_it(): pass")
    assert pytester.runpytest().ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        (("-k", "fast"), "", ["-k"]),
        (("-m", "not slow"), "", ["-m"]),
        (("--deselect=test_a.py::test_one", "-kfast"), "", ["-k", "--deselect"]),
        (("--ignore", "slow", "--ignore-glob=*/slow"), "", ["--ignore", "--ignore-glob"]),
        (("-c", "tox.ini"), "", ["-c"]),
        (("--override-ini=addopts=-x",), "", ["-o"]),
        ((), "-m 'not slow'", ["-m"]),
        (("-v", "-p", "no:cacheprovider", "--tb=short", "--ssr-count=3"), "", []),
    ],
)
def test_options_for_tests_that_do_not_reach_them(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    variable: str,
    expected: list[str],
) -> None:
    # Those of the configuration reach the runs.
    pytester.makeini("[pytest]\naddopts = -m fast\nmarkers = fast\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", variable)
    assert options_without_effect(pytester.parseconfig("--ssr-inject", *arguments)) == expected


def test_a_store_is_not_collected(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nnorecursedirs = build\npython_files = *.py\n")
    pytester.makepyfile(test_a="def test_a(): pass", broken="def test_b(): pass")
    store = pytester.mkdir(".ssr")
    (store / "ssr-store.json").write_text("{}")
    (store / "broken.py").write_text("raise OSError")
    pytester.runpytest().assert_outcomes(passed=2)
