"""Count how many survivors are marked as equivalent, and compare the marks with the verdicts of a person.

Run: `python benchmarks/equivalence_proofs.py FINDINGS.json... --projects FOLDER --verdicts VERDICTS.csv --out PAGE.md`.
FINDINGS.json: what `ssr inject --changes 60 --fail-under 0 --json` printed, named as the project is in FOLDER; the
marks are those that the code gives now. VERDICTS.csv has the columns project, index (of the change in the run),
equivalent (yes, no) and why; survivors without a verdict are counted as not judged. A noticed change with a proof is
listed: its proof is wrong. `--new VERDICTS.csv` writes such a file, to be filled, with the diffs.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileEntry, Patch, apply_patch
from pytest_ssr.records.rate_interval import interval
from pytest_ssr.source.equivalence import Equivalence, common_equivalence, described, is_proven

NOTICED = ("valid", "rejected", "noticed")


@dataclass(frozen=True, slots=True)
class Change:
    project: str
    index: int
    place: str
    operator: str
    status: str
    diff: str
    mark: Equivalence | None

    @property
    def kind(self) -> str:
        if self.mark is None:
            return "no mark"
        return "proof" if is_proven(self.mark) else "sign"


def changes(file: Path, folder: Path) -> Iterator[Change]:
    """Yield the tried changes of a run, without combinations."""
    for attempt in json.loads(file.read_text()).get("attempts", ()):
        if attempt["strategy"] == "combination":
            continue
        place, mark = f"{attempt['path']}:{attempt['line']}", mark_of(attempt, folder / file.stem)
        yield Change(file.stem, attempt["index"], place, attempt["operator"], attempt["status"], attempt["diff"], mark)


def mark_of(attempt: dict[str, Any], project: Path) -> Equivalence | None:
    def entry(path: str) -> FileEntry | None:
        return FileEntry((project / path).read_bytes(), 0o100644) if (project / path).is_file() else None

    try:
        new = apply_patch(Patch.parse(attempt["diff"].encode()), entry)
    except ArtifactError:
        return None
    pairs = [(path, entry(path), data) for path, data in new.items()]
    return common_equivalence(
        (path, old.data if old else b"", data.data if data else None) for path, old, data in pairs
    )


def share(part: int, whole: int) -> str:
    if not whole:
        return "-"
    low, high = interval(part, whole)
    return f"{part} of {whole} ({part / whole:.2f}, {low:.2f} to {high:.2f})"


def page(found: Sequence[Change], verdicts: dict[tuple[str, int], tuple[bool, str]]) -> str:
    survivors = [c for c in found if c.status == "survived"]
    noticed = [c for c in found if c.status in NOTICED]
    judged = [(c, *verdicts[c.project, c.index]) for c in survivors if (c.project, c.index) in verdicts]
    equivalent = [c for c, is_equivalent, _ in judged if is_equivalent]
    wrong = [c for c in noticed if is_proven(c.mark)]
    lines = ["| project | tried | survived | proof | sign | equivalent by hand |", "|---|---|---|---|---|---|"]
    for project in dict.fromkeys(c.project for c in found):
        own = [c for c in survivors if c.project == project]
        kinds = Counter(c.kind for c in own)
        tried = sum(c.project == project for c in (*survivors, *noticed))
        by_hand = sum(c.project == project for c in equivalent)
        lines.append(f"| {project} | {tried} | {len(own)} | {kinds['proof']} | {kinds['sign']} | {by_hand} |")
    lines += ["", "| of the judged survivors | share, with the 95 % Wilson interval |", "|---|---|"]
    for title, kinds_of_mark in (("proofs", ("proof",)), ("signs", ("sign",)), ("both", ("proof", "sign"))):
        right = [is_equivalent for c, is_equivalent, _ in judged if c.kind in kinds_of_mark]
        lines.append(f"| precision of {title} | {share(sum(right), len(right))} |")
    marked = sum(c.mark is not None for c in equivalent)
    proven = sum(is_proven(c.mark) for c in equivalent)
    shown = [is_equivalent for c, is_equivalent, _ in judged if c.mark is None]
    lines += [
        f"| recall of proofs | {share(proven, len(equivalent))} |",
        f"| recall of both | {share(marked, len(equivalent))} |",
        f"| equivalent among those shown without a mark | {share(sum(shown), len(shown))} |",
        "",
        f"Survivors that were not judged: {len(survivors) - len(judged)}. "
        f"Noticed changes with a proof, of {len(noticed)}: {len(wrong)}"
        + "".join(f"; {c.project} {c.place} {c.mark}" for c in wrong)
        + ".",
        "",
        "| project | place | operator | mark | equivalent | why |",
        "|---|---|---|---|---|---|",
    ]
    for change, is_equivalent, why in judged:
        mark = described(change.mark) if change.mark is not None else ""
        verdict = "yes" if is_equivalent else "no"
        lines.append(f"| {change.project} | `{change.place}` | {change.operator} | {mark} | {verdict} | {why} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Read, and write the page or the file of verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("findings", nargs="+", type=Path)
    parser.add_argument("--projects", required=True, type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--new", type=Path)
    options = parser.parse_args()
    found = [change for file in options.findings for change in changes(file, options.projects)]
    if options.new is not None:
        with options.new.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("project", "index", "equivalent", "why", "diff"))
            rows.writerows((c.project, c.index, "", "", c.diff) for c in found if c.status == "survived")
    verdicts: dict[tuple[str, int], tuple[bool, str]] = {}
    if options.verdicts is not None:
        with options.verdicts.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["equivalent"]:
                    verdicts[row["project"], int(row["index"])] = row["equivalent"] == "yes", row["why"]
    if options.out is not None:
        options.out.write_text(page(found, verdicts))


if __name__ == "__main__":
    main()
