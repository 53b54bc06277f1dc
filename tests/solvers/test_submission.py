"""A model submits a patch file, or several times; the last submission is graded, and all are recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.cli.main import main
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message, ToolCall
from harness.records.trajectory import SUBMISSIONS, ExitReason, Journal, Trajectory
from harness.rollouts.submission import submission_of
from harness.rollouts.task import open_task, without_copies
from harness.solvers.model import ModelSolver
from harness.solvers.protocol import Solution, SolverTask, decode_patch
from harness.solvers.replay import ReplaySolver
from harness.solvers.submission import SubmissionForm, SubmissionSettings
from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox import load_provider

FIX = "sed -i 's/return a - b/return a + b/' calc.py && git diff > fix.diff"
COMMENT = "echo '# no' >> calc.py && git diff > no.diff"
DONE = "It is done."


def said(*calls: str | tuple[str, dict[str, Any]]) -> list[Message]:
    messages = []
    for n, call in enumerate(calls):
        if call == DONE:
            messages.append(Message(ASSISTANT, DONE))
            continue
        name, arguments = ("bash", {"command": call}) if isinstance(call, str) else call
        messages.append(Message(ASSISTANT, "", (ToolCall.parse(f"c{n}", name, json.dumps(arguments)),)))
    return messages


def submit(path: str = "") -> tuple[str, dict[str, Any]]:
    return "submit", {"path": path} if path else {}


@pytest.fixture(scope="module")
def task(proven: Proven, tmp_path_factory: pytest.TempPathFactory) -> SolverTask:
    return open_task(proven.runner, proven.artifact, tmp_path_factory.mktemp("task"))


def attempt(
    task: SolverTask, messages: list[Message], path: Path, *, most: int = 1, tree: bool = False, steps: int = 20
) -> Solution:
    form = SubmissionForm.TREE if tree else SubmissionForm.PATCH_FILE
    settings = SubmissionSettings(form, most)
    solver = ModelSolver(ScriptedModel("scripted", messages), RolloutLimits(steps=steps), submission=settings)
    return solver.solve(task, seed=1, journal=Journal(Trajectory("r", task.id, "solver", 0, "scripted"), path))


def test_the_submitted_file_is_the_patch_not_the_tree(task: SolverTask, tmp_path: Path) -> None:
    bad = [submit("none.diff"), submit("calc.py"), "touch empty.diff", submit("empty.diff")]
    relative = ["cd tests", submit("../fix.diff")]
    messages = said(*bad, FIX, "git checkout -q calc.py", COMMENT, *relative)
    done = attempt(task, messages, tmp_path / "trajectory.jsonl")
    assert done.trajectory.exit_reason is ExitReason.SUBMITTED, [m.content for m in done.trajectory.messages[8:]]
    assert done.patch is not None
    assert b"+    return a + b" in done.patch.data
    assert b"# no" not in done.patch.data
    refused = [s for s in done.trajectory.steps if s.tool == "submit"][:3]
    assert [s.exit_code for s in refused] == [1, 1, 1]
    assert SUBMISSIONS not in done.trajectory.result
    assert "write your changes to a patch file" in done.trajectory.messages[0].content


@pytest.mark.parametrize(
    ("tail", "steps", "reason"),
    [
        ((submit("fix.diff"),), 20, ExitReason.SUBMITTED),
        ((submit("fix.diff"), DONE), 20, ExitReason.SUBMITTED),
        ((submit("fix.diff"), "ls", "ls"), 6, ExitReason.STEP_LIMIT),
    ],
)
def test_the_last_of_several_submissions_is_graded(
    task: SolverTask, tmp_path: Path, tail: tuple[Any, ...], steps: int, reason: ExitReason
) -> None:
    most = 2 if tail == (submit("fix.diff"),) else 3
    path = tmp_path / "r" / "trajectory.jsonl"
    messages = said(COMMENT, submit("no.diff"), "git checkout -q calc.py && " + FIX, *tail)
    done = attempt(task, messages, path, most=most, steps=steps)
    result = done.trajectory.result
    assert done.trajectory.exit_reason is reason
    assert (result[SUBMISSIONS], len(result["earlier"])) == (2, 1)
    first = decode_patch(result["earlier"][0])
    assert first is not None
    assert b"# no" in first.data
    graded = submission_of(done, grade_unsubmitted=False).patch
    assert graded is not None
    assert b"+    return a + b" in graded.data
    again = Journal(Trajectory("r", task.id, "solver", 0, "m"), tmp_path / "again.jsonl")
    repeated = ReplaySolver(path.parent).solve(task, seed=1, journal=again)
    assert repeated.patch == done.patch
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_a_reply_without_a_call_before_a_submission_is_a_format_error(task: SolverTask, tmp_path: Path) -> None:
    done = attempt(task, said(*[DONE] * 4), tmp_path / "t.jsonl", most=3, tree=True)
    assert done.trajectory.exit_reason is ExitReason.FORMAT
    assert submission_of(done, grade_unsubmitted=False).patch is None


def test_the_settings_are_part_of_the_key() -> None:
    model = ScriptedModel("scripted", said(DONE))
    solver = ModelSolver(model)
    several = replace(solver, submission=SubmissionSettings(most=2))
    files = replace(solver, submission=SubmissionSettings(SubmissionForm.PATCH_FILE))
    assert len({solver.key, several.key, files.key}) == 3
    with pytest.raises(SettingsError, match="--submissions must be at least 1"):
        SubmissionSettings(most=0)


def test_the_options_are_for_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "a", "--solver", "search", "--submit", "patch-file"]) == 2
    assert "--submit is for a model that solves, not for search" in capsys.readouterr().err


@pytest.mark.apptainer
def test_the_second_view_of_the_tree_is_not_hidden(proven: Proven) -> None:
    """A file that is hidden there cannot be replaced in the tree, as `git checkout` and `sed -i` do."""
    runner, visible = without_copies(proven.artifact, replace(proven.runner, provider=load_provider("apptainer")))
    assert [leak for leak in visible if not leak.is_of_library] == []
    assert not [path for path in runner.interpreter.hidden if path.startswith("/ssr-tree")]
