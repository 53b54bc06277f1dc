"""Compare mutants per second and verdicts with mutmut and cosmic-ray, on the very same mutants, one job each.

Run: `python benchmarks/mutation_tools.py --out benchmarks/results/NAME.md [--rounds 2] [--sample 20] [project ...]`.
mutmut creates and runs the mutants of one or two modules; the same files, one after another, then go through this
package's screening, which stops at the first failure. On two projects, cosmic-ray runs a sample of its own mutants,
and so do we.
Set-up is separate: mutmut's generation, statistics, clean and forced-fail runs; our copy, baseline and trial of warm
processes; cosmic-ray's init and baseline. The tools take turns, all in one environment. CPU time is that of all
processes. mutmut and cosmic-ray run bare; ours run in a sandbox, each mutant with a private view of the tree.
If two verdicts differ, two fresh processes run the whole suite on that file to decide who is right and, if possible,
why. A mutant of mutmut is also run by its trampoline, in a fresh process, with the tests mutmut chose. If one test
fails and another has no end, the verdict depends on which comes first, and both are right.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, STDOUT

from projects import PROJECTS, fetch

from harness.audit.resources import cpu_s
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.execution.runner import FACTOR, FLOOR_S
from pytest_ssr.execution.screening import NONE, Screened
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus, abbreviate
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

# mutmut reads an attribute of tests that pytest 9.2 no longer has.
TOOLS = ("mutmut==3.8.1", "cosmic-ray==8.7.0", "pytest==9.1.1")
MODULES = {
    "toolz": ["toolz/dicttoolz.py", "toolz/recipes.py"],
    "itsdangerous": ["src/itsdangerous/signer.py", "src/itsdangerous/timed.py"],
    "sqlparse": ["sqlparse/utils.py", "sqlparse/lexer.py"],
    "boltons": ["boltons/listutils.py", "boltons/queueutils.py"],
    "click": ["src/click/formatting.py"],
    "inflection": ["inflection/__init__.py"],
    "voluptuous": ["voluptuous/util.py", "voluptuous/humanize.py"],
    "mistune": ["src/mistune/list_parser.py"],
    "tenacity": ["tenacity/stop.py", "tenacity/wait.py"],
    "arrow": ["arrow/formatter.py"],
    "iniconfig": ["src/iniconfig/_parse.py"],
    "jinja2": ["src/jinja2/idtracking.py"],
}
WITH_COSMIC_RAY = ("toolz", "sqlparse")
BESIDES = {"toolz": ["tlz", "toolz.egg-info"]}
KILLED, SURVIVED, TIMEOUT, NO_TESTS, CRASH = "killed", "survived", "timeout", "no tests", "crash"

MUTMUT_MUTANTS = """
import json, sys
from pathlib import Path
import libcst as cst
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.file_mutation import create_mutations, deep_replace, group_by_top_level_node
from mutmut.mutation.trampoline_templates import mangle_function_name
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name
stats = json.loads(Path("mutants/mutmut-stats.json").read_text())
tests, durations = stats["tests_by_mangled_function_name"], stats["duration_by_test"]
mutants = []
for path in map(Path, sys.argv[1:]):
    data = SourceFileMutationData(path=path)
    data.load()
    module, mutations, *_ = create_mutations(str(path), path.read_text())
    groups, names = group_by_top_level_node(mutations), set()
    for top in module.body:
        block = isinstance(top, cst.ClassDef) and isinstance(top.body, cst.IndentedBlock)
        for function in top.body.body if block else [top]:
            for number, mutation in enumerate(groups.get(function, ()), 1) if hasattr(function, "name") else ():
                key = mangle_function_name(name=function.name.value, class_name=top.name.value if block else None)
                key = get_mutant_name(path, key)
                name = f"{key}__mutmut_{number}"
                names.add(name)
                text = deep_replace(module, mutation.original_node, mutation.mutated_node).code
                verdict = status_by_exit_code[data.exit_code_by_key[name]]
                seconds = data.durations_by_key.get(name, 0.0)
                covering = sorted(tests.get(key, []), key=durations.get)
                mutants.append([name, str(path), text, verdict, seconds, covering])
    assert names == set(data.exit_code_by_key), names ^ set(data.exit_code_by_key)
print(json.dumps(mutants))
"""
COSMIC_SAMPLE = """
import json, random, sys
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.plugins import get_operator
from cosmic_ray.util import read_python_source
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult
chosen, rng = {}, random.Random(0)
with use_db(sys.argv[1]) as db:
    items = {i.job_id: i.mutations[0] for i in db.work_items}
    order = sorted(items, key=lambda j: (items[j].operator_name, str(items[j].operator_args), items[j].occurrence))
    for path in sorted({m.module_path for m in items.values()}):
        mine = [j for j in order if items[j].module_path == path]
        for job in rng.sample(mine, min(int(sys.argv[2]), len(mine))):
            m = items[job]
            text = MutationVisitor.mutate_code(
                read_python_source(path), get_operator(m.operator_name)(**m.operator_args), m.occurrence
            )
            chosen[job] = [f"{m.operator_name} {m.occurrence}", str(path), text]
    db.set_multiple_results([j for j in items if j not in chosen], WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
print(json.dumps([len(items), chosen]))
"""


class NoRunError(Exception):
    """A tool does not run; the message is the end of its output."""


@dataclass
class Mutant:
    """One changed file, and the verdict of the tool that created it."""

    name: str
    path: str
    text: str
    verdict: str
    seconds: float = 0.0
    tests: Sequence[str] = ()
    note: str = ""


@dataclass
class Cost:
    """Wall and CPU seconds of the set-up and of the mutants, and the wall seconds of each mutant."""

    setup: tuple[float, float]
    mutants: tuple[float, float]
    own_s: list[float] = field(default_factory=list)


@dataclass
class Compared:
    """One tool's mutants, run by it and by us."""

    mutants: list[Mutant]
    total: int
    theirs: Cost
    ours: Cost
    verdicts: list[str]
    right: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """Return how many times as fast ours is.

        By wall and CPU time, first without the set-up and then with it; last, by wall time without what timed out.
        """
        theirs, ours = self.theirs, self.ours
        plain = [theirs.mutants[i] / ours.mutants[i] for i in (0, 1)]
        whole = [(theirs.setup[i] + theirs.mutants[i]) / (ours.setup[i] + ours.mutants[i]) for i in (0, 1)]
        times = zip(self.mutants, self.verdicts, theirs.own_s, ours.own_s, strict=False)
        ended = [(a, b) for m, v, a, b in times if TIMEOUT not in (m.verdict, v)]
        return [*plain, *whole, sum(a for a, _ in ended) / sum(b for _, b in ended) if ended else 0.0]


ToolRun = tuple[Cost, list[Mutant], int]


def clean_environment(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON", "COV", "MUT"))}
    return {**inherited, "PYTHONUNBUFFERED": "1", **more}


def environment(name: str, folder: Path) -> Path:
    """Create the environment in which all three run a project; return its interpreter."""
    python = folder / "tools" / "bin" / "python"
    if not (folder / "tools" / "ready").exists():
        shutil.rmtree(folder / "tools", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "tools")], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *TOOLS, *PROJECTS[name].packages], check=True, stderr=subprocess.DEVNULL)
        (folder / "tools" / "ready").touch()
    return python


def command(argv: Sequence[str | Path], tree: Path, mark: str = "\0", **more: str) -> tuple[Cost, list[str]]:
    """Run a tool; its set-up is all before a line that starts with `mark`. Raise NoRunError if the tool fails."""
    begin, ready, lines = time.perf_counter(), (0.0, 0.0), []
    process = subprocess.Popen(
        argv, cwd=tree, env=clean_environment(**more), stdout=PIPE, stderr=STDOUT, encoding="utf-8", errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(mark):
            ready = time.perf_counter() - begin, cpu_s(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        messages = [x for x in lines if x.lower().startswith(("failed", "error", "stopping"))]
        messages = messages or [x for x in lines if x]
        raise NoRunError("; ".join(dict.fromkeys(messages[-3:])) or f"exit status {process.returncode}")
    elapsed = time.perf_counter() - begin - ready[0], usage.ru_utime + usage.ru_stime - ready[1]
    return Cost(ready, elapsed), lines


def run_script(python: Path, tree: Path, script: str, *arguments: str | Path) -> str:
    argv = [python, "-c", script, *arguments]
    return subprocess.run(argv, cwd=tree, env=clean_environment(), stdout=PIPE, text=True, check=True).stdout


def run_mutmut(name: str, tree: Path, python: Path) -> ToolRun:
    modules = MODULES[name]
    source = modules[0].partition("/")[0]
    table = {"source_paths": [source], "only_mutate": modules, "also_copy": BESIDES.get(name, [])}
    with (tree / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()))
    cost, _ = command([python.with_name("mutmut"), "run", "--max-children", "1"], tree, "Running mutation testing")
    mutants = [Mutant(*values) for values in json.loads(run_script(python, tree, MUTMUT_MUTANTS, *modules))]
    for mutant in mutants:
        mutant.verdict = CRASH if mutant.verdict == "segfault" else mutant.verdict
    cost.own_s = [m.seconds for m in mutants]
    return cost, mutants, len(mutants)


def run_cosmic(name: str, tree: Path, python: Path, sample: int, limit_s: float) -> ToolRun:
    config, session, tool = tree.parent / "cosmic.toml", tree.parent / "cosmic.sqlite", python.with_name("cosmic-ray")
    config.write_text(
        f"[cosmic-ray]\nmodule-path = {json.dumps(MODULES[name])}\ntimeout = {limit_s:.1f}\n"
        f'excluded-modules = []\ntest-command = "{python} -m pytest -x -q"\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    path = f"{tree}/src:{tree}"
    first, _ = command([tool, "init", config, session], tree)
    second, _ = command([tool, "baseline", config], tree, PYTHONPATH=path)
    total, chosen = json.loads(run_script(python, tree, COSMIC_SAMPLE, session, str(sample)))
    cost, _ = command([tool, "exec", config, session], tree, PYTHONPATH=path)
    cost.setup = first.mutants[0] + second.mutants[0], first.mutants[1] + second.mutants[1]
    _, dumped = command([tool, "dump", session], tree)
    results = {item["job_id"]: result for item, result in map(json.loads, dumped) if item["job_id"] in chosen}
    mutants = []
    for job, values in chosen.items():
        output = results[job]["output"] or ""
        verdict = TIMEOUT if output == "timeout" else str(results[job]["test_outcome"])
        mutation, path, text = values
        mutants.append(Mutant(mutation, path, text, verdict, note=(output.strip().splitlines() or [""])[-1]))
    return cost, mutants, total


def verdict_of(screened: Screened, stable: frozenset[str]) -> str:
    run = screened.run
    failed = {i for i, r in run.results.items() if not r.outcome.is_pass} & stable
    if not failed and run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED):
        return TIMEOUT
    if not failed and run.fault:
        return CRASH
    if screened.tier == NONE:
        return NO_TESTS
    return KILLED if screened.failing else SURVIVED


def state_of(campaign: Campaign, mutant: Mutant) -> CodebaseState:
    entry = campaign.runner.original.entry(mutant.path)
    assert entry is not None
    return campaign.runner.original.replace({mutant.path: FileEntry(mutant.text.encode(), entry.mode)})


def run_ours(campaign: Campaign, mutants: Sequence[Mutant], setup: tuple[float, float]) -> tuple[Cost, list[Screened]]:
    begin, cpu = time.perf_counter(), cpu_s(os.getpid())
    screened, own_s = [], []
    for mutant in mutants:
        start = time.perf_counter()
        screened.append(
            campaign.screening.run(state_of(campaign, mutant), runner=campaign.runner.scoped(), stop_after=1)
        )
        own_s.append(time.perf_counter() - start)
    elapsed = time.perf_counter() - begin, cpu_s(os.getpid()) - cpu
    return Cost(setup, elapsed, own_s), screened


def by_trampoline(tree: Path, python: Path, mutant: Mutant) -> str:
    """Run the tests that mutmut chose, in a fresh process, with its trampoline set to one mutant."""
    if not mutant.tests:
        return "mutmut has no test for it"
    env = clean_environment(MUTANT_UNDER_TEST=mutant.name, PYTHONPATH=f"{tree}/mutants/src:{tree}/mutants")
    argv = [str(python), "-m", "pytest", "--rootdir=.", "-x", "-q", "--tb=no", "-rfE", *mutant.tests]
    prefix = f"the {len(mutant.tests)} tests of mutmut by its trampoline in a fresh process: "
    try:
        done = subprocess.run(argv, cwd=tree / "mutants", env=env, stdout=PIPE, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return prefix + TIMEOUT
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return prefix + (f"{KILLED}, {(failed or [f'status {done.returncode}'])[0]}" if done.returncode else SURVIVED)


def same(a: str, b: str) -> bool:
    """Return whether two verdicts are equivalent; a mutant that no test reaches survives."""
    return (SURVIVED in (a, b) and NO_TESTS in (a, b)) or a == b


def judge(campaign: Campaign, tool: str, mutant: Mutant, screened: Screened, seen: str) -> tuple[str, str]:
    """Decide by two fresh runs of the whole suite; return who is right, and a line with the reasons."""
    stable, state = campaign.baseline.stable, state_of(campaign, mutant)
    votes = [campaign.screening.fresh(state, runner=campaign.runner.scoped()) for _ in range(2)]
    fresh, ours = [verdict_of(v, stable) for v in votes], verdict_of(screened, stable)
    broken = {t: r.outcome.value for t, r in votes[0].run.results.items() if t in stable and not r.outcome.is_pass}
    hangs = votes[0].run.status in (RunStatus.TIMED_OUT, RunStatus.LIMIT_EXCEEDED)
    if fresh[0] != fresh[1]:
        who = "fresh runs differ"
    elif {ours, mutant.verdict} == {KILLED, TIMEOUT} and hangs and (broken or "failed" in seen.lower()):
        who = "both (which test comes first)"
    elif same(ours, fresh[0]):
        who = "ours"
    elif same(mutant.verdict, fresh[0]):
        who = tool
    else:
        who = "neither"
    reasons = [f"ours ran {screened.selected} tests ({screened.tier})", votes[0].run.reason, seen]
    if broken:
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(broken.values()).items())
        overlap = f", mutmut ran {len(set(broken) & set(mutant.tests))} of these" if mutant.tests else ""
        reasons.insert(1, f"in the whole suite {kinds}{overlap}: {abbreviate(list(broken), most=1)}")
    description = f"`{change_of(campaign, mutant)}`: {tool} {mutant.verdict}, ours {ours}, fresh {' and '.join(fresh)}"
    return who, f"{mutant.name} {description}; right: {who}; {'; '.join(reason for reason in reasons if reason)}"


def change_of(campaign: Campaign, mutant: Mutant) -> str:
    entry = campaign.runner.original.entry(mutant.path)
    assert entry is not None
    old, new = entry.data.decode().splitlines(), mutant.text.splitlines()
    index = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new) - 1)
    return f"{mutant.path}:{index + 1} {new[index].strip()}"


def compare(
    campaign: Campaign, tool: str, tool_run: ToolRun, setup: tuple[float, float], probe: Callable[[Mutant], str]
) -> Compared:
    theirs, mutants, total = tool_run
    ours, screened = run_ours(campaign, mutants, setup)
    result = Compared(mutants, total, theirs, ours, [verdict_of(s, campaign.baseline.stable) for s in screened])
    for mutant, one, verdict in zip(mutants, screened, result.verdicts, strict=True):
        if not same(mutant.verdict, verdict):
            right, line = judge(campaign, tool, mutant, one, probe(mutant))
            result.right[right] += 1
            result.differing.append(line)
    return result


def measure(name: str, folder: Path, sample: int) -> tuple[dict[str, Compared], dict[str, str], str]:
    """Run one round on one project: mutmut, ours, cosmic-ray, ours; return the results, and why a tool did not run."""
    project, _ = fetch(name, folder / name)
    python, work = environment(name, folder / name), folder / f"{name}-tools"
    shutil.rmtree(work, ignore_errors=True)
    theirs, bare, own = (shutil.copytree(project, work / w / project.name, symlinks=True) for w in ("m", "c", "o"))
    begin, cpu = time.perf_counter(), cpu_s(os.getpid())
    campaign = open_campaign(own, Store(work / "store"), settings=RuleSettings(), python=python, seed=1)
    setup = time.perf_counter() - begin, cpu_s(os.getpid()) - cpu
    limit_s = FLOOR_S + FACTOR * campaign.baseline.seconds
    tools: dict[str, tuple[Callable[[], ToolRun], Callable[[Mutant], str]]] = {
        "mutmut": (lambda: run_mutmut(name, theirs, python), lambda m: by_trampoline(theirs, python, m)),
        "cosmic-ray": (lambda: run_cosmic(name, bare, python, sample, limit_s), lambda m: f"cosmic-ray saw: {m.note}"),
    }
    results, refused = {}, {}
    if name not in WITH_COSMIC_RAY:
        del tools["cosmic-ray"]
    try:
        for tool, (run, probe) in tools.items():
            try:
                results[tool] = compare(campaign, tool, run(), setup, probe)
            except NoRunError as error:
                refused[tool] = f"{tool} does not run {name}: {error}"
    finally:
        campaign.close()
    return results, refused, campaign.runner.provider.name


def cost_row(name: str, tool: str, rounds: Sequence[Compared]) -> str:
    def middle(pick: Callable[[Cost], float]) -> str:
        return ", ".join(f"{statistics.median(map(pick, costs)):.1f}" for costs in both)

    def spread(values: Sequence[float]) -> str:
        extent = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
        return f"**{statistics.median(values):.1f}**{extent}" if all(values) else "-"

    both = [r.theirs for r in rounds], [r.ours for r in rounds]
    count, total = len(rounds[0].mutants), rounds[0].total
    figures = [middle(lambda c: c.setup[0]), middle(lambda c: c.mutants[0]), middle(lambda c: count / c.mutants[0])]
    ratios = [spread(column) for column in zip(*(r.ratios() for r in rounds), strict=True)]
    return " | ".join([name, tool, str(count) if count == total else f"{count} of {total}", *figures, *ratios])


def verdict_row(name: str, tool: str, rounds: Sequence[Compared]) -> str:
    pairs = [(m.verdict, v) for r in rounds for m, v in zip(r.mutants, r.verdicts, strict=True)]
    counts = [", ".join(f"{n} {v}" for v, n in sorted(Counter(side).items())) for side in zip(*pairs, strict=True)]
    differ = sum(not same(a, b) for a, b in pairs)
    equal = sum(a == b for a, b in pairs)
    right = ", ".join(f"{who} {n}" for who, n in sorted(sum((r.right for r in rounds), Counter[str]()).items()))
    return " | ".join([name, tool, *counts, str(equal), str(len(pairs) - equal - differ), str(differ), right])


COSTS = (
    "project | against | mutants | set-up s: it, ours | mutants s: it, ours | a second: it, ours | times as fast | "
    "by CPU time | with set-up | by CPU time | each mutant's own time, time-outs left out"
)
VERDICTS = "project | against | it says | ours says | equal | survived against no tests | differ | right"


def table(head: str, rows: Sequence[str]) -> list[str]:
    return [f"| {row} |" for row in (head, " | ".join("---" for _ in head.split(" | ")), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=list(MODULES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sample", type=int, default=20, help="mutants of cosmic-ray for each module")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    unknown = set(a.projects) - set(MODULES)
    if unknown:
        parser.error(f"unknown project: {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}")
    if a.rounds < 1 or a.sample < 1:
        parser.error("--rounds and --sample must be at least 1")
    costs: list[str] = []
    verdicts: list[str] = []
    notes: list[str] = []
    for name in a.projects:
        rounds = [measure(name, a.folder.resolve(), a.sample) for _ in range(a.rounds)]
        for tool in ("mutmut", "cosmic-ray"):
            compared = [results[tool] for results, _, _ in rounds if tool in results]
            if compared:
                costs.append(cost_row(name, tool, compared))
                verdicts.append(verdict_row(name, tool, compared))
                print(costs[-1], verdicts[-1], sep="\n", flush=True)
            notes += [f"- {reason}" for reason in {refused[tool] for _, refused, _ in rounds if tool in refused}]
            lines = Counter(line for c in compared for line in c.differing)
            notes += [f"- {name}, {line}{f' ({n} rounds)' if n > 1 else ''}" for line, n in lines.items()]
        text = [
            "# Mutants per second and verdicts, against mutmut and cosmic-ray, on the same mutants",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {', '.join(TOOLS)}. Made by "
            f"`benchmarks/mutation_tools.py --rounds {a.rounds} --sample {a.sample}`, one job. Its "
            f"docstring defines the figures. Ours runs in the sandbox {rounds[0][2]}, the others in none.",
            "",
            *(f"- {n}: {', '.join(MODULES[n])}" for n in a.projects),
            "",
            *table(COSTS, costs),
            "",
            "Verdicts, all rounds:",
            "",
            *table(VERDICTS, verdicts),
            "",
            *(["What does not run, and each disagreement:", "", *notes, ""] if notes else []),
        ]
        a.out.parent.mkdir(parents=True, exist_ok=True)
        a.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
