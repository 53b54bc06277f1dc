"""Collect what a campaign found, from memory or from its store: what reports are made of.

A campaign writes a record about itself when it starts, so that a report can be written later, also of a run that was
killed.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ssr.campaign.acceptances import Acceptance, Acceptances, read_acceptances
from pytest_ssr.campaign.score import Score, count_noticed, is_scored
from pytest_ssr.campaign.survivors import Survivor, ranked
from pytest_ssr.errors import ArtifactError, NoRunError, StoreError
from pytest_ssr.patch import Patch
from pytest_ssr.project.snapshot import name_of
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.decoding import decode_or_none
from pytest_ssr.records.suggested_test import SuggestedTest
from pytest_ssr.source.equivalence import Equivalence
from pytest_ssr.storage.store import Store

if TYPE_CHECKING:
    from pytest_ssr.campaign.campaign import Campaign

RECORDS = "campaigns"
"""The folder of the store with a record of each campaign."""
SUGGESTIONS = "suggestions"
"""The folder of the store with the suggested tests of each campaign."""
_SCHEMA_VERSION = 1
_TREE = "tree"
_KINDS = ("artifacts", "spare")
_LINE_END = re.compile(r"\r\n?")


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """The conditions of a campaign."""

    key: str
    project: str
    """The project's name."""
    folder: str
    """The project's directory when the campaign started."""
    tree_hash: str
    started_at: float
    """When its last run started, in seconds since the epoch."""
    tests: int
    """Number of tests that pass every time."""
    seconds: float
    """Wall time of one run of them."""
    python: str
    sandbox: str
    seed: int
    files: Sequence[str]
    """The files that changes may go into."""
    root: str = ""
    """The path from the top of the git repository to the project, if the project is a folder of one."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {"schema_version": _SCHEMA_VERSION, **values, "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class ProvenBug:
    """A valid artifact, with the tests that catch it."""

    result: CandidateResult
    fail_to_pass: tuple[str, ...]
    diff: str
    """As the artifact has it."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a campaign so far."""

    campaign: CampaignRecord
    results: Sequence[CandidateResult]
    """In the campaign's order."""
    bugs: Sequence[ProvenBug]
    tree: Path
    """The directory of the files as they were when the campaign started; it may have been removed."""
    survivors: Sequence[Survivor]
    """The changes that no test noticed, without accepted ones; those that matter most first."""
    scored: frozenset[int]
    """The indices of the results that count in a score."""
    equivalences: Mapping[int, Equivalence] = field(default_factory=dict)
    """Why survivors are equivalent, by proofs or signs, by the index of their results."""
    suggestions: Mapping[int, SuggestedTest] = field(default_factory=dict)
    """The tests that notice survivors, by the index of their results."""
    accepted: Mapping[int, Acceptance] = field(default_factory=dict)
    """What the team has decided about other survivors, by the index of their results."""

    @classmethod
    def of(
        cls,
        campaign: CampaignRecord,
        results: Sequence[CandidateResult],
        bugs: Sequence[ProvenBug],
        tree: Path,
        suggestions: Sequence[SuggestedTest] = (),
        acceptances: Acceptances | None = None,
    ) -> Findings:
        """Rank the survivors among the results, and choose those that count in a score; see the fields."""

        @functools.cache
        def read(path: str) -> bytes:
            # A stored result is not trusted to name a file of the project.
            if path not in campaign.files or not (tree / path).is_file():
                raise FileNotFoundError(path)
            return (tree / path).read_bytes()

        decided = acceptances or Acceptances()
        scored = frozenset(result.index for result in results if is_scored(result, read, decided))
        tests = {suggested.index: suggested for suggested in suggestions if suggested.test}
        survivors = ranked(results, read, decided)
        accepted = {s.result.index: s.acceptance for s in survivors if s.acceptance is not None}
        survivors = [s for s in survivors if s.acceptance is None]
        equivalences = {s.result.index: s.equivalence for s in survivors if s.equivalence is not None}
        return cls(campaign, results, bugs, tree, survivors, scored, equivalences, tests, accepted)

    @classmethod
    def nothing(cls, project: Path) -> Findings:
        """Return the findings of a run that had nothing to do in the directory of a project."""
        names = name_of(project), str(project.resolve())
        return cls.of(CampaignRecord("", *names, "", time.time(), 0, 0.0, "", "", 0, ()), (), (), project)

    def score_of(self, results: Iterable[CandidateResult]) -> Score:
        """Return the score of some of the results."""
        scored = [result for result in results if result.index in self.scored]
        return Score(count_noticed(scored), len(scored), is_complete=False)

    @property
    def by_identity(self) -> dict[str, CandidateResult]:
        """The survivors by their identities, accepted ones included."""
        return {r.identity: r for r in self.results if r.status is CandidateStatus.SURVIVED and r.identity}

    def content(self, path: str) -> bytes | None:
        """Return a file of the project; None if it is not there."""
        if path not in self.campaign.files:
            return None
        try:
            return (self.tree / path).read_bytes()
        except OSError:
            return None

    def source(self, path: str) -> str | None:
        """Return a file of the project as text; None if it is not there."""
        content = self.content(path)
        return text_of(content) if content is not None else None


def text_of(content: bytes) -> str:
    """Return the content of a file as text whose lines end in a line feed alone."""
    return _LINE_END.sub("\n", content.decode("utf-8", "replace"))


def record_start(campaign: Campaign) -> None:
    """Write the record of a campaign, and share the files that it works on; a run that goes on replaces the record."""
    # First the tree: a record that another machine sees has one.
    campaign.store.shared_trees.share(campaign.snapshot.tree_hash)
    campaign.store.put_record(RECORDS, campaign.key, _record_of(campaign).to_json())


def findings_of(campaign: Campaign, results: Sequence[CandidateResult]) -> Findings:
    """Return the findings of a running campaign."""
    return _findings(campaign.store, _record_of(campaign), results, campaign.acceptances)


def stored_findings(store: Store, project: Path | None = None) -> Findings:
    """Return the findings of the campaign that started or went on last in a store; raises NoRunError without one.

    project: only campaigns in this directory, or, if there are none because other machines ran them, of the same name.
    """
    records = _records(store)
    if project is not None:
        folder = str(project.resolve())
        records = [r for r in records if r.folder == folder] or [r for r in records if r.project == name_of(project)]
    if not records:
        raise NoRunError(f"{store.root} has no run of ssr inject to report; run `pytest --ssr-inject` first")
    acceptances = read_acceptances(project) if project is not None else None
    return _stored_findings(store, max(records, key=lambda r: r.started_at), acceptances)


def campaign_findings(store: Store, beginning: str) -> Findings | None:
    """Return the findings of the campaign whose key begins with a string; None if not exactly one does."""
    records = [r for r in _records(store) if r.key.startswith(beginning)]
    return _stored_findings(store, records[0]) if len(records) == 1 else None


def findings_with(
    store: Store, key: str, results: Sequence[CandidateResult], acceptances: Acceptances | None = None
) -> Findings:
    """Return the findings of the campaign with a key from some results; raises StoreError without its record."""
    record = _read(store, key)
    if record is None:
        raise StoreError(f"{store.root} has no record of the campaign {key}, or it is damaged")
    return _findings(store, record, results, acceptances)


def _records(store: Store) -> list[CampaignRecord]:
    found = (_read(store, path.stem) for path in store.fetch(RECORDS) if path.suffix == ".json")
    return [record for record in found if record is not None]


def _stored_findings(store: Store, record: CampaignRecord, acceptances: Acceptances | None = None) -> Findings:
    store.shared_trees.fetch(record.tree_hash)
    data = (store.record(f"attempts/{record.key}", p.stem) for p in store.fetch(f"attempts/{record.key}"))
    results = [CandidateResult.from_json(item) for item in data if item is not None]
    return _findings(store, record, sorted((r for r in results if r is not None), key=lambda r: r.index), acceptances)


def _record_of(campaign: Campaign) -> CampaignRecord:
    base, snapshot = campaign.baseline, campaign.snapshot
    return CampaignRecord(
        key=campaign.key,
        project=snapshot.project_name,
        folder=str(snapshot.origin.resolve()),
        tree_hash=snapshot.tree_hash,
        started_at=time.time(),
        tests=len(base.stable),
        seconds=base.seconds,
        python=base.python,
        sandbox=campaign.runner.provider.name,
        seed=campaign.seed,
        files=sorted(snapshot.allowed or ()),
        root=_path_in_repository(snapshot.origin.resolve()),
    )


def _path_in_repository(folder: Path) -> str:
    top = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)
    relative = folder.relative_to(top).as_posix()
    return "" if relative == "." else relative


def _read(store: Store, key: str) -> CampaignRecord | None:
    data: Mapping[str, Any] | None = store.record(RECORDS, key)
    return decode_or_none(CampaignRecord, data, version=_SCHEMA_VERSION) if data is not None else None


def _findings(
    store: Store, record: CampaignRecord, results: Sequence[CandidateResult], acceptances: Acceptances | None
) -> Findings:
    bugs = [_proven(store, r) for r in results if r.status is CandidateStatus.VALID]
    kind = f"{SUGGESTIONS}/{record.key}"
    suggested = (SuggestedTest.from_json(store.record(kind, path.stem)) for path in store.fetch(kind))
    tests = [s for s in suggested if s is not None]
    return Findings.of(record, results, bugs, store.trees / record.tree_hash / _TREE, tests, acceptances)


def _proven(store: Store, result: CandidateResult) -> ProvenBug:
    for kind in _KINDS:
        store.fetch(f"{kind}/{result.artifact_id}")
        try:
            artifact = read_artifact(store.root / kind / result.artifact_id)
        except ArtifactError:
            continue
        tests = artifact.info.get("FAIL_TO_PASS")
        names = tuple(map(str, tests)) if isinstance(tests, list) else ()
        return ProvenBug(result, names, _text(artifact.bug))
    return ProvenBug(result, (), result.diff)


def _text(patch: Patch) -> str:
    return patch.data.decode("utf-8", "replace")
