"""apptainer keeps the contract, runs images, and reports images that do not start."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

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
    """A folder image with this interpreter, pytest, a shell and a few programs with their libraries."""
    root = tmp_path_factory.mktemp("image")
    for name in ("dev", "proc", "sys", "tmp", "etc", "usr/bin"):
        (root / name).mkdir(parents=True)
    for link in ("/bin", "/sbin", "/lib", "/lib64"):
        (root / link[1:]).symlink_to(f"usr{link}")
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nssr:x:1000:1000::/:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\nssr:x:1000:\n")
    library = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.executable).resolve()
    files = [str(shutil.which(name)) for name in ("sh", "env", "cat", "ls", "id", "true")]
    objects = [*files, str(python), *map(str, (library / "lib-dynload").glob("*.so"))]
    for line in subprocess.run(["ldd", *objects], capture_output=True, text=True, check=True).stdout.splitlines():
        files += [word for word in line.split() if word.startswith("/") and not word.endswith(":")][:1]
    for file in dict.fromkeys(files):
        target = "/usr" + file if file.startswith(("/lib", "/bin")) else file
        (root / target[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / target[1:])
    unwanted = shutil.ignore_patterns(
        "test", "tests", "idlelib", "site-packages", "__pycache__", "config-*", "ensurepip"
    )
    shutil.copytree(library, root / str(library)[1:], ignore=unwanted, symlinks=True)
    (root / str(python)[1:]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, root / str(python)[1:])
    (root / "usr/bin/python3").symlink_to(python)
    program = "import site; print(site.getsitepackages()[0])"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    packages = root / done.stdout.strip()[1:]
    for name in ("pytest", "iniconfig", "packaging", "pluggy", "pygments"):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    return root


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
        sandbox = provider.open(tmp_path / "tree", mount_at="/w")
        with sandbox, pytest.raises(SandboxError, match=r"the sandbox does not start: .*FATAL"):
            sandbox.exec(["true"], limits=LIMITS)
    assert f"{tmp_path}/absent.sif" in ApptainerProvider(str(tmp_path / "absent.sif")).probe().detail


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
