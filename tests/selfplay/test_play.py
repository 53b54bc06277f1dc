"""Test `ssr solve` and `ssr play` as users run them: complete reports, resumable runs, no repeated work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_server import message, serving, slow
from plain import plain_python
from processes import command_lines
from proven import Proven
from started import started, wait_for

from harness.cli.app import parse
from harness.cli.main import main
from harness.cli.players import chosen_judge, open_players
from harness.models.scripted import ScriptedModel
from harness.records.episode import RefusalCode
from harness.records.trajectory import read_trajectory
from harness.settings.commands import SolveSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.project.solver_checkout import Leak
from pytest_ssr.records.artifact import read_artifact, write_artifact
from pytest_ssr.storage.store import Store

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]
PLAY = ["--count", "1", "--attempts", "2", "--rounds", "2", "--higher-order", "0"]
PYTHON = ["--python", str(plain_python())]
PLAY += ["--injector", "mutation", "--tries", "20", *PYTHON]
FIX = ("editor", {"command": "str_replace", "path": "calc.py", "old_str": "return a - b", "new_str": "return a + b"})
SUBMIT = ("submit", {})


@pytest.fixture(scope="session")
def played(project: Path, proven: Proven) -> tuple[Path, dict[str, Any]]:
    """A store with two played rounds, and their JSON report."""
    store = proven.store.root
    with pytest.MonkeyPatch.context() as patch:
        out: list[str] = []
        patch.setattr("builtins.print", lambda *args, **_: out.append(" ".join(map(str, args))))
        assert main(["play", str(project), "--store", str(store), "--json", *PLAY]) == 0
    return store, json.loads("".join(out))


def test_playing_again_repeats_the_report_without_work(
    project: Path, played: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, first = played
    kinds = ("rollouts", "attempts", "episodes", "artifacts", "verdicts")
    before = {p: p.stat().st_mtime_ns for kind in kinds for p in (store / kind).rglob("*")}
    assert main(["play", str(project), "--store", str(store), "--json", *PLAY]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert {p: p.stat().st_mtime_ns for kind in kinds for p in (store / kind).rglob("*")} == before
    valid = [e for e in first["episodes"] if e["valid"] and e["order"] == 1]
    assert [e["round"] for e in valid] == [1, 2]
    assert len({e["artifact_id"] for e in valid}) == 2
    for episode in valid:
        assert len(episode["rollouts"]) == 2
        wanted = -0.8 if episode["solve_rate"] in (0, 1) else pytest.approx(0.1)
        assert episode["injector_reward"] == wanted
    assert first["tables"]["all"][0]["attempts"] == sum(len(e["rollouts"]) for e in first["episodes"])


def test_the_terminal_output(
    project: Path, played: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, report = played
    assert main(["play", str(project), "--store", str(store), *PLAY]) == 0
    out, err = capsys.readouterr()
    for way in ("strategy", "operator", "size", "round", "project"):
        assert f"by {way}" in out
    assert "with 2 attempts a solve rate of" in out
    bug = next(e for e in report["episodes"] if e["valid"])
    assert f"round 1  calculator  {bug['artifact_id']}  resolved " in out
    assert err == "", "progress is for terminals"
    assert "\033[" not in out
    argv = ["--repo", str(project), "--store", str(store), "--attempts", "2", "--tries", "20", *PYTHON]
    solved = sum(r["resolved"] for r in bug["rollouts"])
    assert main(["solve", bug["artifact_id"][:8], *argv]) == (0 if solved else 1)
    out = capsys.readouterr().out
    assert out.startswith("attempt 1: ")
    assert f"resolved {solved} of 2: " in out


def test_a_run_killed_three_times_resumes(
    project: Path, played: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, more = Store(tmp_path / "s").root, [*PLAY, "--rounds", "1"]
    for known in ("baselines", "trees"):
        shutil.copytree(played[0] / known, store / known, symlinks=True, dirs_exist_ok=True)
    for sign in ("attempts/*/*.json", "rollouts/*/trajectory.jsonl", "rollouts/*/rollout.json"):
        process = started("play", project, "--store", store, *more)

        def far_enough(sign: str = sign, process: subprocess.Popen[str] = process) -> bool:
            return any(store.glob(sign)) or process.poll() is not None

        wait_for(far_enough)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    kept = {p: p.read_bytes() for p in store.glob("rollouts/*/rollout.json")}
    finished = {p: data for p, data in kept.items() if json.loads(data)["resolved"] is not None}
    assert main(["play", str(project), "--store", str(store), "--json", *more]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert {p: p.read_bytes() for p in finished} == finished, "finished rollouts are not repeated"
    assert plain(resumed) == [e for e in plain(played[1]) if e[0] == 1], "the same as without interruptions"


def plain(report: dict[str, Any]) -> list[Any]:
    return [
        (e["round"], e["artifact_id"], e["valid"], [(r["resolved"], r["patch_sha256"]) for r in e["rollouts"]])
        for e in report["episodes"]
    ]


@pytest.mark.parametrize(("vote", "without_vote"), [("no box", 1), (r"\boxed{1}", 0)])
def test_an_attempt_without_a_valid_vote_is_counted(
    proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str], vote: str, without_vote: int
) -> None:
    replies = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in (FIX, SUBMIT)]
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    (tmp_path / "votes.json").write_text(json.dumps([vote]))
    argv = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    argv += ["--solver", f"scripted:{tmp_path}/replies.json", "--judge", f"scripted:{tmp_path}/votes.json"]
    argv += ["--judge-votes", "1", "--attempts", "1", *PYTHON]
    main([*argv, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert (data["graded"], data["without_vote"]) == (1, without_vote)
    main(argv)
    assert ("no valid vote" in capsys.readouterr().out) == bool(without_vote)


def test_an_interrupt_ends_all_rollouts_and_the_same_command_resumes(proven: Proven, tmp_path: Path) -> None:
    odd = f"97{os.getpid()}"
    sleep = message("", ("bash", {"command": f"sleep {odd}"}))
    with serving(sleep, slow(300)) as served:
        served.replies += [message("", FIX)] * 2 + [message("", SUBMIT)] * 2
        argv = ["--repo", proven.project, "--store", proven.store.root, "--jobs", "2", "--attempts", "2"]
        argv += ["--solver", f"vllm:{served.url}", "--seed", "77", *PYTHON]
        process = started("solve", proven.verdict.artifact_id, *argv)
        wait_for(lambda: len(served.asked) == 2 and running(odd))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 3
        assert err.splitlines()[-1] == ("ssr: interrupted; what is finished is kept, run the same command to go on")
        assert not running(odd)
        cut_off = [
            p for p in proven.store.root.glob("rollouts/*/trajectory.jsonl") if f"vllm:{served.url}" in p.read_text()
        ]
        assert len(cut_off) == 2
        for path in cut_off:
            end = json.loads(path.read_text().splitlines()[-1])
            assert (end["event"], end["exit_reason"], end["status"]) == ("end", "interrupted", "aborted")
        again = started("solve", proven.verdict.artifact_id, *argv)
        assert again.wait(120) == 0
        again.communicate()
    done = [json.loads((p.parent / "rollout.json").read_text()) for p in cut_off]
    assert [d["resolved"] for d in done] == [True, True]
    earlier = [(p.parent / "earlier-001.jsonl").read_text() for p in cut_off]
    slept, other = (d for d, text in sorted(zip(done, earlier, strict=True), key=lambda pair: odd not in pair[1]))
    assert slept["tokens"] > other["tokens"], "the tokens of the interrupted rollout are counted"


def calling(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a scripted reply that calls a tool."""
    return {"content": "", "tool_calls": [{"name": tool, "arguments": arguments}]}


def running(odd: str) -> bool:
    return any(b"sleep\0" + odd.encode() in c for c in command_lines())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--attempts", "0"], "--attempts must be at least 1, not 0"),
        (["--higher-order", "-1"], "--higher-order must be at least 0, not -1"),
        (["--alpha", "1.5"], "--alpha must be in (0, 1), not 1.5"),
        (["--tries", "-5"], "--tries must be at least 0, and finite, not -5"),
        (["--top-p", "2"], "--top-p must be in (0, 1], not 2"),
        (["--temperature", "-1"], "--temperature must be at least 0, and finite, not -1"),
        (["--judge-coefficient", "inf"], "--judge-coefficient must be finite, not inf"),
        (["--rollout-limit", "0"], "--rollout-limit must be more than 0, not 0"),
        (["--budget-usd", "nan"], "--budget-usd must be more than 0, not nan"),
        (["--judge-votes", "0"], "--judge-votes must be more than 0, not 0"),
        (["--judge-max-tokens", "0"], "--judge-max-tokens must be more than 0, not 0"),
        (["--judge-temperature", "-1"], "--judge-temperature must be at least 0, and finite, not -1"),
        (["--temperature", "inf"], "--temperature must be at least 0, and finite, not inf"),
        (["--judge-temperature", "inf"], "--judge-temperature must be at least 0, and finite, not inf"),
        (["--judge-temperature", "1"], "--judge-temperature is for a model that scores steps (--judge MODEL), not for"),
        (["--judge", "search"], "--judge must be a model, PROVIDER/MODEL or vllm:PATH, not 'search'"),
        (["--url", "http://localhost"], "--url is for a model named PROVIDER/MODEL"),
        (["--context", "9000"], "--context is for a model: PROVIDER/MODEL"),
        (["--solver", "scripted:{script}", "--model-timeout", "9"], "--model-timeout is for a model behind a server"),
        (["--model-timeout", "0"], "--model-timeout must be more than 0, not 0"),
        (["--vllm-ready", "-1"], "--vllm-ready must be more than 0, not -1"),
        (["--vllm-ready", "9"], "--vllm-ready is for a model whose server is started here: vllm:PATH"),
        (["--solver", "vllm:http://localhost/v1", "--vllm-args=-q"], "--vllm-args is for a model whose server is"),
        (["--solver", "vllm:/model", "--vllm-args='a"], '--vllm-args "\'a" cannot be read: No closing quotation'),
        (["--solver", "scripted:{script}", "--context", "4096"], "max_tokens is 4096, and the context window of"),
        (
            ["--injector", "scripted:{script}", "--solver", "scripted:{script}", "--context", "4096"],
            "max_tokens is 4096, and the context window of",
        ),
        (
            ["--injector", "mutation", "--strategy", "direct"],
            "--strategy is for a model that injects, not for mutation",
        ),
        (["--rejections", "2"], "--rejections is for a model that injects, not for"),
        (["--injector", "scripted:{script}", "--fixed-mixture"], "--fixed-mixture is for operators, not for scripted:"),
        (["--steps", "5"], "--steps is for a model that solves or injects, not for search and mutation"),
        (["--solver", "replay:.", "--temperature", "0.5"], "--temperature is for a model that solves or injects, not"),
        (["--budget-usd", "5"], "--budget-usd is for a model, not for search and mutation"),
        (
            ["--solver", "gpt-4-turbo", "--budget-usd", "5"],
            "not for gpt-4-turbo and mutation,removal,combination; a model is named PROVIDER/MODEL",
        ),
        (["--cache", "/nowhere"], "--cache is for a model, not for search and"),
        (["--judge-votes", "2"], "--judge-votes is for a model that scores steps (--judge MODEL), not for search and"),
        (["--judge", "scripted:{script}", "--max-tokens", "9"], "--max-tokens is for a model that solves or injects"),
        (
            ["--solver", "scripted:{script}", "--bundles", "/nowhere"],
            "/nowhere is not a folder; the bundles that ship are: repository",
        ),
        (
            ["--solver", "oracle"],
            "there is no solver 'oracle'",
        ),
        (["--solver", "replay:/nowhere"], "/nowhere does not exist"),
        (["--solver", "vllm:/model"], "`vllm` is not on the PATH"),
        (["--solver", "replay:.", "--tries", "9"], "--tries is for the solvers search and lm:MODEL, not for replay:."),
        (["--injector", "magic"], "there is no injector 'magic'"),
        (["--injector", "scripted:{script}", "--rejections", "-1"], "--rejections must be at least 0, not -1"),
    ],
)
def test_usage_errors_are_one_line_before_any_work(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    script = tmp_path / "script.json"
    script.write_text("[]")
    argv = [a.format(script=script) for a in arguments]
    assert main(["play", str(project), "--store", str(tmp_path / "s"), *argv]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1
    assert not (tmp_path / "s" / "trees").exists()


def test_options_for_the_start_and_requests_of_a_server(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[str, dict[str, Any]] = {}

    def open_model(name: str, **kwargs: Any) -> ScriptedModel:
        opened[name] = {k: kwargs[k] for k in ("timeout_s", "ready_s", "vllm_arguments")}
        if name == "a/judge":
            raise SettingsError("enough")
        return ScriptedModel(name, [])

    monkeypatch.setattr("harness.rollouts.player_factory.open_model", open_model)
    argv = ["solve", "x", "--repo", str(project), "--solver", "vllm:/a/model", "--judge", "a/judge"]
    argv += ["--model-timeout", "7.5", "--vllm-ready", "60", "--vllm-args=--seed 3 --name 'a b'"]
    assert main(argv) == 2
    assert capsys.readouterr().err == "ssr: enough\n"
    expected = {"timeout_s": 7.5, "ready_s": 60.0, "vllm_arguments": ["--seed", "3", "--name", "a b"]}
    assert opened == {"vllm:/a/model": expected, "a/judge": expected}


@pytest.mark.parametrize("role", ["--solver", "--injector"])
def test_no_model_runs_without_an_isolating_sandbox(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setattr("pytest_ssr.sandbox._STRENGTH", ())
    script = tmp_path / "script.json"
    script.write_text("[]")
    assert main(["play", str(project), "--store", str(tmp_path / "s"), role, f"scripted:{script}"]) == 3
    assert "not run without one; to run it anyway, use --sandbox process" in capsys.readouterr().err


def test_a_foreign_artifact_is_validated_first_and_never_without_isolation(
    proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact has five files with the names of the prompts, and no `artifact.json`."""
    (tmp_path / "foreign").mkdir()
    write_artifact(tmp_path / "foreign", proven.artifact, prompt_names=True)
    assert read_artifact(tmp_path / "foreign") == proven.artifact
    argv = ["solve", str(tmp_path / "foreign"), "--repo", str(proven.project), "--attempts", "1", "--json"]
    script = tmp_path / "script.json"
    script.write_text(json.dumps([calling(*FIX), calling(*SUBMIT)]))
    assert main([*argv, "--store", str(tmp_path / "s"), "--solver", f"scripted:{script}"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["solved"], report["solve_rate"]["rate"]) == (1, 1.0)
    assert report["solve_rate"]["low"] == pytest.approx(0.2065, abs=1e-4)
    monkeypatch.setattr("pytest_ssr.sandbox._STRENGTH", ())
    assert main([*argv, "--store", str(tmp_path / "t")]) == 3
    assert "--sandbox process" in capsys.readouterr().err


def test_a_statement_replaces_the_tests(proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    argv += ["--attempts", "1", "--json", *PYTHON]
    issue, script = tmp_path / "issue.md", tmp_path / "script.json"
    script.write_text(json.dumps([calling(*FIX), calling(*SUBMIT)]))
    issue.write_text("`add(1, 2)` is -1 since yesterday.\n")
    model = ["--solver", f"scripted:{script}"]
    ids, tasks = [], []
    for more in ([], ["--statement", str(issue)]):
        assert main([*argv, *model, *more]) == 0
        (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
        ids.append(attempt["id"])
        trajectory = read_trajectory(proven.store.root / "rollouts" / attempt["id"] / "trajectory.jsonl")
        tasks.append(trajectory.messages[1].content)
    assert ids[0] != ids[1], "attempts with and without the statement differ"
    assert ["def test_add" in t for t in tasks] == [True, False]
    assert ["`add(1, 2)` is -1 since yesterday." in t for t in tasks] == [False, True]
    for text, solver, expected in (
        ("x", [], "--statement is for a model, not for search"),
        ("x", ["--solver", "replay:."], "--statement is for a model, not for replay:."),
        (" \n", model, "issue.md is empty"),
        ("\udcff", model, "issue.md cannot be read: 'utf-8' codec"),
    ):
        issue.write_text(text, errors="surrogateescape")
        assert main([*argv, *solver, "--statement", str(issue)]) == 2
        assert expected in capsys.readouterr().err


def test_a_refused_task_is_reported_with_the_reason(
    project: Path,
    played: tuple[Path, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.rollouts.task.find_leaks", lambda *_: [Leak("old/calc.py", "return a + b")])
    argv = ["play", str(project), "--store", str(played[0]), *PLAY, "--rounds", "1", "--seed", "0", "--count", "1"]
    argv += ["--attempts", "3"]
    main([*argv, "--json"])
    report = json.loads(capsys.readouterr().out)
    (refused,) = report["refused"]
    assert refused["code"] == RefusalCode.FIX_READABLE
    assert report["tables"]["all"][0]["refused"] == 1
    episode = next(e for e in report["episodes"] if e["refused"])
    assert (episode["artifact_id"], episode["rollouts"], episode["injector_reward"]) == (refused["id"], [], None)
    main(argv)
    assert f"not given to the solver: {refused['reason']}" in capsys.readouterr().out


def test_a_model_that_injects_nothing_is_reported_with_reason_and_usage(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(*[message("I think I am done")] * 9, max_model_len=32768) as served:
        argv = ["play", str(project), "--store", str(tmp_path / "s"), "--count", "1", "--attempts", "1"]
        argv += ["--injector", f"vllm:{served.url}", "--strategy", "direct", "--format-errors", "2"]
        argv += ["--cache", str(tmp_path / "cache")]
        assert main(argv) == 1
        requests = len(served.asked)
        out = capsys.readouterr().out
        assert main([*argv, "--store", str(tmp_path / "t")]) == 1
        assert len(served.asked) == requests, "replies are cached"
        assert capsys.readouterr().out.splitlines()[0] == out.splitlines()[0]
    assert "no bug by tiny: nothing was submitted: format 2 replies in a row" in out
    assert "not valid by: nothing-submitted 1" in out
    assert "tokens, 0.0000 USD, and 2 calls without a known price" in out


def test_prices_of_a_file_count_in_attempts(proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prices.yaml").write_text("tiny: {input: 2, output: 8}")
    argv = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    argv += ["--attempts", "1", "--format-errors", "2", "--seed", "78", "--json"]
    # The first is the reply to the request that finds out before the attempt whether the server answers.
    with serving(*[message("I think I am done")] * 3, max_model_len=32768) as served:
        main([*argv, "--solver", f"vllm:{served.url}", "--models", str(tmp_path / "prices.yaml")])
    report = json.loads(capsys.readouterr().out)
    assert report["unpriced_calls"] == 0
    assert report["cost_usd"] == report["attempts"][0]["cost_usd"] > 0


def test_additional_tools_and_a_judge(proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "mender"
    (bundle / "bin").mkdir(parents=True)
    (bundle / "config.yaml").write_text(
        "tools:\n  mend:\n    docstring: puts it right\n    arguments:\n      - {name: path, type: string}\n"
    )
    (bundle / "bin" / "mend").write_text('#!/bin/sh\ntest -f "$HOME/ready" && sed -i "s/a - b/a + b/" "$1"\n')
    (bundle / "install.sh").write_text('touch "$HOME/ready"\n')
    calls = [calling("mend", {"path": "calc.py"}), calling(*SUBMIT)]
    (tmp_path / "solver.json").write_text(json.dumps(calls))
    (tmp_path / "judge.json").write_text(json.dumps([r"good: \boxed{0.5}", "no idea"]))
    argv = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    argv += ["--attempts", "1", "--solver", f"scripted:{tmp_path}/solver.json", "--bundles", str(bundle), "--json"]
    judge = ["--judge", f"scripted:{tmp_path}/judge.json", "--judge-votes", "2", "--judge-coefficient", "0.4"]
    assert main([*argv, *judge]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert attempt["resolved"], attempt["reason"]
    assert (attempt["score"], attempt["reward"]) == (0.5, pytest.approx(1.2))
    assert main(argv) == 0
    (plain,) = json.loads(capsys.readouterr().out)["attempts"]
    assert (plain["id"], plain["score"], plain["reward"]) == (attempt["id"], None, 1.0), (
        "a judge does not change a rollout"
    )


def test_options_for_the_judge(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text("[]")
    argv = ["solve", "x", "--judge", f"scripted:{tmp_path}/judge.json", "--judge-temperature", "0.2"]
    for further, most in (([], 1024), (["--judge-max-tokens", "9000"], 9000)):
        parsed = parse([*argv, *further])
        assert parsed is not None
        settings = parsed.settings
        assert isinstance(settings, SolveSettings)
        judge = chosen_judge(settings.players.judge, open_players(settings.players, tmp_path, Extensions()))
        assert judge is not None
        assert (judge.sampling.temperature, judge.sampling.max_tokens) == (0.2, most)
        assert judge.votes == 3


def test_existing_artifacts_are_played_once_each(
    project: Path, proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Foreign artifacts have the paper's other file names, and only the five files."""
    bugs = tmp_path / "bugs"
    other = replace(proven.artifact, parser=proven.artifact.parser + b"# another one\n", info={})
    wrong = replace(proven.artifact, test_files=("tests/test_nothing.py",), info={})
    for name, artifact in (("foreign", other), ("mine", proven.artifact), ("wrong", wrong)):
        (bugs / name).mkdir(parents=True)
        write_artifact(bugs / name, artifact, prompt_names=name == "foreign")
    argv = ["play", str(project), "--injector", f"artifacts:{bugs}", "--store", str(tmp_path / "s"), *PYTHON]
    argv += ["--count", "2", "--rounds", "2", "--attempts", "1", "--tries", "1", "--higher-order", "0"]
    assert main([*argv, "--json"]) in (0, 1)
    episodes = json.loads(capsys.readouterr().out)["episodes"]
    assert [e["round"] for e in episodes] == [1, 1, 2]
    assert sorted(e["valid"] for e in episodes) == [False, True, True]
    assert [(e["check"], e["code"], e["details"], e["reason"]) for e in episodes if not e["valid"]] == [
        (
            "test-files",
            "file-missing",
            {"files": ["tests/test_nothing.py"]},
            "test-files: tests/test_nothing.py does not exist in the original",
        )
    ]
    assert len({e["artifact_id"] for e in episodes if e["valid"]}) == 2
    assert main(argv) in (0, 1)
    assert "after round 1" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert main([*argv, "--injector", f"artifacts:{tmp_path / 'empty'}"]) == 2
    assert "holds no artifact" in capsys.readouterr().err


def test_repeated_projects_are_rejected_and_equal_names_made_unique(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--store", str(tmp_path / "s"), *PLAY, "--rounds", "1", "--attempts", "1", "--json"]
    assert main(["play", str(project), f"{project}/", *argv]) == 2
    assert f"{project}, {project} hold the same files; name one of them" in capsys.readouterr().err
    other = tmp_path / "other" / project.name
    shutil.copytree(project, other)
    (other / "README.md").write_text("another\n")
    assert main(["play", str(project), str(other), *argv]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)["tables"]["project"]}
    assert names == {f"calculator ({project.resolve()})", f"calculator ({other.resolve()})"}
