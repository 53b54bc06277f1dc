"""Write small tasks in Harbor's form, of the kinds that are published: none of them is about a bug of ours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str]
RIGHT = "def total(numbers):\n    return sum(numbers)\n"
WRONG = "def total(numbers):\n    return 0\n"
_DOCKERFILE = "FROM {image}\nWORKDIR /app\nCOPY sums.py /app/sums.py\n"
_CHECK = """\
#!/bin/bash
cd /app
if python3 -c "from sums import total; assert total([1, 2]) == 3"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_SOLVE = "#!/bin/bash\ncat > /app/sums.py <<'END'\n" + RIGHT + "END\n"
_TOML = """\
schema_version = "1.4"
[task]
name = "acme/{name}"
[metadata]
difficulty = "easy"
"""
_BASE = {
    "instruction.md": "Make `total` in sums.py return the sum of its numbers.\n",
    "environment/Dockerfile": _DOCKERFILE,
    "environment/sums.py": WRONG,
    "solution/solve.sh": _SOLVE,
    "tests/test.sh": _CHECK,
}
_SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
_FILE_ONLY = 'artifacts = ["/app/sums.py"]\n'


def _task(toml: str = "", top: str = "", files: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the files of a task: those of the base and others, by path; None removes one."""
    merged: dict[str, str | None] = {**_BASE, "task.toml": top + _TOML + toml, **(files or {})}
    return {path: textwrap.dedent(text) for path, text in merged.items() if text is not None}


def _steps(strategy: str, first: str = "") -> dict[str, str]:
    """Return a task of two steps: the second brings a file along, and needs what the first has made."""
    toml = f'[[steps]]\nname = "one"\n{first}[[steps]]\nname = "two"\n'
    files = _task(toml, top=f'multi_step_reward_strategy = "{strategy}"\n')
    del files["instruction.md"], files["solution/solve.sh"], files["tests/test.sh"]
    check = "#!/bin/bash\ncd /app\n"
    return {
        **files,
        "steps/one/instruction.md": "Make `total` return the sum.\n",
        "steps/one/solution/solve.sh": _SOLVE,
        "steps/one/tests/test.sh": _CHECK,
        "steps/two/instruction.md": "Write the total of numbers.txt into answer.txt.\n",
        "steps/two/workdir/numbers.txt": "1\n2\n3\n",
        "steps/two/workdir/setup.sh": "#!/bin/bash\nsed -i s/3/4/ numbers.txt\n",
        "steps/two/solution/solve.sh": check
        + "python3 -c 'from sums import total; print(total([int(n) for n in open(\"numbers.txt\")]))' > answer.txt\n",
        "steps/two/tests/test.sh": check
        + 'if [ "$(cat answer.txt)" = 7 ]; then echo 1; else echo 0.25; fi > /logs/verifier/reward.txt\n',
    }


_COMPOSE = """\
services:
  main:
    depends_on: [store]
  store:
    image: {image}
    network_mode: none
    command: ["sh", "-c", "echo 3 > /tmp/expected; sleep infinity"]
"""
_COLLECT = """\
[verifier]
environment_mode = "separate"
[[verifier.collect]]
service = "store"
command = "cp /tmp/expected /var/expected.txt"
"""
_COMPOSE_CHECK = """\
#!/bin/bash
cd /app
if [ "$(python3 -c 'from sums import total; print(total([1, 2]))')" = "$(cat /var/expected.txt)" ]
then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_JSON_CHECK = """\
#!/bin/bash
cd /app
value=$(python3 -c 'from sums import total; print(int(total([1, 2]) == 3))')
echo "{\\"reward\\": $value, \\"style\\": 0.5}" > /logs/verifier/reward.json
"""
_HEALTH = '[environment.healthcheck]\ncommand = "test -f /app/sums.py"\ninterval_sec = 0.1\n'
_USERS = '[agent]\nuser = 1000\n[verifier]\nuser = "1000"\nenv = { EXPECTED = "${SUM:-3}" }\n'
_USERS_CHECK = """\
#!/bin/bash
cd /app
if [ "$(id -u)" = 1000 ] && [ "$(python3 -c 'from sums import total; print(total([1, 2]))')" = "$EXPECTED" ]
then echo 1.0; else echo 0.0; fi > /logs/verifier/reward.txt
"""

KINDS: Mapping[str, Files] = {
    "shared": _task(),
    "shared-json": _task(files={"tests/test.sh": _JSON_CHECK}),
    "named-image": _task(
        '[environment]\ndocker_image = "{image}"\nworkdir = "/srv"\n',
        files={
            "environment/Dockerfile": None,
            "environment/sums.py": None,
            "solution/solve.sh": _SOLVE.replace("/app", "/srv"),
            "tests/test.sh": _CHECK.replace("/app", "/srv"),
            "instruction.md": "Write sums.py in /srv, with a function `total`.\n",
        },
    ),
    "users": _task(
        _USERS,
        files={
            "environment/Dockerfile": _DOCKERFILE.replace("COPY", "COPY --chown=1000:1000"),
            "tests/test.sh": _USERS_CHECK,
        },
    ),
    "healthcheck": _task(_HEALTH),
    "separate": _task(
        _SEPARATE,
        top=_FILE_ONLY,
        files={"tests/Dockerfile": "FROM {image}\nWORKDIR /app\nCOPY test.sh /tests/test.sh\n"},
    ),
    "separate-same-image": _task(_SEPARATE, top='artifacts = [{ source = "/app", exclude = ["*.pyc"] }]\n'),
    "steps-mean": _steps("mean"),
    "steps-final": _steps("final", "min_reward = 1.0\n"),
    "services": _task(
        _COLLECT,
        top='artifacts = ["/app/sums.py", { source = "/var/expected.txt", service = "store" }]\n',
        files={"environment/docker-compose.yaml": _COMPOSE, "tests/test.sh": _COMPOSE_CHECK},
    ),
}
"""Files by path, for each kind; `{image}` stands for an image with Python and bash."""

REPAIR = "```bash\nprintf 'def total(numbers):\\n    return sum(numbers)\\n' > sums.py\n```\n"
ANSWER = (
    "```bash\npython3 -c 'from sums import total; "
    'print(total([int(n) for n in open("numbers.txt")]))\' > answer.txt\n```\n'
)
SUBMIT = "```submit\n{}\n```\n"
"""Replies of a scripted model that solve the tasks."""


def write_task(folder: Path, kind: str, image: str, changed: Mapping[str, str | None] | None = None) -> Path:
    """Write a task of a kind into a new folder of its name below `folder`, and return it.

    changed: files by path to write instead; None removes a file.
    """
    task = folder / kind
    for path, text in {**KINDS[kind], **(changed or {})}.items():
        if text is None:
            continue
        target = task / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("{image}", image).replace("{name}", kind), encoding="utf-8")
        if path.endswith(".sh"):
            target.chmod(0o755)
    return task
