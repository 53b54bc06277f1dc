"""Run what a row's evaluation needs on old versions of Python and pytest, each in an environment of its own.

Run: `python benchmarks/old_interpreters.py --out benchmarks/results/NAME.md [--folder DIR] [--brief]`.
The interpreters are those of pyenv (`pyenv install 3.6.15` builds one from its source) and those on PATH, the
environments are created with uv, and what runs in each is `tests/execution/test_old_interpreters.py`: ids, outcomes,
order, selection, evidence, blind runs, the log, the map of reached statements, forks of warm processes, and a whole
`ssr eval` of one row, all in bubblewrap. Versions of Python that are not there are left out, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.datasets.environments import uv_program

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/execution/test_old_interpreters.py"
VERSIONS = {
    "3.6": ("3.0.7", "3.2.5", "3.3.1", "3.10.1", "4.6.11", "5.4.3", "6.2.5", "7.0.1"),
    "3.7": ("3.10.1", "4.6.11", "5.4.3", "6.2.5", "7.4.4"),
    "3.8": ("4.6.11", "5.4.3", "6.2.5", "7.4.4", "8.3.5"),
    "3.9": ("4.6.11", "6.2.5", "8.4.2"),
    "3.10": ("6.2.5", "9.0.2"),
    "3.12": ("7.4.4", "9.0.2"),
    "3.13": ("8.2.0", "9.0.2"),
}
"""Version of Python to the versions of pytest."""
BRIEF = {"3.6": ("3.3.1", "6.2.5"), "3.8": ("5.4.3",)}
"""Those of `--brief`."""
NEEDED = {"3.3.1": ("attrs<19.2", "setuptools<60")}
"""What a version of pytest does not ask for and needs."""


@dataclass(slots=True)
class Seen:
    """What the tests showed in one environment."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """The tests that did not pass, with the reason."""


def interpreters() -> dict[str, Path]:
    """Return the programs of the wanted versions of Python that are installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in VERSIONS:
        candidates = [
            *sorted(pyenv.glob(f"{version}.*/bin/python")),
            *map(Path, filter(None, [shutil.which(f"python{version}")])),
        ]
        works = (
            p for p in candidates if subprocess.run([p, "-c", ""], capture_output=True, check=False).returncode == 0
        )
        path = next(works, None)
        if path is not None:
            found[version] = path
    return found


def create(folder: Path, python: Path, pytest: str) -> None:
    """Create an environment with a version of pytest, unless it exists."""
    if (folder / "bin" / "python").exists():
        return
    uv = uv_program()
    subprocess.run([uv, "venv", "-q", "--python", python, folder], check=True)
    packages = [f"pytest=={pytest}", *NEEDED.get(pytest, ())]
    subprocess.run([uv, "pip", "install", "-q", "--python", folder / "bin" / "python", *packages], check=True)


def run(folder: Path) -> dict[str, Seen]:
    """Run the tests in every environment of a folder; return what was seen by environment."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = ["-q", "-p", "no:cacheprovider", "-n", "2", "--junitxml", report.name]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, TESTS],
            cwd=ROOT,
            env={**os.environ, "SSR_TEST_OLD": str(folder), "PYTHONPATH": str(ROOT)},
            check=False,
        )
        cases = list(ElementTree.parse(report.name).iter("testcase"))
    seen: dict[str, Seen] = defaultdict(Seen)
    for case in cases:
        name, _, parameters = case.attrib["name"].partition("[")
        end = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        environment = next((p.name for p in folder.iterdir() if parameters.startswith(p.name)), "none")
        seen[environment].counts["passed" if end is None else end.tag] += 1
        if end is not None:
            seen[environment].notes.append(f"{name}: {end.attrib.get('message', '').splitlines()[0][:120]}")
    return seen


def table(seen: dict[str, Seen], found: dict[str, Path], seconds: float) -> str:
    """Return the page."""
    lines = [
        "# Old interpreters and old pytest",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, `benchmarks/old_interpreters.py`, {seconds:.0f} s on {os.cpu_count()} cores.",
        f"Not installed: {', '.join(sorted(VERSIONS.keys() - found.keys())) or 'none'}.",
        "",
        "| environment | passed | failed | skipped | what did not pass |",
        "| --- | --- | --- | --- | --- |",
    ]
    for environment in sorted(seen, key=lambda name: [int(n) for n in name.replace("-pytest-", ".")[6:].split(".")]):
        counts, notes = seen[environment].counts, "; ".join(seen[environment].notes).replace("|", "\\|")
        failed = counts["failure"] + counts["error"]
        lines.append(f"| {environment} | {counts['passed']} | {failed} | {counts['skipped']} | {notes} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the page to write; default: print it")
    parser.add_argument("--folder", type=Path, help="keep the environments there")
    parser.add_argument("--brief", action="store_true", help="three environments only")
    arguments = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        found = interpreters()
        for version, pytests in (BRIEF if arguments.brief else VERSIONS).items():
            for pytest in pytests if version in found else ():
                create(folder.absolute() / f"python{version}-pytest-{pytest}", found[version], pytest)
        seen = run(folder.absolute())
    page = table(seen, found, time.monotonic() - begin)
    if arguments.out is not None:
        arguments.out.write_text(page)
    print(page)
    return 1 if any(s.counts["failure"] + s.counts["error"] for s in seen.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
