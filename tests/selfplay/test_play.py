"""`ssr solve` and `ssr play` as their users run them: told whole, resumable, nothing done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_server import message, serving, slow
from plain import plain_python
from processes import command_lines
from proven import Proven

from harness.arguments import parser
from harness.cli import main
from harness.models.scripted import ScriptedModel
from harness.options import chosen_judge, open_roles
from harness.trajectory import read_trajectory
from pytest_ssr.artifact import read_artifact, write_artifact
from pytest_ssr.errors import SettingsError
from pytest_ssr.solver_tree import Leak
from pytest_ssr.store import Store

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]
PLAY = ["--count", "1", "--attempts", "2", "--rounds", "2", "--higher-order", "0"]
PYTHON = ["--python", str(plain_python())]
PLAY += ["--injector", "mutation", "--tries", "20", *PYTHON]
FIX = ("editor", {"command": "str_replace", "path": "calc.py", "old_str": "return a - b", "new_str": "return a + b"})
SUBMIT = ("submit", {})


@pytest.fixture(scope="session")
def played(project: Path, proven: Proven) -> tuple[Path, dict[str, Any]]:
    """A store in which two rounds were played, and what was said of them."""
    store = proven.store.root
    with pytest.MonkeyPatch.context() as patch:
        out: list[str] = []
        patch.setattr("builtins.print", lambda *words, **_: out.append(" ".join(map(str, words))))
        assert main(["play", str(project), "--store", str(store), "--json", *PLAY]) == 0
    return store, json.loads("".join(out))


def test_play_again_gives_the_same_and_does_nothing(
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


def test_what_a_person_sees(
    project: Path, played: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, said = played
    assert main(["play", str(project), "--store", str(store), *PLAY]) == 0
    out, err = capsys.readouterr()
    for way in ("strategy", "operator", "size", "round", "project"):
        assert f"by {way}" in out
    assert "of 2 attempts a solve rate of" in out
    bug = next(e for e in said["episodes"] if e["valid"])
    assert f"round 1  calculator  {bug['artifact_id']}  resolved " in out
    assert err == "", "progress is for terminals"
    assert "\033[" not in out
    words = ["--repo", str(project), "--store", str(store), "--attempts", "2", "--tries", "20", *PYTHON]
    solved = sum(r["resolved"] for r in bug["rollouts"])
    assert main(["solve", bug["artifact_id"][:8], *words]) == (0 if solved else 1)
    out = capsys.readouterr().out
    assert out.startswith("attempt 1: ")
    assert f"resolved {solved} of 2: " in out


def test_play_killed_three_times_goes_on(
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
    assert {p: p.read_bytes() for p in finished} == finished, "what was finished is not done again"
    assert plain(resumed) == [e for e in plain(played[1]) if e[0] == 1], "as if it had never been cut off"


def plain(said: dict[str, Any]) -> list[Any]:
    return [
        (e["round"], e["artifact_id"], e["valid"], [(r["resolved"], r["patch_sha256"]) for r in e["rollouts"]])
        for e in said["episodes"]
    ]


def started(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_interrupt_ends_every_rollout_at_once_and_the_same_command_goes_on(proven: Proven, tmp_path: Path) -> None:
    odd = f"97{os.getpid()}"
    sleep = message("", ("bash", {"command": f"sleep {odd}"}))
    with serving(sleep, slow(300)) as served:
        served.replies += [message("", FIX)] * 2 + [message("", SUBMIT)] * 2
        words = ["--repo", proven.project, "--store", proven.store.root, "--jobs", "2", "--attempts", "2"]
        words += ["--solver", f"vllm:{served.url}", "--seed", "77", *PYTHON]
        process = started("solve", proven.verdict.artifact_id, *words)
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
        again = started("solve", proven.verdict.artifact_id, *words)
        assert again.wait(120) == 0
        again.communicate()
    done = [json.loads((p.parent / "rollout.json").read_text()) for p in cut_off]
    assert [d["resolved"] for d in done] == [True, True]
    earlier = [(p.parent / "earlier-001.jsonl").read_text() for p in cut_off]
    slept, other = (d for d, text in sorted(zip(done, earlier, strict=True), key=lambda pair: odd not in pair[1]))
    assert slept["tokens"] > other["tokens"], "and its tokens are counted"


def calling(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A reply of a script."""
    return {"content": "", "tool_calls": [{"name": tool, "arguments": arguments}]}


def running(odd: str) -> bool:
    return any(b"sleep\0" + odd.encode() in c for c in command_lines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--attempts", "0"], "--attempts must be at least 1, not 0"),
        (["--higher-order", "-1"], "--higher-order must be at least 0, not -1"),
        (["--alpha", "1.5"], "alpha must lie in (0, 1), not 1.5"),
        (["--tries", "-5"], "--tries must be at least 0, and finite, not -5"),
        (["--top-p", "2"], "--top-p lies in (0, 1], not 2"),
        (["--temperature", "-1"], "--temperature must be at least 0, and finite, not -1"),
        (["--judge-coefficient", "inf"], "--judge-coefficient is a number, not inf"),
        (["--rollout-limit", "0"], "--rollout-limit must be more than 0, not 0"),
        (["--budget-usd", "nan"], "--budget-usd must be more than 0, not nan"),
        (["--judge-votes", "0"], "--judge-votes must be more than 0, not 0"),
        (["--judge-max-tokens", "0"], "--judge-max-tokens must be more than 0, not 0"),
        (["--judge-temperature", "-1"], "--judge-temperature must be at least 0, and finite, not -1"),
        (["--temperature", "inf"], "--temperature must be at least 0, and finite, not inf"),
        (["--judge-temperature", "inf"], "--judge-temperature must be at least 0, and finite, not inf"),
        (["--judge-temperature", "1"], "--judge-temperature is for a model that scores steps (--judge MODEL), not for"),
        (["--judge", "search"], "--judge is a model: PROVIDER/MODEL, vllm:PATH; not 'search'"),
        (["--url", "http://localhost"], "--url is for a model named PROVIDER/MODEL"),
        (["--context", "9000"], "--context is for a model: PROVIDER/MODEL"),
        (["--solver", "scripted:{script}", "--model-timeout", "9"], "--model-timeout is for a model behind a server"),
        (["--model-timeout", "0"], "--model-timeout must be more than 0, not 0"),
        (["--vllm-ready", "-1"], "--vllm-ready must be more than 0, not -1"),
        (["--vllm-ready", "9"], "--vllm-ready is for a model whose server is started here: vllm:PATH"),
        (["--solver", "vllm:http://localhost/v1", "--vllm-args=-q"], "--vllm-args is for a model whose server is"),
        (["--solver", "vllm:/model", "--vllm-args='a"], '--vllm-args "\'a" cannot be read: No closing quotation'),
        (["--solver", "scripted:{script}", "--context", "4096"], "takes 4096 tokens for prompt and reply together"),
        (
            ["--injector", "scripted:{script}", "--solver", "scripted:{script}", "--context", "4096"],
            "takes 4096 tokens for prompt and reply together",
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
        (["--cache", "/nowhere"], "--cache is for a model, not for search and"),
        (["--judge-votes", "2"], "--judge-votes is for a model that scores steps (--judge MODEL), not for search and"),
        (["--judge", "scripted:{script}", "--max-tokens", "9"], "--max-tokens is for a model that solves or injects"),
        (["--solver", "scripted:{script}", "--bundles", "/nowhere"], "/nowhere/config.yaml describes no tools"),
        (
            ["--solver", "oracle"],
            "there is no solver 'oracle'; choose search, replay:PATH, mini-swe-agent:MODEL, or a model",
        ),
        (["--solver", "replay:/nowhere"], "/nowhere does not exist"),
        (["--solver", "vllm:/model"], "there is no `vllm` on the PATH"),
        (["--solver", "replay:.", "--tries", "9"], "--tries is for the solver search, not for replay:."),
        (["--injector", "magic"], "there is no injector 'magic'"),
        (["--injector", "scripted:{script}", "--rejections", "-1"], "--rejections must be at least 0, not -1"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_done(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    script = tmp_path / "script.json"
    script.write_text("[]")
    words = [a.format(script=script) for a in arguments]
    assert main(["play", str(project), "--store", str(tmp_path / "s"), *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "s" / "trees").exists()


def test_how_a_server_is_started_and_asked_can_be_said(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def open_model(name: str, **told: Any) -> ScriptedModel:
        asked[name] = {k: told[k] for k in ("timeout_s", "ready_s", "vllm_arguments")}
        if name == "a/judge":
            raise SettingsError("enough")
        return ScriptedModel(name, [])

    monkeypatch.setattr("harness.roles.open_model", open_model)
    words = ["solve", "x", "--repo", str(project), "--solver", "vllm:/a/model", "--judge", "a/judge"]
    words += ["--model-timeout", "7.5", "--vllm-ready", "60", "--vllm-args=--seed 3 --name 'a b'"]
    assert main(words) == 2
    assert capsys.readouterr().err == "ssr: enough\n"
    told = {"timeout_s": 7.5, "ready_s": 60.0, "vllm_arguments": ["--seed", "3", "--name", "a b"]}
    assert asked == {"vllm:/a/model": told, "a/judge": told}


@pytest.mark.parametrize("role", ["--solver", "--injector"])
def test_without_a_sandbox_that_isolates_no_model_gets_to_write(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setattr("pytest_ssr.sandbox._STRENGTH", ())
    script = tmp_path / "script.json"
    script.write_text("[]")
    assert main(["play", str(project), "--store", str(tmp_path / "s"), role, f"scripted:{script}"]) == 3
    assert "what a model or others wrote is not run without one; to run it all the same, say --sandbox process" in (
        capsys.readouterr().err
    )


def test_an_artifact_of_another_system_is_proven_first_and_never_without_isolation(
    proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five files in the prompts' names and no `artifact.json`."""
    (tmp_path / "foreign").mkdir()
    write_artifact(tmp_path / "foreign", proven.artifact, prompt_names=True)
    assert read_artifact(tmp_path / "foreign") == proven.artifact
    words = ["solve", str(tmp_path / "foreign"), "--repo", str(proven.project), "--attempts", "1", "--json"]
    script = tmp_path / "script.json"
    script.write_text(json.dumps([calling(*FIX), calling(*SUBMIT)]))
    assert main([*words, "--store", str(tmp_path / "s"), "--solver", f"scripted:{script}"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["solved"], said["solve_rate"]["rate"]) == (1, 1.0)
    assert said["solve_rate"]["low"] == pytest.approx(0.2065, abs=1e-4)
    monkeypatch.setattr("pytest_ssr.sandbox._STRENGTH", ())
    assert main([*words, "--store", str(tmp_path / "t")]) == 3
    assert "say --sandbox process" in capsys.readouterr().err


def test_a_statement_in_words_takes_the_place_of_the_tests(
    proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    words += ["--attempts", "1", "--json", *PYTHON]
    issue, script = tmp_path / "issue.md", tmp_path / "script.json"
    script.write_text(json.dumps([calling(*FIX), calling(*SUBMIT)]))
    issue.write_text("`add(1, 2)` is -1 since yesterday.\n")
    model = ["--solver", f"scripted:{script}"]
    ids, tasks = [], []
    for more in ([], ["--statement", str(issue)]):
        assert main([*words, *model, *more]) == 0
        (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
        ids.append(attempt["id"])
        told = read_trajectory(proven.store.root / "rollouts" / attempt["id"] / "trajectory.jsonl")
        tasks.append(told.messages[1].content)
    assert ids[0] != ids[1], "what was made without it is another attempt"
    assert ["def test_add" in t for t in tasks] == [True, False]
    assert ["`add(1, 2)` is -1 since yesterday." in t for t in tasks] == [False, True]
    for text, solver, says in (
        ("x", [], "--statement is for a model, not for search"),
        ("x", ["--solver", "replay:."], "--statement is for a model, not for replay:."),
        (" \n", model, "issue.md says nothing"),
        ("\udcff", model, "issue.md cannot be read: 'utf-8' codec"),
    ):
        issue.write_text(text, errors="surrogateescape")
        assert main([*words, *solver, "--statement", str(issue)]) == 2
        assert says in capsys.readouterr().err


def test_a_task_that_is_refused_is_in_the_report_with_the_reason(
    project: Path,
    played: tuple[Path, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.tasks.copies", lambda *_: [Leak("/site/calc.py", "return a + b")])
    words = ["play", str(project), "--store", str(played[0]), *PLAY, "--rounds", "1", "--seed", "0", "--count", "1"]
    words += ["--attempts", "3"]
    main([*words, "--json"])
    said = json.loads(capsys.readouterr().out)
    (refused,) = said["refused"]
    assert "a solver could read the fix of" in refused["reason"]
    assert said["tables"]["all"][0]["refused"] == 1
    episode = next(e for e in said["episodes"] if e["refused"])
    assert (episode["artifact_id"], episode["rollouts"], episode["injector_reward"]) == (refused["id"], [], None)
    main(words)
    assert f"not given to the solver: {refused['reason']}" in capsys.readouterr().out


def test_a_model_that_injects_nothing_is_told_with_the_reason_and_what_it_used(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(*[message("I think I am done")] * 9) as served:
        words = ["play", str(project), "--store", str(tmp_path / "s"), "--count", "1", "--attempts", "1"]
        words += ["--injector", f"vllm:{served.url}", "--strategy", "direct", "--format-errors", "2"]
        words += ["--cache", str(tmp_path / "cache")]
        assert main(words) == 1
        asked = len(served.asked)
        out = capsys.readouterr().out
        assert main([*words, "--store", str(tmp_path / "t")]) == 1
        assert len(served.asked) == asked, "the replies are kept"
        assert capsys.readouterr().out.splitlines()[0] == out.splitlines()[0]
    assert f"no bug by vllm:{served.url}: nothing was handed in: format 2 replies in a row" in out
    assert "not valid by: nothing was handed in 1" in out
    assert "tokens, 0.0000 USD, and 2 calls without a known price" in out


def test_further_tools_and_a_judge(proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    words = ["solve", proven.verdict.artifact_id, "--repo", str(proven.project), "--store", str(proven.store.root)]
    words += ["--attempts", "1", "--solver", f"scripted:{tmp_path}/solver.json", "--bundles", str(bundle), "--json"]
    judge = ["--judge", f"scripted:{tmp_path}/judge.json", "--judge-votes", "2", "--judge-coefficient", "0.4"]
    assert main([*words, *judge]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert attempt["resolved"], attempt["reason"]
    assert (attempt["score"], attempt["reward"]) == (0.5, pytest.approx(1.2))
    assert main(words) == 0
    (plain,) = json.loads(capsys.readouterr().out)["attempts"]
    assert (plain["id"], plain["score"], plain["reward"]) == (attempt["id"], None, 1.0), "a judge changes no rollout"


def test_a_judge_is_asked_as_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text("[]")
    words = ["solve", "x", "--judge", f"scripted:{tmp_path}/judge.json", "--judge-temperature", "0.2"]
    for further, most in (([], 1024), (["--judge-max-tokens", "9000"], 9000)):
        arguments = parser().parse_args([*words, *further])
        judge = chosen_judge(arguments, open_roles(arguments, tmp_path))
        assert judge is not None
        assert (judge.sampling.temperature, judge.sampling.max_tokens) == (0.2, most)
        assert judge.votes == 3


def test_artifacts_that_are_there_are_played_each_once(
    project: Path, proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of other systems have the paper's other names, and nothing but the five files."""
    bugs = tmp_path / "bugs"
    other = replace(proven.artifact, parser=proven.artifact.parser + b"# another one\n", info={})
    wrong = replace(proven.artifact, test_files=("tests/test_nothing.py",), info={})
    for name, artifact in (("foreign", other), ("mine", proven.artifact), ("wrong", wrong)):
        (bugs / name).mkdir(parents=True)
        write_artifact(bugs / name, artifact, prompt_names=name == "foreign")
    words = ["play", str(project), "--injector", f"artifacts:{bugs}", "--store", str(tmp_path / "s"), *PYTHON]
    words += ["--count", "2", "--rounds", "2", "--attempts", "1", "--tries", "1", "--higher-order", "0"]
    assert main([*words, "--json"]) in (0, 1)
    episodes = json.loads(capsys.readouterr().out)["episodes"]
    assert [e["round"] for e in episodes] == [1, 1, 2]
    assert sorted(e["valid"] for e in episodes) == [False, True, True]
    assert [e["reason"] for e in episodes if not e["valid"]] == [
        "test-files: tests/test_nothing.py does not exist in the original"
    ]
    assert len({e["artifact_id"] for e in episodes if e["valid"]}) == 2
    assert main(words) in (0, 1)
    assert "after round 1" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert main([*words, "--injector", f"artifacts:{tmp_path / 'empty'}"]) == 2
    assert "holds no artifact" in capsys.readouterr().err


def test_a_project_is_played_once_and_two_of_one_name_are_told_apart(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--store", str(tmp_path / "s"), *PLAY, "--rounds", "1", "--attempts", "1", "--json"]
    assert main(["play", str(project), f"{project}/", *words]) == 2
    assert f"{project}, {project} hold the same files; name one of them" in capsys.readouterr().err
    other = tmp_path / "other" / project.name
    shutil.copytree(project, other)
    (other / "README.md").write_text("another\n")
    assert main(["play", str(project), str(other), *words]) == 0
    told = {row["name"] for row in json.loads(capsys.readouterr().out)["tables"]["project"]}
    assert told == {f"calculator ({project.resolve()})", f"calculator ({other.resolve()})"}
