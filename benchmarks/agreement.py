"""Compare the verdicts of the fast path with runs of the whole suite under a plain pytest, change by change.

Run: `python benchmarks/agreement.py --out benchmarks/results/NAME.jsonl [--changes 40] [--projects flask,pluggy]`.
The fast path runs only the tests that a change can affect, in a fork of a warm process if that is possible. The
reference is described in `plain_reference.py`; its results are cached, so another version of the fast path can be
compared for the cost of the fast path alone. Changes come from all injectors that need no model, evenly sampled over
the first candidates of a campaign. The script compares the verdict (some test fails, none does, no end, a crash) and
the set of failing tests, over the tests that pass every time in both baselines. If they differ, the reference runs
twice more: a difference among these runs is not the fast path's and is counted separately. Changes already in the file
are not measured again unless the program has changed since; the table beside it (`NAME.md`) is rewritten after each
project.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from plain_reference import CRASH, FAILS, NO_END, PASSES, PlainSuite, Reference
from projects import PROJECTS

from pytest_ssr.campaign.artifact_builder import candidate_state
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.execution.screening import FRESH, Screened
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.test_run import RunStatus, abbreviate
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, code_hash

NOT_EXERCISED = "not exercised"
_TIERS = ("none", "swap", "import", FRESH)


class Kind(StrEnum):
    """How the two verdicts on a change compare."""

    AGREE = "agree"
    WRONG_SURVIVOR = "wrong survivor"
    """The fast path reports that no test detects it; a plain run does not pass."""
    SET_ASIDE = "noticed by tests set aside"
    """The same, but only tests that the fast path had excluded before, with a reason, detect it."""
    WRONG_KILL = "wrong kill"
    """The fast path reports failing tests; a plain run passes."""
    OTHER_TESTS = "other tests"
    """Tests fail in both, but not the same ones."""
    OTHER_END = "other end"
    """The two disagree on whether the run has no end, crashes or has failing tests."""
    NOT_EXERCISED = "not exercised"
    """The fast path gives no verdict because nothing shows that the changed code was loaded."""
    UNPROVEN = "reference unproven"
    """A plain run passes, but nothing shows that it loaded the changed file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of the fast path and of the plain run for one change."""

    project: str
    index: int
    """Index of the candidate in the campaign's order."""
    version: str
    """Hash of the program that screened it."""
    what: str
    kind: Kind
    fast: str
    whole: str
    difference: tuple[str, ...]
    """Tests that fail in one of the two only."""
    steady: bool
    """Whether further reference runs agree with the first."""
    tier: str
    fallback: str
    selected: int
    fast_s: float
    whole_s: float
    note: str = ""


def fast_verdict(screened: Screened) -> str:
    """Return the fast path's verdict on a change."""
    if screened.run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED):
        return NO_END
    if screened.run.fault:
        return CRASH
    if screened.failing:
        return FAILS
    return NOT_EXERCISED if screened.unexercised else PASSES


def kind_of(fast: str, failing: frozenset[str], whole: Reference, shared: frozenset[str]) -> Kind:
    """Compare a verdict of the fast path, and its failing tests, with the reference.

    shared: tests that pass every time in both baselines.
    """
    if fast == NOT_EXERCISED:
        return Kind.NOT_EXERCISED
    if fast == PASSES:
        if whole.verdict == PASSES:
            return Kind.AGREE if whole.proven else Kind.UNPROVEN
        noticed = whole.verdict != FAILS or whole.failing & shared
        return Kind.WRONG_SURVIVOR if noticed else Kind.SET_ASIDE
    if whole.verdict == PASSES:
        return Kind.WRONG_KILL
    if fast != whole.verdict:
        return Kind.OTHER_END
    same = fast != FAILS or failing & shared == whole.failing & shared
    return Kind.AGREE if same else Kind.OTHER_TESTS


def compare(campaign: Campaign, suite: PlainSuite, index: int, candidate: Candidate) -> Comparison:
    """Screen one candidate and compare the result with plain runs."""
    state = candidate_state(campaign.snapshot, candidate)
    begin = time.perf_counter()
    screened = campaign.screening.run(state, runner=campaign.runner.scoped())
    fast_s = time.perf_counter() - begin
    fast, shared = fast_verdict(screened), campaign.baseline.stable & suite.stable
    whole = suite.judge(candidate.changes)
    kind = kind_of(fast, screened.failing, whole, shared)
    steady = True
    if kind not in (Kind.AGREE, Kind.NOT_EXERCISED):
        again = [suite.judge(candidate.changes, again=True) for _ in range(2)]
        steady = all((o.verdict, o.failing) == (whole.verdict, whole.failing) for o in again)
    both_fail = fast == whole.verdict == FAILS
    difference = (screened.failing ^ whole.failing) & shared if both_fail else whole.failing
    return Comparison(
        project=suite.name,
        index=index,
        version=code_hash(),
        what=f"{candidate.operator} in {candidate.path}:{candidate.line} {candidate.scope}",
        kind=kind,
        fast=fast,
        whole=whole.verdict,
        difference=() if kind is Kind.AGREE else tuple(sorted(difference)),
        steady=steady,
        tier=screened.tier,
        fallback=str(screened.fallback or ""),
        selected=screened.selected,
        fast_s=round(fast_s, 3),
        whole_s=round(whole.seconds, 3),
        note=whole.note,
    )


def sample_candidates(campaign: Campaign, changes: int, span: int) -> list[tuple[int, Candidate]]:
    """Return candidates evenly spaced over the first `span` of a campaign's order, or over all if there are fewer."""
    candidates = [(i, c) for i in range(span) if (c := campaign.candidate(i)) is not None]
    if len(candidates) <= changes:
        return candidates
    return [candidates[i * len(candidates) // changes] for i in range(changes)]


def measure(name: str, arguments: argparse.Namespace, previous: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield the comparisons of a project that `previous` lacks, until the time limit."""
    folder, end = arguments.folder, time.monotonic() + arguments.limit
    suite = PlainSuite.of(name, folder)
    store = folder / name / "agreement-store"
    if arguments.fresh_store:
        shutil.rmtree(store, ignore_errors=True)
    project = PROJECTS[name]
    campaign = open_campaign(
        suite.source,
        Store(store),
        settings=RuleSettings(),
        python=suite.python,
        seed=arguments.seed,
        sources=project.sources,
        tests=project.tests,
    )
    measured = {o.index for o in previous if o.project == name}

    def timely(index: int, candidate: Candidate) -> Comparison | None:
        return compare(campaign, suite, index, candidate) if time.monotonic() < end else None

    try:
        candidates = sample_candidates(campaign, arguments.changes, arguments.span)
        wanted = [(i, c) for i, c in candidates if i not in measured]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            yield from (o for o in pool.map(lambda pair: timely(*pair), wanted) if o is not None)
    finally:
        campaign.close()


def describe(comparison: Comparison) -> str:
    """Return a line that describes a change on which the two differ."""
    tests = abbreviate(comparison.difference) or "no test"
    unsteady = "" if comparison.steady else "; plain runs differ among themselves"
    note = f"; {comparison.note}" if comparison.note else ""
    return (
        f"{comparison.kind}: {comparison.project} {comparison.index}, {comparison.what} ({comparison.tier}): "
        f"fast {comparison.fast}, plain {comparison.whole}; {tests}{unsteady}{note}"
    )


HEAD = (
    "project",
    "changes",
    "screened by",
    "agree",
    "**wrong survivors**",
    "set aside",
    "wrong kills",
    "other tests",
    "other end",
    "not exercised",
    "unproven",
    "plain runs differ",
    "times as fast",
)


def table_row(name: str, comparisons: Sequence[Comparison]) -> list[str]:
    """Return one row of the table; changes on which plain runs differ are counted in their own column only."""
    tiers = Counter(o.tier for o in comparisons)
    kinds = Counter(o.kind for o in comparisons if o.steady)
    fast_s, whole_s = sum(o.fast_s for o in comparisons), sum(o.whole_s for o in comparisons)
    return [
        name,
        str(len(comparisons)),
        ", ".join(f"{tier} {tiers[tier]}" for tier in dict.fromkeys((*_TIERS, *tiers)) if tiers[tier]),
        *(str(kinds[kind]) for kind in Kind),
        str(sum(not o.steady for o in comparisons)),
        f"{whole_s / fast_s:.1f}" if fast_s else "-",
    ]


def write_table(out: Path, comparisons: Sequence[Comparison], errors: dict[str, str], command: str) -> None:
    """Write the Markdown table beside the records."""
    names = list(dict.fromkeys(o.project for o in comparisons))
    rows = [table_row(name, [o for o in comparisons if o.project == name]) for name in names]
    rows.append(table_row("all", comparisons))
    apart = [f"- {describe(o)}" for o in comparisons if o.kind is not Kind.AGREE]
    failed = [f"- {name}: {error}" for name, error in errors.items()]
    text = [
        "# Agreement of the fast path with whole suites under a plain pytest",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {sys.version.split()[0]}, `{command}`, program {code_hash()}.",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)),
        "",
        *(["Each change on which they do not agree:", "", *apart, ""] if apart else []),
        *(["Not measured:", "", *failed, ""] if failed else []),
    ]
    out.with_suffix(".md").write_text("\n".join(text))


def read_results(out: Path) -> list[Comparison]:
    """Read the results that this version of the program has so far."""
    lines = out.read_text().splitlines() if out.exists() else []
    records: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    current = [r for r in records if r["version"] == code_hash()]
    return [decode(Comparison, record) for record in current]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", default=",".join(PROJECTS), help="comma-separated (default: all)")
    parser.add_argument("--changes", type=int, default=40, help="changes per project (default 40)")
    parser.add_argument("--span", type=int, default=600, help="sample from this many first candidates (default 600)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one project (default 1800)")
    parser.add_argument("--fresh-store", action="store_true", help="measure the baseline again")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file; its results are not measured again")
    arguments = parser.parse_args()
    names = arguments.projects.split(",")
    unknown = set(names) - set(PROJECTS)
    if unknown:
        parser.error(f"unknown project: {', '.join(sorted(unknown))}; choose from {', '.join(PROJECTS)}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    comparisons, errors = read_results(arguments.out), dict[str, str]()
    command = f"benchmarks/agreement.py --changes {arguments.changes} --span {arguments.span} --seed {arguments.seed}"
    for name in names:
        try:
            for comparison in measure(name, arguments, tuple(comparisons)):
                comparisons.append(comparison)
                with arguments.out.open("a") as out:
                    out.write(json.dumps(asdict(comparison)) + "\n")
                if comparison.kind is not Kind.AGREE:
                    print(describe(comparison), flush=True)
        except (Exception, SystemExit) as error:
            errors[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {errors[name]}", flush=True)
        print(" | ".join(table_row(name, [o for o in comparisons if o.project == name])), flush=True)
        write_table(arguments.out, comparisons, errors, command)


if __name__ == "__main__":
    main()
