"""The solver `search:writer=MODEL`: turns of listed and written candidates, without repetitions, and what it records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from proven import Proven

from harness.local_models.sampling import Question, Sampled
from harness.records.trajectory import Journal
from harness.rollouts.player_factory import PlayerFactory, solver_writes_code
from harness.rollouts.runner import RolloutRunner
from harness.rollouts.task import open_task
from harness.solvers.search.patterns import Repair
from harness.solvers.search.solver import CANDIDATES, SearchSolver
from harness.solvers.writer.mixed import EVERY, Kind, MixedRepairs, MixedSolver, split_writer
from harness.solvers.writer.prompt import reply
from harness.solvers.writer.proposals import SAMPLES, Outcome, WrittenRepairs
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.syntax_tree import Edit
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long
OPERATORS = ("*", "/", "//", "%", "**", "|", "&", "^", "<<", ">>")
BUGGY = b"return a - b"


@dataclass
class Scripted:
    """Replies with given lines at the place of the bug; elsewhere with what is no code."""

    lines: Sequence[str]
    key: str = "scripted"

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        is_place = "<<<\n    return a - b\n>>>" in question.messages[0]["content"]
        lines = list(self.lines) if is_place else ["("]
        Random(seed).shuffle(lines)
        return Sampled(tuple(reply(f"    {line}\n") for line in lines[:count]), count)


@dataclass
class Listed:
    """Proposes given code in the place of the bug."""

    lines: Sequence[str]

    def repairs(self, base: CodebaseState) -> Iterator[Repair]:
        entry = base.entry("calc.py")
        assert entry is not None
        start = entry.data.index(BUGGY)
        line = entry.data.count(b"\n", 0, start) + 1
        for text in self.lines:
            edits = (Edit(start, start + len(BUGGY), text.encode()),)
            yield Repair("calc.py", "given", 1.0, edits, line, line, (line - 1, line))

    def record(self, journal: Journal, *, solved: bool) -> None:
        pass


def proposed(
    proven: Proven, folder: Path, listed: Sequence[str], written: Sequence[str], replies: int = 40
) -> tuple[list[tuple[bool, str]], MixedRepairs]:
    """Return what is proposed for the buggy state: whether it is written, and the code; the list is not a search's."""
    solver = MixedSolver(sampler=Scripted(written))
    task = open_task(proven.runner, proven.artifact, folder)
    workspace = solver._workspace(task)
    writer = WrittenRepairs(workspace, solver.sampler, Random(0), replies, 0.7, None)
    mixed = MixedRepairs(workspace, Listed(listed), writer)
    found = [
        (repair.pattern == "written", repair.edits[0].text.decode().strip())
        for repair in mixed.repairs(workspace.original)
    ]
    solver.release(task)
    return found, mixed


def returns(names: str, count: int = 12) -> list[str]:
    return [f"return a {sign} {name}" for name in names for sign in OPERATORS][:count]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.bubblewrap
def test_every_fourth_try_is_a_written_one_as_long_as_there_are_replies(proven: Proven, tmp_path: Path) -> None:
    found, mixed = proposed(proven, tmp_path / "task", returns("b"), ["return b / a", "return b * a"])
    kinds = [is_written for is_written, _ in found]
    assert kinds == [place in (EVERY, 2 * EVERY) for place in range(1, len(kinds) + 1)]
    assert mixed.run == {Kind.LISTED: len(OPERATORS), Kind.WRITTEN: 2}
    assert mixed.written.samples == 0


@pytest.mark.bubblewrap
def test_after_the_end_of_the_list_only_written_ones_follow(proven: Proven, tmp_path: Path) -> None:
    found, _ = proposed(proven, tmp_path / "task", returns("b", 1), ["return b / a", "return b * a"])
    assert [is_written for is_written, _ in found] == [False, True, True]


@pytest.mark.bubblewrap
def test_what_was_tried_is_not_proposed_again_by_the_other_kind(proven: Proven, tmp_path: Path) -> None:
    listed = [*returns("b", 4), "return b / a"]
    found, mixed = proposed(proven, tmp_path / "task", listed, ["return (a * b)", "return b/a"])
    assert [(is_written, text.replace(" ", "")) for is_written, text in found] == [
        (False, "returna*b"),
        (False, "returna/b"),
        (False, "returna//b"),
        (True, "returnb/a"),
        (False, "returna%b"),
    ]
    assert mixed.repeats == {Kind.WRITTEN: 1, Kind.LISTED: 1}
    outcomes = {row["text"]: Outcome(row["outcome"]) for row in mixed.written.written if "(a" in row["text"]}
    assert outcomes == {reply("    return (a * b)\n"): Outcome.REPEAT}


def attempt(proven: Proven, store: Store, solver: SearchSolver) -> tuple[Any, Path]:
    (rollout,) = RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, store).attempts(1)
    return rollout, store.root / "rollouts" / rollout.id


def steps(folder: Path, name: str) -> list[dict[str, Any]]:
    return [event["arguments"] for event in rows(folder / "trajectory.jsonl") if event.get("tool") == name]


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("lines", "kind"),
    [(["return a + b"], Kind.WRITTEN), (["return a / b", "return a * b"], Kind.LISTED)],
)
def test_an_attempt_records_which_kind_solved_it(lines: list[str], kind: Kind, proven: Proven, tmp_path: Path) -> None:
    rollout, folder = attempt(proven, Store(tmp_path / "store"), MixedSolver(sampler=Scripted(lines)))
    assert rollout.resolved
    (facts,), tried = steps(folder, "mixture"), rows(folder / CANDIDATES)
    is_written = [row["pattern"] == "written" for row in tried]
    assert facts["run_written"] == sum(is_written)
    assert facts["run_listed"] == len(tried) - sum(is_written)
    assert facts["sampled"] == len(rows(folder / SAMPLES))
    assert is_written[-1] == (kind is Kind.WRITTEN)
    assert facts["solved_by"] == kind


@pytest.mark.bubblewrap
def test_an_attempt_that_solves_nothing_records_no_kind(proven: Proven, tmp_path: Path) -> None:
    rollout, folder = attempt(proven, Store(tmp_path / "store"), MixedSolver(2, sampler=Scripted([])))
    assert not rollout.resolved
    (facts,) = steps(folder, "mixture")
    assert facts["solved_by"] == ""
    assert facts["run_listed"] == len(rows(folder / CANDIDATES))


@pytest.mark.bubblewrap
def test_the_same_seed_gives_the_same_patch(proven: Proven, tmp_path: Path) -> None:
    results = [
        attempt(proven, Store(tmp_path / name), MixedSolver(sampler=Scripted([*returns("b"), "return a + b"])))
        for name in ("one", "two")
    ]
    assert len({rollout.patch_sha256 for rollout, _ in results}) == 1
    assert rows(results[0][1] / CANDIDATES) == rows(results[1][1] / CANDIDATES)


@pytest.mark.bubblewrap
def test_the_list_is_that_of_the_search_without_a_writer(proven: Proven, tmp_path: Path) -> None:
    _, alone = attempt(proven, Store(tmp_path / "one"), SearchSolver(12))
    _, mixed = attempt(proven, Store(tmp_path / "two"), MixedSolver(12, sampler=Scripted(returns("a"))))
    listed = [row for row in rows(mixed / CANDIDATES) if row["pattern"] != "written"]
    assert listed
    assert rows(alone / CANDIDATES)[: len(listed)] == listed
    assert not steps(alone, "mixture")


def test_another_model_or_setting_is_another_attempt() -> None:
    one, two = Scripted([]), Scripted([], "another")
    solvers = [
        SearchSolver(),
        MixedSolver(sampler=one),
        MixedSolver(sampler=two),
        MixedSolver(7, sampler=one),
        MixedSolver(sampler=one, shows_failure=False),
    ]
    assert len({solver.key for solver in solvers}) == len(solvers)
    assert MixedSolver(sampler=one, name="search:writer=elsewhere").key == solvers[1].key


@pytest.mark.parametrize(
    ("name", "search", "model"),
    [
        ("search", "search", ""),
        ("search:policy=a", "search:policy=a", ""),
        ("search:writer=b", "search", "b"),
        ("search:policy=a,writer=b", "search:policy=a", "b"),
        ("search:policy=a,lm=c,writer=b", "search:policy=a,lm=c", "b"),
        ("lm:a,writer=b", "lm:a,writer=b", ""),
    ],
)
def test_the_writer_is_the_last_part_of_the_name(name: str, search: str, model: str) -> None:
    assert split_writer(name) == (search, model)
    if model:
        assert solver_writes_code(name)


@pytest.mark.parametrize("name", ["search:writer=", "search:policy=a,writer=", "search:writer=/no/such/model"])
def test_a_missing_model_is_a_mistake_of_the_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.local_models.weights.require_extra", lambda: None)
    monkeypatch.setattr("harness.rollouts.player_factory.load_policy", lambda *_: None)
    with PlayerFactory() as players, pytest.raises(SettingsError) as caught:
        players.solver(name)
    assert caught.value.option == "solver"
