"""Run `ssr init`: look at a project, and add `[tool.ssr]` to its pyproject.toml."""

from __future__ import annotations

import json
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.settings.commands import InitSettings
from harness.storage.atomic_write import write_bytes
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.campaign.report import estimated_s, left_out_line
from pytest_ssr.errors import ProjectError, SettingsError, StoreWriteError, os_error_advice
from pytest_ssr.options import PluginSettings
from pytest_ssr.progress import ProgressLines, counted, format_duration
from pytest_ssr.project.settings_table import read_project_table
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store

_COUNT = PluginSettings.count
_PATIENCE_S = 600
"""About this long a run may take that was configured by nobody."""
_LAYOUT_FOLDERS = ("lib", "python", "src")
"""Folders that hold packages, and are none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found out about a project."""

    tests: int
    """Tests that were collected."""
    passing: int
    test_files: int
    sources: Sequence[str]
    """The folders and files that the tests import."""
    code_files: int
    collection_s: float
    """Copying the project and collecting its tests."""
    run_s: float
    """One run of all tests."""
    interpreter: str
    python: str
    sandbox: str
    left_out: str = ""
    """Files whose tests could not be collected, with the reason."""

    @property
    def count(self) -> int:
        """How many bugs a run finds within the time that people wait."""
        return next((n for n in range(_COUNT, 1, -1) if estimated_s(self.run_s, n, 1) <= _PATIENCE_S), 1)


def init(settings: InitSettings) -> int:
    """Measure the tests, and add the section or print it; an existing section is never changed."""
    require_directory(settings.repo)
    path = settings.repo / "pyproject.toml"
    if not settings.dry_run:
        _require_without_section(path)
    terminal = Terminal(quiet=settings.json)
    seen = _look(settings, terminal)
    text = section_text(seen)
    if not settings.dry_run:
        _add(path, text)
    if settings.json:
        print(json.dumps({"path": str(path), "written": not settings.dry_run, "section": text, "seen": asdict(seen)}))
        return ExitCode.DONE
    for line in _seen_lines(seen):
        terminal.echo(line)
    if settings.dry_run:
        for line in ("", *text.splitlines()):
            terminal.echo(line)
    else:
        terminal.echo(f"{path}: [tool.ssr] added; `pytest --ssr-inject` and `ssr inject .` read it", "valid")
    return ExitCode.DONE


def section_text(seen: Seen) -> str:
    """Return the section as TOML; what is set to a default is a comment."""
    about = format_duration(estimated_s(seen.run_s, seen.count, 1))
    count = f"count = {seen.count}" if seen.count != _COUNT else f"# count = {_COUNT}"
    sources = ", ".join(json.dumps(source, ensure_ascii=False) for source in seen.sources)
    return f"""\
[tool.ssr]
# Written by `ssr init`: {seen.passing} of {seen.tests} tests pass in {seen.run_s:.1f} s. Flags and SSR_* variables win.
# Bugs go into these files and folders.
source = [{sources}]
# Proven bugs that a run looks for; {seen.count} take about {about} here.
{count}
# Stop a run after this time; what is found so far is kept.
# time = "10m"
# Another seed tries other changes first.
# seed = {PluginSettings.seed}
# What makes the changes; "history" needs git.
# injector = "{PluginSettings.injector}"
# A page for each run, in this folder; needs pip install "pytest-ssr[report]".
# html = "ssr-report"

[tool.ssr.execution]
# Here, auto chose {seen.sandbox}.
# sandbox = "auto"
# Limit of one run of all tests, in seconds.
# time-limit = {PluginSettings.time_limit:g}
"""


def source_roots(paths: Sequence[str]) -> list[str]:
    """Return the packages and modules of code files: the first folder of each that is not one of a layout."""
    roots: dict[str, None] = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        depth = 2 if parts[0] in _LAYOUT_FOLDERS and len(parts) > 1 else 1
        roots["/".join(parts[:depth])] = None
    return sorted(roots)


def _look(settings: InitSettings, terminal: Terminal) -> Seen:
    progress = ProgressLines(live=terminal.status, plain=terminal.note)
    with ExitStack() as stack:
        # A dry run leaves nothing behind.
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssr-init-")))
        store = Store(scratch / "store" if settings.dry_run else settings.store or settings.repo / ".ssr")
        options = settings.execution.run_options()
        terminal.status("copying the project and collecting its tests")
        start = time.perf_counter()
        runner = open_runner(settings.repo, store, **options, progress=progress)
        collection_s = time.perf_counter() - start
        baseline = project_baseline(replace(runner, progress=progress), store)
        terminal.status("")
        tests = set(baseline.files)
        code = [path for path in runner.snapshot.code_paths() if path in baseline.sources and path not in tests]
    if not code:
        raise ProjectError(f"the tests import no Python file of {settings.repo} outside the tests themselves")
    return Seen(
        tests=len(baseline.collected),
        passing=len(baseline.stable),
        test_files=len(tests),
        sources=source_roots(code),
        code_files=len(code),
        collection_s=round(collection_s, 2),
        run_s=round(baseline.seconds, 2),
        interpreter=str(runner.interpreter.executable),
        python=baseline.python,
        sandbox=runner.provider.name,
        left_out=baseline.note,
    )


def _seen_lines(seen: Seen) -> list[str]:
    return [
        f"tests: {seen.passing} of {seen.tests} pass, in {counted(seen.test_files, 'file')}",
        *([left_out_line(seen.left_out)] if seen.left_out else []),
        f"time: {seen.collection_s:.1f} s to copy the project and collect, {seen.run_s:.1f} s for one run",
        f"code: {counted(seen.code_files, 'file')} that the tests import, in {', '.join(seen.sources)}",
        f"interpreter: {seen.interpreter} (Python {seen.python}); sandbox {seen.sandbox}",
    ]


def _require_without_section(path: Path) -> None:
    if not path.is_file():
        raise SettingsError(f"there is no {path}; create it, or print the section with --dry-run")
    if "ssr" in _tools(read_text(path)) or read_project_table(path):
        raise SettingsError(f"{path} has a [tool.ssr] already; print the section with --dry-run")


def _add(path: Path, text: str) -> None:
    """Append the section; every byte that is there stays."""
    before = read_text(path)
    newline = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else newline if before.endswith("\n") else 2 * newline
    after = before + gap + text.replace("\n", newline)
    if "ssr" not in _tools(after):
        raise SettingsError(f"{path} cannot take another table at its end; add what --dry-run prints by hand")
    target = path.resolve()
    try:
        write_bytes(target, after.encode(), mode=target.stat().st_mode & 0o777)
    except OSError as error:
        raise StoreWriteError(f"cannot write {path}: {os_error_advice(error, option='')}") from None


def read_text(path: Path) -> str:
    """Return a file as text, with its line ends; raises SettingsError."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def _tools(text: str) -> dict[str, object]:
    """Return the tables of tools in TOML; empty if it is not valid."""
    try:
        tools = tomllib.loads(text).get("tool", {})
    except (ValueError, RecursionError):
        return {}
    return tools if isinstance(tools, dict) else {}
