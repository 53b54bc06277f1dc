"""docker keeps the contract and its own guarantees, and handles an engine or container that disappears."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from images import images_of

from harness.evaluation.rows_work import pull_image
from harness.executors.cache_room import CACHE_BYTES
from harness.executors.node import Node
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError, SandboxError
from pytest_ssr.project.interpreter import find_in_image
from pytest_ssr.sandbox.docker import reaper
from pytest_ssr.sandbox.docker.container import LABEL
from pytest_ssr.sandbox.docker.provider import DockerProvider, DockerSandbox
from pytest_ssr.sandbox.docker.reaper import owner, reap
from pytest_ssr.sandbox.filesystem.container_shell import Frames
from pytest_ssr.sandbox.protocol import MIB, Limit, Limits
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.testing import SandboxContract

pytestmark = pytest.mark.docker
LIMITS = Limits(wall_s=30)
READABLE = sorted({Path(sys.prefix), Path(sys.base_prefix)})


@pytest.fixture(scope="module")
def provider() -> Iterator[DockerProvider]:
    opened = DockerProvider()
    yield opened
    opened.close()


@pytest.fixture
def sandbox(provider: DockerProvider, tmp_path: Path) -> Iterator[DockerSandbox]:
    (tmp_path / "file").write_text("text")
    with provider.open(tmp_path, mount_at="/w", readable=READABLE) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(provider: DockerProvider) -> Any:
    return provider._engine()


@pytest.fixture(scope="module")
def images(client: Any) -> Iterator[dict[str, str]]:
    with images_of(client, "pytest-ssr-test") as names:
        yield names


class TestContract(SandboxContract):
    @pytest.fixture
    def provider(self, provider: DockerProvider) -> DockerProvider:
        return provider


def sh(sandbox: DockerSandbox, script: str, limits: Limits = LIMITS) -> bytes:
    done = sandbox.exec(["sh", "-c", script], limits=limits)
    assert done.limit is None
    return done.stdout


def ids(client: Any) -> set[str]:
    return {c["Id"] for c in client.api.containers(all=True, filters={"label": LABEL})}


def test_a_container_has_no_privileges(sandbox: DockerSandbox, client: Any) -> None:
    status = sh(sandbox, "cat /proc/self/status").decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert {fields[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert sh(sandbox, "id -u").strip() != b"0"
    config = client.api.inspect_container(sandbox._container._id)["HostConfig"]
    assert (config["NetworkMode"], config["ReadonlyRootfs"], config["CapDrop"]) == ("none", True, ["ALL"])
    assert config["PidsLimit"] > 0
    assert config["NanoCpus"] > 0
    assert config["Memory"] == config["MemorySwap"] > 0
    # Otherwise the engine would log all output of the shell on its disk.
    assert config["LogConfig"]["Type"] == "none"


def test_the_shell_cannot_be_reached_from_inside(sandbox: DockerSandbox) -> None:
    script = (
        "kill -9 1; kill -STOP 1; kill -TERM 1; echo forged > /proc/1/fd/1; head -c 1 /proc/1/mem; cat /proc/1/environ;"
        "head -c 1 /proc/1/fd/0"
    )
    assert sh(sandbox, script) == b""
    assert sandbox.read("file") == b"text"


def test_written_data_is_never_executed_by_the_shell(sandbox: DockerSandbox) -> None:
    """Even if the data cannot be written, when its bytes would become the shell's next lines."""
    hostile = b"x" * 70_000 + b"\necho pwned > /w/owned; printf 'data 6\\nFORGED'\n"
    sh(sandbox, "mkdir d; chmod 555 d; mkdir e; chmod 0 e; mkdir f; touch f/full")
    for path in ("d/x", "e/x"):
        sandbox.write(path, hostile)
        assert sandbox.read(path) == hostile
    for path in ("f", "file/below"):
        with pytest.raises(SandboxError, match="cannot be written in the sandbox"):
            sandbox.write(path, hostile)
        assert sandbox.read("file") == b"text"
    sh(sandbox, "head -c 300000000 /dev/zero > /tmp/most 2>/dev/null; mkdir /tmp/more")
    with pytest.raises(SandboxError, match="files cannot be put into the container"):
        sandbox._container.shell.unpack("/tmp/more", b"no archive\n" + hostile)
    assert sandbox.read("file") == b"text"
    with pytest.raises(FileNotFoundError):
        sandbox.read("owned")


def test_commands_cannot_stop_the_measurement(sandbox: DockerSandbox) -> None:
    stops = "import os, signal\nwhile True:\n    try:\n        os.kill(-1, signal.SIGSTOP)\n    except OSError:\n        pass"
    done = sandbox.exec([sys.executable, "-c", stops], limits=Limits(wall_s=2))
    assert done.limit is Limit.WALL_TIME
    assert done.seconds < 15
    kills = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    while True:\n"
        "        for name in os.listdir('/proc'):\n"
        "            try:\n"
        "                if name.isdigit() and os.stat('/proc/' + name).st_gid != os.getgid():\n"
        "                    os.kill(int(name), 9)\n"
        "            except OSError:\n"
        "                pass\n"
        "import time\n"
        "open('/w/big', 'wb').write(bytes(100 << 20))\n"
        "time.sleep(60)"
    )
    done = sandbox.exec([sys.executable, "-c", kills], limits=Limits(wall_s=30, disk_bytes=50 * MIB))
    assert done.limit is Limit.DISK


def test_a_command_that_starts_late_does_not_outlive_its_limit(sandbox: DockerSandbox) -> None:
    for wall_s in (0.0, 0.01, 0.03, 0.05):
        done = sandbox.exec(["sh", "-c", "sleep 0.3; echo x > late"], limits=Limits(wall_s=wall_s))
        assert done.limit is Limit.WALL_TIME
    time.sleep(0.6)
    assert not sh(sandbox, "pgrep sleep")
    with pytest.raises(FileNotFoundError):
        sandbox.read("late")


def test_directories_above_a_mount_in_the_tree_belong_to_the_commands(provider: DockerProvider, tmp_path: Path) -> None:
    project, tree = tmp_path / "project", tmp_path / "tree"
    (project / "web" / "deep" / ".venv").mkdir(parents=True)
    (project / "web" / "deep" / ".venv" / "file").write_text("shown")
    (tree / "web").mkdir(parents=True)
    (tree / "web" / "code.py").write_text("code")
    readable = [project / "web" / "deep" / ".venv"]
    for _ in range(2):
        with provider.open(tree, mount_at=str(project), readable=readable) as sandbox:
            assert (
                sh(sandbox, "cat web/code.py web/deep/.venv/file; echo y > web/deep/new; cat web/deep/new")
                == b"codeshowny\n"
            )
            assert sandbox.exec(["mv", "web", "moved"], limits=LIMITS).exit_code == 1


def test_volumes_of_an_image_are_limited_and_emptied(images: dict[str, str], tmp_path: Path) -> None:
    provider = DockerProvider(images["testbed"])
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        first = sandbox._container
        assert sh(sandbox, "echo x > /data/left; cat /data/left") == b"x\n"
        fill = ["sh", "-c", "head -c 90000000 /dev/zero > /data/big; sleep 30"]
        assert sandbox.exec(fill, limits=Limits(wall_s=20, disk_bytes=50 * MIB)).limit is Limit.DISK
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox._container is first
        assert sh(sandbox, "ls -A /data") == b""
    provider.close()


PERSISTENT = {
    "mode": "chmod 1700 /w",
    "attribute": "python -c \"import os; os.setxattr('/w', 'user.left', b'x')\"",
    "priority of the shell": "renice 5 1",
    "semaphore": "ipcmk -S 1",
    "connection": (
        "python -c \"import socket; s = socket.create_server(('127.0.0.1', 8123)); "
        "c = socket.create_connection(('127.0.0.1', 8123)); t, _ = s.accept(); t.close(); c.close()\""
    ),
}


@pytest.mark.parametrize("change", PERSISTENT)
def test_a_container_with_persistent_changes_is_not_reused(
    provider: DockerProvider, tmp_path: Path, change: str
) -> None:
    with provider.open(tmp_path, mount_at="/w", readable=READABLE) as sandbox:
        first = sandbox._container
        done = sandbox.exec(["sh", "-c", PERSISTENT[change].replace("python", sys.executable)], limits=LIMITS)
        assert done.exit_code == 0, done.stderr
    with provider.open(tmp_path, mount_at="/w", readable=READABLE) as sandbox:
        assert sandbox._container is not first


def test_a_container_is_unusable_after_an_interrupted_request(
    provider: DockerProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        first = sandbox._container

        def interrupted() -> str:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(first.shell, "_line", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sandbox.write("half", b"data")
        for _ in range(2):
            with pytest.raises(SandboxError, match="was interrupted"):
                sandbox.read("half")
        assert not first.shell._lock.locked()
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox._container is not first


def test_a_changed_tree_is_copied_again_with_hard_links_as_files(provider: DockerProvider, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one").write_text("one")
    (tmp_path / "d" / "same").hardlink_to(tmp_path / "d" / "one")
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.read("d/one") == sandbox.read("d/same") == b"one"
    (tmp_path / "d" / "one").write_text("two!")
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox.read("d/same") == b"two!"
    with pytest.raises(SandboxError, match="the tree cannot be copied"):
        provider.open(tmp_path / "absent", mount_at="/w")


def test_output_received_with_the_response_headers_is_kept(
    provider: DockerProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a command may print before the SDK reads the headers."""
    getresponse = http.client.HTTPConnection.getresponse

    def late(self: http.client.HTTPConnection) -> http.client.HTTPResponse:
        time.sleep(0.3)
        return getresponse(self)

    with provider.open(tmp_path, mount_at="/w") as sandbox:
        monkeypatch.setattr(http.client.HTTPConnection, "getresponse", late)
        assert sh(sandbox, "echo quick") == b"quick\n"
        answer = r"printf '\000\000\000\002\000\000\000\000{}' >&3; sleep 60"
        with sandbox.converse(["sh", "-c", answer], limits=LIMITS) as session:
            assert session.answer(wall_s=20) == ({}, b"")


def test_the_sandbox_survives_a_fork_bomb(sandbox: DockerSandbox) -> None:
    bomb = [sys.executable, "-c", "import os\nwhile True:\n    os.fork()"]
    assert sandbox.exec(bomb, limits=Limits(wall_s=60)).limit is Limit.PROCESSES
    assert sh(sandbox, "cat file") == b"text"


@pytest.mark.parametrize("count", [30, 1500])
def test_processes_between_samples_are_reported_as_their_limit(
    sandbox: DockerSandbox, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes left at the end, and processes that the kernel refused and that have ended by then."""
    monkeypatch.setattr("pytest_ssr.sandbox.docker.container._SAMPLE_S", 60.0)
    small = Limits(wall_s=120, processes=16)
    last = "[os.kill(p, 9) for p in made]" if count > 1000 else ""
    program = f"import os, subprocess\nmade = []\ntry:\n    for _ in range({count}):\n        made.append(os.fork() or os.execlp('sleep', 'sleep', '100'))\nexcept OSError: pass\n{last}"
    assert sandbox.exec([sys.executable, "-c", program], limits=small).limit is Limit.PROCESSES
    assert sandbox.exec(["true"], limits=small).exit_code == 0


def test_a_container_killed_for_memory_reports_the_limit(provider: DockerProvider, tmp_path: Path) -> None:
    program = (
        "import mmap, os, time\n"
        "open('/proc/1/oom_score_adj', 'w').write('1000')\n"
        "for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        held = mmap.mmap(-1, 200 << 20)\n"
        "        held.write(bytes(200 << 20))\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    small = Limits(wall_s=60, memory_bytes=512 * MIB, disk_bytes=64 * MIB)
    with provider.open(tmp_path, mount_at="/w", readable=READABLE) as sandbox:
        assert sandbox.exec([sys.executable, "-c", program], limits=small).limit is Limit.MEMORY
        assert sandbox.exec(["true"], limits=small).limit in (None, Limit.MEMORY)
        with contextlib.suppress(FileNotFoundError):
            sandbox.read("file")
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sh(sandbox, "cat /proc/1/oom_score_adj") == b"0\n"


def test_a_container_is_reused_only_if_it_is_as_new(provider: DockerProvider, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with provider.open(tmp_path / "tree", mount_at="/w") as sandbox:
        first = sandbox._container
        sh(sandbox, "for d in /w /scratch /tmp /dev/shm; do mkdir -p $d/deep && chmod 0 $d/deep; touch $d/left; done")
        sh(sandbox, "sleep 1000 & ulimit -n 64")
    with provider.open(tmp_path / "tree", mount_at="/w") as sandbox:
        assert sandbox._container is first
        assert sh(sandbox, "ls -A /w /tmp /dev/shm /scratch/home /scratch/tmp; ls /scratch; pgrep sleep").split() == (
            b"/dev/shm: /scratch/home: /scratch/tmp: /tmp: /w: home tmp".split()
        )
        # A System V shared memory segment outlives its processes.
        assert sh(sandbox, "ipcmk -M 4096")
    with provider.open(tmp_path / "tree", mount_at="/w") as sandbox:
        assert sandbox._container is not first


@pytest.mark.parametrize("moment", ["while a command runs", "between commands"])
def test_a_container_killed_from_outside_raises(
    provider: DockerProvider, client: Any, tmp_path: Path, moment: str
) -> None:
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        name = sandbox._container._id
        if moment == "between commands":
            client.api.kill(name)
        else:
            threading.Timer(0.5, lambda: client.api.kill(name)).start()
        with pytest.raises(SandboxError):
            sandbox.exec(["sleep", "30"], limits=LIMITS)
        with pytest.raises(SandboxError):
            sandbox.read("file")
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        assert sandbox._container._id != name
        assert sh(sandbox, "echo again") == b"again\n"


def test_a_killed_process_leaves_no_container(client: Any, tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from pytest_ssr.sandbox.docker.provider import DockerProvider\n"
        "box = DockerProvider().open(Path(sys.argv[1]), mount_at='/w'); print(box._container._id, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in ids(client)
        process.kill()
    deadline = time.monotonic() + 20
    while name in ids(client) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert name not in ids(client)


def test_reap_removes_containers_without_an_owner(client: Any, sandbox: DockerSandbox) -> None:
    image = client.api.inspect_container(sandbox._container._id)["Image"]
    owner = client.api.inspect_container(sandbox._container._id)["Config"]["Labels"][LABEL].split()
    orphans = [
        client.api.create_container(image, ["/bin/true"], labels={LABEL: label})["Id"]
        for label in (f"{owner[0]} {owner[1]} 4194000 1", f"another-start {owner[1]} {owner[2]} {owner[3]}")
    ]
    elsewhere = client.api.create_container(image, ["/bin/true"], labels={LABEL: f"{owner[0]} 1 4194000 1"})["Id"]
    labels = {LABEL: f"{owner[0]} {owner[1]} 4194000 1"}
    network = client.api.create_network(f"ssr-test-{os.getpid()}", internal=True, labels=labels)["Id"]
    try:
        assert reap(client) == 2
        assert not client.api.networks(ids=[network])
        assert not set(orphans) & ids(client)
        assert {elsewhere, sandbox._container._id} <= ids(client)
    finally:
        client.api.remove_container(elsewhere, force=True)


def test_reap_keeps_containers_of_another_machine(client: Any, sandbox: DockerSandbox, images: dict[str, str]) -> None:
    """Machines may share an engine: reap removes containers from earlier boots of this one, not those of others."""
    _, space, pid, began, machine = owner().split()
    labels = {
        "earlier": f"an-earlier-start {space} {pid} {began} {machine}",
        "other": f"another-start {space} {pid} {began} of-another-machine",
        "unknown": f"another-start {space} {pid} {began} -",
        "old release": f"another-start {space} {pid} {began}",
    }

    def create(label: str, *, runs: bool) -> str:
        # Other tests reap at the same time: a container may be removed before it is started.
        for _ in range(20):
            container: str = client.api.create_container(images["plain"], ["sleep", "60"], labels={LABEL: label})["Id"]
            if not runs:
                return container
            with contextlib.suppress(docker.errors.NotFound):
                client.api.start(container)
                return container
        raise AssertionError("each container was removed before it was started")

    containers = {(name, runs): create(label, runs=runs) for name, label in labels.items() for runs in (False, True)}
    try:
        reap(client)
        remaining = {key for key, container in containers.items() if container in ids(client)}
        assert remaining == {("other", False), ("other", True), ("unknown", True), ("old release", True)}
        assert sandbox._container._id in ids(client)
    finally:
        for container in containers.values():
            with contextlib.suppress(Exception):
                client.api.remove_container(container, force=True)


def test_a_machine_is_identified_by_its_id_and_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of one image share an id; a machine without an id has no hash."""
    monkeypatch.setattr(reaper, "_MACHINE_ID", tmp_path / "machine-id")
    assert reaper._machine() == "-"
    for unset in ("", "uninitialized\n"):
        (tmp_path / "machine-id").write_text(unset)
        assert reaper._machine() == "-"
    hashes = set()
    for machine_id, name in (("1\n", "a"), ("1\n", "b"), ("2\n", "a")):
        (tmp_path / "machine-id").write_text(machine_id)
        monkeypatch.setattr(reaper.socket, "gethostname", lambda name=name: name)
        hashes.add(reaper._machine())
    assert len(hashes) == 3
    assert "-" not in hashes


def test_a_project_is_run_by_the_interpreter_of_an_image(images: dict[str, str], project: Path, tmp_path: Path) -> None:
    for kind, root in (("plain", str(project)), ("testbed", "/testbed")):
        runner = open_runner(
            project, Store(tmp_path / kind), settings=RuleSettings(), sandbox=f"docker:{images[kind]}", compiled=False
        )
        with runner.original.open(runner.provider) as sandbox:
            assert sandbox.root == root
            assert not sandbox.exec(["ls", str(Path.home())], limits=LIMITS).stdout
        run, _ = runner.suite(runner.original, (), like_s=1.0, fresh=True)
        assert len(run.passing) == 7
        assert runner.interpreter.readable == ()
        runner.provider.close()
    bare = DockerProvider(images["base"])
    with pytest.raises(ProjectError, match=r"has no interpreter to use: python3 has no pytest"):
        find_in_image(bare, tmp_path, None)
    bare.close()


@pytest.mark.parametrize(("variable", "value"), [("SSR_IMAGE_PREFIX", "%s/"), ("SSR_MIRROR", "docker.io/=%s/")])
def test_an_image_is_pulled_through_a_mirror(
    images: dict[str, str], client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str
) -> None:
    mirror = os.environ.get("SSR_TEST_REGISTRY")
    if mirror is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("SSR_TEST_REGISTRY names no registry to push to")
    client.api.tag(images["plain"], f"{mirror}/team/box", "1")
    digests = [
        e["aux"]["Digest"] for e in client.api.push(f"{mirror}/team/box", "1", stream=True, decode=True) if "aux" in e
    ]
    monkeypatch.setenv(variable, value % mirror)
    for name in ("team/box:1", f"team/box@{digests[0]}"):
        client.images.remove(f"{mirror}/team/box:1", force=True)
        with contextlib.suppress(Exception):
            client.images.remove(f"{mirror}/team/box@{digests[0]}", force=True)
        if "@" not in name:
            # As a node does for a row that waits.
            node = Node.open(tmp_path / "cache" / "run", 1, 1, {})
            pull_image(f"docker:{name}", node)
            assert DockerProvider(name).local_size(name)
            monkeypatch.setenv(CACHE_BYTES, "1")
            node.make_room()
            assert DockerProvider(name).local_size(name) is None
        provider = DockerProvider(name)
        with provider.open(tmp_path, mount_at="/w") as sandbox:
            assert sh(sandbox, "python3 -c 'import pytest; print(7)'") == b"7\n"
        provider.close()
    for name in ("team/box:1", f"{mirror}/team/box:1", f"{mirror}/team/box@{digests[0]}"):
        with contextlib.suppress(Exception):
            client.images.remove(name, force=True)


@pytest.mark.parametrize(
    ("sandbox", "host", "status", "message"),
    [
        ("docker", "unix:///absent.sock", 3, "cannot be reached"),
        ("docker", "unix:///absent.sock", 3, "apt-get install docker.io"),
        ("docker:no.such.host/image", None, 3, "the image no.such.host/image is missing and cannot be pulled"),
        ("docker:", None, 2, "there is no sandbox 'docker:'; choose among"),
        ("process:image", None, 2, "there is no sandbox 'process:image'; choose among"),
    ],
)
def test_errors_are_reported_on_one_line(
    project: Path, sandbox: str, host: str | None, status: int, message: str
) -> None:
    command = [sys.executable, "-m", "harness.cli", "inject", str(project), "--sandbox", sandbox]
    env = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.gvisor
def test_tests_run_on_gvisor(project: Path, tmp_path: Path) -> None:
    runner = open_runner(project, Store(tmp_path / "store"), settings=RuleSettings(), sandbox="gvisor", compiled=False)
    with runner.original.open(runner.provider, readable=runner.interpreter.readable) as sandbox:
        # The visible kernel is gVisor's own.
        assert b"gVisor" in sandbox.exec(["dmesg"], limits=LIMITS).stdout
        sandbox.write("new", b"data")
        assert sandbox.read("new") == b"data"
        assert sandbox.exec(["sleep", "60"], limits=Limits(wall_s=1)).limit is Limit.WALL_TIME
    run, _ = runner.suite(runner.original, (), like_s=1.0, fresh=True)
    assert len(run.passing) == 7
    runner.provider.close()


def test_frames_may_arrive_in_any_chunks() -> None:
    raw = b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\x00\x02\0\0\0\0\0\0\x02de\x01\0\0\0\0\0\0\x01f"
    for size in range(1, len(raw) + 1):
        frames = Frames()
        parts = [part for start in range(0, len(raw), size) for part in frames.feed(raw[start : start + size])]
        assert b"".join(data for stream, data in parts if stream == 1) == b"abcf"
        assert b"".join(data for stream, data in parts if stream == 2) == b"de"
