"""Test each hook and fixture in a conftest of a real project, and that the docs describe each hook."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from own_injector import OWN_INJECTOR
from test_inject import run as run_plain

from pytest_ssr import hookspecs

# The conftest needs this package in every run.
run = functools.partial(run_plain, python=Path(sys.executable))

CONFTEST = (
    OWN_INJECTOR
    + """
from pytest_ssr.sandbox import load_provider


def pytest_ssr_sandboxes(config):
    return {"mine": load_provider("process")}


def pytest_ssr_checks(config):
    return [("own-check", lambda case: Finding("-" in case.artifact.bug.data.decode(), "looked at"))]


def pytest_ssr_verdict(config, verdict):
    with open("seen.txt", "a") as file:
        file.write(f"{verdict.valid} {[c.name for c in verdict.checks][-1]}\\n")
"""
)


@pytest.fixture
def project(project: Path) -> Path:
    """Disable the plugins that are installed only for the tests of this package."""
    (project / "pytest.ini").write_text("[pytest]\naddopts = -p no:anyio -p no:hypothesispytest\n")
    return project


@pytest.mark.long
def test_each_hook_takes_effect(project: Path) -> None:
    (project / "conftest.py").write_text(CONFTEST)
    done = run(project, "--ssr-inject", "--ssr-count", "1", "--ssr-injector", "own", "--ssr-sandbox", "mine", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "own-change" in done.stdout
    assert "sandbox process" in done.stdout
    assert "::own-check PASSED" in done.stdout
    assert (project / "seen.txt").read_text() == "True own-check\n"


@pytest.mark.long
def test_fixtures_return_a_sandbox_and_each_artifact(project: Path) -> None:
    assert run(project, "--ssr-inject", "--ssr-count", "2").returncode == 0
    (project / "tests" / "test_fixtures.py").write_text(
        "from pytest_ssr.sandbox.protocol import Limits\n\n\n"
        "def test_sandbox(ssr_sandbox):\n"
        "    ssr_sandbox.write('new.txt', b'x')\n"
        "    done = ssr_sandbox.exec(['sh', '-c', 'cat new.txt calc.py | head -c 4'], limits=Limits())\n"
        '    assert done.stdout == b\'x"""\'\n\n\n'
        "def test_artifact(ssr_artifact):\n"
        "    assert ssr_artifact.bug.paths == ('calc.py',)\n"
    )
    done = run(project, "tests/test_fixtures.py")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert not (project / "new.txt").exists()


BREAKING = """\
from pathlib import Path
from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox import load_provider


class Breaking:
    name = "breaking"

    def __init__(self):
        self.inner = load_provider("process")

    def probe(self):
        return self.inner.probe()

    def open(self, *arguments, **options):
        if Path(__file__).with_name("broken").exists():
            raise SandboxError("no space left for a sandbox")
        return self.inner.open(*arguments, **options)


def pytest_ssr_sandboxes(config):
    return {"breaking": Breaking()}


def pytest_ssr_verdict(config, verdict):
    Path(__file__).with_name("broken").touch()
"""


@pytest.mark.long
def test_a_broken_sandbox_ends_the_run_with_one_message(project: Path) -> None:
    (project / "conftest.py").write_text(BREAKING)
    (project / ".gitignore").write_text("broken\n")
    done = run(project, "--ssr-inject", "--ssr-count", "3", "--ssr-sandbox", "breaking", "-p", "no:cacheprovider")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ssr: no space left for a sandbox" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "1 failed, 1 valid" in done.stdout.splitlines()[-2]


def test_each_hook_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
    names = [n for n in vars(hookspecs) if n.startswith("pytest_ssr_")]
    assert len(names) == 7
    assert [n for n in names if f"## `{n}`" not in page and f"## {n}" not in page] == []
