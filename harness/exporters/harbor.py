"""Write tasks as directories of Harbor (schema 1.4), one for each artifact or row of a dataset.

A verifier has a container of its own, which gets nothing from the agent's but the working tree. Sealed, its image holds
the project without the bug, the artifact and this package. Plain, it only runs the recorded tests, whose results the
graded code could forge. The agent's image holds the project with the bug and the weakened tests, as a repository of one
commit.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from harness.datasets.instance import Instance
from harness.exporters import container_grade
from harness.exporters.archives import entries_of, packed, packed_package
from harness.exporters.licences import UNKNOWN, licence_of
from harness.exporters.protocol import FOLDERS, TARS, Choices, Format, Group, Row, Task, statement_of
from harness.exporters.skipped import SkipCode, SkippedError, damaged, require_plain
from harness.exporters.tasks import instance_id, run_git, snapshot_of, specification_of, statement
from harness.records.posterior import posterior
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.solver_checkout import write_solver_tree
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import INFO, BugArtifact
from pytest_ssr.verifier import ARTIFACT, PROJECT

_SCHEMA = "1.4"
_OURS = "pytest-ssr"
_AGENT_S, _VERIFIER_S = 3600.0, 1800.0
_EXECUTABLE = 0o100755

File = tuple[str, FileEntry]


def _rows(group: Group, choices: Choices) -> Iterator[Row]:
    assert group.task is not None
    task: Task = group.task
    artifact = task.artifact()
    require_plain(dict(artifact.info), INFO)
    if not isinstance(artifact.info.get("verdict"), Mapping):
        raise SkippedError(SkipCode.NO_VERDICT)
    name = instance_id(task, choices)
    start = _start(task, artifact)
    if choices.plain:
        held = [*_base(choices), f"ADD start.tar.gz {_KEPT}/"]
        verifier = [("start.tar.gz", FileEntry(start)), *_plain(specification_of(artifact), held, choices)]
    else:
        verifier = list(_sealed(task, artifact, choices))
    files = [
        ("task.toml", _text(_toml(_configuration(task, choices)))),
        ("instruction.md", _text(_instruction(artifact, choices))),
        ("environment/Dockerfile", _text(_agent_dockerfile(choices))),
        ("environment/project.tar.gz", FileEntry(start)),
        *_solution(task, artifact, choices),
        *((f"tests/{path}", entry) for path, entry in verifier),
    ]
    yield {"task_id": name, "files": [(f"{name}/{path}", entry) for path, entry in files]}


def _row_of(instance: Instance, choices: Choices) -> Row:
    """Return the plain task of a row, in the row's own image: its recorded tests decide."""
    tests = [*instance.fail_to_pass, *instance.pass_to_pass]
    image = choices.image or instance.image
    if not image or instance.eval_script.strip() or not all("::" in test for test in tests):
        raise SkippedError(SkipCode.NOT_PYTEST)
    test_files = sorted({test.partition("::")[0] for test in tests})
    told = {
        "specification": instance.test_patch.data.decode("utf-8", "surrogateescape"),
        "script": default_script(test_files, options=()).decode(),
        "parser": default_parser().decode(),
        "test_files": sorted({*test_files, *instance.test_patch.paths}),
        "tests": tests,
    }
    solution = instance.patch.data
    # SWE-smith's images hold the project without the bug.
    bug = [("bug.diff", FileEntry(instance.patch.reverse().data))] if instance.begins_solved else []
    begin = list(_row_begin(image, choices, has_bug=bool(bug)))
    held = [*begin, f"RUN mkdir -p {_KEPT} && cp -r {choices.workdir}/.git {_KEPT}/.git"]
    described = _described(choices, f"{choices.owner}/{instance.id}", f"A task of {instance.repo}.")
    described["metadata"] = {
        "source": instance.family,
        "repository": instance.repo,
        "base_commit": instance.base_commit,
        "license": instance.licence or UNKNOWN,
        "created_at": instance.created_at,
        "grade": _PLAIN_GRADE,
        "contamination": f"made from the public repository {instance.repo}",
    }
    require_plain({**described, "statement": statement_of(instance)}, "the row")
    files = [
        ("task.toml", _text(_toml(described))),
        ("instruction.md", _text(f"{statement_of(instance)}\n\nThe repository is in `{choices.workdir}`.\n")),
        ("environment/Dockerfile", _text("\n".join([*begin, ""]))),
        *((f"{folder}/{path}", entry) for folder in ("environment", "tests") for path, entry in bug),
        ("solution/repair.diff", FileEntry(solution)),
        ("solution/solve.sh", _text(_APPLY.format(workdir=choices.workdir), _EXECUTABLE)),
        *((f"tests/{path}", entry) for path, entry in _plain(told, held, choices)),
    ]
    return {"instance_id": instance.id, "files": [(f"{instance.id}/{path}", entry) for path, entry in files]}


_APPLY = """\
#!/bin/sh
set -eu
cd {workdir}
git apply --whitespace=nowarn /solution/repair.diff
"""


def _row_begin(image: str, choices: Choices, *, has_bug: bool) -> Iterator[str]:
    """Yield the lines that both images of a row begin with."""
    commit = "git -c user.name=ssr -c user.email=ssr@localhost commit -qam start"
    inject = f"git apply --whitespace=nowarn /tmp/bug.diff && rm /tmp/bug.diff && {commit}"
    yield f"FROM {image}"
    yield f"WORKDIR {choices.workdir}"
    if has_bug:
        yield "COPY bug.diff /tmp/bug.diff"
        yield f"RUN {inject}"


def _text(text: str, mode: int = 0o100644) -> FileEntry:
    return FileEntry(text.encode(), mode)


def _instruction(artifact: BugArtifact, choices: Choices) -> str:
    return (
        f"{statement(artifact)}\nThe project is in `{choices.workdir}`, and `python -m pytest` runs its tests. Change "
        "the code there; what you change in tests does not count.\n"
    )


def _configuration(task: Task, choices: Choices) -> dict[str, Any]:
    """Return the content of task.toml."""
    described = _described(
        choices,
        f"{choices.owner}/{instance_id(task, choices)}",
        f"A bug in {task.repository} that its tests detect.",
    )
    metadata: dict[str, Any] = {
        "source": _OURS,
        "artifact_id": task.id,
        "project": task.repository,
        "tree_hash": task.tree_hash,
        "strategy": task.strategy,
        "operator": task.operator,
        "order": task.order,
        "license": licence_of([task.tree / "tree"]) or UNKNOWN,
        "grade": _PLAIN_GRADE if choices.plain else "recorded tests, and values without the expected ones",
        "contamination": f"made from the public project {task.repository}: do not evaluate models trained on its bugs",
        "graded_attempts": task.graded,
    }
    if task.solve_rate is not None and task.graded:
        rate = posterior(round(task.solve_rate * task.graded), task.graded)
        metadata["solve_rate_posterior_mean"] = round(rate.mean, 4)
        metadata["solve_rate_posterior_interval_90"] = [round(rate.low, 4), round(rate.high, 4)]
    return described | {"metadata": metadata}


def _described(choices: Choices, name: str, description: str) -> dict[str, Any]:
    """Return the content of task.toml without its metadata."""
    where: dict[str, Any] = {"network_mode": "no-network"} if choices.network == "none" else {}
    return {
        "schema_version": _SCHEMA,
        "artifacts": [{"source": choices.workdir, "exclude": [".git", "__pycache__"]}],
        "task": {
            # Harbor allows fewer characters than ids have.
            "name": re.sub(r"\.{2,}|[^A-Za-z0-9/._-]", "-", name),
            "description": description,
            "keywords": ["software-engineering", "debugging", "python"],
        },
        "metadata": {},
        "agent": {"timeout_sec": _AGENT_S},
        "verifier": {"timeout_sec": _VERIFIER_S, "environment_mode": "separate", "environment": dict(where)},
        "environment": {"workdir": choices.workdir, **where},
    }


def _agent_dockerfile(choices: Choices) -> str:
    return "\n".join(
        (
            *_base(choices),
            f"ENV PYTHONPATH={choices.workdir}/src:{choices.workdir} PYTHONDONTWRITEBYTECODE=1",
            f"ADD project.tar.gz {choices.workdir}/",
            f"WORKDIR {choices.workdir}",
            "",
        )
    )


def _base(choices: Choices) -> Iterator[str]:
    """Yield the lines that both images begin with, so that they share these layers."""
    if choices.image:
        yield f"FROM {choices.image}"
        return
    yield f"FROM python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
    yield from _INDEXES
    yield f"RUN python -m pip install --no-cache-dir {' '.join(_installed())}"


_INDEXES = ("ARG PIP_INDEX_URL", "ARG PIP_EXTRA_INDEX_URL")
"""For machines that install from a mirror."""


def _installed() -> list[str]:
    """Return what is installed beside this package, with versions, without what is installed from a local folder."""
    found = {}
    for distribution in importlib.metadata.distributions():
        if distribution.name and distribution.read_text("direct_url.json") is None:
            found[distribution.name.lower()] = f"{distribution.name}=={distribution.version}"
    return [found[name] for name in sorted(found) if name not in (_OURS, "pip", "setuptools", "wheel")]


def _start(task: Task, artifact: BugArtifact) -> bytes:
    """Return the tree that agents begin with, as an archive."""
    with tempfile.TemporaryDirectory(prefix="ssr-start-") as temporary:
        folder = Path(temporary, "tree")
        try:
            original = CodebaseState(snapshot_of(task))
            write_solver_tree(original.apply(artifact.bug).apply(artifact.weaken), folder)
        except (ArtifactError, StoreError, OSError) as error:
            raise damaged(f"its start cannot be written: {error}") from None
        # A new index has no times and no inodes, so that equal trees give equal archives.
        (folder / ".git" / "index").unlink()
        run_git(folder, "read-tree", "HEAD")
        return packed(entries_of(folder))


def _solution(task: Task, artifact: BugArtifact, choices: Choices) -> Iterator[File]:
    """Yield the script of the reference solution, and the files that it unpacks: an image may lack git and patch."""
    original = CodebaseState(snapshot_of(task))
    entries = {path: original.entry(path) for path in artifact.bug.paths}
    kept = [(path, entry) for path, entry in entries.items() if entry is not None]
    lines = ["#!/bin/sh", "set -eu", f"cd {choices.workdir}"]
    lines += [f"rm -f -- {shlex.quote(path)}" for path, entry in entries.items() if entry is None]
    yield "solution/repair.tar.gz", FileEntry(packed(kept))
    yield "solution/solve.sh", _text("\n".join([*lines, "tar -xzf /solution/repair.tar.gz", ""]), _EXECUTABLE)


_SEALED_SCRIPT = """\
#!/bin/sh
# The code to grade runs as another user: it can neither read the answer nor write the reward, nor leave anything where
# a later run finds it.
set -eu
chmod -R go= /opt/ssr /tests
for folder in /tmp /var/tmp /dev/shm /dev/mqueue /run/lock; do
    if [ -d "$folder" ]; then chmod 0711 "$folder"; fi
done
exec env -i "PATH=$PATH" HOME=/root PYTHONPATH=/opt/ssr/code \\
    /opt/ssr/bin/python -m pytest_ssr.verifier /opt/ssr/task {workdir} /logs/verifier
"""


def _sealed(task: Task, artifact: BugArtifact, choices: Choices) -> Iterator[File]:
    """Yield the files that the verifier's image is built from."""
    snapshot = snapshot_of(task)
    contents = {**artifact.contents(), INFO: json.dumps(artifact.info, indent=1, sort_keys=True).encode()}
    yield "Dockerfile", _text(_verifier_dockerfile(choices))
    yield "pytest-ssr.tar.gz", FileEntry(packed_package("pytest_ssr"))
    yield "project.tar.gz", FileEntry(packed((f"{PROJECT}/{p}", snapshot.entry(p)) for p in snapshot.paths()))
    yield "artifact.tar.gz", FileEntry(packed((f"{ARTIFACT}/{name}", FileEntry(contents[name])) for name in contents))
    yield "test.sh", _text(_SEALED_SCRIPT.format(workdir=choices.workdir), _EXECUTABLE)


def _verifier_dockerfile(choices: Choices) -> str:
    return "\n".join(
        (
            *_base(choices),
            *(_INDEXES if choices.image else ()),
            "RUN python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' && python3 -m venv /opt/ssr && "
            f"/opt/ssr/bin/python -m pip install --no-cache-dir {' '.join(_requirements())}",
            "ADD pytest-ssr.tar.gz /opt/ssr/code/",
            "ADD project.tar.gz /opt/ssr/task/",
            "ADD artifact.tar.gz /opt/ssr/task/",
            "COPY test.sh /tests/test.sh",
            "WORKDIR /",
            "",
        )
    )


def _requirements() -> list[str]:
    """Return what this package needs without an extra, in the versions that are installed here."""
    names = [Requirement(text) for text in importlib.metadata.requires(_OURS) or ()]
    needed = sorted(r.name for r in names if r.marker is None)
    return [f"{name}=={importlib.metadata.version(name)}" for name in needed]


_PLAIN_GRADE = "recorded tests"
_KEPT = "/opt/start"
_PLAIN_SCRIPT = """\
#!/bin/bash
if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate testbed; fi
# Readers without verifiers of their own run this in the agent's container, which keeps no start.
if [ ! -d {kept} ] && [ -f /tests/start.tar.gz ]; then mkdir -p {kept} && tar -xzf /tests/start.tar.gz -C {kept}; fi
cd {workdir} && rm -rf .git && cp -r {kept}/.git .git
if python3 /tests/grade.py /tests/told.json; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
"""


def _plain(told: Mapping[str, Any], held: Sequence[str], choices: Choices) -> Sequence[File]:
    """Return the files of a verifier that only runs the recorded tests.

    told: what `container_grade` needs to know. held: the lines of a Dockerfile that put the repository of the start
    into the folder `_KEPT`: what the agent's tree changes is compared with it.
    """
    grader = Path(container_grade.__file__).read_bytes()
    return (
        ("Dockerfile", _text("\n".join([*held, "COPY grade.py told.json test.sh /tests/", "WORKDIR /", ""]))),
        ("grade.py", FileEntry(grader)),
        ("told.json", _text(json.dumps(told))),
        ("test.sh", _text(_PLAIN_SCRIPT.format(workdir=choices.workdir, kept=_KEPT), _EXECUTABLE)),
    )


def _toml(table: Mapping[str, Any], section: str = "") -> str:
    """Return a table as TOML: its values first, then its tables."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{section}]"] if section and values else []
    lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    text = "\n".join(lines) + "\n" if lines else ""
    tables = ((f"{section}.{key}".lstrip("."), value) for key, value in table.items() if isinstance(value, Mapping))
    return text + "".join(f"\n{_toml(value, name)}" if value else f"\n[{name}]\n" for name, value in tables)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # A string, number or truth value of JSON is one of TOML, but for this character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


HARBOR = Format(
    "harbor",
    "Harbor 0.26 (schema 1.4), and what reads its tasks: verifiers, OpenEnv, SkyRL, TRL",
    {},
    _rows,
    _row_of,
    of_tasks=True,
    containers=(FOLDERS, *TARS),
    notes=(
        "A folder for each task. Sealed, a verifier of its own grades the working tree; its image holds the answer.",
        "`harbor run -p FOLDER -a oracle` has to give 1.0 on each task, `-a nop` 0.0.",
    ),
)
