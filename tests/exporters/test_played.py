"""Exports of real runs of `ssr play`, as their readers use them: datasets, `ssr eval`, a container's shell."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import datasets
import pytest
from model_server import message, serving
from plain import plain_python

from harness.cli.main import main
from harness.datasets.families import read_row
from harness.exporters import container_grade
from harness.exporters.formats import FORMATS
from harness.exporters.tokens import IGNORED
from harness.leaderboard.loading import read_runs
from pytest_ssr.execution.log_parsers import parse_log
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.test_run import Outcome
from pytest_ssr.verifier import grade_tree

pytestmark = pytest.mark.long

SANDBOX = ["--sandbox", "process", "--python", str(plain_python())]
ROLLED = ("rollouts", "atif", "sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples")
TASKS = ("slime-prompts", "verl-prompts", "skyrl-prompts", "swe-rl", "swe-bench", "swe-smith")


def rendered(reply_message: dict[str, Any]) -> str:
    calls = json.dumps(reply_message["tool_calls"]) if reply_message.get("tool_calls") else ""
    return f"<{reply_message['role']}>{reply_message['content']}{calls}</>"


def replying(reply_message: dict[str, Any]) -> Any:
    """Return a reply of a server that renders messages with one template, as vLLM does, and uses bytes as tokens."""

    def reply(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        prompt = "".join(map(rendered, request["messages"])) + "<assistant>"
        ids = list(rendered(reply_message).removeprefix("<assistant>").encode())
        choice = {
            "message": reply_message,
            "finish_reason": "tool_calls",
            "token_ids": ids,
            "logprobs": {"content": [{"logprob": -0.25} for _ in ids]},
        }
        usage = {"prompt_tokens": len(prompt.encode()), "completion_tokens": len(ids)}
        data = {"choices": [choice], "usage": usage, "prompt_token_ids": list(prompt.encode())}
        return 200, {}, json.dumps(data).encode()

    return reply


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> Path:
    """A project with its store: bugs of two rounds, solved and not, by scripts and by a model that returns tokens."""
    folder = tmp_path_factory.mktemp("played") / "calc"
    (folder / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text('[project]\nname = "calc"\nversion = "1"\nlicense = "MIT"\n')
    repair = {"command": f"cat > calc.py <<'EOF'\n{calculator['calc.py']}EOF"}
    look, submit = ("bash", {"command": "cat calc.py"}), ("submit", {})
    view = ("editor", {"command": "view", "path": "calc.py", "view_range": [1, 5]})
    good = [("I look — é.", look), ("", view), ("", ("bash", repair)), ("", submit)]
    bad = [("I look — é.", look), ("A comment.", ("bash", {"command": "echo '# x' >> calc.py"})), ("", submit)]
    play = ["play", str(folder), "--injector", "mutation", "--higher-order", "0", *SANDBOX]
    play += ["--count", "2", "--attempts", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSR_STORE", str(folder / ".ssr"))
        for name, replies in (("good", good), ("bad", bad)):
            script = folder.parent / f"{name}.json"
            messages = [{"content": c, "tool_calls": [{"name": n, "arguments": a}]} for c, (n, a) in replies]
            script.write_text(json.dumps(messages))
            assert main([*play, "--solver", f"scripted:{script}"]) == 0
        # The same two bugs, two attempts each, in order: solved, not solved, and the same again.
        turns = [replying(message(c, call)) for replies in (good, bad) * 2 for c, call in replies]
        with serving(*turns, max_model_len=100_000) as served:
            assert main([*play, "--solver", f"vllm:{served.url}"]) == 0
            assert not served.replies
    return folder


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> Path:
    """A project with the store of a self-play without any model."""
    folder = tmp_path_factory.mktemp("searched") / "calc"
    (folder / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (folder / name).write_text(text)
    assert main(["play", str(folder), "--count", "2", "--attempts", "2", *SANDBOX, "--higher-order", "0"]) == 0
    return folder


def exported(project: Path, name: str, out: Path, *argv: object) -> Path:
    image = ["--image", "calc:1"] if name == "slime-prompts" else []
    assert main(["export", str(project), "--format", name, "--out", str(out), *image, *map(str, argv)]) == 0
    return out


def loaded(*argv: Any, **options: Any) -> Any:
    return datasets.load_dataset(*map(str, argv), **options)


def rounded(data: Any) -> Any:
    """Round floats: datasets parses JSON inside of rows inexactly in the last digit."""
    if isinstance(data, dict):
        return {k: rounded(v) for k, v in data.items()}
    if isinstance(data, list):
        return [rounded(v) for v in data]
    return round(data, 12) if isinstance(data, float) else data


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("container", ["jsonl", "parquet", "jsonl.zst"])
@pytest.mark.parametrize("name", [*ROLLED, *TASKS])
def test_datasets_loads_every_export(project: Path, tmp_path: Path, name: str, container: str) -> None:
    out = exported(project, name, tmp_path / name, "--as", container)
    dataset = loaded(out)
    assert list(dataset) == ["train"]
    assert list(dataset["train"].features) == list(FORMATS[name].columns)
    if container == "jsonl":
        expected = [json.loads(line) for line in (out / "data/train.jsonl").read_text().splitlines()]
        assert rounded(list(dataset["train"])) == rounded(expected)
        # A single file without the card can be loaded, too.
        alone = exported(project, name, tmp_path / f"{name}.jsonl")
        assert len(loaded("json", data_files=str(alone))["train"]) == len(expected)


@pytest.mark.parametrize("name", ["sft", "bc", "dpo", "kto", "grpo"])
def test_self_play_without_a_model_has_rows(searched: Path, tmp_path: Path, name: str) -> None:
    rows = [json.loads(line) for line in exported(searched, name, tmp_path / "x.jsonl").read_text().splitlines()]
    assert rows
    assert {row["model"] for row in rows} == {"search"}
    if name == "sft":
        for row in rows:
            calls = [m["tool_calls"][0]["function"] for m in row["messages"] if m["role"] == "assistant"]
            assert [c["name"] for c in calls] == ["editor", "editor", "bash", "submit"]
            observed = [m["content"] for m in row["messages"] if m["role"] == "tool"]
            assert calls[1]["arguments"]["old_str"].split("\n")[0] in observed[0]
            assert "passed" in observed[2]
    if name == "grpo":
        assert {row["injector"] for row in rows} == {"mutation"}
    if name == "dpo":
        assert {row["rejected_model"] for row in rows} == {"search"}
        for row in rows:
            chosen, rejected = (row[n][0]["tool_calls"][0]["function"]["arguments"] for n in ("chosen", "rejected"))
            assert chosen["path"] == rejected["path"]
            assert chosen != rejected
            assert (row["chosen_value"], row["rejected_value"]) == (1.0, -1.0)


def test_only_tokens_sampled_over_http_are_trained_on(project: Path, tmp_path: Path) -> None:
    out = exported(project, "sft-tokens", tmp_path / "x.jsonl")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        text = bytes(row["input_ids"]).decode()
        trained = bytes(label for label in row["labels"] if label != IGNORED).decode()
        assert row["on_policy"] is True
        assert (row["model"].startswith("vllm:http://127.0.0.1:"), row["served_model"]) == (True, "tiny")
        assert trained.count("</>") == trained.count('"type": "function"') == 4
        assert "I look — é." in trained
        assert "<tool>" in text
        assert "<tool>" not in trained
        assert "def clamp" in text.split("<tool>")[1]


def test_pairs_of_real_attempts_differ_at_the_step_where_they_diverged(project: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in exported(project, "dpo", tmp_path / "x.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert {row["step"] for row in rows} == {1}
    for row in rows:
        assert row["prompt"][-1]["role"] == "tool"
        assert row["chosen"][0]["tool_calls"][0]["function"]["name"] == "editor"
        assert row["rejected"][0]["content"] == "A comment."


def test_only_the_gold_patch_resolves_a_row_of_swe_bench(project: Path, tmp_path: Path) -> None:
    out = exported(project, "swe-bench", tmp_path / "rows.jsonl", "--repos", tmp_path / "repos")
    again = exported(project, "swe-bench", tmp_path / "again.jsonl")
    assert again.read_bytes() == out.read_bytes()
    common = ["eval", str(out), "--repos", str(tmp_path / "repos"), *SANDBOX]
    assert main([*common, "--predictions", "gold", "--out", str(tmp_path / "gold")]) == 0
    played, evaluated = ({a.task for a in read_runs([str(run)]).attempts} for run in (project, tmp_path / "gold"))
    # On a leaderboard, a bug and its row are one task.
    assert evaluated == played
    wrong = tmp_path / "wrong.jsonl"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    change = "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    predictions = [{"instance_id": r["instance_id"], "model_name_or_path": "m", "model_patch": change} for r in rows]
    wrong.write_text("".join(json.dumps(t) + "\n" for t in predictions))
    main([*common, "--predictions", str(wrong), "--out", str(tmp_path / "wrong")])
    reports = [json.loads(p.read_text()) for p in tmp_path.glob("wrong/*.json")]
    assert any(r.get("resolved_instances") == 0 and r.get("unresolved_instances") == 2 for r in reports), reports


def test_the_script_of_a_row_of_swe_bench_grades_a_patched_tree(project: Path, tmp_path: Path) -> None:
    """As swebench 5 runs it; `tests/peers/swebench_peer.py` does so with swebench itself."""
    out = exported(project, "swe-bench", tmp_path / "rows.jsonl", "--repos", tmp_path, "--image", "calc:{instance_id}")
    row = json.loads(out.read_text().splitlines()[0])
    assert row["image"] == row["image_name"] == f"calc:{row['instance_id']}"
    assert (row["log_parser"], row["eval_type"]) == ("parse_log_tap", "pass_and_fail")
    fail, keep = (json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))

    def graded(name: str, **files: str) -> dict[str, Outcome]:
        tree = tmp_path / name
        subprocess.run(["git", "clone", "-q", str(tmp_path / "ssr__calc.git"), str(tree), "-n"], check=True)
        subprocess.run(["git", "checkout", "-q", row["base_commit"]], cwd=tree, check=True)
        for path, text in files.items():
            (tree / path).write_text(text)
        if name == "gold":
            subprocess.run(["git", "apply"], input=row["patch"], text=True, cwd=tree, check=True)
        code = status(tree)
        script = row["eval_script"].replace("/testbed\n", f"{shlex.quote(str(tree))}\n")
        path = f"{plain_python().parent}:{os.environ['PATH']}"
        command = ["bash", "-c", script]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
        assert ">>>>> Start Test Output" in done.stderr.partition(">>>>> End Test Output")[0]
        # What a patch has changed in the tests is undone, and so is what the script has.
        assert status(tree) == [line for line in code if "conftest" not in line]
        return parse_log(row["log_parser"], done.stdout.encode())

    def status(tree: Path) -> list[str]:
        done = subprocess.run(["git", "status", "--short"], cwd=tree, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert graded("gold") == dict.fromkeys([*fail, *keep], Outcome.PASSED)
    assert graded("empty") == {**dict.fromkeys(keep, Outcome.PASSED), **dict.fromkeys(fail, Outcome.FAILED)}
    forged = {"conftest.py": "def pytest_runtest_call(item):\n    item.obj = lambda **k: None\n"}
    assert graded("cheat", **forged) == {**dict.fromkeys(keep, Outcome.PASSED), **dict.fromkeys(fail, Outcome.FAILED)}


def test_a_row_of_swe_bench_is_the_instance_of_earlier_releases(project: Path, tmp_path: Path) -> None:
    out = exported(project, "swe-bench", tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    instances = [read_row(row, "here") for row in rows]
    added = ("image", "log_parser", "eval_type", "test_command")
    earlier = [{k: v for k, v in row.items() if k not in added} | {"eval_script": ""} for row in rows]
    assert instances == [read_row(row, "here") for row in earlier]
    assert all(instance.eval_script == instance.log_parser == "" for instance in instances)


def test_a_tar_has_the_five_files_of_each_artifact(project: Path, tmp_path: Path) -> None:
    out = exported(project, "artifacts", tmp_path / "all.tar")
    with tarfile.open(out) as tar:
        # Python 3.11.0 to 3.11.3 have no filters.
        tar.extractall(tmp_path / "out", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    folders = sorted((project / ".ssr/artifacts").iterdir())
    assert [p.name for p in folders] == sorted(p.name for p in (tmp_path / "out").iterdir())
    for folder in folders:
        assert read_artifact(tmp_path / "out" / folder.name) == read_artifact(folder)
        assert read_artifact(tmp_path / "out" / folder.name).info == read_artifact(folder).info


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


def test_a_sealed_harbor_task_is_graded_from_what_its_verifier_holds(project: Path, tmp_path: Path) -> None:
    out = exported(project, "harbor", tmp_path / "tasks", "--image", "calc:1")
    tasks = sorted((out / "train").iterdir())
    assert len(tasks) == len(list((project / ".ssr/artifacts").iterdir()))
    task = tasks[0]
    described = tomllib.loads((task / "task.toml").read_text())
    assert described["schema_version"] == "1.4"
    assert described["task"]["name"] == f"ssr/{task.name}"
    assert described["environment"] == {"workdir": "/testbed", "network_mode": "no-network"}
    assert described["verifier"]["environment_mode"] == "separate"
    assert described["metadata"]["solve_rate_posterior_mean"] == 0.5
    # Beta(4, 4), as scipy has it.
    assert described["metadata"]["solve_rate_posterior_interval_90"] == [0.2253, 0.7747]
    agent = unpacked(task / "environment/project.tar.gz", tmp_path / "agent")
    verifier = unpacked(task / "tests/project.tar.gz", tmp_path / "verifier")
    unpacked(task / "tests/artifact.tar.gz", verifier)
    # The agent has one commit, without the answer and the improved tests.
    log = subprocess.run(["git", "-C", str(agent), "log", "--oneline"], capture_output=True, text=True, check=True)
    assert len(log.stdout.splitlines()) == 1
    artifact = read_artifact(verifier / "artifact")
    for path in (*artifact.bug.paths, *artifact.weaken.paths):
        assert (agent / path).read_bytes() != (verifier / "project" / path).read_bytes()
    graded = [grade_tree(verifier, agent, python=plain_python(), sandbox="process").resolved]
    unpacked(task / "solution/repair.tar.gz", agent)
    graded.append(grade_tree(verifier, agent, python=plain_python(), sandbox="process").resolved)
    assert graded == [False, True]


def test_a_plain_harbor_task_is_graded_by_the_row_s_tests(project: Path, tmp_path: Path) -> None:
    out = exported(project, "harbor", tmp_path / "tasks", "--image", "calc:1", "--plain")
    task = sorted((out / "train").iterdir())[0]
    described = tomllib.loads((task / "task.toml").read_text())
    assert described["verifier"]["environment_mode"] == "separate"
    agent = unpacked(task / "environment/project.tar.gz", tmp_path / "agent")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{plain_python()}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    command = ["python3", str(task / "tests/grade.py"), str(task / "tests/told.json")]
    graded = [subprocess.run(command, cwd=agent, env=environment, check=False).returncode]
    # As in the agent's container, which keeps no start; the script replaces the repository there.
    script = (
        (task / "tests/test.sh").read_text().replace("/logs/verifier", str(tmp_path)).replace("/testbed", str(agent))
    )
    script = script.replace("/tests/", f"{task / 'tests'}/").replace("/opt/start", str(tmp_path / "start"))
    unpacked(task / "solution/repair.tar.gz", agent)
    graded.append(subprocess.run(command, cwd=agent, env=environment, check=False).returncode)
    assert graded == [1, 0]
    (agent / ".git" / "HEAD").unlink()
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    assert (tmp_path / "reward.txt").read_text() == "1\n"


def test_equal_sources_give_equal_harbor_tasks(project: Path, tmp_path: Path) -> None:
    first, second = (exported(project, "harbor", tmp_path / name, "--image", "calc:1") for name in "ab")
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert len(files) > 10
    for path in files:
        assert (first / path).read_bytes() == (second / path).read_bytes()


def test_a_shell_can_set_up_and_grade_the_task_of_a_slime_row(project: Path, tmp_path: Path) -> None:
    out = exported(project, "slime-prompts", tmp_path / "x.jsonl")
    row = json.loads(out.read_text().splitlines()[0])
    bug = (project / ".ssr/artifacts" / row["metadata"]["task_id"] / "bug_inject.diff").read_bytes()
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3"):
        # A link would resolve to the base interpreter of the environment.
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{plain_python()}" "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def shell(text: str, tree: Path, data: bytes = b"") -> int:
        # Outside of the tree, a container has its own files; here each has a separate folder.
        command = ["bash", "-c", text.replace("/tmp/ssr-grade", f"{tree}.grade")]
        return subprocess.run(command, cwd=tree, env=env, input=data, check=False).returncode

    def container(name: str) -> Path:
        tree = tmp_path / name
        shutil.copytree(project, tree, ignore=shutil.ignore_patterns(".ssr"))
        script = tmp_path / f"{name}.sh"
        commands = "\n".join(row["metadata"]["pre_commands"]).replace("/tmp/ssr-grade", f"{tree}.grade")
        script.write_text(f"set -e\n{commands}")
        assert shell(f'exec bash "{script}"', tree) == 0
        # The script contains the bug, and an agent could read it.
        assert not script.exists()
        log = subprocess.run(["git", "log", "--format=%s"], cwd=tree, capture_output=True, text=True, check=True)
        assert log.stdout == "start\n"
        return tree

    idle, solved, cheated = container("idle"), container("solved"), container("cheated")
    assert shell(row["metadata"]["eval_cmd"], idle) == 1
    assert shell("git apply -R -", solved, bug) == 0
    # Changes of a patch to the tests have no effect on its grade.
    (solved / "tests/test_calc.py").write_text("def test_add():\n    assert False\n")
    assert shell(row["metadata"]["eval_cmd"], solved) == 0
    (cheated / "conftest.py").write_text("def pytest_runtest_call(item):\n    item.obj = lambda **k: None\n")
    (cheated / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    assert shell(row["metadata"]["eval_cmd"], cheated) == 1
    assert not (cheated / "conftest.py").exists()


@pytest.mark.parametrize(
    "path",
    [
        *("calc.py", "src/a/b.py", "conftest.py", "a/conftest.py", "pytest.ini", "tests/data/x.json", "test_x.py"),
        *("x_test.py", "setup.cfg", "setup.py", "pyproject.toml", "a.pth", "a.egg-info/x", "golden/x", "latest.py"),
        *("sitecustomize.py", "docs/x.md", "contest.py", "tox.ini", "testing.py", "a.dist-info/RECORD", "x.snap"),
    ],
)
def test_a_container_has_the_same_test_surface(path: str) -> None:
    assert container_grade.is_surface(path) == is_test_surface(path)


def test_an_export_loads_offline(project: Path, tmp_path: Path) -> None:
    """Load as a user would, in a separate process."""
    out = exported(project, "sft", tmp_path / "sft")
    program = f"import datasets; print(datasets.load_dataset({str(out)!r})['train'].num_rows)"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "no_proxy": "*"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "6"
