"""Run `ssr doctor`: report which sandboxes work here, or run the contract suite on one of them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.executors.slots import measured_slots
from harness.local_models.weights import availability
from harness.settings.commands import DoctorSettings
from pytest_ssr.errors import ProjectError, SandboxError, SettingsError
from pytest_ssr.project.interpreter import Interpreter, find_interpreter
from pytest_ssr.sandbox import SandboxName, load_provider, probe_all, reap

_SUITE = """\
import pytest
from pytest_ssr.sandbox import load_provider
from pytest_ssr.testing import SandboxContract


class TestContract(SandboxContract):
    isolates = {isolates}

    @pytest.fixture
    def provider(self):
        return load_provider({name!r})
"""
# Isolation is not tested without a sandbox that isolates: the test would reach the machine.
_NOT_TESTED = {"process": "not tested: it isolates nothing"}
_NOT_RUN = "it did not run"
_PREFIXES = ("holds_", "isolates_")


@dataclass(frozen=True, slots=True)
class _Clause:
    """One clause of the contract, and whether it holds."""

    name: str
    """Its name in the contract suite, such as `isolates_network`."""
    text: str
    """The guarantee, as a sentence."""
    holds: bool
    """Whether it holds now."""
    reason: str = ""
    """The first line of the failure, empty if it holds."""

    @property
    def contains(self) -> bool:
        """Whether it is about isolation: what the code inside can reach."""
        return self.name.startswith("isolates_")


def doctor(settings: DoctorSettings) -> int:
    """Report the working sandboxes; return 0 if one isolates, else 1. With a name: 0 if the whole contract holds."""
    slots = measured_slots()
    if settings.slots:
        print(json.dumps({"slots": slots}) if settings.json else slots)
        return ExitCode.DONE
    if settings.sandbox is not None:
        return _check_sandbox(settings.sandbox, as_json=settings.json)
    probes = probe_all()
    interpreter: Interpreter | None = None
    try:
        interpreter = find_interpreter(Path.cwd(), settings.python)
        python = f"{interpreter.executable} ({interpreter.version}) runs the tests of {Path.cwd()}"
    except ProjectError as error:
        python = str(error)
    reaped, model = reap(), availability()
    isolates = any(a.works for name, a in probes.items() if name != "process")
    if settings.json:
        rows = {n: {"works": a.works, "detail": a.detail, "remedy": a.remedy} for n, a in probes.items()}
        path = str(interpreter.executable) if interpreter else None
        print(
            json.dumps(
                {
                    "sandboxes": rows,
                    "python": path,
                    "python_detail": python,
                    "lm": model.to_json(),
                    "reaped": reaped,
                    "slots": slots,
                },
                indent=1,
            )
        )
        return ExitCode.DONE if isolates else ExitCode.NO
    terminal = Terminal()
    for name, probe in probes.items():
        terminal.echo(
            f"{name:11} {'works' if probe.works else 'does not work'}: {probe.detail}",
            "valid" if probe.works else "bad",
        )
        if probe.remedy:
            terminal.echo(f"{'':11} {probe.remedy}")
    terminal.echo(f"{'python':11} {python}", "valid" if interpreter else "bad")
    if interpreter and interpreter.note:
        terminal.echo(f"{'':11} {interpreter.note}")
    terminal.echo(f"{'lm':11} {model.text}", "valid" if model.works else "")
    if not model.works:
        terminal.echo(f"{'':11} {model.remedy}")
    terminal.echo(f"{'slots':11} {slots} sandboxes at the same time, by cores and free memory")
    if reaped:
        terminal.echo(f"{'cleaned':11} {reaped} folders left by killed runs")
    return ExitCode.DONE if isolates else ExitCode.NO


def _check_sandbox(name: str, *, as_json: bool) -> int:
    terminal = Terminal(quiet=as_json)
    clauses = _check_contract(
        name, progress=lambda done, of: terminal.status(f"{name}: clause {min(done + 1, of)} of {of}")
    )
    if as_json:
        rows = [{"name": p.name, "says": p.text, "kept": p.holds, "why": p.reason} for p in clauses]
        print(json.dumps({"sandbox": name, "promises": rows}, indent=1))
    for title, contains in (("limits and behaviour", False), ("isolation", True)):
        group = [p for p in clauses if p.contains is contains]
        terminal.echo(f"{name}: {title}: {sum(p.holds for p in group)} of {len(group)}")
        for clause in group:
            terminal.echo(f"  {'yes' if clause.holds else 'NO ':3}  {clause.text}", "valid" if clause.holds else "bad")
            if clause.reason:
                terminal.echo(f"       {clause.reason}")
    return ExitCode.DONE if all(p.holds for p in clauses) else ExitCode.NO


def _guarantees_by_name() -> dict[str, str]:
    """Return the guarantee of every clause of the contract by its name."""
    from pytest_ssr.testing import SandboxContract

    names = sorted(n for n in dir(SandboxContract) if n.startswith(_PREFIXES))
    return {n: (getattr(SandboxContract, n).__doc__ or "").strip().splitlines()[0] for n in names}


def _check_contract(name: str, *, progress: Callable[[int, int], None]) -> list[_Clause]:
    """Run the contract suite on a sandbox, and call `progress` with the number of finished and of all clauses.

    Raises SettingsError for an unknown name, SandboxError if the suite itself does not run.
    """
    load_provider(name)
    parts = SandboxName.parse(name)
    if parts.has_own_system:
        advice = f"use {parts.kind}" if parts.image else "run ssr doctor on its machine"
        raise SettingsError(f"the suite needs this interpreter, which {name} does not contain; {advice}")
    guarantees = _guarantees_by_name()
    with tempfile.TemporaryDirectory(prefix="ssr-doctor-") as folder:
        (Path(folder) / "test_contract.py").write_text(_SUITE.format(name=name, isolates=name not in _NOT_TESTED))
        command = [sys.executable, "-m", "pytest", "-q", "-rN", "--tb=line", "-p", "no:cacheprovider", "-o", "addopts="]
        command += ["-c", os.devnull, "--rootdir", folder, "--junitxml=results.xml", "test_contract.py"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert isinstance(process.stdout, io.BufferedReader)
        output = bytearray()
        while chunk := process.stdout.read1(4096):
            output += chunk
            first = output.split(b"\n", 1)[0]
            progress(sum(first.count(c) for c in (b".", b"F", b"E")), len(guarantees))
        process.wait()
        try:
            failures = dict.fromkeys(
                (n for n in guarantees if n.startswith("isolates_")), _NOT_TESTED.get(name, _NOT_RUN)
            )
            failures |= dict(_read(Path(folder) / "results.xml"))
        except (OSError, ElementTree.ParseError):
            last = output.decode(errors="replace").strip().splitlines()[-1:]
            raise SandboxError(f"the contract suite failed to run: {' '.join(last)}") from None
    reasons = {n: failures.get(n, _NOT_RUN) for n in guarantees}
    return [_Clause(n, text, not reasons[n], reasons[n]) for n, text in guarantees.items()]


def _read(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each clause's name and its failure, an empty string if it holds."""
    names = _guarantees_by_name()
    for case in ElementTree.parse(path).iter("testcase"):
        part = (case.get("name") or "").removeprefix("test_")
        name = next((p + part for p in _PREFIXES if p + part in names), "")
        failure = next(
            (case.find(kind) for kind in ("failure", "error", "skipped") if case.find(kind) is not None), None
        )
        text = (failure.get("message") or failure.text or "failed") if failure is not None else ""
        yield name, text.strip().splitlines()[0][:200] if text.strip() else ""
