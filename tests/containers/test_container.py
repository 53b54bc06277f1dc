"""Containers without an engine: several users, commands that stay, no network, and images built line by line."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_registry import ImageRegistry, image_registry, layer
from images import write_folder_image

from harness.containers import user_namespace
from harness.containers.container import Bind, Container, ContainerOptions, LocalImage
from harness.containers.dockerfile import DockerfileError, Fault
from harness.containers.library import ImageLibrary
from pytest_ssr.errors import SandboxError, SandboxUnavailableError

# Root maps all of its users; another user needs numbers that are set aside.
pytestmark = [pytest.mark.long, pytest.mark.bubblewrap, pytest.mark.user]

PROGRAMS = ("bash", "sleep", "chmod", "chown", "stat", "rm", "mkdir", "touch", "mount", "kill")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """A registry with the image `base`."""
    root = write_folder_image(tmp_path_factory.mktemp("image") / "root", PROGRAMS)
    (root / "tmp").chmod(0o1777)
    with (root / "etc" / "passwd").open("a") as file:
        file.write("app:x:1200:1300::/home/app:/bin/sh\n")
    with (root / "etc" / "group").open("a") as file:
        file.write("app:x:1300:\nextra:x:1400:app\n")
    with image_registry() as served:
        lower = layer(("srv/kept", b"1"), ("srv/removed", b"1"), ("opt/hidden/a", b"1"), folder=root)
        upper = layer(("srv/.wh.removed", b""), ("opt/hidden/.wh..wh..opq", b""), ("opt/hidden/b", b"2"))
        served.add("base", lower, upper, Env=["PATH=/usr/bin", "WHO=image"], WorkingDir="/srv")
        yield served


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ImageLibrary:
    return ImageLibrary(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def image(registry: ImageRegistry, library: ImageLibrary) -> LocalImage:
    return library.pulled(f"{registry.address}/base")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "container"
    place.mkdir()
    yield place
    user_namespace.remove(place)


@pytest.fixture
def container(image: LocalImage, folder: Path) -> Iterator[Container]:
    started = Container(image, folder, ContainerOptions())
    yield started
    started.stop()


def shell(container: Container, command: str, user: str = "root", cwd: str = "/") -> tuple[int, str]:
    request = container.execute_request(["bash", "-c", command], env=container.image.settings.env, user=user, cwd=cwd)
    return container.run(request)


def test_layers_lie_on_one_another(container: Container) -> None:
    assert shell(container, "echo /srv/* /opt/hidden/*") == (0, "/srv/kept /opt/hidden/b")


def test_layers_are_downloaded_once(registry: ImageRegistry, library: ImageLibrary, image: LocalImage) -> None:
    registry.asked.clear()
    assert library.pulled(f"{registry.address}/base") == image
    assert not [path for path in registry.asked if path.endswith(tuple(layer.name[7:] for layer in image.layers))]


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("root", "0 0 0 /root"),
        ("app", "1200 1300 1300 1400 /home/app"),
        ("1200", "1200 1300 1300 1400 /home/app"),
        ("app:1500", "1200 1500 1500 /home/app"),
        ("4321", "4321 0 0 /"),
    ],
)
def test_commands_run_as_users_of_the_image(container: Container, user: str, ids: str) -> None:
    assert shell(container, "echo $(id -u) $(id -g) $(id -G) $HOME", user) == (0, ids)


def test_an_unknown_user_and_a_missing_folder_are_exit_codes(container: Container) -> None:
    assert shell(container, "true", "nobody-there")[0] == 126
    assert shell(container, "true", cwd="/nowhere")[0] == 126
    assert container.run(container.execute_request(["missing"], env={}, user="root", cwd="/"))[0] == 127


def test_files_persist_and_users_are_kept_apart(container: Container) -> None:
    assert shell(container, "mkdir -m 700 /own && echo 1 > /own/x && chown app /own/x")[0] == 0
    assert shell(container, "cat /own/x", "app")[0] != 0
    assert shell(container, "stat -c %u /own/x; cat /own/x") == (0, "1200\n1")


def test_what_a_command_leaves_behind_stays_until_the_end(container: Container) -> None:
    code, pid = shell(container, "sleep 1000 > /dev/null 2>&1 & echo $!")
    assert code == 0
    assert shell(container, f"kill -0 {pid}")[0] == 0
    container.stop()
    assert not Path(f"/proc/{container.pid}").exists()


def test_no_network_and_no_way_to_one(container: Container) -> None:
    program = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert shell(container, f'python3 -c "{program}"') == (0, "['lo']")
    assert shell(container, "mount -t tmpfs none /srv")[0] != 0


def test_the_hosts_devices_keep_their_modes(container: Container) -> None:
    before = os.stat("/dev/full")
    assert shell(container, "chmod 600 /dev/full")[0] != 0
    assert shell(container, "chown 1200 /dev/full")[0] != 0
    assert shell(container, "echo gone > /dev/null") == (0, "")
    after = os.stat("/dev/full")
    assert (before.st_mode, before.st_uid) == (after.st_mode, after.st_uid)


def test_kernel_settings_cannot_be_changed(container: Container) -> None:
    assert shell(container, "echo 0 > /proc/sys/kernel/panic")[0] != 0
    assert shell(container, "test -r /proc/kcore && head -c 1 /proc/kcore") != (0, "")


def test_binds_are_shown_and_processors_are_limited(image: LocalImage, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "x").write_text("here")
    bind = Bind(str(tmp_path / "shown"), "/shown", is_read_only=True)
    started = Container(image, folder, ContainerOptions(cpus=1, binds=[bind]))
    try:
        assert shell(started, "cat /shown/x; touch /shown/y 2>/dev/null || echo refused") == (0, "hererefused")
        program = "import os; print(len(os.sched_getaffinity(0)))"
        assert shell(started, f'python3 -c "{program}"') == (0, "1")
    finally:
        started.stop()


def test_archives_are_unpacked_and_packed(container: Container) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo("one")
        member.size, member.uid = 2, 77
        archive.addfile(member, io.BytesIO(b"hi"))
    for request, path in (
        (container.unpack_request("/new/folder"), "/new/folder/one"),
        (container.unpack_request("/new", rename="two"), "/new/two"),
        (container.unpack_request("/new", rename="folder"), "/new/folder/one"),
    ):
        data.seek(0)
        assert container.run(request, data) == (0, "")
        assert shell(container, f"stat -c %u {path}; cat {path}; rm {path}") == (0, "0\nhi")
    assert container.run(container.pack_request("/missing"))[0] == 127


def test_a_link_in_a_layer_leads_nowhere_else(registry: ImageRegistry, library: ImageLibrary, tmp_path: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        member = tarfile.TarInfo("out/written")
        archive.addfile(member, io.BytesIO())
        member = tarfile.TarInfo("../../above")
        archive.addfile(member, io.BytesIO())
    registry.add("links", raw.getvalue())
    with pytest.raises(SandboxError):
        library.pulled(f"{registry.address}/links")
    assert not (tmp_path / "written").exists()


def test_a_dockerfile_is_followed_once(registry: ImageRegistry, library: ImageLibrary, tmp_path: Path) -> None:
    context, place = tmp_path / "context", tmp_path / "place"
    context.mkdir()
    place.mkdir()
    (context / "file").write_text("content")
    with tarfile.open(context / "packed.tar.gz", "w:gz") as archive:
        archive.add(context / "file", "unpacked/file")
    (context / "Dockerfile").write_text(
        f"FROM {registry.address}/base\nARG PART=built\nENV WHO=$PART\nWORKDIR /work\nCOPY file renamed\n"
        "COPY --chown=app file /opt/\nADD packed.tar.gz /work/\nUSER app\nRUN echo $WHO $PART > /tmp/said\n"
    )
    image = library.built(context)
    assert (image.settings.workdir, image.settings.user, image.settings.env["WHO"]) == ("/work", "app", "built")
    assert library.built(context) == image
    started = Container(image, place, ContainerOptions())
    try:
        command = "cat renamed unpacked/file; stat -c %U /opt/file /tmp/said; cat /tmp/said"
        assert shell(started, command, cwd="/work") == (0, "contentcontentapp\napp\nbuilt built")
    finally:
        started.stop()
        user_namespace.remove(place)


@pytest.mark.parametrize(
    ("line", "fault"),
    [("RUN exit 3", Fault.COMMAND), ("COPY missing /x", Fault.SOURCE), ("COPY ../above /x", Fault.SOURCE)],
)
def test_a_line_that_fails_is_named(
    registry: ImageRegistry, library: ImageLibrary, tmp_path: Path, line: str, fault: Fault
) -> None:
    (tmp_path / "above").write_text("no part of the context")
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {registry.address}/base\n{line}\n")
    with pytest.raises(DockerfileError) as caught:
        library.built(context)
    assert caught.value.code is fault


def test_triggers_and_ignored_files_are_refused(registry: ImageRegistry, library: ImageLibrary, tmp_path: Path) -> None:
    registry.add("triggers", OnBuild=["RUN true"])
    (tmp_path / "Dockerfile").write_text(f"FROM {registry.address}/triggers\n")
    with pytest.raises(DockerfileError) as caught:
        library.built(tmp_path)
    assert caught.value.code is Fault.TRIGGERS
    (tmp_path / ".dockerignore").write_text("x\n")
    with pytest.raises(DockerfileError) as caught:
        library.built(tmp_path)
    assert caught.value.code is Fault.IGNORE_FILE


def test_a_user_without_further_numbers_cannot_have_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.containers.user_namespace.os.geteuid", lambda: 1)
    monkeypatch.setattr("harness.containers.user_namespace.os.getuid", lambda: 987654)
    monkeypatch.setenv("LOGNAME", "without-numbers")
    with pytest.raises(SandboxUnavailableError):
        user_namespace._map_users(os.getpid())
