"""The settings of commands: their sources, precedence, names, and errors that name the source."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from harness.agents.process_reward import JUDGE_SAMPLING, ProcessReward
from harness.cli.app import COMMANDS, parse
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.exporters.protocol import Choices
from harness.injectors.model import STRATEGIES
from harness.settings.commands import InjectSettings, PlaySettings, RunSettings, SolveSettings
from harness.settings.plan import OriginKind, leaves_of
from harness.settings.players import JudgeSettings
from harness.settings.results import ExportSettings
from pytest_ssr.campaign.factory import INJECTORS
from pytest_ssr.errors import SettingsError
from pytest_ssr.options import INJECTOR_NAMES, SANDBOX_NAMES, PluginSettings, options_of
from pytest_ssr.records.reasons import Rule
from pytest_ssr.sandbox import SANDBOXES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty project without settings the current directory, and return it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def settings(*argv: str) -> Any:
    parsed = parse(argv)
    assert parsed is not None
    return parsed.settings


def inject(*argv: str) -> InjectSettings:
    return settings("inject", ".", *argv)


def test_each_source_fills_what_the_ones_before_it_leave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text(
        "[tool.ssr]\ncount = 1\nseed = 1\njobs = 1\ndiff = 'one'\n[tool.ssr.execution]\nmin-failing-tests = 4\n"
    )
    (folder / "ssr.yaml").write_text("count: 2\nseed: 2\njobs: 2\nexecution:\n  time_limit: 2.5\n")
    monkeypatch.setenv("SSR_COUNT", "3")
    monkeypatch.setenv("SSR_SEED", "3")
    monkeypatch.setenv("SSR_INJECTOR", "")
    parsed = inject("--config", "ssr.yaml", "--count", "4")
    assert (parsed.count, parsed.seed, parsed.jobs, parsed.diff) == (4, 3, 2, "one")
    assert (parsed.execution.time_limit, parsed.execution.min_failing_tests) == (2.5, 4)
    assert parsed.injector == PluginSettings.injector, "an empty variable is not set"
    kinds = {name: parsed.origins[name].kind for name in ("count", "seed", "jobs", "diff")}
    assert kinds == {
        "count": OriginKind.FLAG,
        "seed": OriginKind.VARIABLE,
        "jobs": OriginKind.FILE,
        "diff": OriginKind.FILE,
    }
    assert {"count", "seed"} <= parsed.typed
    assert not {"jobs", "diff"} & parsed.typed


def test_the_nearest_project_file_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text("[tool.ssr]\nstore = 'kept'\npython = 'env/bin/python'\n")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    parsed = inject()
    assert parsed.store == folder / "kept", "a path starts at the file's folder"
    assert parsed.execution.python == folder / "env/bin/python"
    assert inject("--python", "env/bin/python").execution.python == folder / "below/env/bin/python"
    assert inject("--python", "python3").execution.python == Path("python3"), "found on PATH"


def test_a_mistyped_dotted_name_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"solver\.tries"):
        parse(["play", ".", "solver.tires=7"])
    # A folder may have any name.
    (tmp_path / "solver.tires=7").mkdir()
    assert parse(["play", "solver.tires=7"]) is not None
    assert parse(["play", "other.tires=7"]) is not None
    # The last part is an option, so this is no path.
    with pytest.raises(SettingsError, match=r"optimization\.learning-rate"):
        parse(["train", "grpo", ".", "--model", "m", "trainer.learning_rate=5e-5"])
    with pytest.raises(SettingsError, match=r"trainer\.speed is"):
        parse(["train", "grpo", ".", "--model", "m", "trainer.speed=5"])
    # It may be the value of an option.
    assert parse(["train", "grpo", ".", "--model", "m", "--score", "reward.length=0.5"]) is not None
    with pytest.raises(SettingsError):
        parse(["play", ".", f"solver.tires={'x' * 300}"])


def test_this_machine_is_no_cluster() -> None:
    for ray in ("", "local"):
        parsed = parse(["play", ".", "--solver", "replay:attempts", "--ray", ray])
        assert parsed is not None
        parsed.settings.check()
    parsed = parse(["play", ".", "--solver", "replay:attempts", "--ray", "auto"])
    assert parsed is not None
    with pytest.raises(SettingsError) as raised:
        parsed.settings.check()
    assert raised.value.option == "ray"


def test_a_section_that_refuses_its_values_names_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_BITS", "3")
    with pytest.raises(SettingsError, match=r"\(from SSR_BITS\)"):
        parse(["train", "sft", ".", "--model", "m"])


@pytest.mark.parametrize("argv", [["--tries", "7"], ["--solver.tries", "7"], ["--solver.tries=7"], ["solver.tries=7"]])
def test_an_option_has_a_flat_and_a_dotted_name(argv: list[str]) -> None:
    parsed = settings("solve", "x", "--solver.name", "replay:x", *argv)
    assert isinstance(parsed, SolveSettings)
    assert (parsed.players.solver.name, parsed.players.solver.tries) == ("replay:x", 7)


def test_a_file_is_shared_by_commands(folder: Path) -> None:
    (folder / "c.yaml").write_text("max_tokens: 9\nsolver: {name: x/y, attempts: 3}\nsource: [a, b]\nfull: true\n")
    run = settings("run", "d", "--out", "o", "--config", "c.yaml")
    assert isinstance(run, RunSettings)
    assert (run.players.sampling.max_tokens, run.players.solver.attempts, run.evaluation.full) == (9, 3, True)
    assert settings("run", "d", "--out", "o", "--config", "c.yaml", "--full=false").evaluation.full is False
    assert inject("--config", "c.yaml").source == ("a", "b")
    exported = settings("export", "s", "--format", "sft", "--out", "o", "--config", "c.yaml")
    assert exported.filters.max_tokens is None, "the option of the same name of another command"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("count: five", "count in c.yaml"),
        ("count: 2.5", "count in c.yaml"),
        ("count: [1, 2]", "c.yaml: count"),
        ("count: 0", "(from c.yaml)"),
        ("cuont: 5", "did you mean count?"),
        ("inject: {count: 5}", "c.yaml: inject.count"),
        ("execution: {sandbx: docker}", "did you mean execution.sandbox?"),
        ("solver: {url: x}", "did you mean model.url?"),
        ("adapter: {lora_alpha: 32}", "did you mean adapter.alpha?"),
        ("adapter: {r: 16}", "did you mean adapter.rank?"),
        ("adapter: {xyz: 16}", "adapter.xyz is not a setting of ssr\n"),
        ("cuont: 5\nseed: 1\nadapter: {r: 16}\nproject: a", "cuont"),
        ("cuont: 5\nseed: 1\nadapter: {r: 16}\nproject: a", "adapter.rank"),
        ("cuont: 5\nseed: 1\nadapter: {r: 16}\nproject: a", "project is not a setting but an argument"),
        ("algorithm: x", "algorithm is not a setting of ssr\n"),
        ("project: shop", "project is not a setting but an argument"),
        ("- 1", "c.yaml"),
        ("a: b: c", "--config c.yaml"),
        ("a: &a {b: *a}", "c.yaml"),
        ("time-limit: 1\ntime_limit: 2", "time-limit"),
        ("time-limit: 1\nexecution: {time-limit: 2}", "execution.time-limit"),
        ("execution: 1", "c.yaml: execution"),
        ("store: ''", "store in c.yaml"),
        ("source: [[a]]", "c.yaml: source"),
        ("source: [null]", "c.yaml: source"),
        ("config: d.yaml", "c.yaml: config"),
    ],
)
def test_a_wrong_value_of_a_file_names_it(
    folder: Path, text: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c.yaml").write_text(text)
    assert main(["inject", ".", "--config", "c.yaml"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert code in error
    assert error.count("\n") == 1


def test_a_model_of_a_file_is_a_folder_if_there_is_one_beside_it(folder: Path) -> None:
    (folder / "below" / "tiny").mkdir(parents=True)
    for written, model in (("tiny", str(folder / "below" / "tiny")), ("owner/name", "owner/name")):
        (folder / "below" / "c.yaml").write_text(f"base: {{model: {written}}}\n")
        trained = settings("train", "sft", "shop", "--config", "below/c.yaml", "--out", "o")
        assert trained.base.model == model
    assert settings("train", "sft", "shop", "--model", "tiny", "--out", "o").base.model == "tiny"


@pytest.mark.parametrize(
    ("variables", "argv", "named"),
    [
        ({"SSR_ATTEMPTS": "abc"}, [], "SSR_ATTEMPTS"),
        ({"SSR_ATTEMPTS": "0"}, [], "--attempts must be at least 1, not 0 (from SSR_ATTEMPTS)"),
        ({"SSR_STEPS": "3"}, [], "(from SSR_STEPS)"),
        ({"SSR_SEED": "abc"}, ["--seed", "1", "--attempts", "abc"], "--attempts"),
        ({"SSR_TRIES": "-1"}, ["--tries", "-2"], "--tries must be at least 0, and finite, not -2\n"),
        ({}, ["--tires", "1"], "did you mean --tries?"),
        ({}, ["--solver.tires", "1"], "did you mean --solver.tries?"),
        ({}, ["--algorithm", "DrGRPO"], "--algorithm is not an option; see ssr solve --help"),
        ({}, ["--rule", "lax"], "--rule"),
        ({}, ["more"], "'more'"),
        ({}, ["--seed"], "--seed needs a value"),
        ({}, ["--config", "nowhere"], "--config nowhere"),
    ],
)
def test_wrong_usage_is_one_line(
    variables: dict[str, str],
    argv: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["solve", "x", *argv]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "rows.jsonl"]) == ExitCode.USAGE
    assert "--out is missing" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"count: \xff", None, b"- 1", b"1"])
def test_a_file_that_cannot_be_read(folder: Path, content: bytes | None) -> None:
    if content is None:
        (folder / "c.yaml").mkdir()
    else:
        (folder / "c.yaml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"c\.yaml"):
        inject("--config", "c.yaml")


def test_an_empty_file_sets_nothing(folder: Path) -> None:
    (folder / "c.yaml").write_text("# nothing\n")
    assert inject("--config", "c.yaml").count == PluginSettings.count


@pytest.mark.parametrize("text", ["[tool.ssr", "tool = 3", "[tool]\nssr = 3", '[tool.ssr]\na = "\\ud800"'])
def test_a_damaged_project_file(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"pyproject\.toml"):
        inject()


def test_the_last_of_repeated_flags_counts_and_lists_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inject("--count", "1", "--count", "2").count == 2
    assert inject("--source", "a", "--source", "b").source == ("a", "b")
    monkeypatch.setenv("SSR_SOURCE", "a, b,")
    assert inject().source == ("a", "b"), "an empty part names nothing"


@pytest.mark.parametrize("argv", [["inject", ""], ["inject", ".", "--store", ""], ["inject", ".", "--python="]])
def test_an_empty_path_is_not_the_current_directory(argv: list[str]) -> None:
    with pytest.raises(SettingsError):
        settings(*argv)


def test_a_wrong_value_of_the_project_names_its_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[tool.ssr]\ncount = 'x'\n")
    assert main(["inject", "."]) == ExitCode.USAGE
    assert f"count in {folder / 'pyproject.toml'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "sandbox = 'process'",
        "sandbox = ' process'",
        "execution.sandbox = 'process:x'",
        "sandbox = 'remote:http://x'",
        "url = 'http://x'",
        "model.mini-python = 'x'",
        "vllm-args = 'x'",
        "bundles = ['x']",
        "solver.name = 'vllm:http://x/v1'",
        "solver.name = 'vllm:weights'",
        "judge.model = 'vllm:http://x/v1'",
        "store = 's3://bucket/x'",
        "solver.name = 'bedrock/agentcore/arn:aws:bedrock-agentcore:x@host/:1:runtime/y'",
    ],
)
def test_a_project_does_not_weaken_isolation(folder: Path, line: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.ssr]\n{line}\n")
    with pytest.raises(SettingsError):
        settings("solve", "x")
    (folder / "pyproject.toml").write_text("[tool.ssr]\nsandbox = 'docker'\n")
    assert inject().execution.sandbox == "docker"


def test_settings_of_a_worker_are_frozen_and_contain_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret")
    monkeypatch.setenv("SSR_VLLM_KEY", "a-secret")
    parsed = settings("run", "d", "--out", "o", "--solver", "openai/gpt-5")
    data = pickle.dumps(parsed)
    assert b"a-secret" not in data
    assert pickle.loads(data) == parsed
    with pytest.raises(FrozenInstanceError):
        parsed.evaluation.jobs = 2


def test_declared_names_and_defaults_are_those_of_the_classes_that_use_them() -> None:
    assert tuple(SANDBOXES) == SANDBOX_NAMES
    assert tuple(INJECTORS) == INJECTOR_NAMES
    assert set(PluginSettings.injector.split(",")) < set(INJECTORS)
    judge = JudgeSettings()
    assert (judge.temperature, judge.max_tokens) == (JUDGE_SAMPLING.temperature, JUDGE_SAMPLING.max_tokens)
    defaults = {name: ProcessReward.__dataclass_fields__[name].default for name in ("votes", "coefficient")}
    assert {"votes": judge.votes, "coefficient": judge.coefficient} == defaults
    play = settings("play", ".")
    assert isinstance(play, PlaySettings)
    assert play.strategy == STRATEGIES[-1]
    export = settings("export", ".", "--format", "sft", "--out", "o")
    assert isinstance(export, ExportSettings)
    names = ("samples", "segment_reward", "image", "workdir", "owner", "repos")
    assert Choices(**{name: getattr(export, name) for name in names}) == Choices()
    assert settings("run", "d", "--out", "o").evaluation.rule is Rule.STRICT


def test_the_plugin_and_the_command_line_declare_the_same() -> None:
    declared: dict[str, set[tuple[object, object]]] = {}
    dotted: dict[str, set[str]] = {}
    for name in ("inject", "solve"):
        for leaf in leaves_of(COMMANDS[name].load_settings()):
            declared.setdefault(leaf.flag, set()).add((leaf.default, leaf.option.bound))
            dotted.setdefault(leaf.flag, set()).add(leaf.dotted)
    for item, option in options_of(PluginSettings):
        assert declared[option.flag] == {(item.default, option.bound)}, option.flag
        assert dotted[option.flag] == {option.key}, option.flag


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_example_and_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == ExitCode.DONE
    text = capsys.readouterr().out
    command = COMMANDS[name].load_settings()
    assert command.example.startswith(f"ssr {name} ")
    assert f"example: ssr {name}" in " ".join(text.split())
    for leaf in leaves_of(command):
        assert leaf.option.metavar if leaf.option.is_argument else f"--{leaf.flag}" in text
        assert leaf.option.help


def test_usage_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.USAGE
    for wrong, suggested in (("injct", "inject"), ("help", "doctor"), ("--json", "doctor")):
        assert main([wrong]) == ExitCode.USAGE
        assert suggested in capsys.readouterr().err
    assert main(["--help"]) == ExitCode.DONE
    assert main(["--version"]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert all(name.split()[0] in shown for name in COMMANDS)
