"""The page of an audit: complete, balanced and escaped HTML, and in a browser sorted, filtered and linked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from audit_cards import PROOF, blunt, change, clean, sharpness, unaudited, unsound
from real_browser import contrast

from harness.audit.card import (
    Card,
    Cause,
    ChangeStatus,
    ForgeryResult,
    Leak,
    Narrowness,
    Sealing,
    Sharpness,
    Soundness,
    TokenKind,
    UnknownToken,
    Unsound,
    UnsteadyTest,
)
from harness.audit.figures import CAUSE_TEXTS, LEAK_TEXTS, STATUS_TEXTS, TOKEN_TEXTS, UNSOUND_TEXTS, UNSOUND_WORDS
from harness.audit.page import page
from pytest_ssr.records.reasons import Reason, ReasonCode

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m\"'&\n</script>"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_VOID = {"meta", "input", "br", "img"}


class Parsed(HTMLParser):
    """Checks that elements are nested, and collects ids, links, tags and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values["href"] or ""] if "href" in values else []
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> Card:
    """Return a card in which every text is hostile."""
    survivor = change(ChangeStatus.SURVIVED, operator=HOSTILE, path=HOSTILE, scope=HOSTILE, diff=f"+{HOSTILE}")
    proven = change(ChangeStatus.NOT_REACHED, test=HOSTILE, test_file=HOSTILE, shown_by=HOSTILE)
    signed = change(ChangeStatus.EQUIVALENT, sign=HOSTILE)
    return Card(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        Reason(ReasonCode.INSTANCE_UNUSABLE, HOSTILE),
        Soundness(tuple(Unsound), (UnsteadyTest(HOSTILE, Cause.NETWORK),), (), (HOSTILE,)),
        Sharpness((survivor, proven, signed), 9, Reason(ReasonCode.TIMED_OUT, HOSTILE)),
        Narrowness((UnknownToken(TokenKind.TEXT, HOSTILE, (HOSTILE,)),)),
        Sealing((ForgeryResult(HOSTILE, True, True),), tuple(Leak), HOSTILE, Reason(ReasonCode.TIMED_OUT, HOSTILE)),
    )


CARDS = [clean("a__b-2"), unsound("a__b-10", repo="a/other"), blunt("a__b-3"), unaudited("c__d-4"), Card("e__f-5")]


def test_the_page_is_well_formed_and_every_link_leads_to_a_card() -> None:
    parsed = Parsed(page(CARDS))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert [link.removeprefix("#") for link in parsed.links] == [f"card-{n}" for n in range(len(CARDS))]
    assert set(parsed.ids) >= {f"card-{n}" for n in range(len(CARDS))}
    Parsed(page([]))


def test_a_card_holds_everything_that_was_found() -> None:
    text = Parsed(page([blunt(), unsound()])).text
    assert PROOF.splitlines()[1] in text
    for part in ("return a - b", "secret_name", "exit-early", LEAK_TEXTS[Leak.GIT_HISTORY], "tests/test_shop.py"):
        assert part in text
    for part in ("tests/test_shop.py::test_now", CAUSE_TEXTS[Cause.CLOCK], UNSOUND_TEXTS[Unsound.UNSTEADY]):
        assert part in text


def test_every_code_has_its_words() -> None:
    tables = ((CAUSE_TEXTS, Cause), (LEAK_TEXTS, Leak), (STATUS_TEXTS, ChangeStatus), (TOKEN_TEXTS, TokenKind))
    for table, codes in (*tables, (UNSOUND_TEXTS, Unsound), (UNSOUND_WORDS, Unsound)):
        assert set(table) == set(codes)


def test_hostile_text_is_shown_and_never_interpreted() -> None:
    html = page([hostile()], title=HOSTILE)
    parsed = Parsed(html)
    assert "img" not in parsed.tags
    assert parsed.tags.count("script") == 2
    assert "<img src=x onerror=alert(1)>\\u202e\\u001b[31m" in parsed.text
    assert "\u202e" not in html


def test_nothing_unknown_looks_good() -> None:
    unknown = Card("a-1")
    figures = page([unknown]).split('id="tasks"')[0].split("<body>")[1]
    assert not re.search(r'class="figure (good|bad)"', figures)
    assert figures.count('class="value">unknown') == 5
    partly = page([clean("a-1"), unknown]).split('id="tasks"')[0].split("<body>")[1]
    assert 'class="figure good"' not in partly
    assert page([clean("a-1")]).count('class="figure good"') == 4


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of eight cards, one of them hostile."""
    path = tmp_path_factory.mktemp("page") / "audit.html"
    more = [clean("g__h-6", sharp=sharpness(3, 1)), hostile(), clean("g__h-7", sharp=None)]
    path.write_text(page([*CARDS, *more], title="Audit"), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Callable[..., Any]]:
    """Open the page; the test fails on any console message or network request."""
    contexts, messages = [], []

    def open_page(viewport: dict[str, int] = DESKTOP, *, at: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("dialog", lambda dialog: messages.append(f"dialog {dialog.message}"))
        tab.on("request", lambda r: messages.append(r.url) if not r.url.startswith(written.as_uri()) else None)
        tab.goto(written.as_uri() + at)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


def shown_tasks(tab: Any) -> list[str]:
    cells = "#tasks tbody tr:not(.out) td:nth-child(1)"
    return [str(t) for t in tab.eval_on_selector_all(cells, "cells => cells.map(c => c.textContent)")]


@pytest.mark.browser
def test_a_click_on_a_heading_sorts_and_unknown_values_come_last(opened: Callable[..., Any]) -> None:
    tab = opened()
    sharp = tab.get_by_role("button", name="sharp %", exact=True)
    sharp.click()
    best_first = shown_tasks(tab)
    sharp.click()
    assert best_first[:2] == ["a__b-2", "a__b-10"]
    assert best_first[2:4] == ["g__h-6", "a__b-3"]
    assert set(best_first[5:]) == {"c__d-4", "e__f-5", "g__h-7"} == set(shown_tasks(tab)[5:])
    assert shown_tasks(tab)[1:3] == ["a__b-3", "g__h-6"]
    tab.get_by_role("button", name="task", exact=True).click()
    assert shown_tasks(tab).index("a__b-3") < shown_tasks(tab).index("a__b-10")


@pytest.mark.browser
def test_a_filter_applies_to_the_table_and_to_the_cards(opened: Callable[..., Any]) -> None:
    tab = opened()
    visible = "cards => cards.filter(c => c.offsetParent).map(c => c.dataset.card)"
    tab.locator("#tasks .filter").fill("a__b")
    assert shown_tasks(tab) == ["a__b-2", "a__b-10", "a__b-3"]
    assert tab.eval_on_selector_all("details.card", visible) == ["0", "1", "2"]
    tab.locator("#tasks .kind").select_option("forgeable")
    assert tab.eval_on_selector_all("details.card", visible) == ["2"]
    tab.locator("#tasks .filter").fill("")
    tab.locator("#tasks .kind").select_option("unaudited")
    assert tab.eval_on_selector_all("details.card", visible) == ["3", "4"]
    assert tab.locator("#tasks .count").text_content() == "2 of 8"


@pytest.mark.browser
def test_a_task_leads_to_its_card(opened: Callable[..., Any]) -> None:
    tab = opened()
    inside = tab.locator("#card-2")
    assert not inside.is_visible()
    for _ in range(2):
        tab.locator("a[href='#card-2']").click()
        inside.wait_for(state="visible")
        tab.locator("details[data-card='2'] > summary").click()
        inside.wait_for(state="hidden")
    assert opened(at="#card-1").locator("#card-1").is_visible()


@pytest.mark.browser
def test_everything_is_there_without_scripts(opened: Callable[..., Any]) -> None:
    tab = opened(java_script_enabled=False)
    assert len(shown_tasks(tab)) == tab.locator("details.card").count() == 8
    assert not tab.locator("#tasks .filter").is_visible()
    tab.locator("details[data-card='2'] > summary").click()
    assert tab.locator("#card-2 .survivor").first.is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible(opened: Callable[..., Any], viewport: dict[str, int], scheme: str) -> None:
    tab = opened(viewport, color_scheme=scheme)
    for number in (2, 6):
        tab.locator(f"details[data-card='{number}'] > summary").click()
        tab.locator(f"#card-{number} .survivor summary").first.click()
    assert tab.evaluate("document.documentElement.scrollWidth") == viewport["width"], "nothing sticks out"
    for selector in (".lead", ".question", ".meaning", ".after", "#tasks td.u", "#tasks td.bad", "#tasks td a"):
        assert contrast(tab, selector) >= 4.5, selector
    for selector in (".chip", ".chip.bad", "pre .added", "pre .removed", "pre .place", ".inside .legend"):
        assert contrast(tab, f"#cards details[open] {selector}") >= 4.5, selector
