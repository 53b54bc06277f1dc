"""The injector `lm:MODEL` with replies from a script: what it draws, what it drops, what it records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.injectors import lm
from harness.injectors.lm import MOST_FRUITLESS, TOGETHER, LmInjector, lm_injectors, lm_names
from harness.local_models.sampling import Question, Sampled
from harness.local_models.stored_sampler import StoredSampler
from harness.rollouts.player_factory import injector_writes_code
from harness.selfplay.curriculum import Curriculum, Table
from harness.solvers.writer.proposals import Outcome
from pytest_ssr.campaign import factory
from pytest_ssr.campaign.candidate_order import spread
from pytest_ssr.campaign.measured_snapshot import MeasuredSnapshot
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.injectors.protocol import Candidate, MeasuredTree, ahead_of
from pytest_ssr.injectors.revision_filter import ProjectDiff
from pytest_ssr.source.skip_comments import skipped_lines
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import is_trusted

CODE = """\
def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


def half(x):
    return x // 2  # Rounded down.


def never(x):
    return x * 3
"""
TESTS = """\
from shapes import clamp, half


def test_clamp():
    assert clamp(1, 2, 4) == 2
    assert clamp(9, 2, 4) == 4


def test_half():
    assert half(5) == 2
"""


@dataclass
class Scripted:
    """Replies with the lines that it is shown: as they are, changed, invalid and cut off."""

    signs: Sequence[tuple[str, str]] = (("<", ">="), (">", "<="), ("//", "%"), ("return", "return 1 +"))
    key: str = "scripted"
    questions: list[Question] = field(default_factory=list)

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        self.questions.append(question)
        lines = shown(question)
        changed = [lines.replace(old, new) for old, new in self.signs]
        replies = [f"<<<\n{text}>>>" for text in (lines, *changed, *changed, "    (\n")]
        Random(seed).shuffle(replies)
        return Sampled(("<<<\n    cut", *replies)[:count], count)


def shown(question: Question) -> str:
    """Return the lines between the marks of a prompt."""
    return question.messages[0]["content"].partition("\n\n")[2].partition("<<<\n")[2].partition(">>>")[0]


class Tree:
    """A tree with one file."""

    origin = None

    def paths(self) -> Sequence[str]:
        return ("code.py",)

    def code_paths(self) -> Sequence[str]:
        return ("code.py",)

    def read(self, path: str) -> bytes:
        return CODE.encode()


class Measured(Tree):
    """A tree of which only one line may have bugs."""

    def may_count(self, path: str, first: int, last: int) -> bool:
        return first <= 6 <= last


def drawn(tree: Tree, sampler: Scripted, seed: int = 0) -> tuple[list[Candidate], LmInjector]:
    injector = LmInjector("lm:scripted", sampler)
    return list(injector.candidates(tree, seed=seed)), injector


def test_candidates_are_other_code_and_the_rest_is_counted() -> None:
    sampler = Scripted()
    candidates, injector = drawn(Tree(), sampler)
    assert candidates
    assert len({c.changes["code.py"] for c in candidates}) == len(candidates)
    for candidate in candidates:
        data = candidate.changes["code.py"]
        assert data is not None
        compile(data, "code.py", "exec")
        assert data != CODE.encode()
    assert injector.counts[Outcome.CANDIDATE] == len(candidates)
    assert injector.counts.total() == len(sampler.questions) * TOGETHER
    assert all(injector.counts[outcome] for outcome in Outcome)
    assert injector.to_json()["sampled"] == injector.counts.total()


def test_the_same_seed_gives_the_same_candidates() -> None:
    first, again, other = (drawn(Tree(), Scripted(), seed)[0] for seed in (0, 0, 1))
    assert first == again
    assert [c.changes for c in first] != [c.changes for c in other]


def test_functions_take_turns() -> None:
    sampler = Scripted()
    drawn(Tree(), sampler)
    texts = [question.messages[0]["content"].replace("<<<\n", "") for question in sampler.questions]
    assert {text.partition("\n\ndef ")[2].partition("(")[0] for text in texts[:3]} == {"clamp", "half", "never"}


def test_a_candidate_says_what_the_model_was_shown_and_what_it_wrote() -> None:
    candidates, _ = drawn(Tree(), Scripted())
    original = CODE.splitlines(keepends=True)
    for candidate in candidates:
        facts = candidate.provenance
        first, last = facts["region"]
        written = facts["reply"].removeprefix("<<<\n").removesuffix(">>>")
        made = "".join(original[: first - 1]) + written + "".join(original[last:])
        assert candidate.changes["code.py"] == made.encode()
        assert (facts["model"], facts["model_key"]) == ("lm:scripted", "scripted")


def test_only_regions_on_which_bugs_may_count_are_rewritten() -> None:
    assert isinstance(Measured(), MeasuredTree)
    assert not isinstance(Tree(), MeasuredTree)
    sampler = Scripted()
    candidates, _ = drawn(Measured(), sampler)
    assert {candidate.scope for candidate in candidates} == {"clamp"}
    assert all("return x" in shown(question) for question in sampler.questions)


def test_a_model_that_writes_no_bug_is_asked_no_longer() -> None:
    sampler = Scripted(signs=())
    with pytest.raises(ProjectError):
        drawn(Tree(), sampler)
    assert 0 < len(sampler.questions) <= MOST_FRUITLESS


def test_another_model_makes_another_campaign() -> None:
    one, two = (LmInjector("lm:scripted", Scripted(key=key)) for key in ("one", "two"))
    assert one.depends_on(Tree()) != two.depends_on(Tree())


def test_replies_that_a_store_has_are_not_sampled_again(tmp_path: Path) -> None:
    question = Question([{"role": "user", "content": "x\n\n<<<\na = 1\n>>>"}], "<<<", "\n>>>")
    how: dict[str, Any] = {"count": 3, "temperature": 0.7, "tokens": 9}
    first, second = Scripted(), Scripted()
    replies = StoredSampler(first, tmp_path / "store").sample(question, **how, seed=1)
    assert StoredSampler(second, tmp_path / "store").sample(question, **how, seed=1) == replies
    assert not second.questions
    StoredSampler(second, tmp_path / "store").sample(question, **how, seed=2)
    StoredSampler(Scripted(key="other"), tmp_path / "store").sample(question, **how, seed=1)
    assert len(second.questions) == 1


def test_a_slow_injector_limits_how_many_candidates_are_drawn_ahead() -> None:
    taken: list[int] = []

    def candidates() -> Any:
        for number in range(20):
            taken.append(number)
            yield Candidate("lm", "o", {"a.py": b"%d" % number}, "a.py", number, "f")

    ahead = ahead_of([LmInjector("lm:scripted", Scripted())], 64)
    next(spread(candidates(), lambda _: 1, ahead))
    assert len(taken) == ahead < 20
    assert ahead_of([], 64) == 64
    assert Curriculum([LmInjector("lm:scripted", Scripted())], Table(8)).ahead == ahead


def test_where_bugs_may_count(tmp_path: Path) -> None:
    reach = CoverageMap(("test",), {"code.py": {(2, 4): 1, (3, 4): 0, (5, 4): 1, (6, 4): 1}})
    diff = ProjectDiff("0" * 40, {"code.py": ((0, 5),)})
    skipped = {"code.py": skipped_lines("code.py", b"x = 1\ndef f():  # ssr: skip\n    pass\n")}
    base = tmp_path, {}, "hash", tmp_path, None
    whole = MeasuredSnapshot(*base, reach)
    assert [line for line in range(1, 7) if whole.may_count("code.py", line, line)] == [2, 5, 6]
    assert whole.may_count("code.py", 3, 5)
    assert whole.may_count("unwatched.py", 1, 1)
    restricted = MeasuredSnapshot(*base, reach, diff)
    assert [line for line in range(1, 7) if restricted.may_count("code.py", line, line)] == [2, 5]
    assert not restricted.may_count("unwatched.py", 1, 1)
    excluded = MeasuredSnapshot(*base, reach, skipped=skipped)
    assert [line for line in range(1, 7) if excluded.may_count("code.py", line, line)] == [5, 6]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "shapes.py").write_text(CODE)
    (folder / "conftest.py").write_text("")
    (folder / "test_shapes.py").write_text(TESTS)
    return folder


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Return the model that every name stands for."""
    scripted = Scripted()
    monkeypatch.setattr(lm, "open_sampler", lambda name, *, option: scripted)
    return scripted


def run(project: Path, store: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    arguments = ["inject", str(project), "--injector", "lm:/a/folder/model", "--store", str(store), "--json"]
    assert main([*arguments, "--count", "2", *options]) == ExitCode.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.long
@pytest.mark.bubblewrap
def test_proven_bugs_are_stored_with_their_origin(
    project: Path,
    tmp_path: Path,
    sampler: Scripted,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[bool] = []
    choose = factory.choose

    def recorded(name: str, *, model_written: bool = False, **more: Any) -> Any:
        chosen.append(model_written)
        return choose(name, model_written=model_written, **more)

    monkeypatch.setattr(factory, "choose", recorded)
    found = run(project, tmp_path / "one", capsys)
    assert chosen == [True]
    (replies,) = found["replies"]
    assert replies["model"] == "lm:model"
    assert replies["sampled"] == sum(replies[outcome] for outcome in Outcome) > 0
    assert not any("def never" in question.messages[0]["content"] for question in sampler.questions)
    store = Store(tmp_path / "one")
    ids = store.artifact_ids()
    assert len(ids) == 2
    for artifact_id in ids:
        injector = store.artifact(artifact_id).info["injector"]
        assert (injector["model"], injector["model_key"]) == ("lm:model", "scripted")
        assert injector["reply"].startswith("<<<\n")
        assert injector["region"][0] <= injector["line"] <= injector["region"][1]
        assert not is_trusted(store, store.root / "artifacts" / artifact_id)


@pytest.mark.long
@pytest.mark.bubblewrap
def test_jobs_change_nothing_and_a_second_run_samples_nothing(
    project: Path, tmp_path: Path, sampler: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    run(project, tmp_path / "one", capsys)
    run(project, tmp_path / "two", capsys, "--jobs", "2")
    ids = [Store(tmp_path / name).artifact_ids() for name in ("one", "two")]
    assert ids[0] == ids[1]
    sampler.questions.clear()
    run(project, tmp_path / "one", capsys)
    assert not sampler.questions


def test_names() -> None:
    assert lm_names("mutation, lm:a/b,lm:smollm2") == ["lm:a/b", "lm:smollm2"]
    assert lm_names("mutation") == []
    assert not injector_writes_code("lm:openai/model")


@pytest.mark.parametrize("name", ["lm", "lm:", "lm:/no/such/model"])
def test_a_missing_model_is_a_mistake_of_the_user(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.local_models.weights.require_extra", lambda: None)
    with pytest.raises(SettingsError) as caught:
        lm_injectors(f"mutation,{name}", tmp_path)
    assert caught.value.option == "injector"


@pytest.mark.parametrize("command", [["inject"], ["play", "--solver", "search"]])
def test_a_cluster_is_refused(command: list[str], project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = command
    assert main([name, str(project), *options, "--injector", "lm:smollm2", "--ray", "auto"]) == ExitCode.USAGE
    assert "--ray" in capsys.readouterr().err
