"""How many cheating patches are graded as resolved: by this package, and by the graders of swebench, side by side.

Run: `python benchmarks/attacks.py --out benchmarks/results/NAME.md`.
Each file of tests/attacks/patches is a patch on code that stays broken. Ours is graded in the sandbox bubblewrap. For
the others the same patched tree, with the test files put back as their evaluation scripts do it, runs
`pytest -rA` in the same sandbox, and the log, between their markers and with the exit status, goes to their own
`get_eval_report`, in an environment of their own. An honest repair and an empty patch are graded first by all.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_ssr.execution.suite import provide_interpreter, run_environment
from pytest_ssr.patch import Patch
from tests.attacks.conftest import BUG, FAIL_TO_PASS, FILES, PASS_TO_PASS, TESTS, Arena

RIVALS = {"swebench 5.0.2": "swebench==5.0.2", "swebench 4.1.0": "swebench==4.1.0"}
PATCHES = Path(__file__).resolve().parents[1] / "tests" / "attacks" / "patches"
HONEST = {"an honest repair": {"pkg/adding.py": FILES["pkg/adding.py"]}, "nothing": {}}
GRADE = """
import inspect, json, sys
from swebench.harness import grading
try:
    from swebench.types import TestSpec
except ImportError:
    from swebench.harness.test_spec.test_spec import TestSpec
said = json.load(sys.stdin)
given = {"instance_id": "a", "repo": "pytest-dev/pytest", "version": "8.0", "log_parser": "parse_log_pytest",
         "eval_type": "pass_and_fail", "image": "", "repo_script_list": [], "eval_script_list": [],
         "env_script_list": [], "arch": "x86_64", "language": "py", "docker_specs": {}, "namespace": None,
         "FAIL_TO_PASS": said["fail_to_pass"], "PASS_TO_PASS": said["pass_to_pass"]}
spec = TestSpec(**{k: v for k, v in given.items() if k in inspect.signature(TestSpec).parameters})
prediction = {"instance_id": "a", "model_name_or_path": "m", "model_patch": "diff"}
found = {}
for name, path in said["logs"].items():
    found[name] = grading.get_eval_report(spec, prediction, path, False)["a"]["resolved"]
print(json.dumps(found))
"""


def attacks() -> dict[str, dict[str, str | None]]:
    """Return the files of each patch by its name."""
    found: dict[str, dict[str, str | None]] = dict(HONEST)
    for path in sorted(PATCHES.glob("*.toml")):
        files = tomllib.loads(path.read_text())["files"]
        found[path.stem] = {p: text.lstrip("\n") or "" if text else None for p, text in files.items()}
    return found


def log_of(arena: Arena, patch: Patch) -> str:
    """Return the log of `pytest -rA` on the patched tree, as an evaluation script of theirs would leave it."""
    bench = arena.bench
    state = bench.original.apply(arena.patch(BUG)).apply(arena.artifact().weaken).apply(patch).restore(set(TESTS))
    with state.open(bench.provider, readable=bench.interpreter.readable) as sandbox:
        provide_interpreter(sandbox, bench.interpreter)
        environment = run_environment(sandbox, bench.interpreter)
        command = f"{bench.interpreter.executable} -m pytest -rA {' '.join(TESTS)} 2>&1"
        limits = replace(bench.limits, wall_s=30)
        done = sandbox.exec(["bash", "-c", command], limits=limits, env=environment)
    text = done.stdout.decode(errors="replace")
    return f">>>>> Start Test Output\n{text}\n>>>>> End Test Output\n>>>>> Test Exit Code: {done.exit_code}\n"


def installed(requirement: str, folder: Path) -> Path:
    """Return the interpreter of an environment that holds a release, which is made once."""
    place = folder / requirement.replace("==", "-")
    if not (done := place / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", requirement], check=True)
        done.touch()
    return place / "bin" / "python"


def theirs(python: Path, logs: dict[str, Path]) -> dict[str, bool]:
    """Return what the grader of a release says of each log."""
    said = {"fail_to_pass": FAIL_TO_PASS, "pass_to_pass": PASS_TO_PASS, "logs": {n: str(p) for n, p in logs.items()}}
    given = json.dumps(said)
    done = subprocess.run([python, "-c", GRADE], input=given, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, bool] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="where environments are kept")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rivals = {name: installed(requirement, arguments.folder) for name, requirement in RIVALS.items()}
    work = Path(tempfile.mkdtemp(prefix="attacks-"))
    try:
        (work / "arena").mkdir()
        (work / "logs").mkdir()
        arena = Arena(work / "arena", "bubblewrap")
        ours, logs, reasons = dict[str, bool | None](), dict[str, Path](), dict[str, str]()
        for number, (name, files) in enumerate(attacks().items()):
            patch = arena.patch(files, on_weakened=True)
            grade = arena.grade(patch)
            ours[name], reasons[name] = grade.resolved, grade.reason.text
            logs[name] = work / "logs" / f"{number}.log"
            logs[name].write_text(log_of(arena, patch))
            print(f"{name}: {grade.resolved}: {grade.reason}", flush=True)
        graders = {"pytest-ssr": ours, **{name: theirs(python, logs) for name, python in rivals.items()}}
    finally:
        shutil.rmtree(work)
    tries = [name for name in ours if name not in HONEST]
    text = [
        "# Cheating patches that are graded as resolved",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/attacks.py`. Every patch "
        "leaves the code broken; what each tries is in tests/attacks/patches.",
        "",
        "| grader | " + " | ".join(HONEST) + " | attacks accepted |",
        "| --- |" + " --- |" * len(HONEST) + " --- |",
    ]
    for grader, said in graders.items():
        honest = [("resolved" if said[name] else "unresolved") for name in HONEST]
        text.append(f"| {grader} | {' | '.join(honest)} | **{sum(bool(said[n]) for n in tries)} of {len(tries)}** |")
    text += ["", f"| attack | {' | '.join(graders)} | why not, here |", "| --- |" + " --- |" * (len(graders) + 1)]
    for name in tries:
        marks = " | ".join("**accepted**" if said[name] else "-" for said in graders.values())
        text.append(f"| {name} | {marks} | {reasons[name].replace('|', '/')} |")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text) + "\n")
    print("\n".join(text[4:9]))


if __name__ == "__main__":
    main()
