"""Run by hand, or by `tox -e swebench4` and `tox -e swebench5`: swebench's own code beside ours, each reading the other.

Run: `python tests/peers/swebench_peer.py [FOLDER ROWS CLONES PYTHON]`, where FOLDER is what `ssr eval` or `ssr run` has
left (`--run-id ssr`) of the file ROWS with clones in CLONES, and PYTHON has what their tests need. Without these, a
project, rows and predictions of every kind are made by hand, and version 5 also grades rows of bugs that `ssr export`
makes, as they are: the reference solution resolves each of them, and no patch none. It needs swebench in the environment that runs it, and no
Docker: a bare process stands in for each container, unless rows name images. One line is printed for each comparison; it ends with 1 where two
verdicts disagree and our own record does not say why.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from pricing_project import PROJECT
from program_projects import row_of
from rows import BASE, FIXED, write_project, written
from swebench_parts import LOGS, OLD, VERSION, Row, Swebench

from harness.cli.main import main as ssr
from harness.leaderboard.loading import read_runs

RUN = "ssr"
_QUICK_S = 10
_SHOP = "acme__shop-1"
_FORGE = """\
from _pytest.reports import TestReport

_made = TestReport.from_item_and_call.__func__


def _passed(cls, item, call):
    report = _made(cls, item, call)
    report.outcome, report.longrepr = "passed", None
    return report


TestReport.from_item_and_call = classmethod(_passed)
"""
_SUBTRACTS = BASE["shop.py"]
_CODE = {
    "good": FIXED,
    "wrong": _SUBTRACTS.replace("a - b", "a * b"),
    "half": _SUBTRACTS.replace("a - b", "3"),
    "slow": _SUBTRACTS.replace("return a - b", "while True:\n        pass"),
    "ends": _SUBTRACTS.replace("return a - b", "import os\n    os._exit(0)"),
    "skips": _SUBTRACTS.replace("return a - b", "import pytest\n    pytest.skip('later')"),
    "broken": f"import nowhere\n{_SUBTRACTS}",
    "breaks-another": FIXED.replace("upper", "lower"),
    "forges": f"{_FORGE}\n\n{_SUBTRACTS}",
}


class Lines:
    """The comparisons; says each, and counts those that disagree."""

    def __init__(self) -> None:
        self.wrong = 0

    def say(self, title: str, ours: object, theirs: object, why: str = "") -> None:
        """Compare two verdicts; why: our own record's word for a difference."""
        if ours == theirs:
            print(f"same      {title}: {_short(ours)}")
            return
        ours, theirs = _beside(ours, theirs), _beside(theirs, ours)
        if why:
            print(f"by design {title}: ours {_short(ours)}, theirs {_short(theirs)}: {why}")
        else:
            self.wrong += 1
            print(f"DISAGREE  {title}: ours {_short(ours)}, theirs {_short(theirs)}")


def _beside(one: object, other: object) -> object:
    """Return what of one is not in the other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {k: v for k, v in one.items() if other.get(k) != v}
    return sorted(set(one) - set(other)) if isinstance(one, list) and isinstance(other, list) else one


def _short(value: object) -> str:
    return text if len(text := str(value)) <= 150 else f"{text[:150]}..."


def by_hand(folder: Path, python: Path) -> tuple[Path, Path, Path]:
    """Make clones and rows, and let `ssr eval` grade predictions of every kind."""
    clones, rows = write_project(folder)
    repository = clones / "acme__shop"
    patches = {name: _diff(repository, text) for name, text in _CODE.items()}
    # As many models write them: git and patch take both.
    patches |= {"plain": "---" + patches["good"].partition("\n---")[2], "cut-short": patches["good"].rstrip()}
    elsewhere = patches["wrong"].replace("-    return a - b", "-    pass")
    patches |= {"none": "", "garbage": "no diff", "elsewhere": elsewhere}
    several = [{**rows[0], "instance_id": f"{_SHOP}-{name}"} for name in patches]
    absent = {**rows[0], "instance_id": "acme__shop-absent", "base_commit": "0" * 40}
    path = written(folder / "rows.jsonl", [*several, rows[1], absent])
    handed_in = {**patches, "absent": patches["good"]}
    predictions = [
        {"instance_id": f"{_SHOP if n in patches else 'acme__shop'}-{n}", "model_name_or_path": "m/1", "model_patch": p}
        for n, p in handed_in.items()
    ]
    predictions.append({"instance_id": "acme__shop-2", "model_name_or_path": "m/1", "model_patch": rows[1]["patch"]})
    arguments = [
        "--predictions",
        str(written(folder / "given.jsonl", predictions)),
        "--repos",
        str(clones),
        "--time-limit",
    ]
    ssr(["eval", str(path), *arguments, str(_QUICK_S), "--python", str(python), "--out", str(folder / "run"), "--json"])
    return folder / "run", path, clones


def _diff(repository: Path, text: str) -> str:
    from rows import diff

    return diff(repository, {"shop.py": text})


def _resolved(outcome: Row) -> bool | None:
    return None if outcome["status"] == "infra" else outcome["status"] == "resolved"


def why_of(outcome: Row, theirs: bool) -> str:
    """Return what our own record says of another verdict than ours; empty where it says nothing."""
    if outcome["status"] == "infra":
        return str(outcome["reason"]["text"])
    if set_aside := outcome["flag_details"].get("tests-set-aside"):
        return f"set aside here, as the reference solution does not pass them: {set_aside}"
    word = "resolved" if theirs else "unresolved"
    if outcome["flag_details"].get("log-differs") != [word]:
        return ""
    return f"by SWE-bench's rule its log says {word}; {outcome['reason']['text']}"


def compare(folder: Path, peer: Swebench, work: Path, lines: Lines, *, timeout_s: int) -> None:
    """Make all comparisons of one run."""
    outcomes = {o["task"]: o for o in map(json.loads, (folder / "results.jsonl").open()) if not o["attempt"]}
    predictions = peer.predictions(folder / "predictions.jsonl")
    lines.say("predictions.jsonl, instances read", sorted(outcomes), sorted(predictions))
    for number, model in enumerate(sorted({p["model_name_or_path"] for p in predictions.values()})):
        mine = {k: p for k, p in predictions.items() if p["model_name_or_path"] == model}
        ours = {k: o for k, o in outcomes.items() if k in mine}
        totals(peer, mine, ours, folder, work / "ours" / str(number), lines)
        if not OLD:
            recorded = json.loads((folder / LOGS / RUN / "run.json").read_text())["dataset"]
            lines.say("run.json, dataset", recorded, peer.dataset(work / "ours" / str(number), RUN))
        logs(peer, mine, ours, folder, lines)
        runs(peer, mine, ours, work / "theirs" / str(number), lines, timeout_s=timeout_s)


def totals(
    peer: Swebench, predictions: Mapping[str, Row], ours: Mapping[str, Row], folder: Path, work: Path, lines: Lines
) -> None:
    """Their totals of our reports against ours."""
    shutil.copytree(folder / LOGS, work / LOGS, dirs_exist_ok=True)
    peer_report = peer.totals(predictions, work, RUN)
    model = next(iter(predictions.values()))["model_name_or_path"].replace("/", "__")
    recorded = json.loads((folder / f"{model}.{RUN}.json").read_text())
    infra = {k for k, o in ours.items() if o["status"] == "infra"}
    for name in ("submitted_ids", "resolved_ids", "unresolved_ids", "empty_patch_ids", "error_ids"):
        beside = set(peer_report[name]) ^ set(recorded[name])
        why = f"no grade: {sorted(infra)}" if beside and beside <= infra else ""
        lines.say(f"{model}.{RUN}.json {name}", recorded[name], peer_report[name], why)


def logs(peer: Swebench, predictions: Mapping[str, Row], ours: Mapping[str, Row], folder: Path, lines: Lines) -> None:
    """Their verdicts on our logs against ours, test by test."""
    for instance, prediction in predictions.items():
        log_folder = folder / LOGS / RUN / prediction["model_name_or_path"].replace("/", "__") / instance
        if not (log_folder / "test_output.txt").exists():
            continue
        outcome, peer_report = ours[instance], peer.graded(prediction, log_folder / "test_output.txt")
        title, theirs = f"{instance} our log", peer_report["resolved"]
        if _skipped(outcome, log_folder / "test_output.txt") and OLD:
            print(f"by design {title}: theirs {theirs}: 4.x counts a skipped test neither for nor against")
            continue
        if outcome["log_resolved"] is None and prediction["instance_id"] in peer.native:
            print(f"by design {title}: it names tests by file, so our record says nothing of their rule")
            continue
        lines.say(f"{title}, what we say of their rule", outcome["log_resolved"], theirs)
        lines.say(title, _resolved(outcome), theirs, why_of(outcome, theirs))
        if theirs == _resolved(outcome) and "tests_status" in peer_report:
            report = json.loads((log_folder / "report.json").read_text())[instance]
            lines.say(
                f"{title}, tests", _tests(report), _tests(peer_report), _spaces(peer, outcome) or _cut_off(log_folder)
            )


def _skipped(outcome: Row, log: Path) -> bool:
    wanted = [*outcome["fail_to_pass"], *outcome["pass_to_pass"]]
    return any(f"SKIPPED {name}" in log.read_text(errors="replace") for name in wanted)


def _tests(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ids of each kind, as the parser of theirs names them."""
    status = report["tests_status"]
    both = ((k, s) for k in ("FAIL_TO_PASS", "PASS_TO_PASS") for s in ("success", "failure"))
    return {f"{kind} {end}": sorted({i.split()[0] for i in status[kind][end]}) for kind, end in both}


def _spaces(peer: Swebench, outcome: Row) -> str:
    some = [i for i in (*outcome["fail_to_pass"], *outcome["pass_to_pass"]) if len(i.split()) > 1]
    cut = {i.split()[0] for i in some}
    return f"{len(some)} ids with spaces are {len(cut)} there" if len(cut) < len(some) else ""


def _cut_off(log_folder: Path) -> str:
    """Say that a run was ended in the middle, so that its log has no outcomes."""
    ended = "Test Exit Code: 1" in (text := (log_folder / "test_output.txt").read_text(errors="replace"))
    return (
        "" if ended or "Test Exit Code: 0" not in text or " passed" in text else "the patch ends the run of the tests"
    )


def runs(
    peer: Swebench, predictions: Mapping[str, Row], ours: Mapping[str, Row], work: Path, lines: Lines, *, timeout_s: int
) -> None:
    """Their verdicts on runs of their own against ours; and ours, of what those runs have left, against theirs."""
    work.mkdir(parents=True)
    peer.run(predictions, work, RUN, timeout_s=timeout_s)
    peer_report = peer.totals(predictions, work, RUN)
    for instance, outcome in ours.items():
        theirs = instance in peer_report["resolved_ids"]
        lines.say(f"{instance} their run", _resolved(outcome), theirs, why_of(outcome, theirs))
    (report,) = work.glob(f"*.{RUN}.json")
    for path in (report, work / "logs"):
        read = {a.task: a for a in read_runs([str(path)]).attempts}
        title = f"what ssr leaderboard reads of {'their totals' if path == report else 'their logs'}"
        wanted = _statuses(peer_report, predictions if path == report else _left(work))
        lines.say(title, {k: a.status for k, a in sorted(read.items()) if a.status != "incomplete"}, wanted)


def _left(work: Path) -> set[str]:
    return {p.name for p in (work / LOGS / RUN).glob("*/*")}


def _statuses(peer_report: Row, of: Iterable[str]) -> dict[str, str]:
    """Return status by instance as their totals have it; what they hold for the machine's fault has no grade."""
    infra = set(peer_report.get("infra_failure_ids", ()))
    names = (("resolved_ids", "resolved"), ("unresolved_ids", "unresolved"), ("error_ids", "error"))
    recorded = {i: status for name, status in (*names, ("empty_patch_ids", "empty")) for i in peer_report[name]}
    return {i: "infra" if i in infra else recorded[i] for i in sorted(of) if i in recorded}


def exported(work: Path, python: Path, lines: Lines) -> None:
    """Let it grade the rows that we export of bugs in a project of pytest and in one of unittest."""
    for name, source in {"pytest": _pytest_project(work), "unittest": _unittest_rows(work)}.items():
        store, path, clones = (work / f"{name}-{part}" for part in ("store", "rows.jsonl", "clones"))
        options = ["--store", str(store), "--python", str(python), "--sandbox", "process", "--count", "4"]
        ssr(["inject", *source, *options, "--injector", "mutation", "--json"])
        if ssr(["export", str(store), "--format", "swe-bench", "--out", str(path), "--repos", str(clones), "--json"]):
            raise SystemExit("nothing to export")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        peer, folder = Swebench(rows, clones, python), work / f"{name}-graded"
        folder.mkdir()
        names = sorted(peer.rows)
        gold = [
            {"instance_id": r["instance_id"], "model_name_or_path": "gold", "model_patch": r["patch"]} for r in rows
        ]
        predictions = peer.predictions(written(work / f"{name}-gold.jsonl", gold))
        peer.run(predictions, folder, RUN, timeout_s=_QUICK_S * 6)
        title = f"exported rows of {name}, resolved by"
        lines.say(
            f"{title} the reference solution", names, sorted(peer.totals(predictions, folder, RUN)["resolved_ids"])
        )
        verdicts = peer.unpatched(folder, RUN, timeout_s=_QUICK_S * 6)
        lines.say(f"{title} no patch", [], sorted(name for name, resolved in verdicts.items() if resolved))


def _pytest_project(work: Path) -> list[str]:
    project = work / "pricing"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return [str(project)]


def _unittest_rows(work: Path) -> list[str]:
    row = row_of(work / "calculator", "unittest")
    return [str(written(work / "unittest.jsonl", [row])), "--repos", str(work / "calculator" / "clones")]


def main(arguments: list[str]) -> int:
    """Compare, and say how many disagree."""
    lines = Lines()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as log_folder:
        work = Path(log_folder)
        if arguments:
            folder, path, clones, python = (Path(word).absolute() for word in arguments)
        else:
            python = Path(sys.executable)
            folder, path, clones = by_hand(work, python)
            if not OLD:
                exported(work, python, lines)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        compare(folder, Swebench(rows, clones, python), work, lines, timeout_s=1800 if arguments else _QUICK_S)
    print(f"swebench {VERSION}: {lines.wrong} disagree")
    return 1 if lines.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
