"""Every sampled token is trained on exactly once, in a sequence exactly as the server saw it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rollout_parts import Several, played, record, rows

from harness.exporters.protocol import Choices
from harness.exporters.record import Record
from harness.exporters.record_builder import RolloutContext, record_of
from harness.exporters.sft import BC, SFT_TOKENS
from harness.exporters.skipped import SkipCode
from harness.exporters.tokens import IGNORED, segments, steps
from harness.records.messages import ASSISTANT, USER, Message, Usage
from harness.records.trajectory import ExitReason, Journal, ModelCall, Trajectory

TOKEN = st.integers(0, 6)
TURN = st.fixed_dictionaries(
    {
        "how": st.sampled_from(("on", "on", "on", "drifted", "shortened", "lost", "restarted")),
        "tail": st.lists(TOKEN, max_size=4),
        "reply": st.lists(TOKEN, max_size=5),
        "cut": st.integers(0, 8),
        "trainable": st.sampled_from((True, True, True, False)),
        "ids": st.sampled_from((True, True, True, True, False)),
    }
)


def rolled(turns: list[dict[str, Any]]) -> tuple[Trajectory, list[tuple[tuple[int, ...], tuple[int, ...], bool]]]:
    """Return a rollout whose prompts continue, drift, shrink or restart, and its calls with tokens as the server saw them."""
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    journal.message(Message(USER, "go"))
    previous: list[int] = [1]
    seen = []
    for i, turn in enumerate(turns):
        tail, cut = turn["tail"], turn["cut"]
        prompt = {
            "on": [*previous, *tail],
            "drifted": [*previous[:cut], 9, *previous[cut + 1 :], *tail],
            "shortened": [*previous[: max(1, len(previous) - cut)], *tail],
            "lost": [*previous[:1], *previous[1 + cut :], *tail],
            "restarted": [8, *tail],
        }[turn["how"]]
        index = journal.message(Message(ASSISTANT, str(i)))
        ids = tuple(turn["reply"]) if turn["ids"] else None
        logprobs = None if ids is None else tuple(-float(n + 1) for n, _ in enumerate(ids))
        prompt_ids = tuple(prompt) if turn["ids"] else None
        call = ModelCall(i, (0,), index, "stop", Usage(), None, 0.0, "", prompt_ids, ids, logprobs, turn["trainable"])
        journal.call(call)
        if ids is not None:
            seen.append((tuple(prompt), ids, turn["trainable"]))
        previous = [*prompt, *turn["reply"]]
    return journal.end(ExitReason.SUBMITTED), seen


def read(rollout: Trajectory) -> Record:
    return record_of(rollout, RolloutContext(reward=1.0))


@given(st.lists(TURN, max_size=8))
def test_each_sampled_token_is_trained_on_once_in_a_sequence_that_the_server_saw(turns: list[dict[str, Any]]) -> None:
    rollout, seen = rolled(turns)
    sequences = list(segments(read(rollout)))
    # By call and token, the number of times it is trained on.
    trained: Counter[tuple[int, int]] = Counter()
    for segment in sequences:
        assert len(segment.ids) == len(segment.mask) == len(segment.logprobs) == len(segment.labels)
        position = 0
        for call in segment.calls:
            prompt, ids, is_trained = next(s for n, s in zip(with_ids(turns), seen, strict=True) if n == call.i)
            # The tokens before a reply are its prompt, exactly.
            assert tuple(segment.ids[: len(prompt)]) == prompt
            assert tuple(segment.ids[len(prompt) : len(prompt) + len(ids)]) == ids
            assert not any(segment.mask[position : len(prompt)])
            assert segment.mask[len(prompt) : len(prompt) + len(ids)] == [int(is_trained)] * len(ids)
            for n in range(len(ids)):
                if is_trained:
                    trained[call.i, n] += 1
                    assert segment.logprobs[len(prompt) + n] == -float(n + 1)
            position = len(prompt) + len(ids)
        assert position == len(segment.ids)
        assert all(p == 0.0 for p, m in zip(segment.logprobs, segment.mask, strict=True) if not m)
        assert segment.labels == [i if m else IGNORED for i, m in zip(segment.ids, segment.mask, strict=True)]
        assert segment.trained
        assert segment.prompt_len >= 1
    expected = {(i, n) for i, s in zip(with_ids(turns), seen, strict=True) if s[2] for n in range(len(s[1]))}
    assert set(trained) == expected
    assert set(trained.values()) <= {1}


@given(st.lists(TURN, max_size=8))
def test_a_step_is_the_exact_prompt_and_its_reply(turns: list[dict[str, Any]]) -> None:
    rollout, seen = rolled(turns)
    expected = [(p, ids) for p, ids, trainable in seen if trainable and ids]
    actual = [(tuple(s.ids[: s.prompt_len]), tuple(s.ids[s.prompt_len :])) for s in steps(read(rollout))]
    assert actual == expected
    assert all(s.mask == [0] * s.prompt_len + [1] * (len(s.ids) - s.prompt_len) for s in steps(read(rollout)))


@given(st.lists(TURN, max_size=8))
def test_prompts_are_restored_from_their_new_tokens(turns: list[dict[str, Any]]) -> None:
    rollout, seen = rolled(turns)
    assert [tuple(p) for _, p in read(rollout).prompts() if p is not None] == [p for p, _, _ in seen]


def test_log_probabilities_of_unknown_tokens_are_not_damage() -> None:
    """Servers without token ids may return them, and earlier releases recorded them."""
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    journal.message(Message(USER, "go"))
    journal.message(Message(ASSISTANT, "gone"))
    journal.call(ModelCall(0, (0,), 1, "stop", Usage(5, 2), None, 0.0, "", None, None, (-0.5, -0.5)))
    group = Several([read(journal.end(ExitReason.SUBMITTED))])
    assert [row["completion"][0]["content"] for row in BC.rows(group, Choices())] == ["gone"]
    assert not list(SFT_TOKENS.rows(group, Choices()))
    assert group.codes == [SkipCode.NO_IDS]


def with_ids(turns: list[dict[str, Any]]) -> list[int]:
    return [i for i, turn in enumerate(turns) if turn["ids"]]


def test_tool_output_is_masked_and_sampled_tokens_are_not() -> None:
    (row,) = rows(SFT_TOKENS, record(played(commands=("ls", "make"))))
    text = bytes(row["input_ids"]).decode()
    trained = bytes(label for label in row["labels"] if label != IGNORED).decode()
    assert text.startswith("<system>be brief</><user>repair t1</><assistant>é!")
    assert "output of ls" in text
    assert trained == 'é![["bash", "{\\"command\\": \\"ls\\"}"]]</>é![["bash", "{\\"command\\": \\"make\\"}"]]</>'
    # Output after the last reply was never in a prompt.
    assert not text.endswith("output of make</>")
    assert row["on_policy"] is True


def test_the_size_of_a_record_is_linear_in_its_tokens() -> None:
    def stored_ids(turns: int) -> int:
        calls = record(played(commands=[f"c{n:03}" for n in range(turns)])).data["calls"]
        return sum(len(c["prompt_suffix_ids"]) + len(c["token_ids"]) for c in calls)

    assert stored_ids(80) < 2.1 * stored_ids(40)


def test_without_ids_there_is_no_row_but_a_reason() -> None:
    from rollout_parts import Several

    from harness.exporters.protocol import Choices

    group = Several([record(played(ids=False)), record(played("r2", sampled=False))])
    assert list(SFT_TOKENS.rows(group, Choices())) == []
    assert [(w, e.split(":")[0]) for w, e in group.left] == [
        ("r1", "the server returned no token ids"),
        ("r2", "none of its replies was sampled"),
    ]
