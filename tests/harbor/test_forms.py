"""Tasks in the forms that others write, in real containers: the reference solution earns what it earns in Harbor."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harbor_tasks import KINDS

from harness.harbor import trial
from harness.harbor.containers import Engine
from harness.harbor.reading import read_task
from harness.harbor.task import Refusal, TaskError
from harness.harbor.trial import Trial
from pytest_ssr.patch import FileEntry

pytestmark = [pytest.mark.long, pytest.mark.docker]

DOCKERFILE = KINDS["shared"]["environment/Dockerfile"]
TOML = KINDS["shared"]["task.toml"]
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
COMPOSE = "services:\n  main:\n    network_mode: none\n"


def check(condition: str, folder: str = "/app") -> str:
    return f"#!/bin/bash\ncd '{folder}'\n({condition}) && echo 1 > /logs/verifier/reward.txt\n" + (
        "[ -e /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
    )


FORMS: Mapping[str, Mapping[str, str | None]] = {
    "entrypoint": {
        "task.toml": TOML + '[environment]\nenv = { COLOUR = "blue" }\n',
        "environment/entry.sh": '#!/bin/bash\necho "$COLOUR" > /app/made\nexec "$@"\n',
        "environment/Dockerfile": DOCKERFILE + 'COPY entry.sh /entry.sh\nENTRYPOINT ["bash", "/entry.sh"]\n',
        "solution/solve.sh": "cp made answer\n",
        "tests/test.sh": check("grep -q blue answer"),
    },
    "hard-links": {
        "environment/Dockerfile": DOCKERFILE + "RUN echo one > a && ln a b\n",
        "solution/solve.sh": "cat b > c; ln c d\n",
        "tests/test.sh": check("grep -q one b && grep -q one c && grep -q one d"),
    },
    "linked-workdir": {
        "environment/Dockerfile": "FROM {image}\nRUN mkdir /code && ln -s /code /app\nWORKDIR /app\nCOPY sums.py /code/\n",
        "solution/solve.sh": "echo 1 > answer\n",
        "tests/test.sh": check("[ -e answer ] && [ -e sums.py ]"),
    },
    "folders-of-a-user": {
        "task.toml": TOML + "[agent]\nuser = 1234\n[verifier]\nuser = 1234\n",
        "environment/Dockerfile": DOCKERFILE + "RUN chown -R 1234 /app\n",
        "solution/solve.sh": "mkdir -p deep/er; id -u > deep/er/who\n",
        "tests/test.sh": check("grep -q 1234 deep/er/who && touch deep/er/more"),
    },
    "emptied-folders": {
        "environment/Dockerfile": DOCKERFILE + "COPY sums.py /app/old/deep/\nCOPY sums.py /app/file\n",
        "solution/solve.sh": "rm -r old file; mkdir file; echo 1 > file/in; echo 1 > old\n",
        "tests/test.sh": check("[ -f old ] && [ -f file/in ]"),
    },
    "removed-folder": {
        "environment/Dockerfile": DOCKERFILE + "COPY sums.py /app/old/deep/\n",
        "solution/solve.sh": "rm -r old\n",
        "tests/test.sh": check("[ ! -e old ]"),
    },
    "files-beside-a-named-image": {
        "task.toml": TOML + '[environment]\ndocker_image = "{image}"\nworkdir = "/srv"\n',
        "environment/Dockerfile": None,
        "environment/data/more.txt": "more\n",
        "solution/solve.sh": "cat data/more.txt > answer\n",
        "tests/test.sh": check("grep -q more answer", "/srv"),
    },
    "variables-of-compose": {
        "task.toml": TOML + '[environment]\ncpus = 1\nmemory_mb = 512\nenv = { WORD = "a$b" }\n',
        "environment/docker-compose.yaml": COMPOSE
        + "    build: { context: '${CONTEXT_DIR}' }\n    image: ${MAIN_IMAGE_NAME}\n"
        + "    environment: ['OTHER=${WORD}', 'HOST=${SECRET:-none}']\n"
        + "    volumes: ['${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}', './data:/data']\n"
        + "    deploy: { resources: { limits: { cpus: '${CPUS}', memory: '${MEMORY}' } } }\n",
        "environment/data/file": "kept\n",
        "solution/solve.sh": 'echo changed > /data/file; echo "$OTHER $WORD $HOST" > answer\n',
        "tests/test.sh": check("grep -qx 'a$b a$b none' answer && grep -q kept /data/file"),
    },
    "excluded-and-linked-artifacts": {
        "task.toml": 'artifacts = [{ source = "/app", exclude = ["./cache", "*.log"] }, "/published"]\n'
        + TOML
        + SEPARATE,
        "environment/Dockerfile": DOCKERFILE
        + "RUN mkdir /real cache && echo 1 > /real/file && ln -s /real /published && touch cache/a x.log\n"
        + "RUN ln -s /etc/hostname outer && ln -s sums.py inner\n",
        "solution/solve.sh": "echo 1 > answer\n",
        "tests/test.sh": check(
            "[ -e answer ] && [ -e /published/file ] && [ ! -e cache ] && [ ! -e x.log ] && [ -L inner ] && [ ! -L outer ]"
        ),
    },
}
"""Files by path that differ from those of a plain task."""


@pytest.mark.parametrize("name", FORMS)
def test_the_reference_earns_the_reward_and_nothing_does_not(
    name: str, harbor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the host")
    task = harbor.add("shared", name, FORMS[name])
    gold, empty = (harbor.evaluated(task, predictions)[name] for predictions in ("gold", "empty"))
    assert (gold["resolved"], gold["rewards"]) == (True, {"reward": 1.0}), gold["reason"]
    assert (empty["resolved"], empty["rewards"]) == (False, {"reward": 0.0}), empty["reason"]


def test_what_a_solution_changes_besides_the_work_is_known(harbor: Any, tmp_path: Path) -> None:
    changed = {
        "environment/Dockerfile": DOCKERFILE + "RUN mkdir .git\n",
        "solution/solve.sh": "touch .git/done /etc/done answer /tmp/passing\n",
    }
    task = read_task(harbor.add("shared", "besides", changed))
    with contextlib.closing(Engine()) as engine:
        besides = Trial(engine, task).solve(0, [], tmp_path / "tree")
    assert besides == ["/etc/done", "/app/.git"]
    assert {path.name for path in (tmp_path / "tree").iterdir()} == {"answer", "sums.py"}


def test_what_is_too_large_for_a_verifier_is_a_grade(harbor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_MAX_TREE_BYTES", 1_000_000)
    toml = 'artifacts = ["/large"]\n' + TOML + SEPARATE + '[[verifier.collect]]\ncommand = "bash /app/grow"\n'
    folder = harbor.add("shared", "large", {"task.toml": toml, "tests/test.sh": check("[ -e /app/sums.py ]")})
    work = {"grow": FileEntry(b"head -c 2000000 /dev/zero > /large\n", 0o100644)}
    with contextlib.closing(Engine()) as engine:
        (step,) = Trial(engine, read_task(folder)).grade([work]).steps
    assert step.fault is trial.Fault.TOO_LARGE


def test_a_kill_leaves_no_folder_that_the_next_run_does_not_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "import os, signal; from harness.harbor.containers import temporary_folder as new\n"
    program += "with new(): os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    Engine().close()
    assert list(tmp_path.iterdir()) == []


OF_HOST = {
    "bind": "    volumes: ['/etc:/host']\n",
    "parent": "    volumes: ['../../..:/host']\n",
    "socket": "    volumes: ['/var/run/docker.sock:/var/run/docker.sock']\n",
    "privileged": "    privileged: true\n",
    "capability": "    cap_add: [SYS_ADMIN]\n",
    "pid": "    pid: host\n",
    "device": "    devices: ['/dev/null:/dev/host']\n",
    "env-file": "    env_file: ../../../secrets\n",
    "context": "    build: { context: /etc }\n",
    "secret": "    secrets: [key]\nsecrets:\n  key: { file: /etc/hostname }\n",
    "variable": "    secrets: [key]\nsecrets:\n  key: { environment: HOME }\n",
    "volume": "    volumes: ['all:/all']\nvolumes:\n  all: { driver_opts: { type: none, o: bind, device: /etc } }\n",
    "included": "include: [/etc/compose.yaml]\n",
}


@pytest.mark.parametrize("name", OF_HOST)
def test_services_get_nothing_of_this_machine(name: str, harbor: Any) -> None:
    folder = harbor.add("shared", f"host-{name}", {"environment/docker-compose.yaml": COMPOSE + OF_HOST[name]})
    (harbor.folder / "others" / "secrets").write_text("KEY=secret\n")
    place = read_task(folder).place
    with contextlib.closing(Engine()) as engine, pytest.raises(TaskError) as caught:
        engine.started(place, network="public").__enter__()
    assert caught.value.refusal is Refusal.HOST_ACCESS
