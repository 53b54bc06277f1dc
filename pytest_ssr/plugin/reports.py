"""Write the reports of `pytest --ssr-inject` when it ends: a page, SARIF, JUnit XML, and annotations for GitHub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from pytest_ssr.campaign.findings import Findings, findings_of
from pytest_ssr.campaign.github import annotation_lines, append_job_summary, is_github
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import StoreWriteError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.plugin import options
from pytest_ssr.plugin.inject import InjectPlugin


class ReportsPlugin:
    """Writes what an injection found, in the process that has all results."""

    def __init__(self, inject: InjectPlugin) -> None:
        """Raise pytest.UsageError, before the run, if a report could not be written."""
        self._inject = inject
        self._paths: list[Path] = []
        self._findings: Findings | None = None
        self._problem = ""
        xml = inject.config.option.xmlpath
        with options.user_errors():
            self._files = options.report_files(inject.config, junit=Path(xml).absolute() if xml else None)
            self._annotates = options.is_annotating(inject.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Replace pytest's own JUnit XML, which would have a test case for each step of each change."""
        config = session.config
        xml = config.stash.get(xml_key, None)
        if xml is not None:
            del config.stash[xml_key]
            config.pluginmanager.unregister(xml)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports; a full disk makes the run fail."""
        campaign = self._inject.campaign
        if campaign is None or session.config.option.collectonly:
            return
        self._findings = findings_of(campaign, self._inject.counted_results())
        try:
            self._paths += self._files.write(self._findings)
            if is_github(os.environ):
                append_job_summary(self._findings, os.environ)
        except StoreWriteError as error:
            self._problem = f"ssr: {escaped(str(error))}"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        except KeyboardInterrupt:
            self._problem = "ssr: interrupted while the reports were written; `ssr report` writes the page later"
            session.exitstatus = pytest.ExitCode.INTERRUPTED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the paths of the reports, and the annotations."""
        for path in self._paths:
            terminalreporter.write_line(f"report: {escaped_line(display_path(path))}")
        if self._problem:
            terminalreporter.write_line(self._problem, red=True)
        if self._annotates and self._findings is not None:
            for line in annotation_lines(self._findings):
                terminalreporter.write_line(line)
