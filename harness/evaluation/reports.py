"""What a run over instances leaves: predictions, results, a summary, and logs in the folders of SWE-bench's harness.

`logs/run_evaluation/RUN/MODEL/INSTANCE/{report.json,patch.diff,test_output.txt}` and `MODEL.RUN.json` (schema version
2) have the fields that its own reporting code reads (swebench 4.1 and 5.x). What is an error has no report.json there,
for that is how it knows one, but a run_instance.log that says why. It knows one prediction of a model for an instance:
further attempts are runs of their own there, `RUN.2` and so on. Each has a run.json that names the dataset, by which
`swebench report` makes verdicts anew from the logs.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from harness.evaluation.logs import NOT_APPLIED
from harness.evaluation.outcome import Outcome, Status, counts
from harness.evaluation.predictions import folder_of
from harness.writing import write_text
from pytest_ssr.errors import StoreWriteError, advice

LOGS, RESULTS, META, RUN = Path("logs", "run_evaluation"), "results.jsonl", "meta.json", "run.json"
EARLIER = "results.earlier.jsonl"
# The last tells that the others are ours.
_FILES = ("patch.diff", "report.json", "run_instance.log", "test_output.txt", "traj.json", META)
_PASSED = "passed"


class Kept(Protocol):
    """Knows more of an outcome than its record."""

    def patch(self, outcome: Outcome) -> str:
        """Return what was handed in."""

    def trajectory(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return how it came about, where that is known."""

    def native(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Return that in the form of mini-swe-agent, where it was at work."""

    def log(self, outcome: Outcome) -> str:
        """Return what the tests have printed, empty where they were not run."""


def write_run(
    folder: Path,
    run: str,
    kept: Kept,
    outcomes: Sequence[Outcome],
    *,
    wanted: int,
    instances: Sequence[str],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all files of a run and return its summary; each file is whole or as it was before.

    What an earlier run of the name has left there, of other models, instances and attempts, is removed.
    wanted: how many outcomes there would be at its end. instances: all that were chosen, those without a prediction as
    well. about: what it was made with. Raises StoreWriteError.
    """
    none = sorted(set(instances) - {o.instance_id for o in outcomes})
    summary = {**counts(outcomes), "wanted": wanted, "instances": len(instances), "without_outcome": none, **about}
    written: set[Path] = set()
    with reporting(folder):
        for attempt in sorted({o.attempt for o in outcomes}):
            mine = [o for o in outcomes if o.attempt == attempt]
            name = run if attempt == 0 else f"{run}.{attempt + 1}"
            suffix = "" if attempt == 0 else f".{attempt + 1}"
            written.add(path := folder / f"predictions{suffix}.jsonl")
            _lines(path, [_prediction(o, kept.patch(o)) for o in mine])
            for outcome in mine:
                written.add(path := folder / LOGS / name / folder_of(outcome.model) / outcome.instance_id)
                _write_instance(path, outcome, kept)
            _write_about(folder / LOGS / name / RUN, about)
            for model in dict.fromkeys(o.model for o in mine):
                of_model = [o for o in mine if o.model == model]
                written.add(path := folder / f"{folder_of(model)}.{name}.json")
                write_text(path, _dumped(totals(of_model, instances)))
        _remove_others(folder, run, written)
        _lines(folder / RESULTS, [o.to_json() for o in outcomes])
        write_text(folder / "summary.json", _dumped(summary))
    return summary


@contextlib.contextmanager
def reporting(place: Path) -> Iterator[None]:
    """Tell of a file that cannot be written; raises StoreWriteError."""
    try:
        yield
    except OSError as error:
        raise StoreWriteError(f"{error.filename or place}: {advice(error)}") from None


def keep_earlier(path: Path, known: Sequence[Mapping[str, Any]]) -> int:
    """Keep the results that are there beside their place, where some with a grade are not known any more.

    Returns how many these are. Raises StoreWriteError.
    """
    with reporting(path):
        try:
            before = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return 0
        here = {json.dumps(row) for row in known}
        passed = sum(line not in here and _is_graded(line) for line in before.splitlines())
        if passed:
            write_text(path.with_name(EARLIER), before)
        return passed


def _is_graded(line: str) -> bool:
    try:
        found = Outcome.from_json(json.loads(line))
    except (ValueError, AttributeError, RecursionError):
        return False
    return found is not None and found.verdict is not None


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON, an object on each line; raises StoreWriteError."""
    with reporting(path):
        _lines(path, rows)


def _remove_others(folder: Path, run: str, written: Collection[Path]) -> None:
    """Remove what an earlier run of the name has left of other models, instances and attempts, and nothing else."""
    for told in (folder / LOGS).glob(f"*/*/*/{META}"):
        place, model, name = told.parent, told.parents[1].name, told.parents[2].name
        number = re.fullmatch(rf"{re.escape(run)}(\.\d+)?", name)
        if place in written or not number:
            continue
        for path in (folder / f"predictions{number[1] or ''}.jsonl", folder / f"{model}.{name}.json"):
            if path not in written:
                path.unlink(missing_ok=True)
        for file in (*_FILES, f"{place.name}.traj.json"):
            (place / file).unlink(missing_ok=True)
        for empty in told.parents[:2]:
            with contextlib.suppress(OSError):
                empty.rmdir()
        # Of a run that holds nothing else.
        with contextlib.suppress(OSError):
            if [p.name for p in told.parents[2].iterdir()] == [RUN]:
                (told.parents[2] / RUN).unlink()
            told.parents[2].rmdir()


def _write_about(path: Path, about: Mapping[str, Any]) -> None:
    local = Path(about["dataset"])
    dataset = str(local.absolute()) if local.exists() else about["dataset"]
    told = {"dataset": dataset, "split": about["split"], "task_repo": None}
    with contextlib.suppress(OSError, ValueError, TypeError):
        if told.items() <= dict(json.loads(path.read_text())).items():
            return
    write_text(path, _dumped({**told, "created_at": datetime.now(UTC).isoformat(timespec="seconds")}))


def _write_instance(place: Path, outcome: Outcome, kept: Kept) -> None:
    write_text(place / "patch.diff", kept.patch(outcome))
    if outcome.status is Status.ERROR:
        # An earlier run may have left one, of another patch.
        (place / "report.json").unlink(missing_ok=True)
        write_text(place / "run_instance.log", f"{NOT_APPLIED}:\n{outcome.reason.text}\n")
    else:
        (place / "run_instance.log").unlink(missing_ok=True)
        write_text(place / "report.json", _dumped({outcome.instance_id: report(outcome)}))
    told = {k: v for k, v in outcome.to_json().items() if k not in ("fail_to_pass", "pass_to_pass")}
    write_text(place / META, _dumped(told))
    trajectory, native = kept.trajectory(outcome), kept.native(outcome)
    texts = {
        "test_output.txt": kept.log(outcome),
        "traj.json": _dumped(trajectory) if trajectory is not None else "",
        f"{outcome.instance_id}.traj.json": _dumped(native) if native is not None else "",
    }
    for name, text in texts.items():
        if text:
            write_text(place / name, text)
        else:
            # Of another patch.
            (place / name).unlink(missing_ok=True)


def _prediction(outcome: Outcome, patch: str) -> dict[str, str]:
    return {"instance_id": outcome.instance_id, "model_name_or_path": outcome.model, "model_patch": patch}


def report(outcome: Outcome) -> dict[str, Any]:
    """Return one instance's report in the form of SWE-bench's harness."""
    empty, applied = outcome.status is Status.EMPTY, outcome.status not in (Status.EMPTY, Status.ERROR)
    infra = outcome.status is Status.INFRA
    tests = {
        "FAIL_TO_PASS": _split(outcome.fail_to_pass),
        "PASS_TO_PASS": _split(outcome.pass_to_pass),
        "FAIL_TO_FAIL": {"success": [], "failure": []},
        "PASS_TO_FAIL": {"success": [], "failure": []},
    }
    return {
        "patch_is_None": empty,
        "patch_exists": not empty,
        "patch_successfully_applied": applied and not infra,
        "resolved": outcome.status is Status.RESOLVED,
        "infra_failure": infra,
        **({"infra_failure_reason": outcome.reason.text} if infra else {}),
        "tests_status": tests,
    }


def totals(outcomes: Sequence[Outcome], instances: Sequence[str]) -> dict[str, Any]:
    """Return a model's totals in the form of SWE-bench's harness, schema version 2.

    instances: all that were chosen; those without an outcome are incomplete.
    """

    def ids(*statuses: Status) -> list[str]:
        return sorted(o.instance_id for o in outcomes if o.status in statuses)

    unresolved = ids(Status.UNRESOLVED, Status.TIMED_OUT)
    named = {
        "completed_ids": sorted([*ids(Status.RESOLVED), *unresolved]),
        "incomplete_ids": sorted(set(instances) - {o.instance_id for o in outcomes}),
        "empty_patch_ids": ids(Status.EMPTY),
        "submitted_ids": sorted(o.instance_id for o in outcomes),
        "resolved_ids": ids(Status.RESOLVED),
        "unresolved_ids": unresolved,
        "infra_failure_ids": ids(Status.INFRA),
        "ambiguous_failure_ids": [],
        "error_ids": ids(Status.ERROR),
    }
    return {
        "total_instances": len(instances),
        "submitted_instances": len(outcomes),
        "completed_instances": len(named["completed_ids"]),
        "resolved_instances": len(named["resolved_ids"]),
        "unresolved_instances": len(unresolved),
        "infra_failure_instances": len(named["infra_failure_ids"]),
        "ambiguous_failure_instances": 0,
        "empty_patch_instances": len(named["empty_patch_ids"]),
        "error_instances": len(named["error_ids"]),
        **named,
        "failure_reasons": {o.instance_id: o.reason.text for o in outcomes if o.status in (Status.INFRA, Status.ERROR)},
        "schema_version": 2,
    }


def _split(statuses: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        "success": [i for i, s in statuses.items() if s == _PASSED],
        "failure": [i for i, s in statuses.items() if s != _PASSED],
    }


def _dumped(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


def _lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
