"""Adapt rendered plots for a page: unique ids, the page's colours, and a title on each mark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from harness.leaderboard.escaping import for_html
from harness.leaderboard.plots import Ink, Plot, RenderedPlot, render

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
PAGE_INK = Ink("#010101", "#020202", "#030303", "#040404", "#050505")
"""Placeholders for the page's colours, which depend on the theme."""
_VARIABLES = {"#010101": "ink", "#020202": "faint", "#030303": "line", "#040404": "mark", "#050505": "other"}
_FONT = re.compile(r"font:\s*([\d.]+)px[^;]*")


def inline_svg(plot: Plot, width: int) -> str:
    """Return a plot as an SVG element with unique ids and titled marks. width: in points."""
    rendered = render(plot, width=width, ink=PAGE_INK)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(rendered.data)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _adapt(element, f"{plot.name}-{width}", rendered)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", f"{plot.title}. {plot.caption}")
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, prefix: str, rendered: RenderedPlot) -> None:
    style = element.get("style")
    if style:
        style = re.sub(r"#(0[1-5])\1\1\b", lambda m: f"var(--{_VARIABLES[m[0]]})", style)
        element.set("style", _FONT.sub(r"font-size: \1px", style))
    element_id = element.get("id")
    if element_id:
        solver = re.match(r"solver-(\d+)", element_id)
        if solver:
            element.set("data-solver", solver[1])
        if element_id in rendered.labels:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = rendered.labels[element_id]
            element.insert(0, title)
            element.set("class", "mark")
        element.set("id", f"{prefix}-{element_id}")
    for name in ("clip-path", f"{{{_XLINK}}}href"):
        value = element.get(name)
        if value:
            element.set(name, value.replace("#", f"#{prefix}-", 1))


def figure(plot: Plot, widths: tuple[int, int]) -> str:
    """Return a plot as an HTML figure with its title and caption. widths: wide screen and phone, in points."""
    wide, narrow = (inline_svg(plot, width) for width in widths)
    return (
        f'<figure class="plot" id="plot-{plot.name}"><h3>{for_html(plot.title)}</h3>'
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{for_html(plot.caption)}</figcaption></figure>"
    )
