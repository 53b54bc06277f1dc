"""apptainer keeps the contract, runs images, and reports images that do not start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from images import write_folder_image

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.apptainer import ApptainerProvider
from pytest_ssr.sandbox.protocol import Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.testing import SandboxContract

pytestmark = pytest.mark.apptainer
LIMITS = Limits(wall_s=30)


@pytest.fixture(scope="module")
def provider() -> ApptainerProvider:
    return ApptainerProvider()


class TestContract(SandboxContract):
    @pytest.fixture
    def provider(self, provider: ApptainerProvider) -> ApptainerProvider:
        return provider


@pytest.fixture(scope="module")
def folder_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder_image(tmp_path_factory.mktemp("image"))


def test_a_container_has_no_privileges(provider: ApptainerProvider, tmp_path: Path) -> None:
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        status = sandbox.exec(["cat", "/proc/self/status"], limits=LIMITS).stdout.decode()
        assert sandbox.exec(["id", "-u"], limits=LIMITS).stdout != b"0\n"
        shown = sandbox.exec(["ls", "-A", "/sys", "/tmp", "/dev/shm"], limits=LIMITS).stdout
        variables = sandbox.exec(["env"], limits=LIMITS).stdout
        refused = sandbox.exec(["unshare", "--user", "true"], limits=LIMITS)
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert {fields[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert refused.exit_code == 1
    assert shown.split() == b"/dev/shm: /sys: /tmp:".split()
    assert b"APPTAINER" not in variables


def test_a_project_is_run_by_the_interpreter_of_an_image(folder_image: Path, project: Path, tmp_path: Path) -> None:
    sif = tmp_path / "image.sif"
    subprocess.run(["apptainer", "--silent", "build", str(sif), str(folder_image)], check=True, capture_output=True)
    hashes = set()
    for image in (folder_image, sif):
        store, name = Store(tmp_path / f"store-{image.name}"), f"apptainer:{image}"
        runner = open_runner(project, store, settings=RuleSettings(), sandbox=name, compiled=False)
        run, _ = runner.suite(runner.original, (), like_s=1.0, fresh=True)
        assert len(run.passing) == 7
        assert runner.interpreter.readable == ()
        with runner.original.open(runner.provider) as sandbox:
            assert sandbox.root == str(project)
            assert sandbox.exec(["ls", str(tmp_path)], limits=LIMITS).stdout == b"project\n"
            assert sandbox.exec(["ls", "/usr/share"], limits=LIMITS).exit_code == 2
        hashes.add(runner.interpreter.environment_hash)
    assert len(hashes) == 2


def test_an_image_that_does_not_start_raises(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "bad.sif").write_bytes(b"no image")
    for image in ("empty", "bad.sif"):
        provider = ApptainerProvider(str(tmp_path / image))
        assert not provider.probe().works
        with pytest.raises(SandboxError, match=r"the sandbox does not start: .*FATAL"):
            provider.open(tmp_path / "tree", mount_at="/w")
    assert f"{tmp_path}/absent.sif" in ApptainerProvider(str(tmp_path / "absent.sif")).probe().detail


@pytest.mark.parametrize("image", ["docker://127.0.0.1:1/" + "long/" * 40 + "name:1", "folder"])
def test_the_advice_is_about_the_image_if_apptainer_works_without_it(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    tried = ApptainerProvider(image).probe()
    assert not tried.works
    assert image in tried.remedy
    assert image == "folder" or image in tried.detail
    assert image == "folder" or tried.detail.endswith("connection refused")


def test_the_advice_is_about_apptainer_if_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho FATAL: it fails >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    broken, with_image = ApptainerProvider().probe(), ApptainerProvider("docker://localhost/name").probe()
    assert broken.remedy == with_image.remedy
    assert "FATAL: it fails" in broken.detail


def test_a_link_above_a_mount_is_not_followed(provider: ApptainerProvider, tmp_path: Path) -> None:
    """The program creates its mount points, sometimes as root, and would create them at the target of the link."""
    project, tree, host = (tmp_path / name for name in ("project", "tree", "host"))
    (project / "web" / ".venv").mkdir(parents=True)
    (project / "web" / ".venv" / "file").write_text("shown")
    tree.mkdir()
    host.mkdir()
    with provider.open(tree, mount_at=str(project), readable=[project / "web" / ".venv"]) as sandbox:
        for attack in (f"mv web z; ln -s {host} web", "rm -rf web z; touch web", "mv web y; ln -s ../../.. web"):
            sandbox.exec(["sh", "-c", attack], limits=LIMITS)
            assert sandbox.exec(["cat", "web/.venv/file"], limits=LIMITS).stdout == b"shown"
    assert list(host.iterdir()) == []


def test_exit_codes_of_commands_and_of_the_program_differ(provider: ApptainerProvider, tmp_path: Path) -> None:
    """The program itself exits with 255 if it fails."""
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.exec(["sh", "-c", "echo FATAL: >&2; exit 255"], limits=LIMITS).exit_code == 255
        assert sandbox.exec(["sh", "-c", "exit 3"], limits=LIMITS).exit_code == 3
