"""The files for GitHub, GitLab and pre-commit: what they run is run in a repository with a base and a head."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from plain import plain_python

TOP = Path(__file__).parents[2]
CI = TOP / "docs" / "ci"
GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")
ADDED = "\n\ndef half(x):\n    if x > 10:\n        return 10\n    return x / 2\n"
ADDED_TEST = "\n\ndef test_half():\n    from calc import half\n\n    half(4)\n"


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def base(project: Path) -> str:
    """The commit before the change of the project; the change adds a function whose result no test checks."""
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "base")
    with (project / "calc.py").open("a") as code, (project / "tests" / "test_calc.py").open("a") as tests:
        code.write(ADDED)
        tests.write(ADDED_TEST)
    git(project, "commit", "-qam", "head")
    return git(project, "rev-parse", "HEAD^")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose `python` installs nothing, and injects few bugs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$@" >> {tmp_path}/installed; exit 0; fi\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    (folder / "ssr").symlink_to(Path(sys.executable).with_name("ssr"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "GITHUB", "CI_", "SSR_"))}
    settings = {
        "SSR_COUNT": "3",
        "SSR_SANDBOX": "process",
        "SSR_PYTHON": str(plain_python()),
        "SSR_INJECTOR": "mutation",
    }
    return {**kept, **settings, "PATH": f"{folder}:{os.environ['PATH']}"}


def shell(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # As GitHub starts it for `shell: bash`.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def expanded(value: str, values: dict[str, str]) -> str:
    """Return a value with its expressions, each a list of names of which the first that is set counts."""

    def first(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split("||")]
        return next((found for name in names if (found := values.get(name, ""))), "")

    return re.sub(r"\$\{\{(.+?)\}\}", first, value)


@pytest.mark.long
def test_the_action_shows_survivors_of_the_pull_request(project, base, environment, tmp_path):
    action = yaml.safe_load((CI / "action.yml").read_text())
    values = {f"inputs.{name}": str(item["default"]) for name, item in action["inputs"].items()}
    values["github.event.pull_request.base.sha"] = base
    github = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    output, failed = "", values | {"inputs.fail-under": "100"}
    for step in action["runs"]["steps"]:
        if "run" not in step:
            assert step["uses"].startswith("actions/upload-artifact@")
            assert (project / expanded(step["with"]["path"], values) / "index.html").is_file()
            continue
        assert "${{" not in step["run"], "text of a pull request must not become a script"
        own = {name: expanded(value, values) for name, value in step.get("env", {}).items()}
        done = shell(step["run"], project, {**environment, **github, **own})
        assert done.returncode == 0, done.stdout + done.stderr
        output += done.stdout
        if "FAIL_UNDER" in own:
            own = {name: expanded(value, failed) for name, value in step["env"].items()}
            assert shell(step["run"], project, {**environment, **github, **own}).returncode == 1
    assert "pytest-ssr[report]" in (tmp_path / "installed").read_text()
    assert re.search(r"^::warning file=calc\.py,line=\d+,title=", output, re.MULTILINE), output
    sarif = json.loads(Path((tmp_path / "output").read_text().splitlines()[0].removeprefix("sarif=")).read_text())
    assert sarif["runs"][0]["results"]
    assert "half" in (tmp_path / "summary.md").read_text()


@pytest.mark.long
def test_the_gitlab_job_reports_survivors_as_failures(project, base, environment):
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["ssr"]
    environment |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, **job["variables"]}
    done = shell("\n".join(job["script"]), project, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<failure" in (project / job["artifacts"]["reports"]["junit"]).read_text()
    assert (project / job["artifacts"]["paths"][0] / "index.html").is_file()
    assert shell("\n".join(job["script"]), project, environment | {"SSR_FAIL_UNDER": "100"}).returncode == 1


def machine(folder: Path, project: Path, cached: Sequence[str], packed: Path | None) -> Path:
    """Return a new checkout of a project; cached: what the cache of another machine's has, packed: that checkout."""
    git(project, "clone", "-q", str(project), str(folder))
    for name in cached if packed is not None else ():
        assert packed is not None
        source = packed / name
        assert source.exists(), f"{name} is not in a store"
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target, symlinks=True) if source.is_dir() else shutil.copy2(source, target)
    return folder


@pytest.mark.long
def test_the_workflow_of_shards_joins_their_results(project, base, environment, tmp_path):
    workflow = yaml.safe_load((CI / "github-shards.yml").read_text())
    inject, join = workflow["jobs"]["inject"], workflow["jobs"]["join"]
    shards = inject["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    (cache,) = (step["with"] for step in inject["steps"] if step.get("uses", "").startswith("actions/cache@"))
    assert "hashFiles(" in cache["key"]
    assert cache["key"].endswith("${{ steps.tree.outputs.hash }}")
    assert cache["key"].startswith(cache["restore-keys"])
    settings = {**environment, **workflow["env"], "SSR_CHANGES": "10", "SSR_FAIL_UNDER": "0"}
    joining, first = tmp_path / "join", None
    joining.mkdir()
    for shard in shards:
        values = {"matrix.shard": str(shard), "strategy.job-total": str(len(shards))}
        here = machine(tmp_path / f"machine-{shard}", project, cache["path"].split(), first)
        for step in inject["steps"]:
            if "run" in step:
                assert "${{" not in step["run"], "text of a pull request must not become a script"
                own = {name: expanded(value, values) for name, value in step.get("env", {}).items()}
                done = shell(step["run"], here, {**settings, **own, "GITHUB_OUTPUT": str(tmp_path / "output")})
                assert done.returncode == 0, done.stdout + done.stderr
        upload = inject["steps"][-1]["with"]
        shutil.copy2(here / expanded(upload["path"], values), joining)
        first = first or here
    (download,) = (s["with"] for s in join["steps"] if s.get("uses", "").startswith("actions/download-artifact@"))
    assert all(path.match(download["pattern"]) for path in joining.iterdir())
    (script,) = (step["run"] for step in join["steps"] if step.get("name") == "Join")
    done = shell(script, joining, settings)
    # Ten changes are too few for a gate, unless all of them count.
    assert done.returncode == (0 if "10 of 10 planned changes" in done.stdout else 1), done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{len(shards)} shards: ")
    assert (joining / "ssr-report" / "index.html").is_file()
    assert json.loads((joining / "ssr.sarif").read_text())["runs"]
    shutil.rmtree(joining / "ssr-merged")
    for folder in joining.glob("ssr-shard-*/"):
        shutil.rmtree(folder)
    (joining / f"ssr-shard-{shards[1]}.tar.gz").unlink()
    done = shell(script, joining, settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"shard {shards[1]} of {len(shards)} is missing" in done.stdout


@pytest.mark.long
def test_the_gitlab_jobs_of_shards_join_their_results(project, base, environment, tmp_path):
    file = yaml.safe_load((CI / "gitlab-shards.yml").read_text())
    job, join = file["ssr"], file["ssr-join"]
    count = job["parallel"]
    settings = {**environment, **file["variables"], "SSR_CHANGES": "10", "SSR_FAIL_UNDER": "0"}
    joining, first = tmp_path / "join", None
    joining.mkdir()
    for number in range(1, count + 1):
        here = machine(tmp_path / f"machine-{number}", project, job["cache"]["paths"], first)
        own = {"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(count), **job["variables"]}
        for part in ("script", "after_script"):
            done = shell("\n".join(job[part]), here, {**settings, **own})
            assert done.returncode == 0, done.stdout + done.stderr
        (path,) = here.glob(job["artifacts"]["paths"][0])
        shutil.copy2(path, joining)
        first = first or here
    done = shell("\n".join(join["script"]), joining, settings)
    assert done.returncode == (0 if "10 of 10 planned changes" in done.stdout else 1), done.stdout + done.stderr
    assert "<testcase" in (joining / join["artifacts"]["reports"]["junit"]).read_text()
    assert (joining / join["artifacts"]["paths"][0] / "index.html").is_file()


@pytest.mark.long
def test_the_hook_shows_survivors_and_does_not_prevent_the_push(project, base, environment):
    (hook,) = yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text())
    assert hook["stages"] == ["pre-push"]
    command = [*shlex.split(hook["entry"]), *hook["args"]]
    environment["PRE_COMMIT_FROM_REF"] = base
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "survived" in done.stdout
    gated = subprocess.run([*command, "--fail-under", "100"], cwd=project, env=environment, check=False)
    assert gated.returncode == 1
    wrong = subprocess.run([*command, "--count", "x"], cwd=project, env=environment, capture_output=True, check=False)
    assert wrong.returncode == 1, "wrong usage prevents it"
