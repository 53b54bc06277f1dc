"""Count the cheating patches that are graded as resolved, by this package and by the graders of swebench.

Run: `python benchmarks/attacks.py --out benchmarks/results/NAME.md`.
Each file of tests/attacks/patches is a patch that leaves the code broken. This package grades it in the sandbox
bubblewrap. For swebench, the same patched tree, with the test files restored as its evaluation scripts do it, runs
`pytest -rA` in the same sandbox, and the log, between its markers and with the exit status, goes to its own
`get_eval_report`, in a separate environment. All graders first grade an honest repair and an empty patch.
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
request = json.load(sys.stdin)
fields = {"instance_id": "a", "repo": "pytest-dev/pytest", "version": "8.0", "log_parser": "parse_log_pytest",
         "eval_type": "pass_and_fail", "image": "", "repo_script_list": [], "eval_script_list": [],
         "env_script_list": [], "arch": "x86_64", "language": "py", "docker_specs": {}, "namespace": None,
         "FAIL_TO_PASS": request["fail_to_pass"], "PASS_TO_PASS": request["pass_to_pass"]}
spec = TestSpec(**{k: v for k, v in fields.items() if k in inspect.signature(TestSpec).parameters})
prediction = {"instance_id": "a", "model_name_or_path": "m", "model_patch": "diff"}
resolved = {}
for name, path in request["logs"].items():
    resolved[name] = grading.get_eval_report(spec, prediction, path, False)["a"]["resolved"]
print(json.dumps(resolved))
"""


def attacks() -> dict[str, dict[str, str | None]]:
    """Return the files of each patch by the patch's name."""
    patches: dict[str, dict[str, str | None]] = dict(HONEST)
    for path in sorted(PATCHES.glob("*.toml")):
        files = tomllib.loads(path.read_text())["files"]
        patches[path.stem] = {p: text.lstrip("\n") or "" if text else None for p, text in files.items()}
    return patches


def log_of(arena: Arena, patch: Patch) -> str:
    """Return the log of `pytest -rA` on the patched tree, as an evaluation script of swebench would write it."""
    runner = arena.runner
    state = runner.original.apply(arena.patch(BUG)).apply(arena.artifact().weaken).apply(patch).restore(set(TESTS))
    with state.open(runner.provider, readable=runner.interpreter.readable) as sandbox:
        provide_interpreter(sandbox, runner.interpreter)
        environment = run_environment(sandbox, runner.interpreter)
        command = f"{runner.interpreter.executable} -m pytest -rA {' '.join(TESTS)} 2>&1"
        limits = replace(runner.limits, wall_s=30)
        result = sandbox.exec(["bash", "-c", command], limits=limits, env=environment)
    text = result.stdout.decode(errors="replace")
    return f">>>>> Start Test Output\n{text}\n>>>>> End Test Output\n>>>>> Test Exit Code: {result.exit_code}\n"


def install(requirement: str, folder: Path) -> Path:
    """Return the interpreter of an environment with a release, which is created on the first call."""
    environment = folder / requirement.replace("==", "-")
    if not (marker := environment / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "-q", requirement], check=True)
        marker.touch()
    return environment / "bin" / "python"


def grade_with_swebench(python: Path, logs: dict[str, Path]) -> dict[str, bool]:
    """Return whether the grader of a release resolves each log."""
    request = {"fail_to_pass": FAIL_TO_PASS, "pass_to_pass": PASS_TO_PASS, "logs": {n: str(p) for n, p in logs.items()}}
    payload = json.dumps(request)
    process = subprocess.run([python, "-c", GRADE], input=payload, stdout=subprocess.PIPE, text=True, check=True)
    resolved: dict[str, bool] = json.loads(process.stdout.splitlines()[-1])
    return resolved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for environments")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rivals = {name: install(requirement, arguments.folder) for name, requirement in RIVALS.items()}
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
        graders = {"pytest-ssr": ours, **{name: grade_with_swebench(python, logs) for name, python in rivals.items()}}
    finally:
        shutil.rmtree(work)
    attack_names = [name for name in ours if name not in HONEST]
    text = [
        "# Cheating patches that are graded as resolved",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/attacks.py`. Every patch "
        "leaves the code broken; what each tries is in tests/attacks/patches.",
        "",
        "| grader | " + " | ".join(HONEST) + " | attacks accepted |",
        "| --- |" + " --- |" * len(HONEST) + " --- |",
    ]
    for grader, verdicts in graders.items():
        honest = [("resolved" if verdicts[name] else "unresolved") for name in HONEST]
        accepted = sum(bool(verdicts[name]) for name in attack_names)
        text.append(f"| {grader} | {' | '.join(honest)} | **{accepted} of {len(attack_names)}** |")
    text += ["", f"| attack | {' | '.join(graders)} | why not, here |", "| --- |" + " --- |" * (len(graders) + 1)]
    for name in attack_names:
        marks = " | ".join("**accepted**" if verdicts[name] else "-" for verdicts in graders.values())
        text.append(f"| {name} | {marks} | {reasons[name].replace('|', '/')} |")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text) + "\n")
    print("\n".join(text[4:9]))


if __name__ == "__main__":
    main()
