"""Offer the page of a project to the plugin, which calls it by its entry point `pytest_ssr.report`."""

from __future__ import annotations

from importlib.util import find_spec

from pytest_ssr.campaign.report_files import Writer
from pytest_ssr.errors import MissingExtraError

_PACKAGES = (("jinja2", "Jinja2"), ("pygments", "Pygments"))


def page_writer() -> Writer:
    """Return the function that writes the page; raises MissingExtraError unless its packages are installed."""
    for module, package in _PACKAGES:
        if find_spec(module) is None:
            raise MissingExtraError(package, "report")
    from harness.service.dashboard.project_page import project_page

    return project_page
