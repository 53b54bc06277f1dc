"""The page in a real browser: offline, sorted, filtered, on a phone, in both themes, and with hostile names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from board_parts import HOSTILE, board, episode, outcomes, results_only, store
from real_browser import contrast

from harness.leaderboard.page import page
from pytest_ssr.records.reasons import Flag, FlagCode

pytestmark = pytest.mark.browser
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of three solvers with known rates, an injector, a missing attempt and a flagged one."""
    folder = tmp_path_factory.mktemp("page")
    tasks = [f"org__repo-{n}" for n in range(12)]
    results = [
        *outcomes("alpha", dict(zip(tasks, "rrrrrrrruuui", strict=True)), repos=3, cost_usd=0.5),
        *outcomes("beta", dict(zip(tasks, "rrrruuuuuuuu", strict=True)), repos=3, cost_usd=0.05),
        *outcomes(
            HOSTILE,
            dict(zip(tasks, "rruuuuuuuuur", strict=True)),
            repos=3,
            flags=(Flag(FlagCode.TESTS_RESTORED, ("x",)),),
        ),
    ]
    bugs = [episode(n, solvers={"alpha": "rrru", "beta": "uuru"}) for n in range(5)]
    result = board(results_only(folder / "r", results), store(folder / "s", bugs))
    (folder / "board.html").write_text(page(result, title="Board"), encoding="utf-8")
    return folder / "board.html"


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Callable[..., Any]]:
    """Open the page; the test fails on any console message or network request."""
    contexts, messages = [], []

    def open_page(viewport: dict[str, int] = DESKTOP, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("dialog", lambda dialog: messages.append(f"dialog {dialog.message}"))
        tab.on("request", lambda r: messages.append(r.url) if r.url != written.as_uri() else None)
        tab.goto(written.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


def column(tab: Any, section: str, number: int) -> list[str]:
    cells = f"#{section} tbody tr:not(.out) td:nth-child({number})"
    return [str(t) for t in tab.eval_on_selector_all(cells, "cells => cells.map(c => c.textContent)")]


def test_a_click_on_a_heading_sorts(opened: Callable[..., Any]) -> None:
    tab = opened()
    assert column(tab, "solvers", 1) == ["1", "2", "3"]
    rate = tab.get_by_role("button", name="resolved %", exact=True)
    rate.click()
    head = tab.locator("#solvers th", has_text="resolved %").first
    first = [float(t) for t in column(tab, "solvers", 3)]
    assert (first, head.get_attribute("aria-sort")) == (sorted(first, reverse=True), "descending")
    rate.click()
    assert [float(t) for t in column(tab, "solvers", 3)] == sorted(first)
    assert head.get_attribute("aria-sort") == "ascending"
    tab.locator("#tasks th button").first.click()
    tasks = column(tab, "tasks", 1)
    assert tasks.index("org__repo-2") < tasks.index("org__repo-10"), "numbers in names count as numbers"
    tab.locator("#tasks th.solver button").nth(1).click()
    tab.locator("#tasks th.solver button").nth(0).click()
    assert column(tab, "tasks", 4)[-1] in ("", "0/0 1m"), "unknown values come last"


def test_a_filter_applies_to_tables_and_plots(opened: Callable[..., Any]) -> None:
    tab = opened()
    mark = tab.locator('#plot-cost .wide .mark[data-solver="2"]')
    assert mark.is_visible()
    name = column(tab, "solvers", 2)[1]
    box = tab.locator("#solvers .filter")
    box.fill(next(n for n in column(tab, "solvers", 2) if n != name)[:5])
    assert tab.locator("#solvers .count").text_content() == "1 of 3"
    assert not mark.is_visible()
    assert not tab.locator('#tasks th[data-solver="2"]').is_visible()
    box.fill("")
    assert mark.is_visible()
    tab.locator("#tasks .filter").fill("repo-1 ORG")
    assert column(tab, "tasks", 1) == ["org__repo-1", "org__repo-10", "org__repo-11"]
    tab.locator("#tasks .filter").fill("")
    tab.locator("#tasks .kind").select_option("missing")
    assert column(tab, "tasks", 1) == ["org__repo-11"]
    tab.locator("#tasks .kind").select_option("none")
    assert column(tab, "tasks", 1) == ["org__repo-10", "org__repo-8", "org__repo-9"]


def test_all_intervals_are_shown_on_request(opened: Callable[..., Any]) -> None:
    tab = opened()
    spare = tab.locator("#solvers th.spare").first
    assert not spare.is_visible()
    tab.locator("#solvers .more").check()
    assert spare.is_visible()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible(opened: Callable[..., Any], viewport: dict[str, int], scheme: str) -> None:
    tab = opened(viewport, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == viewport["width"], "nothing sticks out"
    for selector in (
        "h1",
        ".lead",
        ".notes li",
        "#solvers td",
        "#tasks td.r",
        "#tasks td.p, #tasks td.u",
        "figcaption",
    ):
        assert contrast(tab, selector) >= 4.5, selector
    shown = "narrow" if viewport is PHONE else "wide"
    for name in ("cost", "difficulty", "agreement", "abilities"):
        drawing = tab.locator(f"#plot-{name} .{shown} svg")
        assert drawing.is_visible()
        size = drawing.evaluate("s => s.querySelector('text').getBoundingClientRect().height")
        assert size >= 9, "its text is large enough"
    box = tab.locator("#solvers tbody td.name").first.bounding_box()
    tab.locator("#solvers .scroll").evaluate("s => { s.scrollLeft = 400; }")
    after = tab.locator("#solvers tbody td.name").first.bounding_box()
    assert after["x"] >= 0, "the name of the row stays visible"
    assert after["x"] <= box["x"]


def test_the_theme_can_be_chosen(opened: Callable[..., Any]) -> None:
    tab = opened(color_scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(back)
    button = tab.locator("#theme")
    button.click()
    assert button.text_content() == "theme: light"
    assert tab.evaluate(back) == "rgb(255, 255, 255)" != dark
    button.click()
    assert tab.evaluate(back) == dark
    # The plots follow the theme: they use the colours of the page.
    assert tab.evaluate("getComputedStyle(document.querySelector('#plot-cost text')).fill") == "rgb(230, 232, 235)"


def test_everything_is_shown_without_scripts(opened: Callable[..., Any]) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("#tasks tbody tr").count() == 17
    assert tab.locator("#solvers th.spare").first.is_visible()
    assert not tab.locator("#solvers .filter").is_visible()


def test_a_hostile_name_is_shown_as_text(opened: Callable[..., Any]) -> None:
    tab = opened()
    names = column(tab, "solvers", 2)
    assert any("<img src=x onerror=alert(1)>" in name for name in names)
    titles = tab.eval_on_selector_all(".mark > title", "all => all.map(t => t.textContent)")
    assert any("<img src=x" in title for title in titles)
    assert tab.locator("img").count() == 0


def test_no_other_script_runs(opened: Callable[..., Any], browser: Any, written: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(written.read_text().replace("</body>", "<script>document.title = 'taken'</script></body>"))
    tab = browser.new_page()
    tab.goto(changed.as_uri())
    assert tab.title() == "Board"
    tab.close()
