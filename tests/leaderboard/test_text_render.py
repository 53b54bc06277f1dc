"""Untrusted text is shown in every format and interpreted in none."""

from __future__ import annotations

import csv
import html
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from board_parts import HOSTILE, board, episode, outcomes, results_only, store
from markdown_it import MarkdownIt

from harness.cli.main import main
from harness.leaderboard.board import Board
from harness.leaderboard.escaping import for_csv, for_markdown, short, shown
from harness.leaderboard.page import page
from harness.leaderboard.plots import plots, render
from harness.leaderboard.text_render import csv_tables, lines, markdown
from pytest_ssr.records.reasons import Flag, FlagCode

FORMULA = "$_{$"


@pytest.fixture
def hostile(tmp_path: Path) -> Board:
    """Names with special meaning in a page, a table, a spreadsheet, a terminal and a plot."""
    letters = {HOSTILE: "r", "a__b-1": "i", "@sum": "r", "a__b-2": "u"}
    results = outcomes(HOSTILE, letters, flags=(Flag(FlagCode.TESTS_RESTORED, (HOSTILE,)),))
    results += outcomes("-1+1", {HOSTILE: "u", "@sum": "r", "a__b-2": "u"}) + outcomes(FORMULA, letters)
    bugs = [episode(n, strategy=HOSTILE, project=HOSTILE, solvers={FORMULA: "ru", HOSTILE: "u"}) for n in range(2)]
    return board(results_only(tmp_path / "r", results), store(tmp_path / "s", bugs))


def test_csv_contains_no_formulas(hostile: Board) -> None:
    for name, text in csv_tables(hostile.to_json()).items():
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len({len(row) for row in rows}) == 1
        for cell in (cell for row in rows for cell in row):
            number = cell.replace(".", "", 1).replace("e-", "", 1).lstrip("-").isdigit()
            assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), (name, cell)
    solvers = list(csv.DictReader(io.StringIO(csv_tables(hostile.to_json())["solvers"], newline="")))
    assert {row["solver"] for row in solvers} == {f"'{HOSTILE}", "'-1+1", FORMULA}


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", " =1", "\r=1", "\uff1d1"])
def test_formulas_are_escaped_in_csv(text: str) -> None:
    assert for_csv(text) == f"'{text}"
    assert for_csv(f"a{text}") == f"a{text}"


def test_markdown_is_a_table_of_text(hostile: Board) -> None:
    text = markdown(hostile)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    inline = [t for token in tokens for t in (token.children or ())]
    assert {t.type for t in inline} <= {"text", "strong_open", "strong_close", "text_special"}
    assert not [t for t in tokens if t.type.startswith(("html", "fence", "code"))]
    rows = [line for line in text.split("## Tasks")[1].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    read = MarkdownIt("commonmark").enable("table").render(text)
    assert html.escape(shown(HOSTILE)) in read, "the text itself is unchanged"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_page_has_only_its_own_elements_and_script(hostile: Board) -> None:
    text = page(hostile, title=HOSTILE)
    tags = _Tags()
    tags.feed(text)
    assert not [t for t in tags.tags if t[0] in ("img", "iframe", "object", "a", "link", "base", "form")]
    assert [t[0] for t in tags.tags].count("script") == 1
    assert not [a for _, attributes in tags.tags for a in attributes if a.startswith("on")]
    # The only links are those of plots to their own marks.
    assert all(
        v and v.startswith("#") for _, a in tags.tags for k, v in a.items() if k in ("href", "xlink:href", "src")
    )
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "https://" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_ids_of_a_page_are_unique(hostile: Board) -> None:
    tags = _Tags()
    tags.feed(page(hostile))
    ids = [a["id"] for _, a in tags.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = [v[1:] for _, a in tags.tags for k, v in a.items() if k == "xlink:href" and v]
    assert used
    assert set(used) <= set(ids)


@pytest.mark.long
def test_plots_are_reproducible_and_accept_any_name(hostile: Board) -> None:
    all_plots = list(plots(hostile))
    assert {p.name for p in all_plots} == {"cost", "difficulty", "agreement", "abilities"}
    for plot in all_plots:
        svg = render(plot, kind="svg").data
        assert svg == render(plot, kind="svg").data
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert render(plot, kind="pdf").data.startswith(b"%PDF-")
        assert render(plot, kind="pdf").data == render(plot, kind="pdf").data


def test_lines_for_a_terminal_are_printable(hostile: Board) -> None:
    printed = [line for _, line in lines(hostile)]
    assert all(line.isprintable() for line in printed)
    assert any("\\u202e" in line for line in printed)


def test_a_board_is_plain_json(hostile: Board) -> None:
    data = json.loads(json.dumps(hostile.to_json(), allow_nan=False))
    assert {row["solver"] for row in data["solvers"]} == {HOSTILE, "-1+1", FORMULA}


def test_escaping_of_special_characters() -> None:
    assert shown("a\nb\u202ec\x1b") == "a\\u000ab\\u202ec\\u001b"
    assert short("abcdef", 4) == "abc…"
    assert for_markdown("a_b|c*`<>[x](y)\nhttp://x www.x.y - -1") == (
        "a&#95;b&#124;c&#42;&#96;&#60;&#62;&#91;x&#93;(y)&#92;u000ahttp&#58;//x www&#46;x.y &#45; &#45;1"
    )


def test_tables_of_an_earlier_board_are_removed(tmp_path: Path) -> None:
    run, table = results_only(tmp_path / "run", outcomes("m", {"a__b-1": "r", "a__b-2": "u"})), tmp_path / "b.csv"
    assert main(["leaderboard", str(run), "--csv", str(table)]) == 0
    assert (tmp_path / "b.tasks.csv").exists()
    bugs = store(tmp_path / "s", [episode(0)])
    assert main(["leaderboard", str(bugs), "--csv", str(table)]) == 0
    assert not (tmp_path / "b.tasks.csv").exists()
    assert (tmp_path / "b.injectors.csv").exists()


def test_a_table_without_solvers_is_its_header(tmp_path: Path) -> None:
    table = tmp_path / "b.csv"
    assert main(["leaderboard", str(store(tmp_path / "s", [episode(0)])), "--csv", str(table)]) == 0
    ungraded = csv_tables(board(results_only(tmp_path / "run", outcomes("m", {"a__b-1": "i"}))).to_json())
    assert table.read_bytes().decode() == ungraded["solvers"].splitlines(keepends=True)[0]


def test_only_our_own_tables_are_removed(tmp_path: Path) -> None:
    letters = {"a__b-1": "r", "a__b-2": "u"}
    runs = [results_only(tmp_path / name, outcomes(name, letters)) for name in ("m", "n")]
    bugs, empty = store(tmp_path / "s", [episode(0)]), store(tmp_path / "t", [episode(0)])
    table, others = tmp_path / "b.csv", ("injectors", "comparisons", "agreement", "tasks")
    assert main(["leaderboard", *map(str, (*runs, bugs)), "--csv", str(table)]) == 0
    assert [(tmp_path / f"b.{name}.csv").exists() for name in others] == [True] * 4
    assert main(["leaderboard", str(empty), "--csv", str(table)]) == 0
    assert [(tmp_path / f"b.{name}.csv").exists() for name in others] == [True, False, False, False]
    assert main(["leaderboard", str(runs[0]), "--csv", str(table)]) == 0
    assert [(tmp_path / f"b.{name}.csv").exists() for name in others] == [False, False, False, True]
    (tmp_path / "b.tasks.csv").write_text("my notes")
    assert main(["leaderboard", str(empty), "--csv", str(table)]) == 0
    assert (tmp_path / "b.tasks.csv").read_text() == "my notes"


@pytest.mark.parametrize(("field", "value"), [("tokens", 10**400), ("tokens", 2**63), ("cost_usd", 1e308)])
def test_a_number_too_large_for_tables_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: float
) -> None:
    run = results_only(tmp_path / "run", outcomes("m", {"a__b-1": "r"}))
    (path,) = run.rglob("results.jsonl")
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}) + "\n")
    assert main(["leaderboard", str(run)]) == 2
    assert "results.jsonl" in capsys.readouterr().err
