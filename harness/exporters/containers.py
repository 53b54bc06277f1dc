"""Write prompt rows for slime's coding agent example: tasks that run in a container image, graded by exit status.

The image contains the project without the bug. `pre_commands` run before the agent, and again in the fresh container
that grades its diff: they inject the bug, weaken the tests, drop the git history (it contains the answer) and delete
themselves. `eval_cmd` applies this project's own rule: it restores the tests, and all of them have to pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.datasets.families import row_of
from harness.datasets.instance import Instance
from harness.exporters.container_task import unpacked, write_grader
from harness.exporters.protocol import JSON, TEXT, Choices, Format, Group, Row, Task, statement_of
from harness.exporters.tasks import instance_id, specification_of, statement
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.artifact import BugArtifact

_FOLDER = "/tmp/ssr-grade"
_GIT = "git -c user.name=ssr -c user.email=ssr@localhost -c core.hooksPath=/dev/null"


def pre_commands(artifact: BugArtifact) -> list[str]:
    """Return the bash commands that turn a project into the task, to be run from its root.

    Raises SkippedError for an artifact that JSON cannot represent.
    """
    specification = specification_of(artifact)
    return [
        *(f"{unpacked(p.data)} | git apply --whitespace=nowarn -" for p in (artifact.bug, artifact.weaken) if p.data),
        f"rm -rf .git {_FOLDER}",
        f"mkdir -p {_FOLDER}",
        *write_grader(_FOLDER, specification),
        "git init -q .",
        f"{_GIT} add -A",
        f"{_GIT} commit -q --no-verify -m start",
        # The file that these lines are read from contains the bug.
        'rm -f -- "$0"',
    ]


def _require_image(image: str) -> None:
    if not image:
        raise SettingsError("slime-prompts needs --image: the container image that contains the project")


def _rows(group: Group, choices: Choices) -> Iterator[Row]:
    _require_image(choices.image)
    assert group.task is not None
    task: Task = group.task
    artifact = task.artifact()
    prompt = statement(artifact)
    name = instance_id(task, choices)
    yield {
        "prompt": prompt,
        "label": name,
        "metadata": {
            "instance_id": name,
            "image": choices.image,
            "workdir": choices.workdir,
            "problem_statement": prompt,
            "pre_commands": pre_commands(artifact),
            "eval_cmd": f"python3 {_FOLDER}/grade.py {_FOLDER}/told.json",
            "task_id": task.id,
            "strategy": task.strategy,
            "solve_rate": task.solve_rate,
        },
    }


def _row_of(instance: Instance, choices: Choices) -> Row:
    """Return the row of an instance: the example's protocol `swebench` grades it by `remote_env_info`, without ours."""
    prompt, image = statement_of(instance), choices.image or instance.image
    _require_image(image)
    where = {"instance_id": instance.id, "image": image, "workdir": choices.workdir, "problem_statement": prompt}
    known = {name: value for name, value in row_of(instance).items() if name != "patch"}
    environment = {**known, **where, "environment_setup_commit": instance.base_commit}
    return {"prompt": prompt, "label": instance.id, "metadata": {**where, "remote_env_info": environment}}


SLIME_PROMPTS = Format(
    "slime-prompts",
    "slime: --prompt-data with --input-key prompt --label-key label --metadata-key metadata",
    {"prompt": TEXT, "label": TEXT, "metadata": JSON},
    _rows,
    _row_of,
    of_tasks=True,
    facts=("metadata",),
    notes=(
        "An image contains one project: with --image, export only tasks of that project.",
        "Rows of datasets are for the protocol `swebench` of the example, or for our own adapter, by their label.",
    ),
)
