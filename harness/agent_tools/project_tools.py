"""Offer what coding agents need of one project as plain methods: review, explain, suggest, verify, accept.

Nothing that an agent passes reaches a shell or names a file: ids are looked up among the survivors of the last run,
and the content of a test is written only into sandboxes. The only file of the project that is written is that of
accepted survivors. Mistakes raise SsrError.
"""

from __future__ import annotations

import ast
import contextlib
import posixpath
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harness.agent_tools.answers import (
    AcceptanceAnswer,
    RemarkAnswer,
    ReviewAnswer,
    SuggestionAnswer,
    SurvivorAnswer,
    VerificationAnswer,
)
from harness.executors.local import LocalExecutor
from harness.injectors.campaign_work import CampaignWork
from harness.settings.agent_tools import McpSettings
from harness.storage.atomic_write import lone_surrogate
from pytest_ssr.campaign.acceptances import Acceptance, AcceptanceKind, add_acceptances, only_id
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign, open_runner
from pytest_ssr.campaign.findings import SUGGESTIONS, Findings, stored_findings
from pytest_ssr.campaign.parallel import PER_CHANGE, run_candidates
from pytest_ssr.campaign.report import progress_line
from pytest_ssr.campaign.review import Remark, change_in_words, changes_until, review_of, survivors_with_remarks
from pytest_ssr.campaign.score import scored_injectors
from pytest_ssr.campaign.suggested_tests import suggest_tests
from pytest_ssr.errors import ArtifactError, NoRunError, NothingToDoError, SettingsError
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.execution.runner import Runner
from pytest_ssr.extensions import Extensions
from pytest_ssr.injectors.revision_filter import base_revision
from pytest_ssr.interrupts import TimeBudgetError, until
from pytest_ssr.options import PluginSettings
from pytest_ssr.patch import Patch
from pytest_ssr.progress import ProgressLines
from pytest_ssr.project.file_roles import is_test_file
from pytest_ssr.project.pytest_config import root_options
from pytest_ssr.project.report_marks import ACCEPTED_FILE
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateResult, Goal
from pytest_ssr.records.suggested_test import NoSuggestion, SuggestedTest
from pytest_ssr.storage.baseline_store import open_baseline
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store
from pytest_ssr.suggestions.suggest import Suggester
from pytest_ssr.suggestions.verification import NewTest, Verdict, verify

Report = Callable[[str], None]
"""Called in any thread with a line that says what is being done."""
MOST_SECONDS = 3600.0
"""The longest review."""
MOST_CONTENT = 100_000
"""Characters of a test file."""
_MOST_REASON, _MOST_REVISION = 500, 200
_MOST_DIFF, _MOST_MESSAGE = 6000, 300
_NOT_TESTS = ("__init__.py", "conftest.py")
_SEARCH_S = 60.0
"""The time for the search for one test, after the tests have been measured."""
_NO_TEST = (
    "Write a test yourself: explain_survivor shows the change, verify_test runs your test. If no test is wanted, ask "
    "the developer before you call accept."
)


class ProjectTools:
    """The tools of one project. Not for several threads at the same time."""

    def __init__(self, settings: McpSettings, extensions: Extensions) -> None:
        """extensions: the sandboxes, injectors and checks of other packages."""
        self._settings, self._extensions = settings, extensions
        self._project = settings.repo
        self._root = settings.store or settings.repo / ".ssr"

    def review(self, rev: str, time_s: float, report: Report) -> ReviewAnswer:
        """Return what no test would notice in code that has changed since a revision.

        rev: empty for the commit at which the branch left the main one. time_s: as in `ssr review`.
        """
        if not 0 < time_s <= MOST_SECONDS:
            raise SettingsError(f"time is a number of seconds, at most {MOST_SECONDS:g}")
        _require_text(rev, "rev", _MOST_REVISION)
        try:
            campaign = self._campaign(rev or base_revision(self._project), report)
        except NothingToDoError as error:
            return ReviewAnswer([], 0, 0, True, [], f"Nothing to review: {escaped_line(str(error))}")
        deadline = time.monotonic() + time_s
        with until(changes_until(deadline)):
            results = self._results(campaign, report)
        is_complete = Goal(0, self._settings.changes).is_reached(results) or campaign.is_complete(results)
        chosen = survivors_with_remarks(campaign, results)
        suggestions = suggest_tests(campaign, chosen, deadline=deadline, progress=report)
        if suggestions.is_interrupted:
            raise KeyboardInterrupt
        review = review_of(campaign, results, suggestions.tests, is_complete=is_complete)
        places = [escaped_line(f"{path} {function}") for path, function in review.not_tried]
        remarks = list(map(_remark, review.remarks))
        step = _after_review(remarks, is_complete=is_complete)
        unproven = [remark.result.identity for remark in review.unproven]
        return ReviewAnswer(remarks, review.more, review.tried, is_complete, places, step, unproven)

    def explain_survivor(self, id: str) -> SurvivorAnswer:
        """Return all about one survivor of the last run."""
        findings, result = self._survivor(id)
        accepted = findings.accepted.get(result.index)
        return SurvivorAnswer(
            id=result.identity,
            path=escaped_line(result.path),
            line=result.line,
            function=escaped_line(result.scope),
            text=escaped_line(change_in_words(result)),
            diff=_limited(escaped(result.diff), _MOST_DIFF),
            is_reached=result.is_reached,
            equivalence=str(findings.equivalences.get(result.index, "")),
            accepted=escaped_line(accepted.reason) if accepted is not None else "",
            next="suggest_test may have a test that notices it; verify_test runs one that you write.",
        )

    def suggest_test(self, id: str, report: Report) -> SuggestionAnswer:
        """Return the test that notices a survivor, from the store or by looking for it."""
        findings, result = self._survivor(id)
        suggested = findings.suggestions.get(result.index) or self._search(findings, result, report)
        step = _NO_TEST
        if suggested.test:
            step = (
                "It passes today and fails with the change. Judge whether what it demands is right, append it to "
                "`file` under a good name, or write a new file that pytest collects, then call review again."
            )
        return SuggestionAnswer(
            id=result.identity,
            found=bool(suggested.test),
            folder=escaped_line(suggested.folder),
            file=escaped_line(suggested.file),
            content=escaped(suggested.test),
            reason=str(suggested.reason or ""),
            next=step,
        )

    def verify_test(self, id: str, content: str, report: Report) -> VerificationAnswer:
        """Run a test file on the original and with a survivor's change, in a sandbox, several times."""
        _require_test(content)
        findings, result = self._survivor(id)
        report("copying the project")
        # An agent has written the test, so `auto` does not choose a sandbox without isolation.
        runner = self._runner(compiled=False, model_written=True)
        runner = replace(runner, pytest_options=root_options(runner.snapshot, self._settings.tests))
        changed = _changed(runner, result)
        file = _test_file(findings, result, runner)
        folder = posixpath.dirname(file)
        test = NewTest.in_folder(folder, content, runner.snapshot.files)
        report("running the test on the original and with the change")
        found = verify(runner, changed, test, like_s=findings.campaign.seconds)
        return VerificationAnswer(
            id=result.identity,
            verified=found.verdict is Verdict.VERIFIED,
            verdict=str(found.verdict),
            folder=escaped_line(folder),
            file=escaped_line(file),
            runs=found.runs,
            messages=[_limited(escaped_line(message), _MOST_MESSAGE) for message in found.messages],
            next=_AFTER_VERIFICATION[found.verdict],
        )

    def accept(self, id: str, reason: str, kind: str) -> AcceptanceAnswer:
        """Add a survivor to the project's file of accepted ones."""
        if not reason.strip():
            raise SettingsError("give the reason why no test is wanted")
        _require_text(reason, "reason", _MOST_REASON)
        try:
            chosen = AcceptanceKind(kind)
        except ValueError:
            raise SettingsError(f"kind is one of {', '.join(AcceptanceKind)}") from None
        _, result = self._survivor(id)
        add_acceptances(self._project, [Acceptance.of(result, chosen, reason.strip(), None)])
        step = f"Commit {ACCEPTED_FILE}; reviews no longer show this survivor."
        return AcceptanceAnswer(result.identity, str(chosen), ACCEPTED_FILE, step)

    def _campaign(self, revision: str, report: Report) -> Campaign:
        settings, extensions = self._settings, self._extensions
        require_space(self._root, "store")
        report("copying the project and measuring its tests")
        return open_campaign(
            self._project,
            Store(self._root),
            **settings.execution.run_options(),
            injectors=scored_injectors(PluginSettings.injector),
            seed=settings.seed,
            sources=settings.source,
            tests=settings.tests,
            jobs=settings.jobs,
            revision=revision,
            extra_injectors=extensions.injectors(),
            extra_sandboxes=extensions.sandboxes(),
            extra_checks=extensions.checks(),
            judges_only=True,
            progress=ProgressLines(live=report, plain=report),
        )

    def _results(self, campaign: Campaign, report: Report) -> list[CandidateResult]:
        goal = Goal(0, self._settings.changes)
        start = time.monotonic()
        with contextlib.closing(campaign):
            return run_candidates(
                campaign,
                goal,
                units=LocalExecutor(self._settings.jobs).units(CampaignWork(campaign)),
                most=PER_CHANGE * goal.changes,
                progress=lambda done: report(progress_line(done, goal, time.monotonic() - start)),
            )

    def _runner(self, **options: Any) -> Runner:
        return open_runner(
            self._project,
            Store(self._root),
            **self._settings.execution.run_options(),
            extra_sandboxes=self._extensions.sandboxes(),
            **options,
        )

    def _survivor(self, id: str) -> tuple[Findings, CandidateResult]:
        """Return the last run, and its survivor whose id begins with a text."""
        try:
            if not self._root.is_dir():
                raise NoRunError
            findings = stored_findings(Store(self._root), self._project)
        except NoRunError:
            raise NoRunError("no change of this project has been tried yet; call review first") from None
        survivors = findings.by_identity
        return findings, survivors[only_id(id, survivors, "the last run")]

    def _search(self, findings: Findings, result: CandidateResult, report: Report) -> SuggestedTest:
        """Look for a test, and keep what was found, unless the time ended."""
        key, store = findings.campaign.key, Store(self._root)
        where = result.index, result.path, result.line, result.scope
        kind, name = f"{SUGGESTIONS}/{key}", f"{result.index:05d}"
        stored = SuggestedTest.from_json(store.record(kind, name))
        if stored is not None and stored.reason is not NoSuggestion.LIMIT:
            return stored
        report("measuring the tests")
        opened = self._runner(progress=ProgressLines(live=report, plain=report))
        changed = _changed(opened, result)
        baseline, runner, second_run = open_baseline(opened, store, self._settings.tests)
        files = [path for path in findings.campaign.files if path in runner.snapshot.files]
        report("looking for a test")
        try:
            suggester = Suggester(replace(runner, progress=None), baseline, files, seed=self._settings.seed)
            with until(time.monotonic() + _SEARCH_S):
                (found,) = suggester.confirm([suggester.suggest(result, changed)])
        except TimeBudgetError:
            return SuggestedTest(*where, reason=NoSuggestion.LIMIT)
        finally:
            second_run.close()
            if runner.fork_server is not None:
                runner.fork_server.close()
        store.put_record(kind, name, found.to_json())
        return found


_AFTER_VERIFICATION: Mapping[Verdict, str] = {
    Verdict.VERIFIED: "Append the test to `file`, or write a new file that pytest collects, then call review again.",
    Verdict.ORIGINAL: "All tests of the file must pass on the code as it is; mend the test and verify it again.",
    Verdict.CHANGE: "A test must fail with the change; explain_survivor shows it. Mend the test and verify it again.",
}


def _after_review(remarks: list[RemarkAnswer], *, is_complete: bool) -> str:
    if remarks:
        with_test = next((remark for remark in remarks if remark.has_test), remarks[0])
        return (
            f"Call suggest_test for each remark, the first with {with_test.id}; then write the tests and review again."
        )
    if not is_complete:
        return "No survivor so far, but not all changes were tried: call review with more time."
    return "No survivor: nothing to do."


def _remark(remark: Remark) -> RemarkAnswer:
    result = remark.result
    return RemarkAnswer(
        id=result.identity,
        path=escaped_line(result.path),
        line=result.line,
        function=escaped_line(result.scope),
        text=escaped_line(remark.text),
        is_reached=remark.is_run,
        has_test=remark.suggestion is not None,
    )


def _changed(runner: Runner, result: CandidateResult) -> CodebaseState:
    """Return the project with a survivor's change; raises SettingsError if its code is no longer the same."""
    try:
        changed = runner.original.apply(Patch.parse(result.diff.encode()))
    except (ArtifactError, UnicodeEncodeError):
        changed = runner.original
    if not changed.changes:
        raise SettingsError(f"{result.path} is no longer as the last run saw it; call review again")
    return changed


def _test_file(findings: Findings, result: CandidateResult, runner: Runner) -> str:
    """Return the file beside which a new test belongs: that of a suggested test, or one in the folder with most tests.

    Empty if the project has no file that looks like tests.
    """
    paths = [path for path in runner.snapshot.files if path.endswith(".py") and is_test_file(path)]
    named = [path for path in paths if posixpath.basename(path) not in _NOT_TESTS]
    folders = Counter(map(posixpath.dirname, named))
    own = findings.suggestions.get(result.index)
    suggested = [s.file for s in ([own] if own is not None else findings.suggestions.values())]
    likely = sorted(named, key=lambda path: (-folders[posixpath.dirname(path)], path))
    return next((path for path in (*suggested, *likely) if path in runner.snapshot.files), "")


def _require_text(text: str, name: str, most: int) -> None:
    """Raise SettingsError for text that is too long, or that no file can hold."""
    if len(text) > most:
        raise SettingsError(f"{name} has {len(text)} characters, but at most {most} are possible")
    if lone_surrogate(text) or any(ord(c) < ord(" ") and c not in "\t\n" for c in text):
        raise SettingsError(f"{name} holds characters that are not text")


def _require_test(content: str) -> None:
    """Raise SettingsError unless a text may be a test file."""
    _require_text(content.replace("\r\n", "\n").replace("\f", ""), "content", MOST_CONTENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
    except SyntaxError as error:
        raise SettingsError(f"content does not parse: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise SettingsError("content does not parse") from None


def _limited(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
