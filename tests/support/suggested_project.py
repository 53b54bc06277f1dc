"""Make projects of two files, and search for tests that notice changes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from plain import plain_python

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.suggestions.suggest import Suggester


@contextlib.contextmanager
def campaign_on(folder: Path, code: str, tests: str) -> Iterator[Campaign]:
    """Yield a campaign on a project of two files."""
    project = folder / "project"
    project.mkdir()
    (project / "shop.py").write_text(code)
    # A change must leave half of the tests.
    (project / "test_shop.py").write_text(f"{tests}\n\ndef test_nothing():\n    pass\n")
    campaign = open_campaign(project, Store(folder / "store"), settings=RuleSettings(), python=plain_python(), seed=0)
    try:
        yield campaign
    finally:
        campaign.close()


def suggested(campaign: Campaign, old: str, new: str) -> SuggestedTest:
    """Return what is suggested for a change of shop.py."""
    source = campaign.snapshot.read("shop.py")
    changed = source.replace(old.encode(), new.encode(), 1)
    assert changed != source
    line = source[: source.index(old.encode())].count(b"\n") + 1
    diff = make_patch({"shop.py": (FileEntry(source, 0o100644), FileEntry(changed, 0o100644))}).data.decode()
    survivor = CandidateResult(0, CandidateStatus.SURVIVED, "mutation", "change", "shop.py", line, "f", "", diff)
    candidate = Candidate("mutation", "change", {"shop.py": changed}, "shop.py", line, "f")
    suggester = Suggester(campaign.runner, campaign.baseline, campaign.snapshot.allowed or (), seed=0)
    (found,) = suggester.confirm([suggester.suggest(survivor, candidate_state(campaign.snapshot, candidate))])
    return found
