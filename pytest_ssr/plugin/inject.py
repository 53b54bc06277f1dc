"""Implement `pytest --ssr-inject`: each candidate is a node, each of its steps an item; valid artifacts are stored.

A rejected candidate is not a failed test: its item is reported in a separate category, and the items after it are not
reported. Under xdist the controller measures the baseline, the workers share it through the store, and a candidate's
items stay on one worker. xdist needs all ids before the first item runs; ids in workers are therefore plain numbers,
so that no worker draws candidates that are never needed, unless items are selected by name.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.report import (
    display_path,
    ended_while_measuring,
    estimate_line,
    opening_lines,
    progress_line,
    result_line,
    summary_lines,
    time_is_up,
)
from pytest_ssr.errors import NothingToDoError
from pytest_ssr.interrupts import TimeBudgetError, install_signal_handlers, until
from pytest_ssr.plugin import options, sources
from pytest_ssr.plugin.candidates import SCREENING, CandidateNode, CandidateStep, node_name
from pytest_ssr.progress import ProgressLines
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, counted

_PER_WANTED, _PER_MORE_WANTED, _FEW_WANTED = 30, 10, 10
_AT_LEAST = 60
_COLOURS = {"valid": {"green": True}, "missed": {"yellow": True}, "heading": {"bold": True}, "diff": {}}


class InjectPlugin:
    """Collects candidates instead of tests, and reports their results."""

    def __init__(self, config: pytest.Config) -> None:
        with options.user_errors():
            self.count: int = sources.number(config, "count")
            self.budget_s = options.budget(config)
            options.rule_settings(config)
        self.config = config
        self.worker = hasattr(config, "workerinput")
        self.campaign: Campaign | None = None
        self.start = time.monotonic()
        workerinput: dict[str, Any] = getattr(config, "workerinput", {})
        own_deadline = self.start + self.budget_s if self.budget_s is not None else math.inf
        self.deadline: float = workerinput.get("ssr_deadline", own_deadline)
        self.results: dict[int, CandidateResult] = {}
        self.selected: list[int] = []
        self.enough_from: int | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Open the campaign before xdist starts its workers, so that the baseline is measured once."""
        install_signal_handlers()
        measuring = self._measuring()
        try:
            # Workers find the baseline in the store, and all of them must offer the same items.
            with options.user_errors(), until(math.inf if self.worker else self.deadline):
                self.campaign = open_campaign(
                    sources.project_path(self.config),
                    options.open_store(self.config),
                    **options.campaign_arguments(self.config),
                    progress=measuring,
                )
        except TimeBudgetError:
            assert self.budget_s is not None
            pytest.exit(f"ssr: {ended_while_measuring(self.budget_s)}", returncode=pytest.ExitCode.TESTS_FAILED)
        except NothingToDoError as error:
            pytest.exit(f"ssr: {error}", returncode=pytest.ExitCode.OK)
        finally:
            if measuring is not None:
                measuring.clear()
        self.start = time.monotonic()
        terminal = self._terminal()
        if terminal is not None:
            terminal.showfspath = False
            terminal._show_progress_info = False  # skipped steps would make the percentage wrong
            self._print_baseline(terminal)

    def _measuring(self) -> ProgressLines | None:
        """Return the display of the baseline's progress; None in a worker, which measures nothing."""
        terminal = self._terminal()
        if terminal is None:
            return None

        def rewrite(line: str) -> None:
            terminal.rewrite(f"ssr: {line}" if line else "", erase=True)
            # The next output starts at the beginning of the line.
            terminal.write("\r")

        def write(line: str) -> None:
            terminal.write_line(f"ssr: {line}")

        return ProgressLines(live=rewrite if terminal.isatty else None, plain=write)

    def _print_baseline(self, terminal: Any) -> None:
        assert self.campaign is not None
        for kind, line in opening_lines(self.campaign):
            terminal.write_line(f"ssr: {line}", **_COLOURS.get(kind, {}))
        estimate = estimate_line(self.campaign, self.count, self.config.getoption("numprocesses", None) or 1)
        if estimate is not None and not self.config.option.collectonly:
            terminal.write_line(f"ssr: {estimate}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Collect the steps of candidates; the project's own tests are not collected."""
        if self.config.pluginmanager.hasplugin("dsession"):
            return None
        campaign = self.campaign
        assert campaign is not None
        items: list[pytest.Item] = []
        unnamed = self.worker and not (self.config.option.keyword or self.config.option.deselect)
        with options.user_errors():
            most = _PER_WANTED * min(self.count, _FEW_WANTED) + _PER_MORE_WANTED * max(0, self.count - _FEW_WANTED)
            for index in range(max(_AT_LEAST, most)):
                name = f"{index:05d}"
                if not unnamed:
                    candidate = campaign.candidate(index)
                    if candidate is None:
                        break
                    name += f"-{node_name(candidate)}"
                node = CandidateNode.from_parent(session, name=name, nodeid=f"ssr-inject::{name}")
                node.campaign, node.index, node.deadline = campaign, index, self.deadline
                items.extend(node.collect())
        session.items = items
        hook = self.config.hook
        hook.pytest_collection_modifyitems(session=session, config=self.config, items=items)
        self.selected = sorted({i.parent.index for i in items if isinstance(i.parent, CandidateNode)})
        report = pytest.CollectReport("ssr-inject", "passed", None, list(items))
        self.config.hook.pytest_collectreport(report=report)
        session.testscollected = len(items)
        hook.pytest_collection_finish(session=session)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Skip, without a report, the items that are no longer needed."""
        node = item.parent
        if not isinstance(item, CandidateStep) or not isinstance(node, CandidateNode):
            return None
        trial = node.trial
        reported = getattr(node, "reported", False)
        if reported or (trial is not None and trial.candidate_result is not None and item.name != SCREENING):
            return True
        if not self.is_time_up() and node.exists() and not self.enough_before(node.index):
            # The next item may be skipped, so no fixtures are kept set up for it.
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            runtestprotocol(item, nextitem=None)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def enough_before(self, index: int) -> bool:
        """Return whether enough of the candidates before this one are valid."""
        if self.enough_from is not None and index >= self.enough_from:
            return True
        campaign = self.campaign
        assert campaign is not None
        for earlier in self.selected or range(index):
            if earlier < index and earlier not in self.results:
                result = campaign.stored(earlier)
                if result is not None:
                    self.results[earlier] = result
        valid = sum(a.status is CandidateStatus.VALID for i, a in self.results.items() if i < index)
        if valid >= self.count:
            self.enough_from = index
        return valid >= self.count

    def is_time_up(self) -> bool:
        """Return whether the time budget has ended."""
        return time.monotonic() >= self.deadline

    def first_unneeded(self) -> int | None:
        """Return the index from which on no candidate is needed, by this session's reports; None if more are needed."""
        if self.is_time_up():
            return 0
        valid = sorted(i for i, a in self.results.items() if a.status is CandidateStatus.VALID)
        return valid[self.count - 1] + 1 if len(valid) >= self.count else None

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Remember that a candidate has been reported, so that its later steps stay silent."""
        if call.when == "call" and any(k == "ssr" for k, _ in item.user_properties):
            item.parent.reported = True  # type: ignore[union-attr]

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count candidates, not steps."""
        if not report.nodeid.startswith("ssr-inject::") or report.failed:
            return None
        status = _status_of(report)
        if report.when == "call" and status is not None:
            return status[1], "", status[1].upper()
        if report.when == "call" and report.skipped:
            return "", "", "GIVEN UP"
        if report.when == "call":
            return "", "", "PASSED" if self.config.option.verbose > 0 else ""
        return "", "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show each candidate's result, the counts, and an estimate of the remaining time."""
        status = _status_of(report) if report.when == "call" else None
        campaign, terminal = self.campaign, self._terminal()
        if status is None or self.worker or campaign is None:
            return
        result = campaign.stored(status[0])
        if result is None:
            return
        self.results[result.index] = result
        if terminal is not None and self.config.option.verbose >= 0:
            done = self.counted_results()
            progress = progress_line(done, self.count, time.monotonic() - self.start)
            terminal.ensure_newline()
            colour = {"green": True} if result.status is CandidateStatus.VALID else {}
            terminal.write(result_line(result)[:9], **colour)
            terminal.write_line(f"{result_line(result)[9:]}  [{progress}]")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Set exit status 0 only if the wanted number was reached."""
        if self.campaign is not None:
            self.campaign.close()
        if self.config.option.collectonly:
            return
        plain = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if not self.worker and self.campaign is not None:
            self.campaign.settle(self.counted_results(), list(self.results.values()))
        if not self.worker and self.campaign is not None and exitstatus in plain:
            valid = sum(a.status is CandidateStatus.VALID for a in self.results.values())
            session.exitstatus = pytest.ExitCode.OK if valid >= self.count else pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Show the valid artifacts, the rejections by check, and what the tests missed."""
        if self.campaign is None or self.config.option.collectonly:
            return
        results = self.counted_results()
        terminalreporter.section("ssr")
        for kind, line in summary_lines(
            results, diffs=self.config.option.ssr_diffs, set_aside=self.campaign.set_aside_since()
        ):
            terminalreporter.write_line(line, **_COLOURS.get(kind, {}))
        valid = sum(a.status is CandidateStatus.VALID for a in results)
        if valid < self.count and self.budget_s is not None and self.is_time_up():
            terminalreporter.write_line(time_is_up(self.budget_s, valid, self.count), red=True)
        elif valid < self.count and exitstatus != pytest.ExitCode.INTERRUPTED:
            terminalreporter.write_line(
                f"{valid} of {self.count} reached: try another --ssr-seed or --ssr-injector", red=True
            )
        terminalreporter.write_line(f"artifacts: {display_path(self.campaign.store.root / 'artifacts')}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the end of the time budget to a worker."""
        node.workerinput["ssr_deadline"] = self.deadline

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep a candidate's steps on one worker, and schedule none that is no longer needed."""
        from xdist.scheduler import LoadScopeScheduling

        plugin = self

        class UntilEnough(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
            def _reschedule(self, node: Any) -> None:
                first = plugin.first_unneeded()
                for scope in [s for s in self.workqueue if first is not None and _index_of(s) >= first]:
                    del self.workqueue[scope]
                super()._reschedule(node)

        return UntilEnough(config, log)

    def counted_results(self) -> list[CandidateResult]:
        """Return the results up to the last one that is wanted."""
        return counted([self.results[i] for i in sorted(self.results)], self.count)

    def _terminal(self) -> Any:
        return self.config.pluginmanager.get_plugin("terminalreporter") if not self.worker else None


def _index_of(nodeid: str) -> int:
    return int(nodeid.partition("::")[2][:5])


def _status_of(report: pytest.TestReport) -> tuple[int, str] | None:
    """Return the candidate's index and status; None unless its trial ended with this report."""
    for key, value in report.user_properties:
        if key == "ssr":
            index, _, status = str(value).partition(":")
            return int(index), status
    return None
