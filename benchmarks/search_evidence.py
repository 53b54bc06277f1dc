"""Train and measure search policies by one command with one seed: static bugs, proven bugs, historical bugs.

Run: `python benchmarks/search_evidence.py --train SOURCE... --projects PROJECT... --clones CLONE... --folder DIR
--python PYTHON [--seed 0]`. SOURCES are projects or packages to learn from. PROJECTS, and CLONES with their git
history, are held out; PYTHON runs their tests. The steps:

1. `ssr inject` proves bugs in each project, and past ones in each clone.
2. `policy_ablations.py` trains policies on static bugs of the sources, and measures them on those of all that is held
   out. One of them has learned all bugs, another one no bug of some operators.
3. `search_policy.py` runs the candidates of the first: on the proven bugs of the projects, and on those of the clones.
4. It runs those of both on the proven bugs by the operators that the other one has not seen.

Each step writes its page to DIR, and continues there if it was ended. `policy_ablations.py --play` measures ways of
self-play, and `repair_generator.py` a generator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.solvers.search.policy import load_policy

BENCHMARKS = Path(__file__).resolve().parent
ALL_BUGS = "all-bugs"


def run(*argv: object, accepted: Sequence[int] = (0,)) -> None:
    """Run a program of this interpreter; ends this one if its exit code is not accepted."""
    command = [sys.executable, *map(str, argv)]
    print("+", *command, file=sys.stderr, flush=True)
    code = subprocess.run(command, cwd=BENCHMARKS.parent, check=False).returncode
    if code not in accepted:
        raise SystemExit(f"{' '.join(command[1:4])} ended with {code}; run the same command again to continue")


def inject(project: Path, injector: str, arguments: argparse.Namespace) -> None:
    # It ends with 1 if there are fewer bugs than wanted.
    run(
        *("-m", "harness.cli", "inject", project, "--injector", injector, "--count", arguments.count),
        *("--seed", arguments.seed, "--jobs", arguments.jobs, "--python", arguments.python),
        accepted=(0, 1),
    )
    if not any((project / ".ssr" / "artifacts").glob("*")):
        raise SystemExit(f"no bug was proven in {project}; leave it out")


def measure(
    name: str,
    projects: Sequence[Path],
    policies: Sequence[Path],
    arguments: argparse.Namespace,
    operators: Sequence[str] = (),
) -> None:
    only = ["--operators", *operators] if operators else []
    run(
        *(BENCHMARKS / "search_policy.py", *projects, "--policy", *policies, "--python", arguments.python),
        *("--most", arguments.most, "--seeds", 1, "--out", arguments.folder / f"{name}.md", *only),
    )


def main() -> None:
    """Do all steps; what an earlier call has finished is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "projects", "clones"):
        parser.add_argument(f"--{name}", nargs="+", type=Path, required=name != "clones", default=[])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--count", type=int, default=14, help="proven bugs per project")
    parser.add_argument("--bugs", type=int, default=60, help="static bugs per project")
    parser.add_argument("--most", type=int, default=100, help="candidates for each bug")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in ("train", "projects", "clones"):
        setattr(arguments, name, [path.resolve() for path in getattr(arguments, name)])
    arguments.folder = arguments.folder.resolve()
    # Not resolved: the link of a virtual environment is its interpreter.
    arguments.python = arguments.python.absolute()
    if both := set(arguments.projects) & set(arguments.clones):
        parser.error(f"both a project and a clone, which would share a store: {', '.join(map(str, both))}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for project in arguments.projects:
        inject(project, "mutation,removal,combination", arguments)
    for clone in arguments.clones:
        inject(clone, "history", arguments)
    run(
        *(BENCHMARKS / "policy_ablations.py", *arguments.train, "--held-out", *arguments.projects, *arguments.clones),
        *("--folder", arguments.folder, "--bugs", arguments.bugs, "--seed", arguments.seed),
        *("--jobs", arguments.jobs, "--out", arguments.folder / "static-bugs.md"),
    )
    policies = arguments.folder / "policies"
    every = policies / ALL_BUGS
    unseen = max(policies.glob("without-*-operators"), key=lambda folder: folder.stat().st_mtime)
    known, fewer = (set(load_policy(policy).trained_on["operators"]) for policy in (every, unseen))
    measure("proven-bugs", arguments.projects, [every], arguments)
    if known - fewer:
        measure("operators-left-out", arguments.projects, [every, unseen], arguments, sorted(known - fewer))
    if arguments.clones:
        measure("historical-bugs", arguments.clones, [every], arguments)


if __name__ == "__main__":
    main()
