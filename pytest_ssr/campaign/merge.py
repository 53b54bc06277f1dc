"""Join the results of all shards of an injection or a validation into one store, as if one machine had made them.

Nothing is joined unless the shards are of the same work, all of them are there, and each has all of its results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pytest_ssr.campaign.facts import CampaignFacts
from pytest_ssr.campaign.findings import RECORDS
from pytest_ssr.campaign.shard_record import PLAN, ShardRecord, latest, put_shard, stored_shards
from pytest_ssr.campaign.validation_shard import VALIDATIONS, without_seconds
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.records.artifact import BugArtifact, read_artifact
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.records.shard import Shard
from pytest_ssr.records.test_run import SetAside
from pytest_ssr.storage.shared_trees import is_tree_hash
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.tree_archives import archive_of, place_archive

_R = TypeVar("_R")
_MOST_SHOWN = 5
_ARTIFACT_ID = re.compile(r"[0-9a-f]{20}")
_KINDS = ("artifacts", "spare")


class MergeCode(StrEnum):
    """What is wrong with shards, or worth knowing of them."""

    NO_SHARD = "no-shard"
    """A store has no record of a shard."""
    OTHER_WORK = "other-work"
    """A store has a shard of other work than most stores: of another commit, with another seed and so on."""
    MISSING = "missing"
    """No store has the shard."""
    CUT = "cut"
    """Some of the shard's changes were not tried, or their results are lost."""
    RESULTS_DIFFER = "results-differ"
    """The shard was run twice, with different results."""
    NO_FILES = "no-files"
    """No store has the project's files, which the reports show."""
    REPEATED = "repeated"
    """The shard was run twice, with the same results."""
    TESTS_DIFFER = "tests-differ"
    """Not the same tests passed every time on all machines."""

    @property
    def is_problem(self) -> bool:
        """Whether the shards cannot be joined because of it."""
        return self not in (MergeCode.REPEATED, MergeCode.TESTS_DIFFER)


@dataclass(frozen=True, slots=True)
class MergeRemark:
    """One thing that is wrong with shards, or worth knowing of them."""

    code: MergeCode
    shard: int = 0
    """The number of the shard; 0 if it is about a store, or about all."""
    of: int = 0
    stores: tuple[str, ...] = ()
    """The stores that it is about, as the user named them."""
    differs: tuple[str, ...] = ()
    """What differs: conditions of the work, or tests."""
    commit: str = ""
    """The commit of other work."""
    indices: tuple[int, ...] = ()
    """The changes, or artifacts, that it is about."""
    planned: int = 0
    """The number of those that the shard has."""
    ending: str = ""
    """How the shard ended."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON, without what says nothing."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value} | {"code": str(self.code)}


def remark_line(remark: MergeRemark) -> str:
    """Return a remark as one line."""
    shard, stores = f"shard {remark.shard} of {remark.of}", " and ".join(remark.stores)
    match remark.code:
        case MergeCode.NO_SHARD:
            return f"{stores} has no shard: it is not the store of a run with --shard, or of another release"
        case MergeCode.OTHER_WORK:
            commit = f" (commit {remark.commit[:12]})" if remark.commit and "files" in remark.differs else ""
            return f"{shard} in {stores} is of other work{commit}: {', '.join(remark.differs)} differ from the others"
        case MergeCode.MISSING:
            return f"{shard} is missing"
        case MergeCode.CUT:
            cause = _CAUSES.get(remark.ending, "its results are missing or damaged")
            return f"{shard} is not complete: {len(remark.indices)} of its {remark.planned} were not tried; {cause}"
        case MergeCode.RESULTS_DIFFER:
            numbers = ", ".join(map(str, remark.indices[:_MOST_SHOWN]))
            more = f" and {len(remark.indices) - _MOST_SHOWN} more" if len(remark.indices) > _MOST_SHOWN else ""
            return f"{shard} was run twice with different results, of number {numbers}{more}: {stores}"
        case MergeCode.NO_FILES:
            return "no store has the complete files of the project (its folder trees), which the results are shown with"
        case MergeCode.REPEATED:
            return f"{shard} was run twice with the same results, which count once: {stores}"
        case MergeCode.TESTS_DIFFER:
            names = ", ".join(remark.differs[:_MOST_SHOWN]) or "their number"
            return f"the same tests did not count in all shards: {names}; a test that is flaky makes results differ"


_CAUSES = {
    "running": "it was killed",
    "time": "its time budget ended; run it again with the same store to go on",
    "interrupted": "it was interrupted; run it again with the same store to go on",
}


@dataclass(frozen=True, slots=True)
class FoundShard:
    """A shard in a store."""

    name: str
    """The store, as the user named it."""
    store: Store
    record: ShardRecord


@dataclass(frozen=True, slots=True)
class Result(Generic[_R]):
    """A result with the store that has it."""

    value: _R
    store: Store
    name: str


@dataclass(slots=True)
class Shards:
    """The shards of the stores, and what was found out about them."""

    found: list[FoundShard] = field(default_factory=list)
    """Those of the same work."""
    remarks: list[MergeRemark] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the shards can be joined."""
        return bool(self.found) and not any(remark.code.is_problem for remark in self.remarks)

    @property
    def record(self) -> ShardRecord:
        """The record of the first shard; all agree about the work."""
        return min((f.record for f in self.found), key=lambda record: record.shard)


def find_shards(stores: Mapping[str, Store]) -> Shards:
    """Return the shards in stores, by the names of these, with remarks on what is missing or does not belong.

    Of a store that has been kept over several commits, only the work that was started last counts.
    """
    shards, found = Shards(), []
    for name, store in stores.items():
        records = latest(stored_shards(store))
        found += [FoundShard(name, store, record) for record in records]
        if not records:
            shards.remarks.append(MergeRemark(MergeCode.NO_SHARD, stores=(name,)))
    if not found:
        return shards
    plans: dict[tuple[object, ...], list[FoundShard]] = {}
    for one in found:
        plans.setdefault(one.record.plan, []).append(one)
    chosen = max(plans.values(), key=lambda group: (len({f.record.number for f in group}), group[0].record.started_at))
    shards.found = chosen
    reference = shards.record
    for one in found:
        if one.record.plan != reference.plan:
            differs = tuple(_differences(one.record, reference))
            record = one.record
            shards.remarks.append(
                MergeRemark(
                    MergeCode.OTHER_WORK, record.number, record.of, (one.name,), differs=differs, commit=record.commit
                )
            )
    present = {f.record.number for f in chosen}
    missing = [number for number in range(1, reference.of + 1) if number not in present]
    shards.remarks += [MergeRemark(MergeCode.MISSING, number, reference.of) for number in missing]
    return shards


def _differences(record: ShardRecord, other: ShardRecord) -> Iterator[str]:
    """Yield the names of what differs between the work of two shards."""
    if record.kind is not other.kind:
        yield "kind"
    names = (*other.conditions, *(name for name in record.conditions if name not in other.conditions))
    yield from (name for name in names if record.conditions.get(name) != other.conditions.get(name))
    if record.kind is other.kind:
        yield from (name.replace("_", "-") for name in PLAN if getattr(record, name) != getattr(other, name))


def candidate_results(shards: Shards) -> list[Result[CandidateResult]]:
    """Return the results of an injection in order, and add remarks on those that are missing or contradict."""

    tree_hash = shards.record.conditions["files"]

    def read(found: FoundShard, index: int) -> CandidateResult | None:
        data = found.store.record(f"attempts/{found.record.key}", f"{index:05d}")
        result = CandidateResult.from_json(data) if data is not None else None
        if result is None or result.index != index:
            return None
        needs_artifact = result.status is CandidateStatus.VALID
        return None if needs_artifact and _artifact(found.store, result.artifact_id, tree_hash) is None else result

    def outcome(result: CandidateResult) -> object:
        # How a change was tried may depend on the machine.
        return replace(result, seconds=0.0, runs=0, forks=0, tier="", fallback=None, disagreement="")

    return _joined(shards, read, outcome)


def validation_results(shards: Shards) -> list[Result[dict[str, Any]]]:
    """Return the results of a validation in order, and add remarks on those that are missing or contradict."""

    def read(found: FoundShard, index: int) -> dict[str, Any] | None:
        return found.store.record(f"{VALIDATIONS}/{found.record.key}", f"{index:05d}")

    return _joined(shards, read, lambda result: {**without_seconds(result), "path": ""})


def _joined(
    shards: Shards, read: Callable[[FoundShard, int], _R | None], outcome: Callable[[_R], object]
) -> list[Result[_R]]:
    """Return the results by index. outcome: returns what must be the same in two runs of a shard."""
    reference = shards.record
    joined: dict[int, Result[_R]] = {}
    for number in sorted({f.record.number for f in shards.found}):
        copies = [f for f in shards.found if f.record.number == number]
        own, differing = _results_of(copies, read, outcome)
        joined.update(own)
        indices = Shard(number, reference.of).indices(reference.planned)
        names = tuple(f.name for f in copies)
        if differing:
            shards.remarks.append(
                MergeRemark(MergeCode.RESULTS_DIFFER, number, reference.of, names, indices=tuple(sorted(differing)))
            )
        elif len(copies) > 1:
            shards.remarks.append(MergeRemark(MergeCode.REPEATED, number, reference.of, names))
        lost = tuple(index for index in indices if index not in own)
        if lost:
            ending = max(copies, key=lambda f: f.record.started_at).record.ending
            shards.remarks.append(
                MergeRemark(
                    MergeCode.CUT,
                    number,
                    reference.of,
                    names,
                    indices=lost,
                    planned=len(indices),
                    ending=str(ending),
                )
            )
    return [joined[index] for index in sorted(joined)]


def _results_of(
    copies: Sequence[FoundShard], read: Callable[[FoundShard, int], _R | None], outcome: Callable[[_R], object]
) -> tuple[dict[int, Result[_R]], set[int]]:
    """Return the results of one shard by index, and the indices of those that differ between its copies."""
    own: dict[int, Result[_R]] = {}
    differing: set[int] = set()
    for found in copies:
        for index in found.record.indices:
            value = read(found, index)
            if value is None:
                continue
            first = own.setdefault(index, Result(value, found.store, found.name))
            if outcome(first.value) != outcome(value):
                differing.add(index)
    return own, differing


def joined_facts(shards: Shards) -> CampaignFacts:
    """Return what all shards know of the tests, and remark on tests that count in some of them only."""
    by_number = sorted(shards.found, key=lambda f: f.record.shard)
    facts = [f.record.facts for f in by_number if f.record.facts is not None]
    first = facts[0]
    names = {name for each in facts for name in each.set_aside}
    differing = sorted(name for name in names if not all(name in each.set_aside for each in facts))
    if differing or len({(each.collected, each.stable) for each in facts}) > 1:
        shards.remarks.append(MergeRemark(MergeCode.TESTS_DIFFER, differs=tuple(differing)))
    set_aside: dict[str, SetAside] = {}
    since: dict[str, SetAside] = {}
    refused: dict[str, Mapping[str, Any]] = {}
    for each in facts:
        set_aside = {**each.set_aside, **set_aside}
        since = {**each.set_aside_since, **since}
        refused = {**each.refused, **refused}
    return replace(
        first,
        set_aside=set_aside if differing else first.set_aside,
        set_aside_since=since,
        refused={mode: refused[mode] for mode in sorted(refused)},
        stable=min(each.stable for each in facts),
        baseline_seconds=max(each.baseline_seconds for each in facts),
    )


def tree_of(shards: Shards) -> bytes | None:
    """Return the files of the project as an archive; None, with a remark, if no store has them complete."""
    tree_hash = shards.record.conditions["files"]
    for found in shards.found:
        found.store.shared_trees.fetch(tree_hash)
        archive = archive_of(found.store.trees / tree_hash) if is_tree_hash(tree_hash) else None
        if archive is not None:
            return archive
    shards.remarks.append(MergeRemark(MergeCode.NO_FILES))
    return None


def put_injection(into: Store, shards: Shards, results: Sequence[Result[CandidateResult]], tree: bytes) -> None:
    """Write the results, their artifacts and the project's files into a store; raises StoreError."""
    record = shards.record
    # First the tree: an artifact that others see has one.
    place_archive(tree, into.trees, record.conditions["files"])
    into.shared_trees.share(record.conditions["files"])
    campaign = shards.found[0].store.record(RECORDS, record.key)
    if campaign is not None:
        into.put_record(RECORDS, record.key, campaign)
    for result in results:
        if result.value.status is CandidateStatus.VALID:
            _put_artifact(into, result.store, result.value.artifact_id, record.conditions["files"])
        into.put_record(f"attempts/{record.key}", f"{result.value.index:05d}", result.value.to_json())
    _put_shards(into, shards)


def put_validation(into: Store, shards: Shards, results: Sequence[Result[dict[str, Any]]]) -> None:
    """Write the results of a validation into a store; raises StoreError."""
    for index, result in enumerate(results):
        into.put_record(f"{VALIDATIONS}/{shards.record.key}", f"{index:05d}", result.value)
    _put_shards(into, shards)


def _put_artifact(into: Store, store: Store, artifact_id: str, tree_hash: str) -> None:
    artifact = _artifact(store, artifact_id, tree_hash)
    if artifact is None:
        raise StoreError(f"the artifact {artifact_id} has been removed from {store.root}")
    into.put_artifact(artifact_id, artifact)
    into.publish(artifact_id)
    for path in store.fetch(f"verdicts/{artifact_id}"):
        into.put_file(f"verdicts/{artifact_id}", path.name, path.read_bytes())


def _put_shards(into: Store, shards: Shards) -> None:
    for found in shards.found:
        put_shard(into, found.record)


def _artifact(store: Store, artifact_id: str, tree_hash: str) -> BugArtifact | None:
    """Return an artifact, also one that was set aside; None if it is missing, damaged or another one."""
    for kind in _KINDS if _ARTIFACT_ID.fullmatch(artifact_id) else ():
        store.fetch(f"{kind}/{artifact_id}")
        try:
            artifact = read_artifact(store.root / kind / artifact_id)
        except ArtifactError:
            continue
        if artifact.content_id(tree_hash) == artifact_id:
            return artifact
    return None
