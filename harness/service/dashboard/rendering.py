"""Render templates, in which everything is escaped and hidden characters are made visible."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.service.dashboard.charts import number
from harness.service.dashboard.visible import visible

STATIC = Path(__file__).parent / "static"
"""Styles and scripts."""
Address = Callable[..., str]
"""Returns the address of a page by its name, or of an item by the name of its kind and its id."""
_MOST_DIGITS = 12
"""Characters of a small number; a longer one has an exponent."""
_LAST_TIME = 253_402_300_799
"""The end of the year 9999 in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """A page that every page links to."""

    name: str
    title: str
    key: str
    """The key that goes there, after `g`."""

    @property
    def address(self) -> str:
        """Its path."""
        return link(self.name)


NAVIGATION = (
    NavigationItem("overview", "Overview", "o"),
    NavigationItem("runs", "Runs", "r"),
    NavigationItem("episodes", "Episodes", "e"),
    NavigationItem("artifacts", "Artifacts", "a"),
    NavigationItem("attempts", "Attempts", "t"),
    NavigationItem("models", "Models", "m"),
    NavigationItem("gaps", "Test gaps", "x"),
    NavigationItem("jobs", "Jobs", "j"),
    NavigationItem("projects", "Projects", "p"),
    NavigationItem("docs", "API", "d"),
)
_PLURALS = {"job": "jobs", "run": "runs", "episode": "episodes", "artifact": "artifacts", "attempt": "attempts"}


def link(name: str, item: str = "") -> str:
    """Return the address of a page of the service."""
    if item:
        return f"/{_PLURALS[name]}/{quote(item, safe='')}"
    return "/" if name == "overview" else f"/{name}"


def render(template: str, *, layout: str = "page.html", address: Address = link, **values: Any) -> str:
    """Return a rendered template. layout: what surrounds it; address: returns where an item is, empty if nowhere."""
    return environment().get_template(template).render(layout=layout, link=address, **values)


def policy_hash(text: str) -> str:
    """Return how a content policy names a style or a script that it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def environment() -> Environment:
    """Return the environment of the templates."""
    made = Environment(
        loader=PackageLoader("harness.service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Mapping[str, Callable[..., object]] = {
        "amount": amount,
        "moment": moment,
        "money": money,
        "percent": percent,
        "short_count": short_count,
    }
    made.filters.update(filters)
    made.globals.update(navigation=NAVIGATION)
    return made


def amount(value: float | None) -> str:
    """Return a number for a table; a dash if it is not known."""
    return "–" if value is None else number(value)


def money(value: float | None) -> str:
    """Return a sum of money without its currency: two decimals, and two significant digits below 1."""
    if value is None or not 0 < abs(value) < 1:
        return amount(value)
    text = f"{value:.{1 - math.floor(math.log10(abs(value)))}f}".rstrip("0").rstrip(".")
    return text if len(text) <= _MOST_DIGITS else f"{value:.1e}"


def cost(usd: float, unpriced: int = 0) -> str:
    """Return what something has cost. unpriced: the number of its calls without a known price."""
    calls = f", {unpriced} call{'' if unpriced == 1 else 's'} without a known price" if unpriced else ""
    return f"{money(usd)} USD{calls}"


def percent(value: float | None) -> str:
    """Return a share in per cent; a dash if it is not known."""
    return "–" if value is None else f"{100 * value:.1f} %"


def short_count(value: int) -> str:
    """Return a count with at most four digits and a unit."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= size:
            return f"{value / (1000 if unit == 'k' else size):.1f} {unit}"
    return str(value)


def moment(seconds: float | None) -> Markup:
    """Return a time in UTC; a dash if it is not known."""
    if seconds is None or not 0 <= seconds <= _LAST_TIME:
        return Markup("–")
    time = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(time.isoformat(), f"{time:%Y-%m-%d %H:%M:%S}")


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else visible(str(value))
