"""Run by hand, or by `tox -e mini`: the real mini-swe-agent on what we export, and ours on what it leaves.

Run: `python tests/peers/mini_peer.py` in an environment that has mini-swe-agent, datasets and pytest, see
docs/evaluation.md. Bugs are injected into a small project and exported as rows of SWE-bench, as lines and as parquet;
mini-swe-agent's own benchmark command loads them by its dataset option and works on them, its model behind a server of
ours; `ssr eval` grades the folder that it leaves; then it solves the same rows as a solver of `ssr run`. It ends with
0 when every part says what it should.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from model_server import message, serving

MODEL = "openai/tiny"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
_CODE = """\
def add(a, b):
    return a + b


def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x
"""
_TESTS = """\
from calc import add, clamp


def test_add():
    assert add(1, 2) == 3


def test_add_more():
    assert add(5, 7) == 12


def test_clamp_low():
    assert clamp(1, 2, 4) == 2


def test_clamp_high():
    assert clamp(9, 2, 4) == 4


def test_clamp_keeps():
    assert clamp(3, 1, 5) == 3
"""


def run(*arguments: object, cwd: Path, status: int = 0, **variables: str) -> str:
    """Run a command; returns what it printed. Ends everything where its status is another."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "SSR_"))}
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_OFFLINE": "1", **variables}
    done = subprocess.run(
        [*map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode != status:
        raise SystemExit(f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def ssr(*arguments: object, cwd: Path, status: int = 0, **variables: str) -> str:
    return run(sys.executable, "-m", "harness.cli", *arguments, cwd=cwd, status=status, **variables)


def exported(work: Path) -> Path:
    """Inject bugs into a project and export them; returns a folder of folders."""
    project = work / "calculator"
    (project / "tests").mkdir(parents=True)
    for name, text in (("calc.py", _CODE), ("tests/test_calc.py", _TESTS), ("pytest.ini", "[pytest]\n")):
        (project / name).write_text(text)
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        run("git", *arguments, cwd=project)
    ssr("inject", project, "--count", 2, "--sandbox", "process", "--python", sys.executable, cwd=work)
    data = work / "data"
    for form in ("jsonl", "parquet"):
        arguments = ["--format", "swe-bench", "--image", "calculator:1", "--repos", work / "clones", "--as", form]
        ssr("export", project / ".ssr", *arguments, "--out", data / form, cwd=work)
    return data


def rows_by_its_own_code(folder: Path) -> list[dict[str, Any]]:
    """Load rows as its dataset option does, and name their images as it does."""
    from datasets import load_dataset
    from minisweagent.run.benchmarks.swebench import DATASET_MAPPING, filter_instances, get_swebench_docker_image_name

    rows = filter_instances(
        list(load_dataset(DATASET_MAPPING.get(str(folder), str(folder)), split="train")), filter_spec=""
    )
    if not rows or {get_swebench_docker_image_name(r) for r in rows} != {"calculator:1"}:
        raise SystemExit(f"{folder}: {len(rows)} rows, or another image than the one that was named")
    return rows


def replies(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a model says that applies the reference solution."""
    applied = f"git apply <<'END'\n{row['patch']}END"
    return [message("I go on.", ("bash", {"command": c})) for c in (applied, "git diff > patch.txt", SUBMIT)]


def worked_by_its_own_command(work: Path, data: Path, row: dict[str, Any]) -> Path:
    """Let its benchmark command work on one row, in a checkout that is prepared for it; returns what it leaves."""
    checkout, out = work / "checkout", work / "mini"
    (repository,) = (work / "clones").glob("*.git")
    run("git", "clone", "-q", repository, checkout, cwd=work)
    run("git", "checkout", "-q", row["base_commit"], cwd=checkout)
    with serving(*replies(row)) as served:
        settings = [
            f"environment.cwd={checkout}",
            f"model.model_kwargs.api_base={served.url}",
            "model.cost_tracking=ignore_errors",
        ]
        arguments = [w for s in ("swebench.yaml", *settings) for w in ("-c", s)]
        arguments += [
            "--subset",
            data,
            "--split",
            "train",
            "--filter",
            f"^{row['instance_id']}$",
            "-o",
            out,
            "-m",
            MODEL,
        ]
        program = [sys.executable, "-m", "minisweagent.run.benchmarks.swebench"]
        run(
            *program,
            *arguments,
            "--environment-class",
            "local",
            cwd=work,
            OPENAI_API_KEY="none",
            LITELLM_LOCAL_MODEL_COST_MAP="True",
        )
    if row["problem_statement"] not in served.asked[0]["messages"][1]["content"]:
        raise SystemExit("its task is not the row's problem statement")
    return out


def outcome(folder: Path) -> dict[str, Any]:
    (line,) = (folder / "results.jsonl").read_text().splitlines()
    result: dict[str, Any] = json.loads(line)
    return result


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        work = Path(name)
        os.environ["HF_HOME"] = str(work / "cache")
        os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = str(work / "settings")
        os.environ["HF_HUB_OFFLINE"] = "1"
        data = exported(work)
        both = {form: rows_by_its_own_code(data / form) for form in ("jsonl", "parquet")}
        if both["jsonl"] != both["parquet"]:
            raise SystemExit("lines and parquet are other rows")
        row = both["jsonl"][0]
        print(
            f"its dataset option: {len(both['jsonl'])} rows of {data.name}/jsonl, and of {data.name}/parquet",
            flush=True,
        )
        mini = worked_by_its_own_command(work, data / "jsonl", row)
        print(f"its command: {sorted(p.name for p in mini.iterdir() if p.suffix == '.json' or p.is_dir())}", flush=True)
        common = ["--repos", work / "clones", "--sandbox", "process", "--python", sys.executable]
        # 1: it was let at one of the two.
        ssr("eval", data / "jsonl", "--predictions", mini, "--out", work / "eval", *common, cwd=work, status=1)
        theirs = outcome(work / "eval")
        with serving(*replies(row)) as served:
            arguments = ["--solver", f"mini-swe-agent:{MODEL}", "--url", served.url, "--only", row["instance_id"]]
            variables = {"SSR_MINI_PYTHON": sys.executable, "OPENAI_API_KEY": "none"}
            ssr(
                "run",
                data / "jsonl",
                *arguments,
                "--attempts",
                1,
                "--out",
                work / "run",
                *common,
                cwd=work,
                **variables,
            )
        ours = outcome(work / "run")
        for title, result in (("ssr eval of its folder", theirs), ("ssr run with it", ours)):
            shown = {n: result[n] for n in ("status", "exit_reason", "steps", "tokens", "unpriced")}
            print(f"{title}: {shown}", flush=True)
            if (result["status"], result["exit_reason"], result["steps"], result["unpriced"]) != (
                "resolved",
                "submitted",
                3,
                3,
            ):
                raise SystemExit(f"{title}: {result}")
        native = next((work / "run").glob(f"logs/**/{row['instance_id']}.traj.json"))
        its_own = json.loads((mini / row["instance_id"] / native.name).read_text())
        mine = json.loads(native.read_text())
        if (mine.keys(), mine["info"].keys()) != (its_own.keys(), its_own["info"].keys()):
            raise SystemExit(
                f"other fields than its own: {mine.keys()}, {mine['info'].keys()} {its_own['info'].keys()}"
            )
        print(ssr("leaderboard", work / "eval", work / "run", cwd=work), flush=True)


if __name__ == "__main__":
    main()
