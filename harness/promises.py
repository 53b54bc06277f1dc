"""The contract of sandboxes, tried on the spot: what one of them keeps and contains on this machine, and what not."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.errors import SandboxError, SettingsError
from pytest_ssr.sandbox import load_provider

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
# What does not isolate is not asked to: the attempt would reach the machine.
_OPEN = {"process": "not tried: it isolates nothing"}
_NOT_RUN = "it did not run"
_PREFIXES = ("holds_", "isolates_")


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise of the contract, and whether it was kept."""

    name: str
    """Its name in the contract suite, such as `isolates_network`."""
    says: str
    """What it promises, in a sentence."""
    kept: bool
    """Whether it was, now."""
    why: str = ""
    """The first line of what went wrong."""

    @property
    def contains(self) -> bool:
        """Whether it is about what the code inside can reach."""
        return self.name.startswith("isolates_")


def promises() -> dict[str, str]:
    """Return every promise of the contract by its name."""
    from pytest_ssr.testing import SandboxContract

    names = sorted(n for n in dir(SandboxContract) if n.startswith(_PREFIXES))
    return {n: (getattr(SandboxContract, n).__doc__ or "").strip().splitlines()[0] for n in names}


def tried(name: str, *, progress: Callable[[int, int], None]) -> list[Promise]:
    """Run the contract suite on the sandbox of a name; progress gets how many of how many are done.

    Raises SettingsError for a name that is not known, SandboxError when the suite itself does not run.
    """
    load_provider(name)
    if ":" in name:
        raise SettingsError(f"the suite needs this interpreter, which {name} does not hold; try {name.split(':')[0]}")
    said = promises()
    with tempfile.TemporaryDirectory(prefix="ssr-doctor-") as folder:
        (Path(folder) / "test_contract.py").write_text(_SUITE.format(name=name, isolates=name not in _OPEN))
        command = [sys.executable, "-m", "pytest", "-q", "-rN", "--tb=line", "-p", "no:cacheprovider", "-o", "addopts="]
        command += ["-c", os.devnull, "--rootdir", folder, "--junitxml=found.xml", "test_contract.py"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert isinstance(process.stdout, io.BufferedReader)
        printed = bytearray()
        while piece := process.stdout.read1(4096):
            printed += piece
            first = printed.split(b"\n", 1)[0]
            progress(sum(first.count(c) for c in (b".", b"F", b"E")), len(said))
        process.wait()
        try:
            found = dict.fromkeys((n for n in said if n.startswith("isolates_")), _OPEN.get(name, _NOT_RUN))
            found |= dict(_read(Path(folder) / "found.xml"))
        except (OSError, ElementTree.ParseError):
            last = printed.decode(errors="replace").strip().splitlines()[-1:]
            raise SandboxError(f"the contract suite does not run here: {' '.join(last)}") from None
    why = {n: found.get(n, _NOT_RUN) for n in said}
    return [Promise(n, text, not why[n], why[n]) for n, text in said.items()]


def _read(path: Path) -> Iterator[tuple[str, str]]:
    """Return by promise why it was not kept, an empty text where it was."""
    names = promises()
    for case in ElementTree.parse(path).iter("testcase"):
        part = (case.get("name") or "").removeprefix("test_")
        name = next((p + part for p in _PREFIXES if p + part in names), "")
        bad = next((case.find(kind) for kind in ("failure", "error", "skipped") if case.find(kind) is not None), None)
        text = (bad.get("message") or bad.text or "failed") if bad is not None else ""
        yield name, text.strip().splitlines()[0][:200] if text.strip() else ""
