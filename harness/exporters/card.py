"""Write the dataset card: what an export contains, where it comes from, and how to load and check its files.

The Hugging Face hub and `datasets` read its head. A card holds no times and no paths, so that the same sources give
the same card.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from harness.exporters.admission import Admission, Likeness
from harness.exporters.dataset_writer import MARK, Destination
from harness.exporters.features import as_yaml
from harness.exporters.licences import UNKNOWN
from harness.exporters.protocol import CONTAINERS, Format
from harness.exporters.report import Report

_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**9, "1M<n<10M"))
_MOST_DUPLICATES = 100
"""Near duplicates that a card lists; the report of `--json` has all."""
_HUB_NAMES = {
    "Apache-2.0": "apache-2.0",
    "MIT": "mit",
    "BSD-3-Clause": "bsd-3-clause",
    "BSD-2-Clause": "bsd-2-clause",
    "MPL-2.0": "mpl-2.0",
    "AGPL-3.0": "agpl-3.0",
    "LGPL-3.0": "lgpl-3.0",
    "GPL-3.0": "gpl-3.0",
    "GPL-2.0": "gpl-2.0",
    "ISC": "isc",
}


def card(
    form: Format,
    report: Report,
    destination: Destination,
    *,
    licences: Mapping[str, str],
    made: Mapping[str, str],
    datasets: Sequence[str] = (),
) -> str:
    """Return the card as Markdown.

    licences: by project. made: the versions, options and code that made the export. datasets: names of those among the
    sources.
    """
    return "\n".join((*_head(form, report, destination, licences), *_body(form, report, licences, made, datasets), ""))


def _head(form: Format, report: Report, destination: Destination, licences: Mapping[str, str]) -> Iterator[str]:
    names = set(licences.values())
    only = next(iter(names)) if len(names) == 1 else ""
    yield "---"
    yield f"license: {_HUB_NAMES.get(only, 'other')}"
    yield "language: [code, en]"
    yield f"pretty_name: {json.dumps(f'SSR {form.name}')}"
    yield "task_categories: [text-generation]"
    size = next((name for limit, name in _SIZES if report.total < limit), "n>1T")
    yield f"size_categories: [{size}]"
    yield "tags: [software-engineering, swe-bench, self-play, synthetic]"
    if destination.container in CONTAINERS:
        yield "configs:"
        yield f"- config_name: {form.name}"
        yield "  default: true"
        # `datasets` knows a folder that it has loaded before by this part of its card, not by the files.
        digests = "".join(entry["sha256"] for _, entry in sorted(report.files.items()))
        yield f'  description: "rows {hashlib.sha256(digests.encode()).hexdigest()[:16]}"'
        yield "  data_files:"
        for part in sorted(report.rows):
            yield f"  - split: {part}"
            yield f"    path: {json.dumps(destination.name_of(part))}"
        yield "dataset_info:"
        yield f"- config_name: {form.name}"
        yield "  features:"
        yield from (f"  {line}" for line in as_yaml(form.columns))
    yield "---"


def _body(
    form: Format, report: Report, licences: Mapping[str, str], made: Mapping[str, str], datasets: Sequence[str]
) -> Iterator[str]:
    yield f"# SSR {form.name}"
    yield ""
    origin = "from datasets" if datasets else "by self-play (SSR, arXiv 2512.18552)"
    yield f"Made {origin} with pytest-ssr. For: {form.readers}."
    yield MARK
    yield ""
    for note in form.notes:
        yield f"- {note}"
    if report.on_policy:
        yes, total = report.on_policy[True], report.on_policy.total()
        yield f"- On-policy (token ids and log-probabilities of every sampled reply are there): {yes} of {total} rows."
        if not yes:
            yield "- No row is on-policy: use them for imitation and preferences, not for policy gradients."
    yield ""
    yield "## Files"
    yield ""
    yield "| file | rows | bytes | sha256 |"
    yield "|---|---|---|---|"
    for name, entry in sorted(report.files.items()):
        yield f"| `{name}` | {entry['rows']} | {entry['bytes']} | `{entry['sha256']}` |"
    yield ""
    yield "## Sources"
    yield ""
    yield "| project | licence (from its own files) | rows |"
    yield "|---|---|---|"
    for name, rows in sorted(report.repositories.items()):
        parts = ", ".join(f"{part} {count}" for part, count in sorted(rows.items()))
        yield f"| {_cell(name) or 'unknown'} | {_cell(licences.get(name, UNKNOWN))} | {parts} |"
    yield ""
    if datasets:
        yield f"All rows of a project are in one part. Tasks are from: {', '.join(map(_cell, sorted(datasets)))}."
        yield "Check whether a task or a project above is also in a benchmark that you evaluate on."
    else:
        yield "All rows of a project are in one part. Programs and models injected the bugs into these projects;"
        yield "issues, commits and tests of benchmarks such as SWE-bench were not used. Check whether a project above"
        yield "is also in a benchmark that you evaluate on."
    yield ""
    yield "## Provenance"
    yield ""
    for name, value in made.items():
        yield f"- {name}: {_cell(value)}"
    if report.models:
        yield f"- rows by model: {', '.join(f'{_cell(m)} {n}' for m, n in sorted(report.models.items()))}"
    yield ""
    yield from _admission(report.admission)
    yield "## Left out"
    yield ""
    if not report.left_out:
        yield "Nothing."
        return
    yield "| reason | count | examples |"
    yield "|---|---|---|"
    for code, count in report.reasons():
        # Names only: the details may contain private data, such as paths on this machine.
        names = "; ".join(name for name, _ in report.examples[code])
        yield f"| {_cell(code.text)} | {count} | {_cell(names)} |"


def _admission(admission: Admission) -> Iterator[str]:
    """Yield what was found about near duplicates and caps; nothing if there was nothing to compare or to count."""
    if admission.compared or admission.duplicates or admission.benchmarks or admission.unreadable:
        yield "## Near duplicates"
        yield ""
        others = "".join(f", and with {n} tasks of {_cell(name)}" for name, n in sorted(admission.benchmarks.items()))
        yield f"Compared by tokens of diffs and statements; the least Jaccard similarity is {admission.threshold:g}."
        yield f"Compared were {admission.compared} bugs or tasks with each other{others}."
        if admission.not_compared:
            yield f"Not compared, because neither a diff nor a statement is known: {admission.not_compared}."
        for name, count in sorted(admission.unreadable.items()):
            yield f"{_cell(name)} has {count} more tasks without a diff and a statement."
        is_dropped = admission.likeness is Likeness.DROP
        yield f"Near duplicates {'left out' if is_dropped else 'that are still here'}: {len(admission.duplicates)}."
        yield ""
        if admission.duplicates:
            yield "| bug or task | near duplicate of | in | by | similarity |"
            yield "|---|---|---|---|---|"
            for item in admission.duplicates[:_MOST_DUPLICATES]:
                cells = (item.id, item.original, item.benchmark or "this export", item.compared)
                yield f"| {' | '.join(map(_cell, cells))} | {item.similarity:.2f} |"
            if len(admission.duplicates) > _MOST_DUPLICATES:
                yield f"| {len(admission.duplicates) - _MOST_DUPLICATES} more | | | | |"
            yield ""
    for kind, count in sorted(admission.not_capped.items()):
        yield f"Not capped by {kind}, because it is unknown: {count} bugs or tasks."
        yield ""


def _cell(text: str) -> str:
    """Return a string as a table cell: on one line, with anything that would end the cell or begin a tag escaped."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")[:500]
