"""The page of an audit: complete, balanced and escaped HTML, and in a browser sorted, filtered and linked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from audit_cards import DIFF, PROOF, blunt, change, clean, sharpness, unaudited, unsound
from real_browser import contrast

from harness.audit.card import (
    SHARED,
    TESTS,
    Card,
    Cause,
    ChangeStatus,
    Condition,
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
from harness.audit.figures import (
    CAUSE_TEXTS,
    CONDITION_TEXTS,
    LEAK_TEXTS,
    LEAK_WORDS,
    STATUS_TEXTS,
    TOKEN_TEXTS,
    UNSOUND_TEXTS,
    UNSOUND_WORDS,
)
from harness.audit.forgery_kit import forgery_texts, row_forgeries
from harness.audit.page import About, page
from harness.audit.page_figures import COLUMNS, Cell, State, kinds_of, worst_first
from harness.audit.totals import Totals
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


ABOUT = About(
    wanted=9,
    dataset=HOSTILE,
    split="test",
    changes=30,
    time_s=66.0,
    seconds=600.0,
    made="2030-01-02T03:04:05+00:00",
    version="9.8.7",
)
CARDS = [clean("a__b-2"), unsound("a__b-10", repo="a/other"), blunt("a__b-3"), unaudited("c__d-4"), Card("e__f-5")]


def test_the_page_is_well_formed_and_every_link_has_a_target() -> None:
    parsed = Parsed(page(CARDS))
    assert len(parsed.ids) == len(set(parsed.ids))
    numbers = range(len(CARDS))
    targets = {f"{kind}-{n}" for kind in ("row", "card") for n in numbers} | {"words"}
    assert {link.removeprefix("#") for link in parsed.links} == targets <= set(parsed.ids)
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
    more = ((UNSOUND_TEXTS, Unsound), (UNSOUND_WORDS, Unsound), (LEAK_WORDS, Leak), (CONDITION_TEXTS, Condition))
    for table, codes in (*tables, *more):
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
    assert figures.count('class="value">unknown') == 6
    partly = page([clean("a-1"), unknown]).split('id="tasks"')[0].split("<body>")[1]
    assert 'class="figure good"' not in partly
    assert page([clean("a-1")]).count('class="figure good"') == 5


def cells(card: Card) -> dict[str, Cell]:
    return {column.name: column.cell(card) for column in COLUMNS}


def sealing(*own: bool | None, **values: Any) -> Sealing:
    return Sealing(tuple(ForgeryResult(f"forgery-{n}", verdict, False) for n, verdict in enumerate(own)), **values)


@pytest.mark.parametrize(
    ("sealed", "text", "state", "value"),
    [
        (sealing(True), "1 of 1 forged", State.BAD, 1.0),
        (sealing(True, False, None), "1 of 2 forged", State.BAD, 0.5),
        (sealing(False, False), "0 of 2 forged", State.GOOD, 0.0),
        (sealing(None), "unknown", State.UNKNOWN, None),
        (None, "untried", State.UNKNOWN, None),
    ],
)
def test_an_accepted_forgery_looks_bad(sealed: Sealing | None, text: str, state: State, value: float | None) -> None:
    assert cells(clean(sealed=sealed))["sealed"] == (text, state, value)


@pytest.mark.parametrize(
    ("sealed", "state"),
    [
        (sealing(False, leaks=(Leak.SOLUTION_IN_IMAGE,)), State.BAD),
        (sealing(False), State.GOOD),
        (Sealing(verifier=SHARED), State.GOOD),
        (Sealing(verifier=TESTS), State.UNKNOWN),
        (Sealing(verifier=TESTS, problem=Reason(ReasonCode.OTHER_LANGUAGE)), State.GOOD),
        (Sealing(verifier=SHARED, problem=Reason(ReasonCode.OUT_OF_TIME)), State.UNKNOWN),
        (None, State.UNKNOWN),
    ],
)
def test_leaks_have_a_cell_and_count_as_none_only_after_a_search(sealed: Sealing | None, state: State) -> None:
    card = clean(sealed=sealed)
    assert cells(card)["leaks"].state is state
    assert ("leaks" in kinds_of(card)) == (state is State.BAD)


def test_a_task_is_wholly_sound_only_if_all_conditions_were_tried() -> None:
    partly = clean(sound=Soundness(conditions=(Condition.PLAIN, Condition.ORDER)))
    assert cells(clean())["sound"].state is State.GOOD
    assert cells(partly)["sound"] == ("yes, 2 of 6 conditions", State.PLAIN, 2)
    assert {"partly"} == set(kinds_of(partly))
    text = Parsed(page([partly])).text.split("Not tried")[1]
    assert text.index(CONDITION_TEXTS[Condition.CLOCK]) < text.index("Sharp")
    assert CONDITION_TEXTS[Condition.ORDER] not in text.split("Sharp")[0]
    assert (Totals.of([clean(), partly]).fully_sound, Totals.of([clean(), partly]).sound) == (1, 2)


def test_of_few_changes_sharpness_looks_so_and_sorts_by_the_lower_bound() -> None:
    few, many = cells(clean(sharp=sharpness(3)))["sharp"], cells(clean(sharp=sharpness(25, 5)))["sharp"]
    assert (few.text, few.state) == ("100 % (44 to 100)", State.FEW)
    assert (many.text, many.state) == ("83 % (66 to 93)", State.PLAIN)
    assert few.value is not None
    assert many.value is not None
    assert few.value < many.value


def test_the_worst_tasks_come_first() -> None:
    dull, few = clean("dull", sharp=sharpness(5, 25)), clean("few", sharp=sharpness(2))
    leaking = clean("leaking", sealed=sealing(False, leaks=(Leak.CACHE,)))
    forged = clean("forged", sealed=sealing(True), sharp=sharpness(1, 9))
    cards = [Card("none"), clean("sharp"), few, clean("unknown", sharp=None), leaking, dull, forged, unsound("unsound")]
    found = [card.task for card in worst_first(cards)]
    assert found == ["unsound", "forged", "leaking", "dull", "few", "sharp", "none", "unknown"]


def test_each_forgery_has_its_description_and_the_kit_its_size() -> None:
    (name, text), *_ = forgery_texts().items()
    shown = Parsed(page([clean(sealed=Sealing((ForgeryResult(name, True, False),), verifier=TESTS))])).text
    assert text in shown
    assert f"1 of the kit’s {len(row_forgeries())} forgeries" in shown


def test_each_figure_states_its_coverage() -> None:
    cut = clean(sound=Soundness(conditions=(Condition.PLAIN,), is_cut=True), sharp=sharpness(3, planned=9))
    late = clean(sharp=Sharpness(problem=Reason(ReasonCode.OUT_OF_TIME)))
    tiles = page([clean(), cut, late, Card("unknown")]).split('class="figure ')[1:]
    known = [re.findall(r"known of (\d) of 4 tasks(?:; (\d) cut off by time)?", tile)[0] for tile in tiles]
    assert known == [("3", "1"), ("2", "2"), ("3", ""), ("3", ""), ("3", ""), ("3", "")]


def test_every_status_is_explained() -> None:
    guide = Parsed(page([])).text
    for status in set(ChangeStatus) - {ChangeStatus.NOTICED}:
        assert STATUS_TEXTS[status] in guide


def test_a_page_names_when_and_how_it_was_made() -> None:
    text = Parsed(page([clean()], about=ABOUT)).text
    for part in ("2030-01-02 at 03:04", "9.8.7", "30 changes", "66 s", "8 tasks not on this page"):
        assert part in text


def test_few_changed_lines_are_shown_in_full_and_many_are_counted() -> None:
    def heading(diff: str) -> str:
        survivor = change(ChangeStatus.SURVIVED, diff=diff)
        html = page([clean(sharp=Sharpness((survivor,)))])
        return Parsed(html.split('class="survivor"')[1].split("</summary>")[0].split("<summary>")[1]).text

    assert heading(DIFF).endswith("- return a + b\n+ return a - b")
    assert heading("@@ -1,5 +0,0 @@\n" + "-line\n" * 5).endswith("5 lines changed")
    assert "`+` becomes `-`" in heading("")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of eight cards, one of them hostile."""
    path = tmp_path_factory.mktemp("page") / "audit.html"
    refused = Sealing((ForgeryResult(row_forgeries()[0].name, False, False),), verifier=TESTS)
    more = [clean("g__h-6", sharp=sharpness(3, 1), sealed=refused), hostile(), clean("g__h-7", sharp=None)]
    path.write_text(page([*CARDS, *more], title="Audit", about=ABOUT), encoding="utf-8")
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
    links = "#tasks tbody tr:not(.out) td:nth-child(1) a"
    return [str(t) for t in tab.eval_on_selector_all(links, "links => links.map(a => a.textContent)")]


def shown_cards(tab: Any) -> list[str]:
    visible = "cards => cards.filter(c => c.offsetParent).map(c => c.querySelector('.task').textContent)"
    return [str(t) for t in tab.eval_on_selector_all("details.card", visible)]


def number_of(tab: Any, task: str) -> str:
    """Return the number of a task's row and card."""
    row = tab.locator("#tasks tbody tr").filter(has=tab.get_by_role("link", name=task, exact=True))
    return str(row.get_attribute("data-card"))


@pytest.mark.browser
def test_a_click_on_a_heading_sorts_table_and_cards_with_the_worst_first(opened: Callable[..., Any]) -> None:
    tab = opened()
    begin = shown_tasks(tab)
    assert begin == shown_cards(tab)
    assert begin[1:5] == ["a__b-10", "a__b-3", "g__h-6", "a__b-2"]
    for heading, last in (("sharp", {"c__d-4", "e__f-5", "g__h-7"}), ("sealed", {"c__d-4", "e__f-5"})):
        tab.get_by_role("button", name=heading, exact=True).click()
        assert shown_tasks(tab)[1] == ("g__h-6" if heading == "sharp" else "a__b-3")
        assert set(shown_tasks(tab)[-len(last) :]) == last
        assert shown_cards(tab) == shown_tasks(tab)
    tab.get_by_role("button", name="sharp", exact=True).click()
    tab.get_by_role("button", name="sharp", exact=True).click()
    assert set(shown_tasks(tab)[:2]) == {"a__b-2", "a__b-10"}
    assert set(shown_tasks(tab)[5:]) == {"c__d-4", "e__f-5", "g__h-7"}
    tab.get_by_role("button", name="task", exact=True).click()
    assert shown_tasks(tab).index("a__b-3") < shown_tasks(tab).index("a__b-10")


@pytest.mark.browser
def test_a_filter_applies_to_the_table_and_to_the_cards(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.locator("#tasks .filter").fill("a__b")
    assert shown_tasks(tab) == shown_cards(tab) == ["a__b-10", "a__b-3", "a__b-2"]
    for kind in ("forgeable", "leaks"):
        tab.locator("#tasks .kind").select_option(kind)
        assert shown_cards(tab) == ["a__b-3"]
    tab.locator("#tasks .filter").fill("")
    tab.locator("#tasks .kind").select_option("unaudited")
    assert set(shown_cards(tab)) == {"c__d-4", "e__f-5"}
    assert tab.locator("#tasks .count").text_content() == "2 of 8"


@pytest.mark.browser
def test_a_task_leads_to_its_card_and_back(opened: Callable[..., Any]) -> None:
    tab = opened()
    number = number_of(tab, "a__b-3")
    inside = tab.locator(f"#card-{number}")
    assert not inside.is_visible()
    for _ in range(2):
        tab.locator(f"a[href='#card-{number}']").click()
        inside.wait_for(state="visible")
        tab.locator(f"details[data-card='{number}'] > summary").click()
        inside.wait_for(state="hidden")
    tab.locator(f"a[href='#card-{number}']").click()
    assert not tab.locator("#words dl").is_visible()
    inside.locator("a[href='#words']").click()
    tab.locator("#words dl").wait_for(state="visible")
    inside.locator(f"a[href='#row-{number}']").click()
    tab.wait_for_function("document.querySelector('#tasks tr:target') !== null")
    assert opened(at="#card-1").locator("#card-1").is_visible()


@pytest.mark.browser
def test_everything_is_there_without_scripts(opened: Callable[..., Any]) -> None:
    tab = opened(java_script_enabled=False)
    assert len(shown_tasks(tab)) == tab.locator("details.card").count() == 8
    assert not tab.locator("#tasks .filter").is_visible()
    number = number_of(tab, "a__b-3")
    tab.locator(f"details[data-card='{number}'] > summary").click()
    assert tab.locator(f"#card-{number} .survivor").first.is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible(opened: Callable[..., Any], viewport: dict[str, int], scheme: str) -> None:
    tab = opened(viewport, color_scheme=scheme)
    for number in ("0", number_of(tab, "a__b-3")):
        tab.locator(f"details[data-card='{number}'] > summary").click()
        tab.locator(f"#card-{number} .survivor summary").first.click()
    for guide in tab.locator(".guide > summary").all():
        guide.click()
    assert tab.evaluate("document.documentElement.scrollWidth") == viewport["width"], "nothing sticks out"
    for selector in (".lead", ".question", ".after", ".guide dd", ".guide summary", ".repository", "#tasks td a"):
        assert contrast(tab, selector) >= 4.5, selector
    for selector in ("unknown", "bad", "good", "few", "plain"):
        assert contrast(tab, f"#tasks td.{selector}") >= 4.5, selector
        assert contrast(tab, f"#cards .chip.{selector}") >= 4.5, selector
    for selector in (".chip", "pre .added", "pre .removed", "pre .place", ".inside .legend"):
        assert contrast(tab, f"#cards details[open] {selector}") >= 4.5, selector
    assert contrast(tab, "#cards .about") >= 4.5


@pytest.mark.browser
def test_a_phone_shows_each_row_in_full(opened: Callable[..., Any]) -> None:
    tab = opened(PHONE)
    inside = """cells => cells.filter(c => {
        const box = c.getBoundingClientRect();
        return c.offsetParent && (box.right > innerWidth || c.scrollWidth > c.clientWidth);
    }).map(c => c.textContent)"""
    assert tab.eval_on_selector_all("#tasks td, #tasks th", inside) == []
    tops = tab.eval_on_selector_all(".figure", "tiles => tiles.map(t => t.getBoundingClientRect().top)")
    assert len(tops) == 2 * len(set(tops)) == 6, "two columns"
    tab.get_by_role("button", name="sealed", exact=True).click()
    assert shown_tasks(tab)[1] == "a__b-3"
