"""Sandboxes are looked up by name or selected by `auto`; errors when none works."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ssr.errors import SandboxError, SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox import SANDBOXES, SandboxName, choose, load_provider, probe_all, reap
from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.protocol import Availability, Limits
from pytest_ssr.testing import FakeSandboxProvider, fake_result

BROKEN = FakeSandboxProvider(availability=Availability(False, "bwrap is not installed", "apt-get install bubblewrap"))


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(
        SettingsError, match="there is no sandbox 'jail'; choose among auto, apptainer, bubblewrap, docker"
    ):
        load_provider("jail", {"mine": FakeSandboxProvider()})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("docker:python:3.12", SandboxName("docker", image="python:3.12")),
        ("gvisor:python:3.12", SandboxName("gvisor", image="python:3.12")),
        ("apptainer:docker://python:3.12", SandboxName("apptainer", image="docker://python:3.12")),
        ("gvisor", SandboxName("gvisor")),
        ("remote:http://node-1:8701", SandboxName("remote", address="http://node-1:8701")),
        ("remote:ray:docker:python:3.12", SandboxName("remote", address="ray:docker:python:3.12")),
        ("another:kind", SandboxName("another", address="kind")),
    ],
)
def test_only_some_kinds_take_an_image(name: str, parts: SandboxName) -> None:
    assert SandboxName.parse(name) == parts
    assert parts.has_own_system is (":" in name)


def test_a_plugins_sandbox_is_found() -> None:
    mine = FakeSandboxProvider()
    assert choose("mine", extra={"mine": mine}) is mine


def test_a_named_sandbox_that_does_not_work_is_refused() -> None:
    with pytest.raises(SandboxUnavailableError, match="the sandbox mine does not work here: bwrap is not installed"):
        choose("mine", extra={"mine": BROKEN})


def test_auto_without_isolation_refuses_model_written_code() -> None:
    none = dict.fromkeys(("bubblewrap", "docker", "apptainer"), BROKEN)
    with pytest.raises(SandboxUnavailableError, match="--sandbox process"):
        choose("auto", model_written=True, extra=none)
    assert choose("auto", extra=none).name == "process"
    assert choose("process", model_written=True).name == "process"


@pytest.mark.bubblewrap
def test_auto_selects_the_strongest() -> None:
    assert choose("auto", model_written=True).name == "bubblewrap"


@pytest.mark.parametrize("works", ["docker", "apptainer"])
def test_auto_selects_one_that_works(works: str) -> None:
    none = dict.fromkeys(("bubblewrap", "docker", "apptainer"), BROKEN)
    assert choose("auto", model_written=True, extra={**none, works: FakeSandboxProvider(name=works)}).name == works


@pytest.mark.bubblewrap
@pytest.mark.docker
@pytest.mark.gvisor
@pytest.mark.apptainer
def test_every_sandbox_works_here() -> None:
    assert {name: availability.works for name, availability in probe_all().items()} == dict.fromkeys(SANDBOXES, True)


def test_reap_removes_only_folders_without_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from pytest_ssr.sandbox.filesystem.workdirs import new_folder; print(new_folder())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = workdirs.new_folder()
    (tmp_path / "ssr-link").symlink_to(tmp_path)
    assert Path(done.stdout.strip()).is_dir()
    assert reap() == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([ours.name, "ssr-link"])
    workdirs.discard(ours)


ODD = f"98{os.getpid()}"  # another worker may run the same test


@pytest.mark.parametrize("name", ["process", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def test_reap_removes_what_a_killed_owner_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from pathlib import Path\n"
        "from pytest_ssr.sandbox import load_provider\n"
        "from pytest_ssr.sandbox.protocol import Limits\n"
        "box = load_provider(sys.argv[2]).open(Path(sys.argv[1], 'p'), mount_at='/w')\n"
        "box.exec(['sh', '-c', 'sleep ' + sys.argv[3] + ' & touch started; wait'], limits=Limits())\n"
    )
    (tmp_path / "p").mkdir()
    owner = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name, ODD], cwd=Path(__file__).parents[2])
    assert soon(lambda: list(tmp_path.glob("ssr-*/*/started")))
    assert sleeping()
    owner.kill()
    owner.wait()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if name == "bubblewrap":
        assert soon(lambda: not sleeping())
    # bubblewrap has one more folder, for the /etc of all its sandboxes.
    assert soon(lambda: reap() == (2 if name == "bubblewrap" else 1))
    assert soon(lambda: not sleeping())
    assert not list(tmp_path.glob("ssr-*"))


def soon(condition: Callable[[], object]) -> bool:
    """Wait up to 30 seconds until a condition holds; return whether it does."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def sleeping() -> list[str]:
    """Return the processes that sleep for the number of seconds unique to this test process."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if ODD.encode() in (path / "cmdline").read_bytes() and (path / "stat").read_text().split()[2] != "Z":
                pids.append(path.name)
    return pids


def test_the_fake_selects_results_by_the_longest_prefix(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("A")
    fake = FakeSandboxProvider({("run",): fake_result(b"any"), ("run", "x"): lambda box, call: fake_result(call.stdin)})
    with fake.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.exec(["run", "y"], limits=Limits()).stdout == b"any"
        assert sandbox.exec(["run", "x", "z"], limits=Limits(), stdin=b"in").stdout == b"in"
        with pytest.raises(SandboxError, match="the fake has no result for \\['other'\\]"):
            sandbox.exec(["other"], limits=Limits())
        assert sandbox.read("a") == sandbox.read("/w/a") == b"A"
    assert [call.argv[0] for call in fake.calls] == ["run", "run", "other"]
    assert fake.opened[0].closed
