"""Screen changes of a project for survivors, and search for tests that notice them, as `--ssr-suggest` does.

Run: `python benchmarks/suggested_tests.py FOLDER --python PYTHON --out OUT [--changes 200] [--tests PATH...]
[--most 30]`. OUT/survivors.jsonl gets the survivors among the first changes (seed 0, no combinations); if it exists, it
is used instead, so that searches can be compared on the same survivors. OUT/suggested.jsonl gets what was found for
those that matter most and are not marked as equivalent. Tests are judged by hand:
`benchmarks/results/2026-11-27-suggested-tests.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.suggested_tests import suggest_tests, suggestion_lines
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


def screened(campaign: Campaign, changes: int) -> list[CandidateResult]:
    """Return the survivors among the first changes."""
    found = []
    for index in range(changes):
        candidate = campaign.candidate(index)
        if candidate is None:
            break
        result = Trial(campaign, index, candidate).screen()
        if result is not None and result.status is CandidateStatus.SURVIVED:
            found.append(result)
    return found


def main() -> None:
    """Screen, search and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--most", type=int, default=30)
    parser.add_argument("--tests", nargs="*", default=[])
    parser.add_argument("--sources", nargs="*", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    known, written = options.out / "survivors.jsonl", options.out / "suggested.jsonl"
    campaign = open_campaign(
        options.folder,
        Store(options.out / "store"),
        settings=RuleSettings(),
        injectors="mutation,removal",
        python=options.python,
        tests=options.tests,
        sources=options.sources,
        # Screening alone is wanted: one run at a time, and none ahead for a validation.
        jobs=os.cpu_count() or 1,
    )
    try:
        if not known.exists():
            survivors = screened(campaign, options.changes)
            known.write_text("".join(json.dumps(s.to_json()) + "\n" for s in survivors))
        lines = map(json.loads, known.read_text().splitlines())
        survivors = [s for s in map(CandidateResult.from_json, lines) if s is not None]
        print(f"{len(survivors)} survivors", flush=True)
        found = suggest_tests(campaign, survivors, options.most, deadline=math.inf).tests
    finally:
        campaign.close()
    written.write_text("".join(json.dumps(s.to_json()) + "\n" for s in found))
    print("\n".join(line for _, line in suggestion_lines(found)))


if __name__ == "__main__":
    main()
