"""Grades of task directories by their own verifiers, in real containers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import pytest
from harbor_tasks import ANSWER, KINDS, REPAIR, SUBMIT

from harness.cli.main import main
from harness.environments import DatasetTasks

pytestmark = [pytest.mark.long, pytest.mark.docker]

PATCH = """\
diff --git a/sums.py b/sums.py
--- a/sums.py
+++ b/sums.py
@@ -1,2 +1,2 @@
 def total(numbers):
-    return 0
+    return sum(numbers)
"""
NOTHING = {"shared-json": {"reward": 0.0, "style": 0.5}, "steps-mean": {"reward": 0.125}}
SOLVED = {"shared-json": {"reward": 1.0, "style": 0.5}}


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_earns_the_whole_reward_and_nothing_does_not(kind: str, harbor: Any) -> None:
    task = harbor.add(kind)
    gold, empty = harbor.evaluated(task)[kind], harbor.evaluated(task, "empty")[kind]
    assert (gold["resolved"], gold["rewards"]) == (True, SOLVED.get(kind, {"reward": 1.0})), gold["reason"]
    assert (empty["resolved"], empty["rewards"]) == (False, NOTHING.get(kind, {"reward": 0.0})), empty["reason"]
    assert gold["flags"] == []


def test_a_patch_is_the_work_on_the_first_step(harbor: Any) -> None:
    assert harbor.patched(harbor.add("shared"), PATCH)["rewards"] == {"reward": 1.0}
    assert harbor.patched(harbor.add("steps-mean"), PATCH)["rewards"] == {"reward": 0.625}


def test_solvers_work_step_by_step_on_what_each_step_brings(harbor: Any) -> None:
    replies = [REPAIR, SUBMIT, ANSWER, SUBMIT]
    results = harbor.solved(harbor.add("steps-final"), replies)
    assert results["steps-final"]["rewards"] == {"reward": 1.0}
    results = harbor.solved(harbor.add("shared"), replies[:2])
    assert (results["shared"]["rewards"], results["shared"]["steps"]) == ({"reward": 1.0}, 2)


def test_attempts_at_tasks_with_equal_trees_are_not_shared(harbor: Any) -> None:
    replies = [REPAIR, SUBMIT]
    for name, check in (
        ("strict", KINDS["shared"]["tests/test.sh"]),
        ("never", "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n"),
    ):
        changed = {"tests/test.sh": check, "solution/solve.sh": None}
        harbor.add("shared", name, changed)
    tasks = harbor.folder / "others"
    results = {name: harbor.solved(tasks / name, replies)[name]["resolved"] for name in ("strict", "never")}
    assert results == {"strict": True, "never": False}


BAD_VERIFIERS: Mapping[str, tuple[str, str]] = {
    "no-reward": ("true", "run-failed"),
    "not-a-number": ("echo nan > /logs/verifier/reward.txt", "run-failed"),
    "empty-reward": (": > /logs/verifier/reward.txt", "run-failed"),
    "unnamed": ('echo \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json', "run-failed"),
    "linked": ("ln -s /etc/hostname /logs/verifier/reward.txt", "run-failed"),
    "loud": (
        "head -c 120000000 /dev/zero | tr '\\0' x; echo 1 > /logs/verifier/reward.txt",
        "resolved",
    ),
}


@pytest.mark.parametrize("name", BAD_VERIFIERS)
def test_a_verifier_that_misbehaves_for_a_patch_gives_no_reward(name: str, harbor: Any) -> None:
    """It works for the reference solution, so that the patch is the cause."""
    command, code = BAD_VERIFIERS[name]
    check = f"#!/bin/bash\nif grep -q bad /app/sums.py; then {command}; exit; fi\n" + KINDS["shared"]["tests/test.sh"]
    task = harbor.add("shared", name, {"tests/test.sh": check})
    result = harbor.patched(task, PATCH.replace("sum(numbers)", "0  # bad"))
    assert (result["reason"]["code"], result["resolved"]) == (code, code == "resolved")
    assert len(json.dumps(result)) < 10_000


def test_a_verifier_that_hangs_is_ended(harbor: Any) -> None:
    check = "#!/bin/bash\nif grep -q bad /app/sums.py; then sleep 1000; fi\n" + KINDS["shared"]["tests/test.sh"]
    toml = KINDS["shared"]["task.toml"] + "[verifier]\ntimeout_sec = 2\n"
    task = harbor.add("shared", "hangs", {"tests/test.sh": check, "task.toml": toml})
    assert harbor.patched(task, PATCH.replace("sum(numbers)", "0  # bad"))["reason"]["code"] == "timed-out"


def test_a_task_that_does_not_hold_is_unusable_and_the_others_run(harbor: Any) -> None:
    wrong = {"solution/solve.sh": "#!/bin/sh\ntrue\n"}
    generous = {"tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"}
    for name, changed in (("wrong", wrong), ("generous", generous), ("fine", {})):
        harbor.add("shared", f"mixed/{name}", changed)
    results = harbor.evaluated(harbor.folder / "others" / "mixed")
    assert {name: row["reason"]["code"] for name, row in results.items()} == {
        "wrong": "instance-unusable",
        "generous": "instance-unusable",
        "fine": "resolved",
    }


def test_what_is_less_certain_is_flagged(harbor: Any) -> None:
    shown = {"environment/Dockerfile": KINDS["shared"]["environment/Dockerfile"] + "COPY sums.py /tests/hint.py\n"}
    task = harbor.add("shared", "shown", {**shown, "solution/solve.sh": None})
    assert set(harbor.patched(task, PATCH)["flags"]) == {"no-reference", "tests-shown"}


def test_a_patch_that_asks_for_the_solution_gets_nothing(harbor: Any) -> None:
    task = harbor.add("shared")
    for text in ("solution/solve.sh", "gold", "From 0000000000000000000000000000000000000001 x\n"):
        assert harbor.patched(task, text)["resolved"] is False


def test_links_of_a_container_do_not_lead_out_of_it(harbor: Any) -> None:
    """Artifacts that link to files of this machine stay links in the verifier's container."""
    check = "#!/bin/bash\nif grep -rqs root: /app; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
    changed = {
        "tests/test.sh": check,
        "solution/solve.sh": "#!/bin/sh\nln -s /etc/passwd /app/link\necho root: > /app/a\n",
    }
    task = harbor.add("separate-same-image", "links", {**changed})
    result = harbor.evaluated(task)["links"]
    assert result["rewards"] == {"reward": 1.0}, result["reason"]


def test_the_plan_says_what_cannot_run(harbor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = harbor.add("shared", "gpu", {"task.toml": KINDS["shared"]["task.toml"] + "[environment]\ngpus = 1\n"})
    harbor.add("shared")
    argv = [
        "eval",
        str(harbor.tasks),
        "--predictions",
        "gold",
        "--dry-run",
        "--json",
        "--out",
        str(harbor.folder / "o"),
    ]
    assert main(argv) == 0
    assert {row["blocked"] for row in json.loads(capsys.readouterr().out)["rows"]} == {None}
    assert main(["eval", str(gpu), "--predictions", "gold", "--out", str(harbor.folder / "refused")]) == 2


def test_an_environment_plays_a_task(harbor: Any) -> None:
    tasks = DatasetTasks(harbor.add("shared").parent, harbor.folder / "store")
    env = gymnasium.make("ssr/Solve-v0", tasks=tasks)
    _, info = env.reset(options={"task": "shared"})
    assert "sums.py" in info["prompt"]
    env.step("printf 'def total(numbers):\\n    return sum(numbers)\\n' > sums.py")
    _, reward, terminated, _, info = env.step({"tool": "submit", "arguments": {}})
    assert (reward, terminated, info["code"]) == (1.0, True, "resolved")
    env.close()
