"""The solver `lm:MODEL` with replies from a script: what it asks, what it runs, what it records."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from proven import Proven

from harness.local_models.sampling import Question, Sampled
from harness.models.factory import is_model
from harness.rollouts.player_factory import PlayerFactory, solver_writes_code
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.task import open_task
from harness.solvers.search.solver import CANDIDATES
from harness.solvers.writer.failing_test import failure_of
from harness.solvers.writer.prompt import Failure, reply
from harness.solvers.writer.proposals import SAMPLES, Outcome, WrittenRepairs
from harness.solvers.writer.solver import WriterSolver
from pytest_ssr.errors import SettingsError
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long
REPLIES = (
    reply("    return a - b\n"),
    reply("    return a * b\n"),
    reply("    return (a * b)  # Another one?\n"),
    reply("    return (\n"),
    reply("    return a / b\n").removesuffix(">>>"),
)
RIGHT = reply("    return a + b\n")
BUGGY_LINE = "<<<\n    return a - b\n>>>"


class Scripted:
    """Replies with the repair at its place, after some other replies; elsewhere only with these."""

    key = "scripted"

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.counts: list[int] = []

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        self.questions.append(question)
        self.counts.append(count)
        is_place = BUGGY_LINE in question.messages[0]["content"]
        replies = [*REPLIES, RIGHT] if is_place else list(REPLIES)
        Random(seed).shuffle(replies)
        return Sampled(tuple(replies[:count]), 10 * count)


def attempt(proven: Proven, store: Store, solver: WriterSolver, count: int = 1) -> tuple[list[Any], list[Path]]:
    rollouts = RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store).attempts(count)
    return rollouts, [store.root / "rollouts" / rollout.id for rollout in rollouts]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.bubblewrap
def test_it_repairs_and_the_same_seed_gives_the_same_patch(proven: Proven, tmp_path: Path) -> None:
    first, folders = attempt(proven, Store(tmp_path / "one"), WriterSolver(sampler=Scripted()), 2)
    again, others = attempt(proven, Store(tmp_path / "two"), WriterSolver(sampler=Scripted()), 2)
    assert all(rollout.resolved for rollout in first), [rollout.reason for rollout in first]
    assert [r.patch_sha256 for r in first] == [r.patch_sha256 for r in again]
    for folder, other in zip(folders, others, strict=True):
        assert rows(folder / SAMPLES) == rows(other / SAMPLES)
        assert rows(folder / CANDIDATES) == rows(other / CANDIDATES)
    assert rows(folders[0] / SAMPLES) != rows(folders[1] / SAMPLES)


@pytest.mark.bubblewrap
def test_an_attempt_records_what_was_sampled_and_what_was_run(proven: Proven, tmp_path: Path) -> None:
    (rollout,), (folder,) = attempt(proven, Store(tmp_path / "store"), WriterSolver(sampler=Scripted()))
    sampled, tried = rows(folder / SAMPLES), rows(folder / CANDIDATES)
    outcomes = [Outcome(row["outcome"]) for row in sampled]
    assert outcomes.count(Outcome.CANDIDATE) == len(tried)
    assert tried[-1]["complete"]
    assert {row["pattern"] for row in tried} == {"written"}
    assert sampled[len(sampled) - 1 - outcomes[::-1].index(Outcome.CANDIDATE)]["text"] == RIGHT
    assert {row["path"] for row in sampled} == {"calc.py"}
    (step,) = (event for event in rows(folder / "trajectory.jsonl") if event.get("tool") == "language-model")
    facts = step["arguments"]
    assert facts["sampled"] == len(sampled) == sum(facts[outcome] for outcome in Outcome)
    assert facts["tokens"] >= 10 * len(sampled)
    assert facts["cpu_s"] >= 0
    assert rollout.resolved


def proposals(proven: Proven, folder: Path, samples: int) -> tuple[Scripted, list[str], WrittenRepairs]:
    """Return all repairs of the buggy state, as their texts."""
    solver, sampler = WriterSolver(sampler=Scripted()), Scripted()
    task = open_task(proven.runner, proven.artifact, folder)
    workspace = solver._workspace(task)
    written = WrittenRepairs(workspace, sampler, Random(0), samples, 0.7, failure_of(workspace))
    texts = [repair.edits[0].text.decode() for repair in written.repairs(workspace.original)]
    solver.release(task)
    return sampler, texts, written


@pytest.mark.bubblewrap
def test_repetitions_and_what_is_not_python_are_not_run(proven: Proven, tmp_path: Path) -> None:
    sampler, _, written = proposals(proven, tmp_path / "task", 200)
    at_place = [row for row in written.written if BUGGY_LINE in _asked(sampler, written, row)]
    outcomes = {row["text"]: Outcome(row["outcome"]) for row in at_place[: len(REPLIES) + 1]}
    assert outcomes[REPLIES[0]] is Outcome.UNCHANGED
    assert {outcomes[REPLIES[1]], outcomes[REPLIES[2]]} <= {Outcome.CANDIDATE, Outcome.REPEAT}
    assert Outcome.REPEAT in (outcomes[REPLIES[1]], outcomes[REPLIES[2]])
    assert outcomes[REPLIES[3]] is Outcome.INVALID
    assert outcomes[REPLIES[4]] is Outcome.INCOMPLETE
    later = [Outcome(row["outcome"]) for row in at_place[len(REPLIES) + 1 :]]
    assert Outcome.CANDIDATE not in later


def _asked(sampler: Scripted, written: WrittenRepairs, row: dict[str, Any]) -> str:
    """Return the prompt of a recorded reply."""
    place = next(index for index, each in enumerate(written.written) if each is row)
    sizes = [
        min(count, len(REPLIES) + (BUGGY_LINE in q.messages[0]["content"]))
        for q, count in zip(sampler.questions, sampler.counts, strict=True)
    ]
    for question, size in zip(sampler.questions, sizes, strict=True):
        if place < size:
            return question.messages[0]["content"]
        place -= size
    raise AssertionError


@pytest.mark.bubblewrap
def test_no_more_replies_are_sampled_than_allowed(proven: Proven, tmp_path: Path) -> None:
    sampler, _, written = proposals(proven, tmp_path / "task", 11)
    assert sum(sampler.counts) == 11
    assert written.samples == 0


@pytest.mark.bubblewrap
@pytest.mark.parametrize("shows_failure", [True, False])
def test_the_prompt_tells_of_the_failing_test_if_it_should(shows_failure: bool, proven: Proven, tmp_path: Path) -> None:
    sampler = Scripted()
    attempt(proven, Store(tmp_path / "store"), WriterSolver(sampler=sampler, shows_failure=shows_failure))
    for question in sampler.questions:
        assert ("assert add(1, 2) == 3" in question.messages[0]["content"]) == shows_failure
        assert ("tests/test_calc.py::test_add" in question.messages[0]["content"]) == shows_failure


@pytest.mark.bubblewrap
def test_the_failing_test_is_described(proven: Proven, tmp_path: Path) -> None:
    solver = WriterSolver(sampler=Scripted())
    task = open_task(proven.runner, proven.artifact, tmp_path / "task")
    failure = failure_of(solver._workspace(task))
    solver.release(task)
    assert failure == Failure("tests/test_calc.py::test_add", "assert add(1, 2) == 3", failure.error)
    assert "-1 == 3" in failure.error


def test_other_settings_are_other_attempts() -> None:
    sampler = Scripted()
    solvers = [
        WriterSolver(sampler=sampler),
        WriterSolver(sampler=sampler, tries=7),
        WriterSolver(sampler=sampler, temperature=1.0),
        WriterSolver(sampler=sampler, shows_failure=False),
    ]
    assert len({solver.key for solver in solvers}) == len(solvers)
    assert WriterSolver(sampler=sampler, name="lm:elsewhere").key == solvers[0].key


def test_its_name_is_no_model_of_a_server_and_it_writes_code() -> None:
    assert not is_model("lm:/a/folder")
    assert solver_writes_code("lm:/a/folder")


@pytest.mark.parametrize("name", ["lm", "lm:"])
def test_a_model_has_to_be_named(name: str) -> None:
    with PlayerFactory() as players, pytest.raises(SettingsError) as caught:
        players.solver(name)
    assert caught.value.option == "solver"
