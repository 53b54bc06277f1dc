"""Write submissions to other leaderboards: SWE-bench's `experiments`, and `.eval_results` of Hugging Face.

Each solver's first attempts are submitted, as both require pass@1. Fields that only its authors know (their names, the
report, whether the model is open) are left empty for them to fill in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.evaluation.reports import LOGS
from harness.leaderboard.escaping import clean, for_markdown, shown
from harness.leaderboard.loading import read_attempts, read_lines, read_object
from harness.records.attempt import Attempt, Status
from harness.storage.atomic_write import write_bytes, write_text
from pytest_ssr.errors import SettingsError

_COPIED = {"patch.diff": "logs/{0}/patch.diff", "report.json": "logs/{0}/report.json"}
_COPIED |= {"test_output.txt": "logs/{0}/test_output.txt", "traj.json": "trajs/{0}.json"}
_RULES = (
    "is a pass@1 submission: one attempt at each instance, not selected by the tests",
    "does not use the tests of the instances (PASS_TO_PASS, FAIL_TO_PASS)",
    "does not use the field `hints`",
    "does not browse the web, or is prevented from finding solutions there",
)


@dataclass(frozen=True, slots=True)
class Submission:
    """The names of a submission."""

    day: str
    """As 20260131."""
    split: str = "verified"
    dataset: str = ""
    """`owner/name` on the hub; empty: write no `.eval_results`."""
    task: str = ""
    """The task id in the dataset's `eval.yaml`."""

    def __post_init__(self) -> None:
        """Raise SettingsError, naming the option, for invalid values."""
        if not re.fullmatch(r"\d{8}", self.day):
            raise SettingsError(f"--date {self.day} is not a date; write it as 20260131", option="date")
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.split):
            raise SettingsError(f"--split {self.split!r} cannot be a folder name", option="split")
        if self.dataset and not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset):
            raise SettingsError(f"--dataset {self.dataset} is not an owner/name on the hub", option="dataset")
        if self.dataset and not self.task:
            raise SettingsError(
                f"--dataset {self.dataset} needs --task: the task id in its eval.yaml", option="dataset"
            )


def write_submissions(folder: Path, runs: Sequence[tuple[str, Path]], submission: Submission) -> list[Path]:
    """Write a submission for each solver of each run and return their folders.

    runs: labels and folders of `ssr run` or `ssr eval`. Raises SettingsError if a run has no predictions or two
    submissions would have the same name, OSError if a file cannot be written.
    """
    labels: dict[Path, str] = {}
    for label, run in runs:
        for model, rows in _first_attempts(run).items():
            target = folder / "evaluation" / submission.split / f"{submission.day}_{file_name(model)}"
            if target in labels:
                raise SettingsError(f"{labels[target]} and {label} would both be submitted as {target.name}")
            labels[target] = label
            _write_swebench(target, run, model, rows)
            if submission.dataset:
                text = eval_results(rows, submission)
                write_text(folder / ".eval_results" / file_name(model) / f"{file_name(submission.dataset)}.yaml", text)
    return list(labels)


def file_name(name: str) -> str:
    """Return a name that is safe as a folder name: it cannot lead out of its parent."""
    return re.sub(r"[^\w.+-]", "_", name.replace("/", "__")).lstrip(".")[:120] or "unnamed"


def _first_attempts(run: Path) -> dict[str, list[Attempt]]:
    by_model: dict[str, dict[str, Attempt]] = {}
    for attempt in read_attempts(run / "results.jsonl"):
        if attempt.attempt == 0:
            by_model.setdefault(clean(attempt.solver), {})[attempt.task] = attempt
    return {model: [rows[i] for i in sorted(rows)] for model, rows in sorted(by_model.items())}


def _predictions(run: Path) -> dict[tuple[str, str], Mapping[str, Any]]:
    path = run / "predictions.jsonl"
    if not path.is_file():
        raise SettingsError(f"{path} does not exist: a submission needs the predictions of its run")
    return {(str(r.get("model_name_or_path")), str(r.get("instance_id"))): r for _, r in read_lines(path)}


def _write_swebench(folder: Path, run: Path, model: str, rows: Sequence[Attempt]) -> None:
    predictions, lines = _predictions(run), []
    for row in rows:
        instance = row.task
        prediction = predictions.get((row.solver, instance))
        if prediction is None:
            raise SettingsError(
                f"{run / 'predictions.jsonl'} has no prediction of {shown(model)} for {shown(instance)}"
            )
        lines.append(json.dumps({k: prediction[k] for k in ("instance_id", "model_name_or_path", "model_patch")}))
        for name, target in _COPIED.items() if file_name(instance) == instance else ():
            for source in _logs(run, row.solver, instance, name):
                write_bytes(folder / target.format(instance), source.read_bytes())
    write_text(folder / "all_preds.jsonl", "".join(f"{line}\n" for line in lines))
    write_text(folder / "metadata.yaml", metadata(model))
    write_text(folder / "README.md", _readme(model, rows))


def _logs(run: Path, model: str, instance: str, name: str) -> Iterator[Path]:
    """Yield a file of an instance's logs from the first attempts: those of the run id without a number at its end."""
    folder = model.replace("/", "__").strip(".") or "unnamed"
    paths = [p for p in sorted(run.joinpath(LOGS).glob("*")) if (p / folder / instance / name).is_file()]
    first = [p for p in paths if not re.fullmatch(r".+\.\d+", p.name)] or paths
    if first:
        yield first[0] / folder / instance / name


def metadata(model: str) -> str:
    """Return `metadata.yaml` in the form of SWE-bench's experiments; unknown fields are null."""
    name = _quoted(model)
    return (
        f"info:\n  name: {name}\n  site: null\n  report: null\n  authors: []\n  logo: null\n"
        "assets:\n  logs: null\n  trajs: null\n"
        f"tags:\n  checked: false\n  model:\n    - {name}\n  org: []\n  os_model: null\n  os_system: null\n"
        '  system:\n    attempts: "1"\n'
    )


def eval_results(rows: Sequence[Attempt], submission: Submission) -> str:
    """Return a file of `.eval_results` for the hub; the value is a percentage of the graded first attempts.

    Raises SettingsError if none has a grade.
    """
    graded = [r for r in rows if r.status is not Status.INFRA]
    if not graded:
        raise SettingsError("a submission needs graded attempts, but there are none")
    solved = sum(r.status is Status.RESOLVED for r in graded)
    missing = len(rows) - len(graded)
    notes = (
        f"resolved {solved} of {len(graded)} graded instances; {missing} without a grade after faults of the machine"
    )
    day = f"{submission.day[:4]}-{submission.day[4:6]}-{submission.day[6:]}"
    return (
        f"- dataset:\n    id: {_quoted(submission.dataset)}\n    task_id: {_quoted(submission.task)}\n"
        f"  value: {100 * solved / len(graded):.2f}\n  date: {_quoted(day)}\n  notes: {_quoted(notes)}\n"
    )


def _readme(model: str, rows: Sequence[Attempt]) -> str:
    count = {s: sum(r.status == s for r in rows) for s in sorted({str(r.status) for r in rows})}
    table = "\n".join(f"| {for_markdown(s)} | {n} |" for s, n in count.items())
    rules = "\n".join(f"- [ ] {rule}" for rule in _RULES)
    return (
        f"# {for_markdown(model)}\n\n{len(rows)} instances, one attempt each.\n\n| status | instances |\n|---|---:|\n"
        f"{table}\n\nTo be confirmed by the submitter. This submission\n\n{rules}\n"
    )


def _quoted(text: str) -> str:
    """Return text as a YAML scalar: its double-quoted style accepts JSON strings."""
    return json.dumps(text)


def read_pool(path: Path) -> dict[str, float]:
    """Read the abilities of a frozen pool, in logits; raises SettingsError for an invalid file."""
    try:
        data = read_object(path.read_bytes(), str(path))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    pool = data.get("pool")
    if (
        not isinstance(pool, dict)
        or not pool
        or not all(type(v) in (int, float) and abs(v) < 1e6 for v in pool.values())
    ):
        raise SettingsError(f"{path} is not a frozen pool; --save-pool writes one")
    return {name: float(value) for name, value in pool.items()}
