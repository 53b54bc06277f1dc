"""Define formats of artifacts: rows of the SWE-bench family and of swe-rl, and the five files themselves.

A task starts from the project with the bug and the weakened tests. So SWE-bench's `patch` is the reversed bug and its
`test_patch` the reversed weakening; `base_commit` is the only commit of a repository with these files, as solvers get
it. Its hash is the same everywhere, because author and time are fixed. SWE-smith's `patch` is the bug.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.datasets.families import row_of
from harness.datasets.instance import Instance
from harness.exporters.container_task import write_grader
from harness.exporters.protocol import (
    JSON,
    NUMBER,
    TARS,
    TEXT,
    TEXTS,
    WHOLE,
    Choices,
    Format,
    Group,
    Row,
    Task,
    statement_of,
)
from harness.exporters.skipped import SkipCode, SkippedError, damaged, require_plain
from pytest_ssr.errors import ArtifactError, StoreError, StoreWriteError
from pytest_ssr.execution.script_template import runner_of_script
from pytest_ssr.execution.test_runners import PytestRunner
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.pytest_config import IDENTITIES, options_of_script
from pytest_ssr.project.snapshot import Snapshot, hash_of, read_manifest
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import FIVE_FILES, INFO, SCRIPT, BugArtifact


def start_of(task: Task, artifact: BugArtifact, repository: Path | None = None) -> str:
    """Return the hash of the commit that a solver's tree starts with; it depends only on the files.

    repository: a bare repository to put the commit into, created if missing. Raises SkippedError if the project's files
    are missing or the artifact does not apply to them, StoreWriteError if git fails.
    """
    original = CodebaseState(snapshot_of(task))
    with tempfile.TemporaryDirectory(prefix="ssr-start-") as temporary:
        folder = Path(temporary, "tree")
        try:
            write_solver_tree(original.apply(artifact.bug).apply(artifact.weaken), folder)
        except (ArtifactError, StoreError, OSError) as error:
            raise damaged(f"its start commit cannot be created: {error}") from None
        commit = run_git(folder, "rev-parse", "HEAD").decode().strip()
        if repository is not None:
            if not repository.is_dir():
                repository.mkdir(parents=True)
                run_git(repository, "init", "-q", "--bare")
            run_git(repository, "fetch", "-q", str(folder), f"+HEAD:refs/heads/{task.id}")
    return commit


def snapshot_of(task: Task) -> Snapshot:
    """Return the snapshot of the project's files in the store; raises SkippedError if it is missing or incomplete."""
    try:
        files = read_manifest(task.tree)
    except OSError:
        files = None
    if files is None or hash_of(files) != task.tree_hash or not (task.tree / "tree").is_dir():
        raise SkippedError(SkipCode.NO_TREE)
    return Snapshot(task.tree / "tree", files, task.tree_hash, task.tree / "tree")


def run_git(folder: Path, *argv: str) -> bytes:
    """Run git in a folder and return its output; raises StoreWriteError if it fails."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", "-C", str(folder), *argv]
    try:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", b"") or str(error).encode()
        raise StoreWriteError(f"git failed in {folder}: {output.decode(errors='replace').strip()}") from None


_POSITION = re.compile(r"\[#\d+\]\Z")
_STATEMENT = """\
Some tests of this project are about to be improved by this change:

```diff
{specification}
```

The code as it is does not pass the improved tests. Repair the code so that it does, and so that every test that passes
now goes on passing.
"""


def ids(artifact: BugArtifact, name: str) -> list[str]:
    """Return FAIL_TO_PASS or PASS_TO_PASS of an artifact; raises SkippedError if it is missing or invalid."""
    test_ids = artifact.info.get(name)
    if not isinstance(test_ids, list) or not all(isinstance(i, str) for i in test_ids):
        raise damaged(f"{name} of the artifact is not a list of test ids")
    if name == "FAIL_TO_PASS" and not test_ids:
        raise damaged("FAIL_TO_PASS of the artifact is empty")
    return test_ids


def plain_ids(artifact: BugArtifact, name: str) -> list[str]:
    """Return the ids of `ids` that plain pytest knows: not the positions of parameter sets whose ids change.

    Raises SkippedError, too, if no FAIL_TO_PASS test is left.
    """
    named = ids(artifact, name)
    if IDENTITIES in options_of_script(artifact.script):
        named = [test for test in named if not _POSITION.search(test)]
    if name == "FAIL_TO_PASS" and not named:
        raise SkippedError(SkipCode.POSITIONAL_IDS)
    return named


def text_of(patch: Patch, name: str) -> str:
    """Return a patch as a string; raises SkippedError for one that JSON cannot represent."""
    return _decoded(patch.data, name)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise damaged(f"the {name} is not valid UTF-8") from None


def specification_of(artifact: BugArtifact) -> Row:
    """Return what `container_grade` needs to know; raises SkippedError for what JSON cannot represent."""
    specification = {
        "specification": text_of(artifact.weaken.reverse(), "weakening"),
        "script": _decoded(artifact.script, "test script"),
        "parser": _decoded(artifact.parser, "parser"),
        "test_files": list(artifact.test_files),
        "tests": [*ids(artifact, "FAIL_TO_PASS"), *ids(artifact, "PASS_TO_PASS")],
    }
    require_plain(specification, "the artifact")
    return specification


def statement(artifact: BugArtifact) -> str:
    """Return the problem statement: it shows the reversed weakening as the specification."""
    shown = text_of(artifact.weaken.reverse(), "weakening").rstrip("\n").replace("```", "` ` `")
    return _STATEMENT.format(specification=shown)


def name_of(task: Task) -> str:
    """Return a project's name in the form of a repository name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task.repository).strip("-.") or f"tree-{task.tree_hash[:8]}"


def instance_id(task: Task, choices: Choices) -> str:
    """Return the instance id of a task in the SWE-bench family."""
    return f"{choices.owner}__{name_of(task)}-{task.id}"


_ID_OF_ROW = re.compile(r".+__.+-([0-9a-f]{20,64})")


def artifact_of_id(instance_id: str) -> str:
    """Return the id of the artifact that an instance id of `instance_id` names; empty for any other."""
    found = _ID_OF_ROW.fullmatch(instance_id)
    return found[1] if found else ""


def _only(group: Group) -> Task:
    assert group.task is not None
    return group.task


def instance(task: Task, choices: Choices) -> Row:
    """Return the SWE-bench row of a task, with FAIL_TO_PASS and PASS_TO_PASS as lists."""
    artifact = task.artifact()
    repository = choices.repos / f"{choices.owner}__{name_of(task)}.git" if choices.repos is not None else None
    commit = start_of(task, artifact, repository)
    row = {
        "repo": f"{choices.owner}/{name_of(task)}",
        "instance_id": instance_id(task, choices),
        "base_commit": commit,
        "patch": text_of(artifact.bug.reverse(), "bug"),
        "test_patch": text_of(artifact.weaken.reverse(), "weakening"),
        "problem_statement": statement(artifact),
        "hints_text": "",
        "created_at": "",
        "version": task.tree_hash[:8],
        "FAIL_TO_PASS": plain_ids(artifact, "FAIL_TO_PASS"),
        "PASS_TO_PASS": plain_ids(artifact, "PASS_TO_PASS"),
        "environment_setup_commit": commit,
        "eval_script": _test_command(artifact),
    }
    require_plain(row, "the artifact")
    return row


def _test_command(artifact: BugArtifact) -> str:
    """Return the command that starts the tests, empty for pytest; raises SkippedError for an unknown runner."""
    try:
        runner = runner_of_script(artifact.script)
    except ArtifactError as error:
        raise damaged(str(error)) from None
    if isinstance(runner, PytestRunner):
        return ""
    variables = [f"{name}={value}" for name, value in runner.environment]
    return shlex.join([*(["env", *variables] if variables else []), "python", *runner.program, *runner.scope])


def _about(task: Task) -> Row:
    return {
        "artifact_id": task.id,
        "strategy": task.strategy,
        "operator": task.operator,
        "order": task.order,
        "solve_rate": task.solve_rate,
        "graded": task.graded,
    }


def _swe_bench(group: Group, choices: Choices) -> Iterator[Row]:
    task = _only(group)
    row = instance(task, choices)
    both = {name: json.dumps(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    # swebench checks no commit out: each row has an image of its own.
    image = choices.image.replace("{instance_id}", row["instance_id"])
    yield {
        **row,
        **both,
        "image": image,
        "log_parser": _LOG_PARSER,
        "eval_type": "pass_and_fail",
        "eval_script": _eval_script(task.artifact(), [*row["FAIL_TO_PASS"], *row["PASS_TO_PASS"]]),
        "test_command": row["eval_script"],
        "image_name": image,
        **_about(task),
    }


_LOG_PARSER = "parse_log_tap"
"""swebench's parser of the output of `container_grade`; those of pytest's output cut ids at spaces or change them."""
_EVAL_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
# The environment of SWE-bench's own images, if it is there; otherwise that of the image.
export PATH="/opt/miniconda3/envs/testbed/bin:$PATH"
cd /testbed
grader="$(mktemp -d)"
{write_grader}
: '>>>>> Start Test Output'
python3 -I "$grader/grade.py" "$grader/told.json"
: '>>>>> End Test Output'
rm -rf "$grader"
"""


def _eval_script(artifact: BugArtifact, tests: list[str]) -> str:
    """Return the script that swebench runs on a patched tree, and whose log it reads.

    `set -x` prints the two markers, as in SWE-bench's own scripts.
    """
    specification = {**specification_of(artifact), "tests": tests}
    return _EVAL_SCRIPT.format(write_grader="\n".join(write_grader('"$grader"', specification)))


def _recognised_by_smith(artifact: BugArtifact) -> dict[str, list[str]]:
    """Return the tests of an artifact that SWE-smith's log parser recognises; others can never be resolved."""
    recognised = {k: [i for i in plain_ids(artifact, k) if i.split() == [i]] for k in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    if not all(recognised.values()):
        raise SkippedError(SkipCode.SPACE_IN_IDS)
    return recognised


def _swe_smith(group: Group, choices: Choices) -> Iterator[Row]:
    task = _only(group)
    artifact, name = task.artifact(), f"{name_of(task)}.{task.tree_hash[:8]}"
    image = f"swebench/swesmith.x86_64.{choices.owner}_1776_{name}".lower()
    # The last dot of an id separates the project from the bug.
    strategy = re.sub(r"[^A-Za-z0-9_-]+", "-", task.strategy) or "bug"
    row = {
        "instance_id": f"{choices.owner}__{name}.{strategy}__{task.id[:8]}",
        "repo": f"swesmith/{choices.owner}__{name}",
        "patch": text_of(artifact.bug, "bug"),
        **_recognised_by_smith(artifact),
        "image_name": choices.image or image,
        "problem_statement": statement(artifact),
        **_about(task),
    }
    require_plain(row, "the artifact")
    yield row


def _swe_rl(group: Group, choices: Choices) -> Iterator[Row]:
    task = _only(group)
    row = {**instance(task, choices), "artifact_id": task.id}
    if choices.image:
        row["image_name"] = choices.image
    yield {"text": row["problem_statement"], "metadata": {"instance": row, "data_source": "ssr"}}


def _swe_rl_of(instance: Instance, choices: Choices) -> Row:
    tests = {"FAIL_TO_PASS": list(instance.fail_to_pass), "PASS_TO_PASS": list(instance.pass_to_pass)}
    # Files of tables can hold dates.
    given = json.loads(json.dumps(instance.row, default=str))
    row = {**given, **row_of(instance), **tests, **({"image_name": choices.image} if choices.image else {})}
    return {"text": statement_of(instance), "metadata": {"instance": row, "data_source": instance.data_source}}


def _artifacts(group: Group, choices: Choices) -> Iterator[Row]:
    task = _only(group)
    artifact = task.artifact()
    contents = dict(artifact.contents())
    if artifact.info:
        require_plain(dict(artifact.info), INFO)
        contents[INFO] = json.dumps(artifact.info, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    names = (*FIVE_FILES, *({INFO} & contents.keys()))
    modes = {SCRIPT: 0o100755}
    files = [(f"{task.id}/{name}", FileEntry(contents[name], modes.get(name, 0o100644))) for name in names]
    yield {"task_id": task.id, "files": files}


_ABOUT: Mapping[str, Any] = {
    "artifact_id": TEXT,
    "strategy": TEXT,
    "operator": TEXT,
    "order": WHOLE,
    "solve_rate": NUMBER,
    "graded": WHOLE,
}
SWE_BENCH = Format(
    "swe-bench",
    "SWE-bench's readers, swebench 5, mini-swe-agent, `ssr eval` and `ssr run`",
    {
        **dict.fromkeys(("repo", "instance_id", "base_commit", "patch", "test_patch", "problem_statement"), TEXT),
        **dict.fromkeys(("hints_text", "created_at", "version", "FAIL_TO_PASS", "PASS_TO_PASS"), TEXT),
        "environment_setup_commit": TEXT,
        **dict.fromkeys(("eval_script", "image", "log_parser", "eval_type", "test_command", "image_name"), TEXT),
        **_ABOUT,
    },
    _swe_bench,
    of_tasks=True,
    notes=(
        "base_commit is not in a public repository: --repos writes repositories that contain it.",
        "test_command starts tests that pytest does not run; otherwise it is empty.",
        "swebench 5 runs eval_script in image, whose /testbed is a repository with base_commit checked out.",
        "Test ids are exact. The log parser of swebench 4 cuts them at spaces, so it never resolves such a row.",
    ),
)
SWE_SMITH = Format(
    "swe-smith",
    "SWE-smith's readers",
    {
        "instance_id": TEXT,
        "repo": TEXT,
        "patch": TEXT,
        "FAIL_TO_PASS": TEXTS,
        "PASS_TO_PASS": TEXTS,
        "image_name": TEXT,
        "problem_statement": TEXT,
        **_ABOUT,
    },
    _swe_smith,
    of_tasks=True,
    notes=(
        "patch is the bug; the image has to contain the project without it, and none is published.",
        "Tests with a space in their id are omitted: SWE-smith's log parser does not recognise them.",
    ),
)
SWE_RL = Format(
    "swe-rl",
    "OpenClaw-RL's swe-rl, on slime",
    {"text": TEXT, "metadata": JSON},
    _swe_rl,
    _swe_rl_of,
    of_tasks=True,
    facts=("metadata",),
    notes=("metadata.instance is the SWE-bench row, with tests as lists.",),
)
ARTIFACTS = Format(
    "artifacts",
    "`ssr validate` and `ssr play --injector artifacts:` (unpacked), other SSR systems",
    {},
    _artifacts,
    of_tasks=True,
    containers=TARS,
    notes=("A folder for each artifact: the five files of the SSR paper, and artifact.json with its metadata.",),
)
