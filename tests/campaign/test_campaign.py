"""Test a campaign that ends during a trial, and the reuse of scripts on the original."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.execution import runner
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.sandbox.protocol import Sandbox
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.normal_form import EquivalenceProof
from pytest_ssr.storage.store import Store


def test_an_unneeded_trial_stops_and_can_run_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def double(x):\n    return x * 2\n")
    (project / "test_calc.py").write_text(
        "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc\n"
    )
    store = Store(tmp_path / "store")
    campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
    try:
        steps: list[str] = []
        result = Trial.result

        def first_only(trial: Trial, name: str) -> object:
            steps.append(name)
            campaign.ending.set()
            return result(trial, name)

        with monkeypatch.context() as patched:
            patched.setattr(Trial, "result", first_only)
            assert campaign.attempt(0) is None
        assert len(steps) == 1
        assert campaign.stored(0) is None
        campaign.ending.clear()
        attempt = campaign.attempt(0)
        assert attempt is not None
        assert attempt.status is CandidateStatus.VALID, attempt.reason
        assert store.has_artifact(attempt.artifact_id)
        assert store.artifact_ids() == [], "a worker that nobody waits for any more adds no bug to a finished run"
        campaign.take(attempt)
        assert store.artifact_ids() == [attempt.artifact_id]
    finally:
        campaign.close()


@pytest.mark.long
def test_scripts_on_the_original_run_once_for_all_campaigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def double(x):\n    return x * 2\n\n\ndef half(x):\n    return x // 2\n")
    (project / "test_calc.py").write_text(
        "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc.half(9) == 4\n"
    )
    on_original: list[bool] = []
    run = runner.run_script

    def counted(sandbox: Sandbox, *args: object, **kwargs: object) -> object:
        on_original.append(sandbox.read("calc.py") == (project / "calc.py").read_bytes())
        return run(sandbox, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run_script", counted)
    store, counts = Store(tmp_path / "store"), []
    for damaged in (False, False, True):
        if damaged:
            for path in store.root.glob("baselines/scripts-*/*.json"):
                path.write_text('{"statuses": {}, "outputs": ["no", "packed text"], "exit_code": 0, "seconds": 1}')
        on_original.clear()
        campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=len(counts))
        try:
            attempts = [campaign.attempt(index) for index in range(2)]
        finally:
            campaign.close()
        counts.append(on_original.count(True))
        assert any(a is not None and a.status is CandidateStatus.VALID for a in attempts)
        assert on_original.count(False) >= 2, "scripts on changed states run each time"
    assert counts == [1, 0, 1]


SKIPPING = """\
def double(x):
    return x * 2


def half(x):  # ssr: skip
    return x // 2


class Table:
    limit = 4  # ssr: skip

    def first(self, x):
        if x > 3:
            return x + 1  # ssr: skip
        return "# ssr: skip" * x
"""


def test_survivors_have_their_proofs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    code = "def clip(a: int, b: int):\n    if a > 10:\n        return 10\n    c = a * b\n    return c if c > b else b\n"
    (project / "calc.py").write_text(code)
    tests = "import calc\n\n\ndef test_a():\n    assert calc.clip(1, 2) == 2\n\n\ndef test_b():\n    assert calc\n"
    (project / "test_calc.py").write_text(tests)
    campaign = open_campaign(
        project,
        Store(tmp_path / "store"),
        settings=RuleSettings(),
        injectors="mutation",
        python=plain_python(),
        judges_only=True,
    )
    try:
        results = list(itertools.takewhile(bool, map(campaign.attempt, itertools.count())))
    finally:
        campaign.close()
    survivors = [r for r in results if r is not None and r.status is CandidateStatus.SURVIVED]
    proven = {r.operator for r in survivors if r.sign == EquivalenceProof.BOUND}
    assert proven == {"boundary-comparison"}
    assert "" in {r.sign for r in survivors}


@pytest.mark.long
def test_no_injector_changes_what_a_comment_excludes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text(SKIPPING)
    (project / "test_calc.py").write_text(
        "import calc\n\n\ndef test_a():\n    assert calc.double(2) == 4\n\n\ndef test_b():\n    assert calc\n"
    )

    class Deletion:
        name = "deletion"

        def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
            yield Candidate(self.name, self.name, {"calc.py": None}, "calc.py", 1, "<module>")

    campaign = open_campaign(
        project,
        Store(tmp_path / "store"),
        settings=RuleSettings(),
        injectors="mutation,removal,combination,mutmut,deletion",
        extra_injectors={"deletion": Deletion()},
        python=plain_python(),
    )
    try:
        drawn = [c for c in map(campaign.candidate, range(500)) if c is not None]
    finally:
        campaign.close()
    assert campaign.skipped_counts() == {"function": 1, "class": 0, "line": 2}
    assert {c.strategy for c in drawn} >= {"mutation", "removal", "combination"}
    assert {c.scope for c in drawn} == {"double", "Table.first"}
    assert {c.sign for c in drawn} == {""}, "it was looked for"
    for candidate in drawn:
        (text,) = candidate.changes.values()
        assert text is not None
        for line in (
            b"    return x // 2\n",
            b"    limit = 4  # ssr: skip\n",
            b"            return x + 1  # ssr: skip\n",
        ):
            assert line in text, candidate
