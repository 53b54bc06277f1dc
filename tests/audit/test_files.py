"""The files of an audit: cards that are read back, damaged ones, CSV for spreadsheets, and which tasks pass."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from audit_cards import blunt, clean, sharpness, unaudited, unsound, write_cards

from harness.audit.card import Card, Cost, Narrowness, Sealing, Unsound
from harness.audit.files import CARDS, choice_of, csv_text, read_cards, write_csv
from harness.records.task_choice import ChoiceCounts, LeftOut
from pytest_ssr.errors import SettingsError

BUG = "0123456789abcdef0123"
ALL = [clean(), unsound(), blunt(), unaudited(), clean("e-5", sharp=sharpness(0, equivalent=1))]


def test_cards_are_read_from_a_file_and_from_a_folder(tmp_path: Path) -> None:
    file = write_cards(tmp_path / "audit" / CARDS, ALL)
    assert read_cards(file) == read_cards(file.parent) == {card.task: card for card in ALL}


def test_of_two_cards_of_a_task_the_last_counts(tmp_path: Path) -> None:
    file = write_cards(tmp_path / CARDS, [unsound("a-1"), clean("a-1")])
    assert read_cards(file) == {"a-1": clean("a-1")}


@pytest.mark.parametrize("damage", ["{", "[]", "{}", json.dumps({"schema_version": 99, "task": "a"}), "\ud800"])
def test_a_damaged_line_is_named(tmp_path: Path, damage: str) -> None:
    file = write_cards(tmp_path / CARDS, ALL)
    with file.open("a", encoding="utf-8", errors="surrogatepass") as lines:
        lines.write(f"\n{damage}\n")
    with pytest.raises(SettingsError) as raised:
        read_cards(file)
    assert raised.value.option == "audit"
    assert str(file) in str(raised.value)
    if damage != "\ud800":
        assert f"line {len(ALL) + 2}" in str(raised.value)


def test_a_missing_or_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CARDS).write_text("\n")
    for path in (tmp_path / "missing", tmp_path / CARDS, tmp_path):
        with pytest.raises(SettingsError) as raised:
            read_cards(path)
        assert raised.value.option == "audit"


def rows(cards: list[Card]) -> list[dict[str, str]]:
    return list(csv.DictReader(csv_text(cards).splitlines()))


def test_csv_has_a_column_per_figure(tmp_path: Path) -> None:
    write_csv(tmp_path / "cards.csv", ALL)
    assert (tmp_path / "cards.csv").read_bytes().decode() == csv_text(ALL)
    good, bad, weak, missing, unsure = rows(ALL)
    assert (good["sound"], good["sharpness"], good["forgeries_accepted"], good["grade_s"]) == (
        "yes",
        "1.0",
        "0",
        "1.25",
    )
    assert (bad["sound"], bad["unsound_because"], bad["unsteady"]) == ("no", "unsteady", "1")
    assert bad["unsteady_tests"] == "tests/test_shop.py::test_now (clock)"
    assert (weak["noticed"], weak["survived"], weak["not_reached"], weak["counted"]) == ("6", "3", "1", "10")
    assert (weak["equivalent"], weak["undecided"], weak["proven"], weak["planned"]) == ("2", "1", "2", "40")
    assert (weak["unknown_names"], weak["names"]) == ("1", "secret_name")
    assert (weak["forgeries_tried"], weak["accepted"], weak["leaks"]) == ("2", "exit-early", "git-history")
    assert missing["problem_code"] == "instance-unusable"
    assert {name for name, value in missing.items() if value} == {"task", "repo", "problem_code", "problem"}
    assert (unsure["counted"], unsure["sharpness"], unsure["sharpness_low"]) == ("0", "", "")


def test_what_is_unknown_is_empty_in_csv() -> None:
    (row,) = rows([clean(narrow=Narrowness(is_known=False), sealed=Sealing(), cost=Cost())])
    empty = ("unknown_names", "names", "forgeries_accepted", "accepted", "ours_accepted", "grade_s", "audit_cpu_s")
    assert [row[name] for name in empty] == [""] * len(empty)


def test_csv_holds_no_formulas_and_no_second_line() -> None:
    hostile = '=HYPERLINK("x")\n@\x1b[31m'
    (row,) = rows([clean(hostile, repo="\ud800+1", family="@x")])
    assert row["task"].startswith("'=")
    assert (row["repo"], row["family"]) == ("\ufffd+1", "'@x")


def test_what_is_not_known_to_be_good_does_not_pass() -> None:
    choice = choice_of({card.task: card for card in ALL}, 0.6)
    found = [choice.problem(card.task) for card in ALL]
    assert found == [None, LeftOut.NOT_SOUND, None, LeftOut.NOT_AUDITED, LeftOut.SHARPNESS_UNKNOWN]
    assert choice.problem("other-9") is LeftOut.NOT_AUDITED
    assert [choice.reason(card.task) for card in ALL] == found
    sharper = choice_of({card.task: card for card in ALL}, 0.61)
    assert sharper.problem(ALL[2].task) is LeftOut.NOT_SHARP
    assert choice_of({"a-1": clean("a-1")}, 1.0).problem("a-1") is None, "the least sharpness itself passes"


def test_without_a_least_sharpness_only_unsound_tasks_are_left_out() -> None:
    choice = choice_of({card.task: card for card in ALL})
    counts = ChoiceCounts(choice)
    kept = [card.task for card in [*ALL, Card("other-9")] if counts.keeps(card.task)]
    assert kept == [ALL[0].task, ALL[2].task, ALL[3].task, ALL[4].task, "other-9"]
    assert choice.problem(ALL[3].task) is LeftOut.NOT_AUDITED, "it is kept, and does not pass"
    assert (counts.total, counts.kept, counts.unknown, dict(counts.left_out)) == (6, 5, 2, {LeftOut.NOT_SOUND: 1})
    assert counts.to_json() == {
        "min_sharpness": None,
        "kept": 5,
        "kept_without_audit": 2,
        "left_out": {"not-sound": 1},
    }


def test_the_card_of_a_bug_s_row_counts_for_the_bug() -> None:
    row = unsound(f"ssr__shop-{BUG}", Unsound.EMPTY_RESOLVES)
    choice = choice_of({row.task: row})
    assert choice.problem(BUG) is choice.problem("", row.task) is LeftOut.NOT_SOUND
    assert choice_of({"django__django-12345": clean()}).find("12345") is None
