"""Count the functions and modules that a value passes on its way through `ssr`, by running the commands.

Run: `python benchmarks/walks.py --out FILE.md [--tree TREE] [--main harness.cli.main:main] [walk ...]`.
Five walks, each on a small project made for this: the path of a repository through `ssr inject`, an artifact through
`ssr validate`, a patch through `ssr grade`, a dataset row through `ssr eval`, a rollout through `ssr play` and
`ssr export`. Each command runs in one process with one job while `sys.setprofile` looks at the arguments of each call.

A *stop* is a function, method or constructor of this project that receives the value as an argument; or an object
that holds it in an attribute or as an item, if the function names that attribute or passes the object to another stop.
Settings within settings are looked through. A function counts once, at its first call that makes it a stop. Properties,
lambda functions, comprehensions and special methods other than `__init__` and `__call__` do not count, nor does what
runs in another process. A *return* is a step into a module that the walk has already left. TREE is a checkout of the
version that is measured (default: this one).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("pytest_ssr", "harness")
CODE = """\
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(values):
    result = 0
    for value in values:
        result += value
    return result
"""
TESTS = """\
from calc import clamp, total


def test_clamp():
    assert [clamp(v, 0, 3) for v in (-1, 0, 2, 3, 4)] == [0, 0, 2, 3, 3]


def test_total():
    assert total([1, 2, 3]) == 6
    assert total([4, 5]) == 9


def test_empty():
    assert total([]) == 0
"""
ROW_ID = "acme__calc-1"
Match = Callable[[object], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """A value's way through one or more commands."""

    value: str
    commands: tuple[str, ...]


WALKS = {
    "path": Walk("the path of a repository", ("inject",)),
    "artifact": Walk("an artifact", ("validate",)),
    "patch": Walk("a patch", ("grade",)),
    "row": Walk("a row of a dataset", ("eval",)),
    "rollout": Walk("a rollout", ("play", "export")),
}
TYPES = {"artifact": "BugArtifact", "patch": "Patch", "row": "Instance", "rollout": "Trajectory"}
"""The class of the object that a walk's value becomes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """A function that received the value."""

    module: str
    function: str


class Recorder:
    """Records the functions that are called with the value; an instance is a profile function."""

    def __init__(self, is_value: Match) -> None:
        self._is_value = is_value
        self._order: dict[Stop, None] = {}
        self._counted: set[Stop] = set()
        self._holders: dict[FrameType, Stop] = {}

    @property
    def stops(self) -> list[Stop]:
        """The stops, in the order of their calls."""
        return [s for s in self._order if s in self._counted]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in PACKAGES:
            return
        if event == "return":
            self._holders.pop(frame, None)
        if event != "call":
            return
        arguments = _arguments(frame)
        if any(self._is_value(a) for a in arguments.values()):
            held: set[str] | None = None
        else:
            held = {name for a in arguments.values() for name, part in _parts(a) if self._is_value(part)}
            if not held:
                return
        owner = next((arguments[n] for n in ("self", "cls") if n in arguments), None)
        stop = Stop(module, _name(frame, owner))
        if not _is_counted(frame.f_code.co_name, owner):
            return
        self._order.setdefault(stop)
        self._holders[frame] = stop
        if held is None or held & _names_in(frame.f_code):
            self._count(frame)

    def _count(self, frame: FrameType | None) -> None:
        """Count a function, and the callers that passed it what they had received."""
        while frame is not None:
            stop = self._holders.get(frame)
            if stop is not None:
                self._counted.add(stop)
            elif str(frame.f_globals.get("__name__", "")).partition(".")[0] in PACKAGES:
                return
            frame = frame.f_back


def _arguments(frame: FrameType) -> dict[str, object]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {n: frame.f_locals[n] for n in code.co_varnames[:count] if n in frame.f_locals}


@functools.cache
def _names_in(code: CodeType) -> frozenset[str]:
    """Return the names of attributes in a function and those nested in it."""
    inner = (_names_in(c) for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(code.co_names).union(*inner)


def _name(frame: FrameType, owner: object) -> str:
    name = frame.f_code.co_qualname.replace("<locals>.", "")
    if owner is not None and name.startswith("__create_fn__"):
        return f"{type(owner).__name__}.{frame.f_code.co_name}"
    return name


def _is_counted(name: str, owner: object) -> bool:
    if name.startswith("<") or (name.startswith("__") and name not in ("__init__", "__call__")):
        return False
    member = inspect.getattr_static(type(owner), name, None)
    return not isinstance(member, property)


def _parts(argument: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes and items of an object, with their names, and those of the settings in settings."""
    if isinstance(argument, Mapping):
        yield from ((str(k), v) for k, v in list(argument.items()))
    elif isinstance(argument, list | tuple | set | frozenset):
        yield from (("", item) for item in list(argument))
    for name in _attributes(argument):
        try:
            part = object.__getattribute__(argument, name)
        except AttributeError:
            continue
        yield name, part
        if type(part).__module__.startswith("harness.settings"):
            yield from _parts(part)


def _attributes(argument: object) -> list[str]:
    if isinstance(argument, type):
        return []
    kind = type(argument)
    slots = (getattr(base, "__slots__", ()) for base in kind.__mro__ if base.__module__.partition(".")[0] in PACKAGES)
    names = itertools.chain.from_iterable([s] if isinstance(s, str) else s for s in slots)
    return [*getattr(argument, "__dict__", ()), *(n for n in names if not n.startswith("__"))]


def is_value_of(name: str, given: Path) -> Match:
    """Return whether an object is the value of a walk; `given`: what the command line names."""
    type_name, plain = TYPES.get(name), str(given)
    data = given.read_bytes() if name == "patch" else b""

    def is_value(found: object) -> bool:
        if isinstance(found, str | os.PathLike):
            return name != "rollout" and os.fspath(found) == plain
        if isinstance(found, bytes):
            return name == "patch" and found == data
        if isinstance(found, dict):
            return name == "row" and found.get("instance_id") == ROW_ID and "base_commit" in found
        kind = type(found)
        if kind.__name__ != type_name or kind.__module__.partition(".")[0] not in PACKAGES:
            return False
        if name != "patch":
            return True
        # A patch that is being constructed has no files yet.
        return hasattr(found, "files") and getattr(found, "data", b"") == data

    return is_value


def record(name: str, given: Path, commands: Sequence[Sequence[str]], entry: str) -> list[Stop]:
    """Run command lines in this process, and return the stops of a walk."""
    module, _, attribute = entry.partition(":")
    main = getattr(importlib.import_module(module), attribute)
    recorder = Recorder(is_value_of(name, given))
    threading.setprofile(recorder)
    for argv in commands:
        sys.setprofile(recorder)
        status = main(argv)
        sys.setprofile(None)
        if status:
            raise SystemExit(f"ssr {' '.join(argv)} ended with status {status}")
    return recorder.stops


def returns(stops: Sequence[Stop]) -> int:
    """Return how often a walk steps into a module that it has already left."""
    modules = [module for module, _ in itertools.groupby(s.module for s in stops)]
    return len(modules) - len(set(modules))


class Project:
    """A small project with a history, its artifact, a repair of it and a row."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repository = folder, folder / "clones" / "acme__calc"
        self.store, self.rows, self.repair = folder / "store", folder / "rows.jsonl", folder / "repair.diff"
        self._write(self.repository)
        self._git(self.repository, "init", "-q")
        self._commit("first")

    def _write(self, folder: Path, code: str = CODE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "calc.py").write_text(code)
        (folder / "test_calc.py").write_text(TESTS)

    def _git(self, folder: Path, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    def _commit(self, message: str) -> str:
        self._git(self.repository, "add", "-A")
        self._git(self.repository, "commit", "-q", "-m", message)
        return self._git(self.repository, "rev-parse", "HEAD").strip()

    @property
    def artifact(self) -> Path:
        """The artifact that `ssr inject` left."""
        return next(p for p in (self.store / "artifacts").iterdir() if p.is_dir())

    def write_repair(self) -> None:
        """Write a patch that repairs the bug and adds a comment."""
        buggy = self.folder / "buggy"
        self._write(buggy)
        self._git(buggy, "init", "-q")
        self._git(buggy, "apply", str(self.artifact / "bug_inject.diff"))
        self._git(buggy, "add", "-A")
        self._write(buggy, CODE + "# Repaired.\n")
        self.repair.write_text(self._git(buggy, "diff"))

    def write_row(self) -> None:
        """Write a row whose solution repairs `total`."""
        broken = CODE.replace("result += value", "result = value")
        self._write(self.repository, broken)
        base = self._commit("second")
        self._write(self.repository)
        patch = self._git(self.repository, "diff")
        (self.repository / "test_calc.py").write_text(TESTS + "    assert total([7, 7]) == 14\n")
        test_patch = self._git(self.repository, "diff", "test_calc.py")
        self._git(self.repository, "checkout", "-q", ".")
        row = {
            "repo": "acme/calc",
            "instance_id": ROW_ID,
            "base_commit": base,
            "patch": patch,
            "test_patch": test_patch,
            "problem_statement": "total() returns the last value.",
            "FAIL_TO_PASS": json.dumps(["test_calc.py::test_total"]),
            "PASS_TO_PASS": json.dumps(["test_calc.py::test_clamp"]),
            "version": "1.0",
        }
        self.rows.write_text(json.dumps(row) + "\n")

    def prepare(self, walk: str, options: Sequence[str]) -> tuple[Path, list[list[str]]]:
        """Return the value that a walk's command line names, and its command lines."""
        repo, store = str(self.repository), str(self.store)
        if walk == "path":
            inject = ["inject", repo, "--count", "1", "--injector", "mutation", "--jobs", "1", "--store", store]
            return self.repository, [[*inject, *options]]
        if walk == "artifact":
            return self.artifact, [["validate", str(self.artifact), "--repo", repo, *options]]
        if walk == "patch":
            self.write_repair()
            grade = ["grade", str(self.artifact), "--repo", repo, "--patch", str(self.repair), "--store", store]
            return self.repair, [[*grade, *options]]
        if walk == "row":
            self.write_row()
            evaluate = ["eval", str(self.rows), "--predictions", "gold", "--jobs", "1"]
            folders = ["--repos", str(self.repository.parent), "--out", str(self.folder / "run")]
            return self.rows, [[*evaluate, *folders, *options]]
        played = str(self.folder / "played")
        play = ["play", repo, "--injector", "mutation", "--solver", "search", "--rounds", "1", "--count", "1"]
        play += ["--attempts", "1", "--jobs", "1", "--store", played]
        export = ["export", played, "--format", "rollouts", "--out", str(self.folder / "exported")]
        return self.repository, [[*play, *options], export]


def measure(walk: str, tree: Path, entry: str, given: Path, commands: Sequence[Sequence[str]]) -> list[Stop]:
    """Return the stops of a walk, recorded in a new process that imports the version in `tree`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stops.json"
        task = {"walk": walk, "given": str(given), "commands": commands, "entry": entry, "out": str(out)}
        env = {k: v for k, v in os.environ.items() if not k.startswith("SSR_")} | {"PYTHONPATH": str(tree)}
        command = [sys.executable, __file__, "--child", json.dumps(task)]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{walk}: {(done.stdout + done.stderr)[-3000:]}")
        return [Stop(**s) for s in json.loads(out.read_text())]


def _child(task: Mapping[str, Any]) -> None:
    # The folder of this script is not to be imported from.
    sys.path.pop(0)
    stops = record(task["walk"], Path(task["given"]), task["commands"], task["entry"])
    Path(task["out"]).write_text(json.dumps([dataclasses.asdict(s) for s in stops]))


def page(walks: Mapping[str, Sequence[Stop]]) -> str:
    """Return the table of walks and a list of each, as Markdown."""
    lines = ["| walk | stops | modules | returns |", "|---|---|---|---|"]
    for name, stops in walks.items():
        walk, modules = WALKS[name], len({s.module for s in stops})
        command = " and ".join(f"`ssr {c}`" for c in walk.commands)
        lines.append(f"| {walk.value} through {command} | {len(stops)} | {modules} | {returns(stops)} |")
    for name, stops in walks.items():
        lines += ["", f"{WALKS[name].value[0].upper()}{WALKS[name].value[1:]}:", ""]
        for module, group in itertools.groupby(stops, key=lambda s: s.module):
            lines.append(f"- `{module}`: {', '.join(f'`{s.function}`' for s in group)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", default=list(WALKS), metavar="walk", help=", ".join(WALKS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--main", default="harness.cli.main:main", help="the function behind `ssr` in that version")
    parser.add_argument("--sandbox", default="bubblewrap")
    arguments = parser.parse_args()
    options = ["--sandbox", arguments.sandbox, "--python", sys.executable]
    found: dict[str, list[Stop]] = {}
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder).resolve())
        # Artifacts and patches are those of the project that the first walk injects into.
        for name in dict.fromkeys(["path", *arguments.walks]):
            given, commands = project.prepare(name, options)
            found[name] = measure(name, arguments.tree.resolve(), arguments.main, given, commands)
            print(f"{name}: {len(found[name])} stops, {returns(found[name])} returns", flush=True)
    arguments.out.write_text(page({n: found[n] for n in arguments.walks}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(json.loads(sys.argv[2]))
    else:
        main()
