"""The page in a real browser: alone, sorted, filtered, on a phone, in light and dark, and with hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from board_parts import HOSTILE, board, episode, outcomes, results_only, store

from harness.leaderboard.page import page
from pytest_ssr.reasons import Flag, FlagCode

pytestmark = pytest.mark.browser
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of three solvers with known rates, an injector, a missing attempt and a flagged one."""
    folder = tmp_path_factory.mktemp("page")
    tasks = [f"org__repo-{n}" for n in range(12)]
    made = [
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
    found = board(results_only(folder / "r", made), store(folder / "s", bugs))
    (folder / "board.html").write_text(page(found, title="Board"), encoding="utf-8")
    return folder / "board.html"


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page and fails the test for whatever it says on the console or asks of a network."""
    contexts, said = [], []

    def open_page(viewport: dict[str, int] = DESKTOP, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: said.append(message.text))
        found.on("pageerror", lambda error: said.append(str(error)))
        found.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
        found.on("request", lambda r: said.append(r.url) if r.url != written.as_uri() else None)
        found.goto(written.as_uri())
        return found

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def column(found: Any, section: str, number: int) -> list[str]:
    cells = f"#{section} tbody tr:not(.out) td:nth-child({number})"
    return [str(t) for t in found.eval_on_selector_all(cells, "cells => cells.map(c => c.textContent)")]


def test_a_click_on_a_heading_sorts(opened: Callable[..., Any]) -> None:
    found = opened()
    assert column(found, "solvers", 1) == ["1", "2", "3"]
    rate = found.get_by_role("button", name="resolved %", exact=True)
    rate.click()
    head = found.locator("#solvers th", has_text="resolved %").first
    first = [float(t) for t in column(found, "solvers", 3)]
    assert (first, head.get_attribute("aria-sort")) == (sorted(first, reverse=True), "descending")
    rate.click()
    assert [float(t) for t in column(found, "solvers", 3)] == sorted(first)
    assert head.get_attribute("aria-sort") == "ascending"
    found.locator("#tasks th button").first.click()
    tasks = column(found, "tasks", 1)
    assert tasks.index("org__repo-2") < tasks.index("org__repo-10"), "numbers in names count as numbers"
    found.locator("#tasks th.solver button").nth(1).click()
    found.locator("#tasks th.solver button").nth(0).click()
    assert column(found, "tasks", 4)[-1] in ("", "0/0 1m"), "what is not known comes last"


def test_a_filter_leaves_what_fits_here_and_in_the_plots(opened: Callable[..., Any]) -> None:
    found = opened()
    mark = found.locator('#plot-cost .wide .mark[data-solver="2"]')
    assert mark.is_visible()
    name = column(found, "solvers", 2)[1]
    box = found.locator("#solvers .filter")
    box.fill(next(n for n in column(found, "solvers", 2) if n != name)[:5])
    assert found.locator("#solvers .count").text_content() == "1 of 3"
    assert not mark.is_visible()
    assert not found.locator('#tasks th[data-solver="2"]').is_visible()
    box.fill("")
    assert mark.is_visible()
    found.locator("#tasks .filter").fill("repo-1 ORG")
    assert column(found, "tasks", 1) == ["org__repo-1", "org__repo-10", "org__repo-11"]
    found.locator("#tasks .filter").fill("")
    found.locator("#tasks .kind").select_option("missing")
    assert column(found, "tasks", 1) == ["org__repo-11"]
    found.locator("#tasks .kind").select_option("none")
    assert column(found, "tasks", 1) == ["org__repo-10", "org__repo-8", "org__repo-9"]


def test_intervals_are_shown_when_asked_for(opened: Callable[..., Any]) -> None:
    found = opened()
    spare = found.locator("#solvers th.spare").first
    assert not spare.is_visible()
    found.locator("#solvers .more").check()
    assert spare.is_visible()


def contrast(found: Any, selector: str) -> float:
    """Return the contrast of a text with what it stands on, by WCAG 2.1."""
    script = """(selector) => {
        const node = document.querySelector(selector);
        let back = node;
        while (getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
        return [getComputedStyle(node).color, getComputedStyle(back).backgroundColor];
    }"""
    light = []
    for colour in found.evaluate(script, selector):
        parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return float((max(light) + 0.05) / (min(light) + 0.05))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(opened: Callable[..., Any], viewport: dict[str, int], scheme: str) -> None:
    found = opened(viewport, color_scheme=scheme)
    assert found.evaluate("document.documentElement.scrollWidth") == viewport["width"], "nothing sticks out"
    for selector in (
        "h1",
        ".lead",
        ".notes li",
        "#solvers td",
        "#tasks td.r",
        "#tasks td.p, #tasks td.u",
        "figcaption",
    ):
        assert contrast(found, selector) >= 4.5, selector
    shown = "narrow" if viewport is PHONE else "wide"
    for name in ("cost", "difficulty", "agreement", "abilities"):
        drawing = found.locator(f"#plot-{name} .{shown} svg")
        assert drawing.is_visible()
        size = drawing.evaluate("s => s.querySelector('text').getBoundingClientRect().height")
        assert size >= 9, "its words are large enough"
    box = found.locator("#solvers tbody td.name").first.bounding_box()
    found.locator("#solvers .scroll").evaluate("s => { s.scrollLeft = 400; }")
    after = found.locator("#solvers tbody td.name").first.bounding_box()
    assert after["x"] >= 0, "whose row it is stays in sight"
    assert after["x"] <= box["x"]


def test_the_theme_can_be_chosen(opened: Callable[..., Any]) -> None:
    found = opened(color_scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = found.evaluate(back)
    button = found.locator("#theme")
    button.click()
    assert button.text_content() == "theme: light"
    assert found.evaluate(back) == "rgb(255, 255, 255)" != dark
    button.click()
    assert found.evaluate(back) == dark
    # The plots go with it: their ink is the page's.
    assert found.evaluate("getComputedStyle(document.querySelector('#plot-cost text')).fill") == "rgb(230, 232, 235)"


def test_all_of_it_is_there_without_scripts(opened: Callable[..., Any]) -> None:
    found = opened(java_script_enabled=False)
    assert found.locator("#tasks tbody tr").count() == 17
    assert found.locator("#solvers th.spare").first.is_visible()
    assert not found.locator("#solvers .filter").is_visible()


def test_a_hostile_name_is_text(opened: Callable[..., Any]) -> None:
    found = opened()
    names = column(found, "solvers", 2)
    assert any("<img src=x onerror=alert(1)>" in name for name in names)
    titles = found.eval_on_selector_all(".mark > title", "all => all.map(t => t.textContent)")
    assert any("<img src=x" in title for title in titles)
    assert found.locator("img").count() == 0


def test_no_other_script_runs(opened: Callable[..., Any], browser: Any, written: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(written.read_text().replace("</body>", "<script>document.title = 'taken'</script></body>"))
    found = browser.new_page()
    found.goto(changed.as_uri())
    assert found.title() == "Board"
    found.close()
