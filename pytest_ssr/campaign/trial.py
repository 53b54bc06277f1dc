"""Run the trial of one candidate: screen it, build its artifact, validate it, and store the result."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ssr.campaign.artifact_builder import (
    artifact_info,
    candidate_fields,
    candidate_state,
    diff_text,
    make_artifact,
)
from pytest_ssr.checks.context import HASH_SEED, ORDER_SEED, suite_fault
from pytest_ssr.checks.inverse_mutation import without_one
from pytest_ssr.checks.validator import Validation, step_names
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.screening import FRESH, Screened
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.interrupts import Background, background, workers
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.records.test_run import RunStatus, SuiteRun, abbreviate
from pytest_ssr.records.verdict import CheckResult, Verdict
from pytest_ssr.source.change_identity import identity_of
from pytest_ssr.source.equivalence import common_equivalence

if TYPE_CHECKING:
    from pytest_ssr.campaign.campaign import Campaign

_STABLE_FROM = "test-script"
"""From this step on it is known which tests pass every time."""


class Trial:
    """One candidate's trial: the screening run, the building of the artifact, the validation."""

    def __init__(self, campaign: Campaign, index: int, candidate: Candidate) -> None:
        self.index = index
        self.candidate = candidate
        self._campaign = campaign
        self._start = time.perf_counter()
        campaign.verifying.start()
        self._runner = campaign.runner.scoped()
        self._state = candidate_state(campaign.snapshot, candidate)
        self.artifact: BugArtifact | None = None
        self.validation: Validation | None = None
        self.candidate_result: CandidateResult | None = None
        self.screened = Screened(SuiteRun(RunStatus.SILENT), frozenset(), FRESH, 0)
        self.disagreement = ""
        self._ahead: Background[None] | None = None

    def screen(self) -> CandidateResult | None:
        """Run the tests that the change can reach on the buggy state; return a result if the trial ends here."""
        return self._judge(self._screened(frozenset()))

    def _screened(self, without: frozenset[str]) -> Screened:
        campaign = self._campaign
        most = int(campaign.runner.settings.max_broken_fraction * len(campaign.baseline.stable))
        stop_after = 1 if campaign.judges_only else most + 1
        return campaign.screening.run(self._state, runner=self._runner, stop_after=stop_after, without=without)

    def _judge(self, screened: Screened) -> CandidateResult | None:
        campaign, baseline = self._campaign, self._campaign.baseline
        self.screened, run, failing = screened, screened.run, screened.failing
        if run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED):
            return self._end(CandidateStatus.TIMED_OUT, "screening", suite_fault(run, campaign.runner.test_runner))
        if run.fault:
            return self._end(CandidateStatus.REJECTED, "screening", suite_fault(run, campaign.runner.test_runner))
        if not failing and screened.unexercised:
            reason = CheckReason.of(CheckCode.NOT_EXERCISED, files=screened.unexercised)
            return self._end(CandidateStatus.NOT_EXERCISED, "screening", reason)
        if not failing and (doubtful := campaign.screening.set_aside_near(self._state)):
            reason = CheckReason.of(CheckCode.REACHED_BY_SET_ASIDE, tests=doubtful)
            return self._end(CandidateStatus.UNDECIDED, "screening", reason)
        if not failing:
            code = CheckCode.NOT_NOTICED if screened.selected else CheckCode.NOT_REACHED
            return self._end(CandidateStatus.SURVIVED, "screening", CheckReason(code))
        if campaign.judges_only:
            return self._judge_failures(failing)
        most = campaign.runner.settings.max_broken_fraction
        if len(failing) > most * len(baseline.stable):
            share = len(failing) / len(baseline.stable)
            reason = CheckReason.of(CheckCode.TOO_MANY_BREAK, share=share, most=most)
            return self._end(CandidateStatus.REJECTED, "screening", reason)
        try:
            self.artifact = make_artifact(
                self._state,
                failing,
                baseline,
                campaign.runner.settings,
                test_runner=campaign.runner.test_runner,
            )
            idle = self._idle_part(self.artifact, failing) if self.candidate.strategy == "combination" else None
        except ArtifactError as error:
            reason = CheckReason.of(CheckCode.NOT_WEAKENABLE, error=str(error))
            return self._end(CandidateStatus.REJECTED, "weakening", reason)
        if idle is not None:
            return self._end(CandidateStatus.REJECTED, "screening", idle)
        self.validation = Validation(self.artifact, self._runner, extra_checks=campaign.extra_checks)
        self._run_ahead(self.artifact)
        return None

    def _judge_failures(self, failing: frozenset[str]) -> CandidateResult | None:
        """End the trial of a change with which tests fail: it is noticed if one of them counts, and fails again."""
        campaign = self._campaign
        steady = failing - campaign.set_aside
        if not steady:
            return self._judge(self._screened(campaign.set_aside))
        if not campaign.screening.again(self._state, steady, runner=self._runner):
            reason = CheckReason.of(CheckCode.OUTCOMES_DIFFER, run="screening", tests=steady)
            return self._end(CandidateStatus.REJECTED, "screening", reason)
        return self._end(CandidateStatus.NOTICED, "screening", None)

    def _run_ahead(self, artifact: BugArtifact) -> None:
        """Start the runs that the validation will need, if several can run at a time."""
        self._stop_running_ahead()
        helpers = self._campaign.helpers
        if helpers < 2:
            return
        case = self.validation.case if self.validation else Validation(artifact, self._runner).case
        runner = case.runner
        seconds = self._campaign.baseline.seconds_of_files(artifact.test_files)

        def script(state: CodebaseState) -> None:
            runner.script(state, artifact, like_s=seconds)

        def suite(state: CodebaseState, hash_seed: int, order_seed: int | None, whole: bool) -> None:
            files = case.oracle_files(state)
            runner.suite(state, files, like_s=seconds, hash_seed=hash_seed, order_seed=order_seed, whole=whole)

        def work() -> None:
            with workers(helpers) as pool:
                for state in (case.original, case.buggy, case.weakened):
                    pool.submit(script, state)
                pool.submit(suite, case.weakened, 0, None, False)
                pool.submit(suite, case.buggy, HASH_SEED, ORDER_SEED, True)

        self._ahead = background(work, name="ahead")

    def _stop_running_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None

    def _idle_part(self, artifact: BugArtifact, failing: frozenset[str]) -> CheckReason | None:
        """Return why one part of a combination is idle: with it reverted, every failing test still fails.

        Parts in the same file must matter too, although no check reverts them separately. None if all parts matter.
        """
        for name, state in without_one(self._runner.original, artifact.bug, per_hunk=True):
            if failing <= self._campaign.screening.run(state, runner=self._runner).failing:
                return CheckReason.of(CheckCode.NOTHING_REVIVED, part=name)
        return None

    def result(self, name: str) -> CheckResult | None:
        """Return the result of one step of the validation; None if the trial ended before it.

        If other tests fail in the artifact's own script than in the screening in a warm process, the screening was
        wrong: that is recorded, and the candidate is screened again in a fresh process.
        """
        assert self.validation is not None
        result = self.validation.result(name)
        set_aside = self._campaign.set_aside if name == _STABLE_FROM else frozenset[str]()
        if self.screened.failing & set_aside:
            # Flaky tests do not count: the artifact is built again without them.
            steady = self.screened.failing - set_aside
            screened = replace(self.screened, failing=steady) if steady else self._screened(set_aside)
            if self._judge(screened) is not None:
                return None
            result = self.validation.result(name)
        case = self.validation.case
        if case.script_failing is None or self.screened.tier == FRESH:
            return result
        wrong = case.script_failing ^ (self.screened.failing & case.stable)
        if not wrong:
            return result
        self.disagreement = abbreviate(wrong)
        self._runner = replace(self._runner, selection=None)
        if self._judge(self._campaign.screening.fresh(self._state, runner=self._runner)) is not None:
            return None
        return self.validation.result(name)

    def finish(self) -> CandidateResult | None:
        """Run the remaining steps, store the result (and the artifact, if valid), and return it.

        Returns None, and stores nothing, if the campaign ends before the trial does.
        """
        if self.candidate_result is None and self.screen() is None:
            for name in step_names(self._campaign.extra_checks):
                if self._campaign.ending.is_set():
                    self._stop_running_ahead()
                    return None
                if self.result(name) is None:
                    break
        if self.candidate_result is None:
            assert self.validation is not None
            verdict = self.validation.verdict()
            if verdict.valid:
                self._accept(verdict)
            else:
                self._end(CandidateStatus.REJECTED, verdict.rejected_by, verdict.reason)
        assert self.candidate_result is not None
        return self.candidate_result

    def _accept(self, verdict: Verdict) -> None:
        campaign = self._campaign
        assert self.artifact is not None
        info = artifact_info(
            self.artifact,
            verdict,
            self.candidate,
            seed=campaign.seed,
            repository=campaign.snapshot.project_name,
        )
        artifact = BugArtifact(
            self.artifact.script,
            self.artifact.test_files,
            self.artifact.parser,
            self.artifact.bug,
            self.artifact.weaken,
            info,
        )
        campaign.verdicts.put(verdict)
        # A worker that has been given up may still get here: what it finds must not exceed the wanted number.
        campaign.store.put_artifact(verdict.artifact_id, artifact, spare=True)
        self._end(CandidateStatus.VALID, "", None, verdict)

    def _fields_of_survivor(self) -> dict[str, str]:
        """Return what is worth finding out about a survivor alone, because it takes longer than a sign."""
        changes = self._campaign.changes_of(self.candidate)
        identity = identity_of(self.candidate.operator, [(before, after) for _, before, after in changes])
        return {"identity": identity, "sign": str(common_equivalence(changes) or "")}

    def _end(
        self, status: CandidateStatus, check: str, reason: CheckReason | None, verdict: Verdict | None = None
    ) -> CandidateResult:
        self._stop_running_ahead()
        own = self._fields_of_survivor() if status is CandidateStatus.SURVIVED else {}
        self.candidate_result = CandidateResult(
            index=self.index,
            status=status,
            diff=diff_text(self._state),
            check=check,
            reason=reason,
            artifact_id=verdict.artifact_id if verdict else "",
            fail_to_pass=len(verdict.fail_to_pass) if verdict else 0,
            seconds=round(time.perf_counter() - self._start, 3),
            runs=self._runner.counts.runs,
            tier=self.screened.tier,
            forks=self._runner.counts.forks,
            fallback=self.screened.fallback,
            disagreement=self.disagreement,
            **{**candidate_fields(self.candidate), **own},
        )
        self._campaign.store.put_record(self._campaign.folder, f"{self.index:05d}", self.candidate_result.to_json())
        return self.candidate_result
