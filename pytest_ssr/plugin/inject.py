"""Implement `pytest --ssr-inject`: each candidate is a node, each of its steps an item; valid artifacts are stored.

A rejected candidate is not a failed test: its item is reported in a separate category, and the items after it are not
reported. Under xdist the controller measures the baseline, the workers share it through the store, and a candidate's
items stay on one worker. xdist needs all ids before the first item runs; ids in workers are therefore plain numbers,
so that no worker draws candidates that are never needed, unless items are selected by name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.ending import Cut, Ending
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.facts import facts_of
from pytest_ssr.campaign.parallel import PER_CHANGE
from pytest_ssr.campaign.report import (
    display_path,
    ended_while_measuring,
    estimate_line,
    goal_line,
    ignored_line,
    opening_lines,
    progress_line,
    result_line,
    shard_gate_line,
    time_is_up,
)
from pytest_ssr.campaign.results_json import results_json, write_json
from pytest_ssr.campaign.review import (
    REVIEW_S,
    Review,
    changes_until,
    review_lines,
    review_of,
    survivors_with_remarks,
)
from pytest_ssr.campaign.score import GateCode, Score, gate_line, score_of
from pytest_ssr.campaign.shard_record import InjectionShard
from pytest_ssr.campaign.suggested_tests import Suggestions, suggest_tests, suggestion_lines, survivors_for_tests
from pytest_ssr.campaign.summary import SummaryStyle, summary_lines
from pytest_ssr.errors import NothingToDoError
from pytest_ssr.escaping import escaped_line
from pytest_ssr.interrupts import TimeBudgetError, install_signal_handlers, until
from pytest_ssr.plugin import options, sources
from pytest_ssr.plugin.candidates import SCREENING, CandidateNode, CandidateStep, node_name
from pytest_ssr.plugin.collection_lines import replace_collection_lines, replace_worker_lines
from pytest_ssr.plugin.interrupts import INTERRUPTED
from pytest_ssr.progress import ProgressLines
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.shard import Shard

_PER_WANTED, _PER_MORE_WANTED, _FEW_WANTED = 30, 10, 10
_AT_LEAST = 60
_COLOURS = {"valid": {"green": True}, "missed": {"yellow": True}, "heading": {"bold": True}, "diff": {}}


class InjectPlugin:
    """Collects candidates instead of tests, and reports their results."""

    def __init__(self, config: pytest.Config) -> None:
        with options.user_errors():
            self.fail_under: float | None = options.fail_under(config)
            self.goal = options.goal(config)
            self.shard = options.shard(config)
            self.json_path = options.json_path(config)
            self.budget_s = options.budget(config)
            self.suggest = sources.number(config, "suggest")
            self.is_review = options.is_review(config)
            self.suggest_is_given = sources.given(config, "suggest") is not None
            options.rule_settings(config)
        self.config = config
        self.worker = hasattr(config, "workerinput")
        self.campaign: Campaign | None = None
        self.start = time.monotonic()
        workerinput: dict[str, Any] = getattr(config, "workerinput", {})
        # A worker works on the files that the controller has read: the project may change during the run.
        self.tree_hash: str = workerinput.get("ssr_tree_hash", "")
        # A review's time begins when the tests have been measured.
        has_limit = self.budget_s is not None and not self.is_review
        own_deadline = self.start + (self.budget_s or 0.0) if has_limit else math.inf
        self.deadline: float = workerinput.get("ssr_deadline", own_deadline)
        """When no further change is tried."""
        self.end = self.deadline
        """When the search for tests ends."""
        self.results: dict[int, CandidateResult] = {}
        self.selected: list[int] = []
        self.enough_from: int | None = None
        self.shard_run: InjectionShard | None = None
        self.score: Score | None = None
        self.ending: Ending | None = None
        self.suggestions = Suggestions(())
        self.review: Review | None = None
        self.write_error = ""
        self.opened = self.start

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
                    tree_hash=self.tree_hash,
                )
                if not self.goal.changes:
                    self.campaign.require_artifacts()
                if self.shard is not None:
                    self._begin_shard(self.shard, self.campaign)
        except TimeBudgetError:
            assert self.budget_s is not None
            options.write_no_results(self.config, time_is_up=True)
            pytest.exit(f"ssr: {ended_while_measuring(self.budget_s)}", returncode=pytest.ExitCode.TESTS_FAILED)
        except NothingToDoError as error:
            options.write_no_results(self.config, nothing_to_do=str(error))
            pytest.exit(f"ssr: {error}", returncode=pytest.ExitCode.OK)
        finally:
            if measuring is not None:
                measuring.clear()
        self.start = time.monotonic()
        if self.is_review and not self.worker:
            if self.fail_under is None and self.budget_s is None:
                self.budget_s = REVIEW_S
            self.end = self.start + self.budget_s if self.budget_s is not None else math.inf
            self.deadline = changes_until(self.end)
        terminal = self._terminal()
        if terminal is not None:
            terminal.showfspath = False
            terminal._show_progress_info = False  # skipped steps would make the percentage wrong
            self._print_baseline(terminal)
            if not self.config.option.collectonly:
                self._explain_items(terminal)

    def _begin_shard(self, shard: Shard, campaign: Campaign) -> None:
        """Restrict the goal to the candidates that exist; a worker learns from the controller how many there are."""
        workerinput: dict[str, Any] = getattr(self.config, "workerinput", {})
        if self.worker:
            self.goal = replace(self.goal, indices=shard.indices(workerinput["ssr_candidates"]))
        elif not self.config.option.collectonly:
            self.shard_run = InjectionShard(campaign, shard, self.goal, self.fail_under)
            self.goal = self.shard_run.goal

    @property
    def gate(self) -> float | None:
        """The limit that the score is compared with: of several shards, each has too few changes for that."""
        return self.fail_under if self.shard is None or self.shard.is_whole else None

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
        if without_effect := options.options_without_effect(self.config):
            terminal.write_line(f"ssr: {ignored_line(without_effect)}", **_COLOURS["missed"])
        estimate = estimate_line(self.campaign, self.goal.count, self.config.getoption("numprocesses", None) or 1)
        # With a gate, the number of changes decides how long the run takes.
        if estimate is not None and not self.goal.changes and not self.config.option.collectonly:
            terminal.write_line(f"ssr: {estimate}")

    def _explain_items(self, terminal: Any) -> None:
        """Write what is going on in place of the number of items."""
        workers = self.config.pluginmanager.get_plugin("terminaldistreporter")
        if workers is None:
            replace_collection_lines(terminal, f"ssr: {goal_line(self.goal)}")
        else:
            count = options.jobs(self.config)
            replace_worker_lines(workers, f"ssr: {count} worker{'s' if count > 1 else ''}: {goal_line(self.goal)}")

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
            for index in self.goal.indices if self.goal.indices is not None else range(self._most()):
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

    def _most(self) -> int:
        """Return how many candidates are offered."""
        if self.goal.changes:
            return max(_AT_LEAST, PER_CHANGE * self.goal.changes)
        count = self.goal.count
        return max(_AT_LEAST, _PER_WANTED * min(count, _FEW_WANTED) + _PER_MORE_WANTED * max(0, count - _FEW_WANTED))

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
        """Return whether the candidates before this one reach the goal."""
        if self.enough_from is not None and index >= self.enough_from:
            return True
        campaign = self.campaign
        assert campaign is not None
        for earlier in self.selected or range(index):
            if earlier < index and earlier not in self.results:
                result = campaign.stored(earlier)
                if result is not None:
                    self.results[earlier] = result
        reached = self.goal.is_reached([a for i, a in self.results.items() if i < index])
        if reached:
            self.enough_from = index
        return reached

    def is_time_up(self) -> bool:
        """Return whether the time budget has ended."""
        return time.monotonic() >= self.deadline

    def first_unneeded(self) -> int | None:
        """Return the index from which on no candidate is needed, by this session's reports; None if more are needed."""
        if self.is_time_up():
            return 0
        counting = sorted(i for i, a in self.results.items() if self.goal.counts(a))
        return counting[self.goal.wanted - 1] + 1 if len(counting) >= self.goal.wanted else None

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
        campaign.take(result)
        self.results[result.index] = result
        if terminal is not None and self.config.option.verbose >= (1 if self.is_review else 0):
            done = self.counted_results()
            progress = progress_line(done, self.goal, time.monotonic() - self.start)
            terminal.ensure_newline()
            colour = {"green": True} if result.status is CandidateStatus.VALID else {}
            terminal.write(result_line(result)[:9], **colour)
            terminal.write_line(f"{result_line(result)[9:]}  [{progress}]")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Set exit status 0 only if the wanted number, or the wanted score, was reached; write the results."""
        campaign = self.campaign
        if campaign is not None:
            campaign.close()
        if self.worker or campaign is None or self.config.option.collectonly:
            return
        results = self.counted_results()
        campaign.settle(results, list(self.results.values()))
        is_plain = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        # An interrupted run has not tried everything, and may not draw more.
        is_complete = is_plain and campaign.is_complete(results)
        cut = self._cut(results, exitstatus, is_complete=is_complete)
        self.ending = Ending.of(self.goal, results, cut, is_complete=is_complete)
        if self.shard_run is not None:
            self.shard_run.end(cut)
        read, accepted = campaign.snapshot.read, campaign.acceptances
        score = score_of(results, read, self.goal, accepted, is_complete=is_complete, is_cut=bool(cut))
        self.score = score
        if is_plain and self.gate is not None:
            passed = score.gate(self.gate) is GateCode.PASSED
            session.exitstatus = pytest.ExitCode.OK if passed else pytest.ExitCode.TESTS_FAILED
        elif is_plain:
            done = self.is_review or self.goal.is_reached(results)
            session.exitstatus = pytest.ExitCode.OK if done else pytest.ExitCode.TESTS_FAILED
        if is_plain:
            self.suggestions = self._suggested(campaign, results)
            if self.suggestions.is_interrupted:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
        if self.is_review:
            is_complete = is_complete or self.goal.is_reached(results)
            self.review = review_of(campaign, results, self.suggestions.tests, is_complete=is_complete)
        if self.json_path is not None:
            try:
                self._write_json(self.json_path, campaign, results, score)
            except OSError as error:
                self.write_error = f"{self.json_path} cannot be written: {error.strerror}"
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _cut(self, results: Sequence[CandidateResult], exitstatus: int, *, is_complete: bool) -> Cut:
        """Return what ended the session before it had tried what was planned."""
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            return Cut.INTERRUPT
        is_short = not is_complete and not self.goal.is_reached(results)
        return Cut.TIME if is_short and self.is_time_up() else Cut.NOTHING

    def _suggested(self, campaign: Campaign, results: Sequence[CandidateResult]) -> Suggestions:
        terminal = self._terminal()

        def show(line: str) -> None:
            terminal.rewrite(f"ssr: {line}" if line else "", erase=True)
            terminal.write("\r")

        progress = {"progress": show} if terminal is not None and terminal.isatty else {}
        survivors = survivors_for_tests(campaign, results, self.suggest)
        if self.is_review and not self.suggest_is_given:
            survivors = survivors_with_remarks(campaign, results)
        return suggest_tests(campaign, survivors, deadline=self.end, **progress)

    def _write_json(self, path: Path, campaign: Campaign, results: Sequence[CandidateResult], score: Score) -> None:
        assert self.ending is not None
        content = results_json(
            facts_of(campaign),
            self.goal,
            results,
            score,
            read=campaign.snapshot.read,
            acceptances=campaign.acceptances,
            ending=self.ending,
            fail_under=self.gate,
            seconds=time.monotonic() - self.opened,
            store=campaign.store.root,
            shard=self.shard,
            suggestions=self.suggestions.tests,
        )
        if self.review is not None:
            content["review"] = self.review.to_json()
        write_json(path, content)

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Show the valid artifacts, the rejections by check, what the tests missed, and the score."""
        campaign, score = self.campaign, self.score
        if campaign is None or score is None:
            return
        results = self.counted_results()
        terminalreporter.section("ssr")
        review = self.review
        style = SummaryStyle(self.config.option.ssr_diffs, "--ssr-diffs", in_places=review is None)
        read, accepted = campaign.snapshot.read, campaign.acceptances
        lines = summary_lines(facts_of(campaign), results, style, read=read, acceptances=accepted)
        found = suggestion_lines(self.suggestions.tests) if review is None else review_lines(review, self.budget_s)
        for kind, line in (*lines, *found):
            terminalreporter.write_line(line, **_COLOURS.get(kind, {}))
        if self.suggestions.is_interrupted:
            terminalreporter.write_line(INTERRUPTED, red=True)
        if self.write_error:
            terminalreporter.write_line(self.write_error, red=True)
        terminalreporter.write_line(score.line, bold=True)
        if self.gate is not None:
            passed = score.gate(self.gate) is GateCode.PASSED
            terminalreporter.write_line(gate_line(score, self.gate), green=passed, red=not passed)
        elif self.fail_under is not None and self.shard is not None:
            terminalreporter.write_line(shard_gate_line(self.shard, self.fail_under))
        reached, valid = self.goal.is_reached(results), sum(a.status is CandidateStatus.VALID for a in results)
        if not reached and self.budget_s is not None and self.is_time_up() and review is None:
            terminalreporter.write_line(time_is_up(self.budget_s, self.goal, results), red=True)
        elif not reached and not self.goal.changes and exitstatus != pytest.ExitCode.INTERRUPTED:
            terminalreporter.write_line(
                f"{valid} of {self.goal.count} reached: try another --ssr-seed or --ssr-injector", red=True
            )
        if not campaign.judges_only:
            terminalreporter.write_line(f"artifacts: {display_path(campaign.store.root / 'artifacts')}")
        if self.json_path is not None and not self.write_error:
            terminalreporter.write_line(f"report: {escaped_line(display_path(self.json_path))}")

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
    def pytest_last_line(self) -> Generator[None, object, object]:
        """Write how many changes were tried as the very last line, after pytest's own."""
        result = yield
        terminal = self._terminal()
        if terminal is not None and self.ending is not None:
            part = f"shard {self.shard}: " if self.shard is not None else ""
            terminal.write_line(f"ssr: {part}{self.ending.line}", red=bool(self.ending.cut))
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the end of the time budget, the tree and the number of a shard's candidates to a worker."""
        node.workerinput["ssr_deadline"] = self.deadline
        if self.campaign is not None:
            node.workerinput["ssr_tree_hash"] = self.campaign.snapshot.tree_hash
        if self.shard_run is not None:
            node.workerinput["ssr_candidates"] = self.shard_run.planned

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
        return self.goal.prefix([self.results[i] for i in sorted(self.results)])

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
