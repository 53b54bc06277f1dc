"""Recognise the files that runs have written into a project: with them, each run would find a changed project."""

from __future__ import annotations

from pathlib import Path

PAGE = '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="pytest-ssr">'
JUNIT = '<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="pytest-ssr">'
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SARIF = f'{{"$schema": "{SARIF_SCHEMA}", "version": "2.1.0", "runs": [{{"tool": {{"driver": {{"name": "pytest-ssr"'
GENERATOR = "pytest-ssr"
STRYKER_GENERATOR = {"generator": GENERATOR, "schemaVersion": "2.0"}
"""The beginning of a report in Stryker's schema, which allows further keys."""
STRYKER = '{"generator": "pytest-ssr", "schemaVersion": "2.0", '
_RESULTS = f'{{\n "generator": "{GENERATOR}",'
_BEGINNINGS = tuple(text.encode() for text in (PAGE, JUNIT, SARIF, STRYKER, _RESULTS))
ACCEPTED_FILE = ".ssr-accepted.toml"
"""What a team has decided about survivors; no test can depend on it."""
_SUFFIXES = (".html", ".json", ".sarif", ".xml")
_MOST_BYTES = max(map(len, _BEGINNINGS))


def is_report(path: Path) -> bool:
    """Return whether a file is one of this package, by its beginning.

    It is a page, JUnit XML, a SARIF log, a report for Stryker's viewers or JSON.
    """
    if path.suffix not in _SUFFIXES:
        return False
    try:
        # A name may be a pipe, which would wait for a writer.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).startswith(_BEGINNINGS)
    except OSError:
        return False
