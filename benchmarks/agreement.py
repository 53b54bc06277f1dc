"""Does the fast path tell the truth? Each change is run by the fast path and by a fresh process with the whole suite.

Run: `python benchmarks/agreement.py --out benchmarks/results/NAME.md [--changes 130] [project ...]`.
The fast path runs only the tests a change can touch, in a fork of a warm process. Compared are the verdict (some test
fails, none does, no end) and the set of failing tests. Changes come from all injectors that need no model, in turn.
What differs is run twice more in fresh processes: a difference that these runs show among themselves is none of the
fast path's, and is counted apart.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from projects import PROJECTS, fetch

from pytest_ssr.campaign import Campaign
from pytest_ssr.execution.screening import FRESH, Screened
from pytest_ssr.making import candidate_state
from pytest_ssr.opening import open_campaign
from pytest_ssr.outcomes import RunStatus, some
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store


@dataclass
class Outcome:
    """One change, both ways."""

    index: int
    what: str
    tier: str
    selected: int
    fast_s: float
    whole_s: float
    verdict: tuple[str, str]
    difference: frozenset[str]
    steady: bool = True

    @property
    def agrees(self) -> bool:
        return self.verdict[0] == self.verdict[1] and not self.difference


def verdict(screened: Screened) -> str:
    if screened.run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED):
        return "no end"
    if screened.run.fault:
        return "crash"
    return "fails" if screened.failing else "passes"


def compare(campaign: Campaign, index: int) -> Outcome | None:
    candidate = campaign.candidate(index)
    if candidate is None:
        return None
    state, bench = candidate_state(campaign.snapshot, candidate), campaign.bench.scoped()
    begin = time.perf_counter()
    fast = campaign.screening.run(state, bench=bench)
    fast_s = time.perf_counter() - begin
    begin = time.perf_counter()
    whole = campaign.screening.fresh(state, bench=bench)
    whole_s = time.perf_counter() - begin
    verdicts = verdict(fast), verdict(whole)
    ended = "fails" in verdicts or "passes" in verdicts
    difference = fast.failing ^ whole.failing if ended and verdicts[0] != "no end" != verdicts[1] else frozenset()
    what = f"{candidate.operator} in {candidate.path}:{candidate.line} {candidate.scope}"
    result = Outcome(index, what, fast.tier, fast.selected, fast_s, whole_s, verdicts, difference)
    if not result.agrees:
        others = [campaign.screening.fresh(state, bench=campaign.bench.scoped()) for _ in range(2)]
        result.steady = all(o.failing == whole.failing and verdict(o) == verdicts[1] for o in others)
    return result


def measure(name: str, folder: Path, changes: int, jobs: int) -> list[Outcome]:
    project, python = fetch(name, folder / name)
    store = Store(folder / f"{name}-store")
    campaign = open_campaign(project, store, settings=RuleSettings(), python=python, seed=1)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            found = [o for o in pool.map(lambda i: compare(campaign, i), range(changes)) if o is not None]
    finally:
        campaign.close()
    for mode, reason in campaign.baseline.cold.items():
        print(f"{name}: no warm processes of mode {mode}: {reason}")
    assert campaign.bench.warm is not None
    for reason, count in campaign.bench.warm.unfit.most_common():
        print(f"{name}: {count} not run warm: {reason}")
    for outcome in found:
        if not outcome.agrees:
            print(f"{name} {outcome.index}: {said(name, outcome)}")
    return found


def said(name: str, outcome: Outcome) -> str:
    fast, whole = outcome.verdict
    unsteady = "" if outcome.steady else "; fresh runs differ among themselves"
    tests = some(outcome.difference) or "no test"
    return f"{name}, {outcome.what} ({outcome.tier}): fast {fast}, whole {whole}; {tests}{unsteady}"


def line(name: str, found: list[Outcome]) -> list[str]:
    tiers = Counter(o.tier for o in found)
    apart = [o for o in found if not o.agrees and o.steady]
    fast, whole = sum(o.fast_s for o in found), sum(o.whole_s for o in found)
    return [
        name,
        str(len(found)),
        ", ".join(f"{tier} {tiers[tier]}" for tier in ("none", "swap", "import", FRESH) if tiers[tier]),
        str(sum(o.agrees for o in found)),
        str(sum(not o.agrees and not o.steady for o in found)),
        str(sum(o.verdict[0] != o.verdict[1] for o in apart)),
        str(sum(o.verdict[0] == o.verdict[1] for o in apart)),
        f"{whole / fast:.1f}",
    ]


HEAD = ["project", "changes", "run by", "agree", "fresh runs differ", "other verdict", "other tests", "times as fast"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=["toolz", "itsdangerous", "sqlparse", "boltons", "click"])
    parser.add_argument("--changes", type=int, default=130)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="downloads and stores are kept here"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    unknown = set(arguments.projects) - set(PROJECTS)
    if unknown:
        parser.error(f"no such project: {', '.join(unknown)}; there are {', '.join(PROJECTS)}")
    rows = []
    apart: list[str] = []
    for name in arguments.projects:
        found = measure(name, arguments.folder, arguments.changes, arguments.jobs)
        rows.append(line(name, found))
        apart += [f"- {said(name, o)}" for o in found if not o.agrees]
        print(" | ".join(rows[-1]), flush=True)
        text = [
            "# Agreement of the fast path with whole suites in fresh processes",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `--changes {arguments.changes} "
            f"--jobs {arguments.jobs}`. Made by `benchmarks/agreement.py`.",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)),
            "",
            *(["Each disagreement:", "", *apart, ""] if apart else []),
        ]
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
