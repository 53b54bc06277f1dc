"""Write the files of a run over instances: predictions, results, a summary, and logs in SWE-bench's folder layout.

`logs/run_evaluation/RUN/MODEL/INSTANCE/{report.json,patch.diff,test_output.txt}` and `MODEL.RUN.json` (schema version
2) have the fields that SWE-bench's own reporting code reads (swebench 4.1 and 5.x). An error has no report.json, which
is how that code recognizes one, but a run_instance.log with the reason. SWE-bench supports one prediction of a model
for an instance, so further attempts are written as separate runs, `RUN.2` and so on. Each run has a run.json that names
the dataset, so that `swebench report` can compute verdicts from the logs again.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.evaluation.logs import NOT_APPLIED
from harness.evaluation.predictions import folder_of
from harness.evaluation.rows_work import RowsWork
from harness.records.attempt import Attempt, Status, cost_totals, status_totals
from harness.storage.atomic_write import write_text
from pytest_ssr.errors import StoreWriteError, os_error_advice

LOGS, RESULTS, META, RUN = Path("logs", "run_evaluation"), "results.jsonl", "meta.json", "run.json"
EARLIER = "results.earlier.jsonl"
# The last marks a folder as ours.
_FILES = ("patch.diff", "report.json", "run_instance.log", "test_output.txt", "traj.json", META)
_PASSED = "passed"


def write_run(
    folder: Path,
    run: str,
    details: RowsWork,
    results: Sequence[Attempt],
    *,
    wanted: int,
    instances: Sequence[str],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all files of a run atomically and return its summary.

    Files of an earlier run with the same name, of other models, instances and attempts, are removed.
    wanted: how many results a complete run has. instances: all that were selected, including those without a
    prediction. about: the run's settings. Raises StoreWriteError.
    """
    without_result = sorted(set(instances) - {r.task for r in results})
    summary = {
        **status_totals(results),
        **cost_totals(results),
        "wanted": wanted,
        "instances": len(instances),
        "without_outcome": without_result,
        **about,
    }
    written: set[Path] = set()
    with store_write_errors(folder):
        for attempt in sorted({r.attempt for r in results}):
            of_attempt = [r for r in results if r.attempt == attempt]
            name = run if attempt == 0 else f"{run}.{attempt + 1}"
            suffix = "" if attempt == 0 else f".{attempt + 1}"
            path = folder / f"predictions{suffix}.jsonl"
            written.add(path)
            _write_json_lines(path, [_prediction(r, details.patch(r)) for r in of_attempt])
            for result in of_attempt:
                path = folder / LOGS / name / folder_of(result.solver) / result.task
                written.add(path)
                _write_instance(path, result, details)
            _write_about(folder / LOGS / name / RUN, about)
            for model in dict.fromkeys(r.solver for r in of_attempt):
                of_model = [r for r in of_attempt if r.solver == model]
                path = folder / f"{folder_of(model)}.{name}.json"
                written.add(path)
                write_text(path, _to_json(totals(of_model, instances)))
        _remove_others(folder, run, written)
        _write_json_lines(folder / RESULTS, [r.to_json() for r in results])
        write_text(folder / "summary.json", _to_json(summary))
    return summary


@contextlib.contextmanager
def store_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError on a file into a StoreWriteError."""
    try:
        yield
    except OSError as error:
        raise StoreWriteError(f"{error.filename or path}: {os_error_advice(error)}") from None


def keep_earlier(path: Path, current: Sequence[Mapping[str, Any]]) -> int:
    """Copy a results file to EARLIER if it has graded results that are not among the current ones.

    Return how many these are; raises StoreWriteError.
    """
    with store_write_errors(path):
        try:
            before = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return 0
        lines = {json.dumps(row) for row in current}
        dropped = sum(line not in lines and _is_graded(line) for line in before.splitlines())
        if dropped:
            write_text(path.with_name(EARLIER), before)
        return dropped


def _is_graded(line: str) -> bool:
    try:
        result = Attempt.from_json(json.loads(line))
    except (ValueError, AttributeError, RecursionError):
        return False
    return result is not None and result.verdict is not None


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON Lines; raises StoreWriteError."""
    with store_write_errors(path):
        _write_json_lines(path, rows)


def _remove_others(folder: Path, run: str, written: Collection[Path]) -> None:
    """Remove an earlier run's files of other models, instances and attempts, and nothing else."""
    for meta in (folder / LOGS).glob(f"*/*/*/{META}"):
        directory, model, name = meta.parent, meta.parents[1].name, meta.parents[2].name
        number = re.fullmatch(rf"{re.escape(run)}(\.\d+)?", name)
        if directory in written or not number:
            continue
        for path in (folder / f"predictions{number[1] or ''}.jsonl", folder / f"{model}.{name}.json"):
            if path not in written:
                path.unlink(missing_ok=True)
        for file in (*_FILES, f"{directory.name}.traj.json"):
            (directory / file).unlink(missing_ok=True)
        for empty in meta.parents[:2]:
            with contextlib.suppress(OSError):
                empty.rmdir()
        # The run has no other results.
        with contextlib.suppress(OSError):
            if [p.name for p in meta.parents[2].iterdir()] == [RUN]:
                (meta.parents[2] / RUN).unlink()
            meta.parents[2].rmdir()


def _write_about(path: Path, about: Mapping[str, Any]) -> None:
    local = Path(about["dataset"])
    dataset = str(local.absolute()) if local.exists() else about["dataset"]
    settings = {"dataset": dataset, "split": about["split"], "task_repo": None}
    with contextlib.suppress(OSError, ValueError, TypeError):
        if settings.items() <= dict(json.loads(path.read_text())).items():
            return
    write_text(path, _to_json({**settings, "created_at": datetime.now(UTC).isoformat(timespec="seconds")}))


def _write_instance(directory: Path, result: Attempt, details: RowsWork) -> None:
    write_text(directory / "patch.diff", details.patch(result))
    if result.status is Status.ERROR:
        # It may be there from an earlier run with another patch.
        (directory / "report.json").unlink(missing_ok=True)
        write_text(directory / "run_instance.log", f"{NOT_APPLIED}:\n{result.reason.text}\n")
    else:
        (directory / "run_instance.log").unlink(missing_ok=True)
        write_text(directory / "report.json", _to_json({result.task: instance_report(result)}))
    meta = {k: v for k, v in result.to_json().items() if k not in ("fail_to_pass", "pass_to_pass")}
    write_text(directory / META, _to_json(meta))
    trajectory, native = details.trajectory(result), details.native(result)
    texts = {
        "test_output.txt": details.log(result),
        "traj.json": _to_json(trajectory) if trajectory is not None else "",
        f"{result.task}.traj.json": _to_json(native) if native is not None else "",
    }
    for name, text in texts.items():
        if text:
            write_text(directory / name, text)
        else:
            # It belongs to another patch.
            (directory / name).unlink(missing_ok=True)


def _prediction(result: Attempt, patch: str) -> dict[str, str]:
    return {"instance_id": result.task, "model_name_or_path": result.solver, "model_patch": patch}


def instance_report(result: Attempt) -> dict[str, Any]:
    """Return an instance's report in the format of SWE-bench's harness."""
    empty, applied = result.status is Status.EMPTY, result.status not in (Status.EMPTY, Status.ERROR)
    infra = result.status is Status.INFRA
    tests = {
        "FAIL_TO_PASS": _split(result.fail_to_pass),
        "PASS_TO_PASS": _split(result.pass_to_pass),
        "FAIL_TO_FAIL": {"success": [], "failure": []},
        "PASS_TO_FAIL": {"success": [], "failure": []},
    }
    return {
        "patch_is_None": empty,
        "patch_exists": not empty,
        "patch_successfully_applied": applied and not infra,
        "resolved": result.status is Status.RESOLVED,
        "infra_failure": infra,
        **({"infra_failure_reason": result.reason.text} if infra else {}),
        "tests_status": tests,
    }


def totals(results: Sequence[Attempt], instances: Sequence[str]) -> dict[str, Any]:
    """Return a model's totals in the format of SWE-bench's harness, schema version 2.

    instances: the ids of all selected instances; those without a result are incomplete.
    """

    def ids(*statuses: Status) -> list[str]:
        return sorted(r.task for r in results if r.status in statuses)

    unresolved = ids(Status.UNRESOLVED, Status.TIMED_OUT)
    by_category = {
        "completed_ids": sorted([*ids(Status.RESOLVED), *unresolved]),
        "incomplete_ids": sorted(set(instances) - {r.task for r in results}),
        "empty_patch_ids": ids(Status.EMPTY),
        "submitted_ids": sorted(r.task for r in results),
        "resolved_ids": ids(Status.RESOLVED),
        "unresolved_ids": unresolved,
        "infra_failure_ids": ids(Status.INFRA),
        "ambiguous_failure_ids": [],
        "error_ids": ids(Status.ERROR),
    }
    return {
        "total_instances": len(instances),
        "submitted_instances": len(results),
        "completed_instances": len(by_category["completed_ids"]),
        "resolved_instances": len(by_category["resolved_ids"]),
        "unresolved_instances": len(unresolved),
        "infra_failure_instances": len(by_category["infra_failure_ids"]),
        "ambiguous_failure_instances": 0,
        "empty_patch_instances": len(by_category["empty_patch_ids"]),
        "error_instances": len(by_category["error_ids"]),
        **by_category,
        "failure_reasons": {r.task: r.reason.text for r in results if r.status in (Status.INFRA, Status.ERROR)},
        "schema_version": 2,
    }


def _split(statuses: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        "success": [i for i, s in statuses.items() if s == _PASSED],
        "failure": [i for i, s in statuses.items() if s != _PASSED],
    }


def _to_json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


def _write_json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
