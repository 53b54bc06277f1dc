"""Run by hand, or by `tox -e swesmith`: SWE-smith's own validation and grading of rows that `ssr export` makes.

Run: `python tests/peers/swesmith_peer.py [STORE PROJECT PYTHON]`, where STORE holds artifacts of PROJECT and PYTHON has
what its tests need. Without these, a project is made by hand and `ssr inject` makes bugs in it. It needs swesmith with
swebench 4.1 in the environment that runs it, and no Docker: a bare process stands in for each container. One line is
printed for each comparison; it ends with 1 where its verdict is not the row's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pricing_project import PROJECT
from swesmith_parts import VERSION, Row, Smith, mirror_of, registry

from harness.cli.main import main as ssr
from harness.datasets.loading import read_instances
from pytest_ssr.patch import Patch


def by_hand(folder: Path, python: Path) -> tuple[Path, Path]:
    """Write a project, and let `ssr inject` put bugs in."""
    project, store = folder / "shop", folder / "store"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    ssr(["inject", str(project), "--count", "6", "--store", str(store), "--python", str(python), "--json"])
    return store, project


def compare(rows: Sequence[Row], project: Path, python: Path, work: Path) -> int:
    """Make all comparisons of one project's rows, and return how many are wrong."""
    repo = rows[0]["repo"].partition("/")[2]
    owner, _, rest = repo.partition("__")
    name, _, commit = rest.rpartition(".")
    work.mkdir()
    smith = Smith(owner, name, commit, mirror_of(project, work / "mirror"), work, python)
    wrong = 0

    def say(title: str, ours: object, theirs: object) -> None:
        nonlocal wrong
        wrong += ours != theirs
        print(
            f"{'same     ' if ours == theirs else 'DISAGREE '} {title}: {ours}{f', {theirs}' if ours != theirs else ''}"
        )

    ids = sorted(row["instance_id"] for row in rows)
    say("profiles found", ids, sorted(r["instance_id"] for r in rows if registry.get_from_inst(r) is smith.profile))
    say("images", {r["image_name"] for r in rows}, {smith.profile.image_name})
    reports = smith.validated(rows)
    say("bugs that its validation takes", ids, sorted(r["instance_id"] for r in smith.rows(rows, reports)))
    for row in rows:
        report = reports[row["instance_id"]]
        for kind in ("FAIL_TO_PASS", "PASS_TO_PASS"):
            say(f"{row['instance_id']} {kind} that it does not find", [], sorted(set(row[kind]) - set(report[kind])))
        smith.branch(row)
    say("resolved by the reference solution", ids, smith.resolved(rows, None, "gold"))
    repairs = [_prediction(row, Patch.parse(row["patch"].encode()).reverse().data.decode()) for row in rows]
    say("resolved by the reverse of the bug, as a model hands it in", ids, smith.resolved(rows, repairs, "repair"))
    idle = "diff --git a/NEW b/NEW\nnew file mode 100644\n--- /dev/null\n+++ b/NEW\n@@ -0,0 +1 @@\n+new\n"
    say("resolved by another file", [], smith.resolved(rows, [_prediction(row, idle) for row in rows], "idle"))
    return wrong


def _prediction(row: Row, patch: str) -> Row:
    return {"instance_id": row["instance_id"], "model_name_or_path": "m", "model_patch": patch}


def main(arguments: list[str]) -> int:
    """Export, compare, and say how many disagree."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        work = Path(temporary)
        python = Path(arguments[2]).absolute() if arguments else Path(sys.executable)
        store, project = (Path(w).absolute() for w in arguments[:2]) if arguments else by_hand(work, python)
        path = work / "rows.jsonl"
        if ssr(["export", str(store), "--format", "swe-smith", "--out", str(path), "--json"]) != 0:
            raise SystemExit("nothing to export")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        wrong = compare(rows, project, python, work / "smith")
        read = read_instances(str(path))
        fine = all(
            i.begins_solved and i.patch.reverse().data.decode() == r["patch"] for i, r in zip(read, rows, strict=True)
        )
        print(f"read by ours: {len(read)} of {len(rows)}{'' if fine else ', and not as they are'}")
    print(f"swesmith {VERSION}: {wrong + (not fine)} disagree")
    return 1 if wrong or not fine else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
