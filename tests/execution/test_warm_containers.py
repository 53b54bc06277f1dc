"""Warm processes in Docker: in an image, beside an environment in the tree, when the engine refuses, and at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from images import images_of
from plain import plain_python
from processes import command_lines

from pytest_ssr.execution.fork_server import ForkRequest, ForkServer, UnfitError
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.interpreter import find_in_image, find_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import Outcome, RunStatus, SuiteRun
from pytest_ssr.sandbox.docker import container_spec
from pytest_ssr.sandbox.docker.images import LABEL
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.docker.reaper import reap
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.source.function_diff import changed_functions

pytestmark = pytest.mark.docker

CODE = "def act():\n    return 1\n"
TESTS = """\
import os
import pathlib

import code_


def test_act():
    assert code_.act() == 1


def test_write():
    place = pathlib.Path("data")
    place.mkdir()
    (place / "left").write_text("x")
"""
Opened = Callable[..., ForkServer]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "code_.py").write_text(CODE)
    (folder / "test_code.py").write_text(TESTS)
    return folder


@pytest.fixture
def opened(project: Path, tmp_path: Path) -> Iterator[Opened]:
    """Open warm processes for the project."""
    servers: list[tuple[ForkServer, DockerProvider]] = []

    def open_warm(image: str = "", python: Path | None = None) -> ForkServer:
        provider = DockerProvider(image)
        interpreter = find_in_image(provider, project, None) or find_interpreter(project, python or plain_python())
        (tmp_path / "trees").mkdir(exist_ok=True)
        warm = ForkServer(take_snapshot(project, tmp_path / "trees"), provider, interpreter, Limits())
        servers.append((warm, provider))
        return warm

    yield open_warm
    for warm, provider in servers:
        warm.close()
        provider.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    provider = DockerProvider()
    provider.connect()
    yield provider._engine()
    provider.close()


def original(warm: ForkServer) -> CodebaseState:
    return CodebaseState(warm.snapshot)


def broken(warm: ForkServer) -> ForkRequest:
    old, new = CODE.encode(), CODE.replace("1", "2").encode()
    state = original(warm).replace({"code_.py": FileEntry(new)})
    functions = changed_functions(old, new)
    assert functions is not None
    return ForkRequest(state, functions={"code_.py": functions})


def failing(run: SuiteRun) -> set[str]:
    assert run.status is RunStatus.COMPLETED, run.reason
    return {name.rpartition("::")[2] for name, r in run.results.items() if r.outcome is not Outcome.PASSED}


def volumes(client: Any, pid: int) -> set[str]:
    """Return the volumes of a process; other processes use the engine as well."""
    reply = client.api.volumes(filters={"label": LABEL})["Volumes"] or ()
    return {v["Name"] for v in reply if v["Labels"][LABEL].split()[2] == str(pid)}


@pytest.mark.parametrize("tag", ["plain", "testbed"])
def test_an_image_has_warm_processes(opened: Opened, client: Any, tag: str) -> None:
    with images_of(client, "pytest-ssr-warm") as images:
        warm = opened(images[tag])
        for _ in range(2):
            assert failing(warm.run(broken(warm))) == {"test_act"}
            assert failing(warm.run(ForkRequest(broken(warm).state))) == {"test_act"}
            assert failing(warm.run(ForkRequest(original(warm)))) == set()
        warm.close()


def test_an_environment_in_the_tree_is_seen_and_shares_nothing(opened: Opened, project: Path) -> None:
    environment = project / "envs" / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (plain,) = plain_python().parent.parent.glob("lib/python*/site-packages")
    for path in plain.iterdir():
        (site / path.name).symlink_to(path)
    test = TESTS + "\n\ndef test_environment():\n    pathlib.Path('envs', 'left').write_text('x')\n"
    (project / "test_code.py").write_text(test)
    # Links in the environment lead to the other one, which must be visible as well.
    (site / "other.pth").write_text(f"{plain}\n")
    warm = opened(python=environment / "bin" / "python")
    for _ in range(2):
        # Nothing can be written between the tree and the environment: the next run would see it.
        assert failing(warm.run(broken(warm))) == {"test_act", "test_environment"}
        assert failing(warm.run(ForkRequest(original(warm)))) == {"test_environment"}


def test_each_server_sees_its_own_container_only(opened: Opened, project: Path) -> None:
    seen = "\n\ndef test_alone():\n    seen = {int(p.name) for p in pathlib.Path('/proc').glob('[0-9]*')}\n"
    (project / "test_code.py").write_text(f"{TESTS}{seen}    assert seen == {{1, os.getppid(), os.getpid()}}\n")
    warm = opened()
    assert failing(warm.run(ForkRequest(original(warm)))) == set()
    assert failing(warm.run(broken(warm))) == {"test_act"}


def test_runs_are_fresh_if_the_engine_refuses_the_view(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_spec, "_opened_filter", lambda client: [])
    warm = opened()
    for _ in range(2):
        with pytest.raises(UnfitError, match="its own view of the tree here: unshare"):
            warm.run(ForkRequest(original(warm)))
    assert "unshare" in warm.refusals["import"].detail


def test_a_sandbox_that_is_closed_leaves_no_volume(opened: Opened, client: Any) -> None:
    before = volumes(client, os.getpid())
    warm = opened()
    warm.run(ForkRequest(original(warm)))
    assert len(volumes(client, os.getpid()) - before) == 1
    warm.close()
    warm._provider.close()  # type: ignore[attr-defined] # Docker's has this
    assert not volumes(client, os.getpid()) - before


HELD = r"""
import os, signal, sys
from pathlib import Path
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.protocol import Limits
with DockerProvider().open(Path(sys.argv[1]), mount_at="/w") as sandbox:
    talk = sandbox.converse(["sh", "-c", "printf '\\000\\000\\000\\002\\000\\000\\000\\000{}' >&3; sleep 98765.5"], limits=Limits())
    talk.answer(wall_s=120)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_remains_of_a_killed_run_end_at_once_or_at_the_next_start(project: Path, client: Any) -> None:
    held = subprocess.Popen([sys.executable, "-c", HELD, str(project)])
    assert held.wait(180) == -9
    assert len(volumes(client, held.pid)) == 1
    reap(client)
    assert not volumes(client, held.pid)
    until = time.monotonic() + 20
    while any(b"98765.5" in line for line in command_lines()):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)
