"""Download pinned source distributions that include their tests, and create a separate environment for each.

Run: `python benchmarks/projects.py [--folder /tmp/ssr-benchmarks] [project ...]` prepares projects and runs the suite
of each once with a plain pytest; it adds a line for each to `READY.md` in the folder, and a record to `ready.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PYTEST = "pytest==9.1.1"


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the benchmarks and what its environment needs."""

    requirement: str
    """The source distribution, pinned."""
    kind: str
    """What makes it different from the others."""
    packages: tuple[str, ...] = ()
    """The packages of its environment besides pytest."""
    editable: str | None = None
    """Extras with which the project itself is installed in editable mode; None if it is not installed."""
    tests: tuple[str, ...] = ()
    """The part of the suite that is run; empty: all of it."""
    sources: tuple[str, ...] = ()
    """The part of the code that is changed; empty: all of it."""
    pytest: str = PYTEST
    """The pytest of its environment: not all suites run under the newest."""
    repository: str = ""
    """The git repository of a project whose source distribution has no tests; the tag is the version."""
    used_before: bool = False
    """Whether this package was developed on it; results on the others are on unseen projects."""

    @property
    def version(self) -> str:
        return self.requirement.partition("==")[2]


PROJECTS = {
    "itsdangerous": Project("itsdangerous==2.2.0", "small, src layout", ("freezegun",), used_before=True),
    "toolz": Project("toolz==1.2.0", "small, flat layout", used_before=True),
    "sqlparse": Project("sqlparse==0.6.1", "parser, classes filled at import", used_before=True),
    "boltons": Project("boltons==26.2.0", "many independent modules", used_before=True),
    "attrs": Project(
        "attrs==26.1.0", "code made at import; hypothesis", ("hypothesis", "cloudpickle"), "", used_before=True
    ),
    "click": Project("click==8.5.1", "2,400 tests, subprocesses", editable="", used_before=True),
    "more-itertools": Project("more-itertools==11.2.1", "long computing suite", editable="", used_before=True),
    "w3lib": Project("w3lib==2.5.0", "doctests", ("hypothesis",), editable="", used_before=True),
    "pluggy": Project("pluggy==1.7.0", "pytest runs on it", ("pytest-benchmark", "coverage"), editable=""),
    "iniconfig": Project("iniconfig==2.3.1", "pytest reads its configuration with it", editable=""),
    "packaging": Project(
        "packaging==26.3",
        "60,000 tests; pytest compares versions with it",
        ("coverage[toml]", "hypothesis", "pretend", "tomli_w"),
        editable="",
    ),
    "flask": Project(
        "flask==3.1.3",
        "web framework",
        ("greenlet", "python-dotenv", "werkzeug==3.1.3"),
        "async",
        pytest="pytest==8.4.2",
    ),
    "werkzeug": Project(
        "werkzeug==3.1.9",
        "starts servers and processes",
        ("cffi", "cryptography", "ephemeral-port-reserve", "pytest-timeout"),
        editable="",
    ),
    "jinja2": Project("jinja2==3.1.6", "compiles templates to code; trio", ("trio", "markupsafe"), editable="i18n"),
    "inflection": Project("inflection==0.5.1", "one module, parametrized tests"),
    "voluptuous": Project("voluptuous==0.16.0", "tests in the package"),
    "httpx": Project(
        "httpx==0.28.1",
        "async, threads, sockets",
        ("chardet==5.2.0", "click==8.1.8", "cryptography", "trio", "trustme", "uvicorn==0.32.1"),
        editable="brotli,cli,http2,socks,zstd",
    ),
    "starlette": Project(
        "starlette==1.10.0",
        "async, under asyncio and trio",
        ("blockbuster", "httpx2[zstd]", "importlib-metadata", "opentelemetry-sdk", "pytest-codspeed", "trio"),
        editable="full",
    ),
    "jsonschema": Project(
        "jsonschema==4.26.0",
        "unittest classes made by a loop, tests inside the package",
        ("jsonpath-ng",),
        editable="format-nongpl",
    ),
    "tenacity": Project("tenacity==9.2.1", "unittest, sensitive to timing", ("tornado", "trio"), editable=""),
    "arrow": Project(
        "arrow==1.4.0",
        "coverage in its options",
        ("dateparser", "pytest-cov", "pytest-mock", "pytz", "simplejson"),
        editable="",
    ),
    "networkx": Project(
        "networkx==3.6.1",
        "dispatching decorators; a part of a long suite",
        editable="",
        tests=("networkx/classes", "networkx/algorithms/shortest_paths", "networkx/utils"),
        sources=("networkx/classes", "networkx/algorithms/shortest_paths", "networkx/utils"),
    ),
    "markupsafe": Project("markupsafe==3.0.4", "C extension, built in place", editable=""),
    "multidict": Project(
        "multidict==7.2.1",
        "C extension beside the same in Python; a part of a long suite",
        ("objgraph", "psutil", "pytest-codspeed", "pytest-cov", "hypothesis"),
        editable="",
        tests=(
            "tests/test_abc.py",
            "tests/test_copy.py",
            "tests/test_guard.py",
            "tests/test_istr.py",
            "tests/test_multidict.py",
            "tests/test_mutable_multidict.py",
            "tests/test_pickle.py",
            "tests/test_update.py",
            "tests/test_version.py",
        ),
    ),
    "frozenlist": Project("frozenlist==1.8.0", "C extension, built in place", ("cython", "pytest-cov"), editable=""),
    "jaraco.functools": Project(
        "jaraco.functools==4.6.0", "namespace package; doctests; importlib mode", editable="test"
    ),
    "jaraco.text": Project(
        "jaraco.text==4.3.0", "namespace package; doctests; importlib mode", editable="test,inflect"
    ),
    "zope.interface": Project(
        "zope.interface==8.7", "namespace package in src; unittest; C extension", editable="test"
    ),
    "mistune": Project("mistune==3.4.0", "unittest classes made by a loop", editable=""),
    "dateutil": Project(
        "python-dateutil==4.0.0", "unittest; date and time", ("attrs", "freezegun", "hypothesis", "pytest-cov"), ""
    ),
    "rich": Project(
        "rich==13.3.1",
        "terminal output, compared as text",
        ("attrs==21.4.0", "pygments==2.14.0"),
        editable="",
        pytest="pytest==7.4.4",
        repository="https://github.com/Textualize/rich",
    ),
    "sortedcontainers": Project(
        "sortedcontainers==2.4.0",
        "doctests, long randomised tests",
        editable="",
        repository="https://github.com/grantjenks/python-sortedcontainers",
    ),
}
_QUIET = ["-q", "--disable-pip-version-check"]


def fetch(name: str, folder: Path) -> tuple[Path, Path]:
    """Download a project into a folder; return its directory and the interpreter of its environment.

    An incomplete environment is created again; a source distribution already in the folder is used.
    """
    project = PROJECTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "source").is_dir():
        if project.repository:
            _clone(project, folder)
        else:
            _unpack(project, folder)
    source = next(p for p in (folder / "source").iterdir() if p.is_dir())
    python, done = folder / "venv" / "bin" / "python", folder / "venv" / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], check=True)
        own = [] if project.editable is None else ["-e", f"{source}[{project.editable}]".replace("[]", "")]
        _run([str(python), "-m", "pip", "install", *_QUIET, project.pytest, *project.packages, *own])
        done.touch()
    return source, python


def _unpack(project: Project, folder: Path) -> None:
    if not list(folder.glob("*.tar.gz")):
        pip = [sys.executable, "-m", "pip", "download", *_QUIET, "--no-deps", "--no-binary", ":all:"]
        _run([*pip, "-d", str(folder), project.requirement])
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        # Python 3.11.0 to 3.11.3 have no filters.
        archive.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder / "unpacked").rename(folder / "source")


def _clone(project: Project, folder: Path) -> None:
    target = folder / "unpacked" / f"{project.requirement.replace('==', '-')}"
    _run(["git", "clone", "-q", "--depth", "1", "--branch", f"v{project.version}", project.repository, str(target)])
    (folder / "unpacked").rename(folder / "source")


def _run(command: Sequence[str]) -> None:
    """Run a command; if it fails, exit with the end of its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def plain(folder: Path, *, further: Sequence[str] = ()) -> Path:
    """Return the interpreter of an environment in a folder with pytest, the packages in `further`, and nothing else."""
    name = "-".join(["plain", *further])
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        pip = [str(python), "-m", "pip", "install", *_QUIET, "pytest", *further]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    return python


def plain_environment(name: str, source: Path) -> dict[str, str]:
    """Return the environment variables of a plain run in a project's tree.

    Those that would affect the project's Python or pytest are left out. A project that is not installed and has a
    folder `src` is imported from there.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV_"))}
    if PROJECTS[name].editable is None and (source / "src").is_dir():
        environment["PYTHONPATH"] = str(source / "src")
    return environment


def suite_command(name: str, python: Path) -> list[str]:
    """Return the command of a plain run of a project's suite."""
    return [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *PROJECTS[name].tests]


@dataclass(frozen=True, slots=True)
class PlainRun:
    """One plain run of a project's suite."""

    exit_status: int
    """Pytest's exit status; a run that times out has none."""
    seconds: float
    summary: str
    """Pytest's last line."""

    @property
    def tests(self) -> int:
        """The number of tests that passed."""
        match = re.search(r"(\d+) passed", self.summary)
        return int(match[1]) if match else 0


def run_suite(name: str, source: Path, python: Path, *, timeout_s: float = 900) -> PlainRun:
    """Run a project's suite once as a user would, in its own directory."""
    begin = time.perf_counter()
    done = subprocess.run(
        suite_command(name, python),
        cwd=source,
        env=plain_environment(name, source),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]]
    return PlainRun(done.returncode, time.perf_counter() - begin, lines[-1])


def prepare(name: str, folder: Path) -> str:
    """Fetch a project, run its suite once and return a line about it."""
    source, python = fetch(name, folder / name)
    run = run_suite(name, source, python)
    project = PROJECTS[name]
    record = {"project": name, "exit_status": run.exit_status, "seconds": round(run.seconds, 1), "tests": run.tests}
    with (folder / "ready.jsonl").open("a") as out:
        out.write(json.dumps({**record, "summary": run.summary}) + "\n")
    state = "passes" if run.exit_status == 0 else f"exit status {run.exit_status}"
    seen = "used before" if project.used_before else "new"
    part = f"; tests: {' '.join(project.tests)}" if project.tests else ""
    return (
        f"- {name} ({project.requirement}, {seen}): {state}, {run.tests} tests, {run.seconds:.1f} s; "
        f"{project.kind}{part}; `{source}`, `{python}`; {run.summary}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=list(PROJECTS), metavar="project", help=", ".join(PROJECTS))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"))
    arguments = parser.parse_args()
    for name in arguments.projects:
        try:
            line = prepare(name, arguments.folder)
        except (SystemExit, subprocess.TimeoutExpired) as error:
            line = f"- {name}: not ready: {error}"
        print(line, flush=True)
        with (arguments.folder / "READY.md").open("a") as out:
            out.write(line.replace("\n", " ") + "\n")


if __name__ == "__main__":
    main()
