"""Harbor's environment over our containers, as Harbor's trials use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import SandboxBuildFailedError
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from image_registry import ImageRegistry, image_registry, layer
from images import write_folder_image

from harness.harbor_environment import SsrEnvironment

pytestmark = [pytest.mark.bubblewrap, pytest.mark.user, pytest.mark.filterwarnings("ignore")]  # Warnings of packages.

PROGRAMS = ("bash", "sleep", "chmod", "mkdir", "find", "tar", "gzip", "rm", "ln", "readlink")
NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    root = write_folder_image(tmp_path_factory.mktemp("image") / "root", PROGRAMS)
    (root / "tmp").chmod(0o1777)
    with image_registry() as served:
        served.add("base", layer(("srv/x", b"1"), folder=root), Env=["PATH=/usr/bin"], WorkingDir="/srv")
        yield served


Opener = Callable[..., SsrEnvironment]


@pytest.fixture
def opened(registry: ImageRegistry, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Opener:
    """Return what creates an environment as Harbor does, by its import path."""

    def create(dockerfile: str = "FROM {base}\nWORKDIR /app\n", files: dict[str, str] | None = None, **config: Any):
        folder = tmp_path / "task" / "environment"
        folder.mkdir(parents=True)
        for name, text in {"Dockerfile": dockerfile, **(files or {})}.items():
            if text:
                (folder / name).write_text(text.format(base=f"{registry.address}/base"))
        policy = config.pop("network_policy", NO_NETWORK)
        own = config.pop("own", {})
        mounts = config.pop("mounts", None)
        return EnvironmentFactory.create_environment_from_config(
            config=TrialEnvironmentConfig(
                import_path="harness.harbor_environment:SsrEnvironment",
                kwargs={"cache": str(tmp_path_factory.getbasetemp() / "cache"), **own},
            ),
            environment_dir=folder,
            environment_name="task",
            session_id="task__1__env",
            trial_paths=TrialPaths(tmp_path / "trial"),
            task_env_config=EnvironmentConfig(
                **{k: v.format(base=f"{registry.address}/base") if isinstance(v, str) else v for k, v in config.items()}
            ),
            network_policy=policy,
            mounts=mounts,
        )

    return create


@asynccontextmanager
async def started(environment: SsrEnvironment) -> AsyncIterator[SsrEnvironment]:
    try:
        await environment.start(force_build=False)
        yield environment
    finally:
        await environment.stop(delete=True)


def test_commands_get_the_variables_of_the_image_the_task_and_the_call(opened: Opener) -> None:
    async def play() -> None:
        async with started(opened("FROM {base}\nENV A=image B=image C=image\n", env={"B": "task", "C": "task"})) as env:
            done = await env.exec("echo $A $B $C $PWD; echo problem >&2; exit 3", env={"C": "call"})
            assert (done.stdout, done.stderr, done.return_code) == ("image task call /srv\n", "problem\n", 3)
            assert (await env.exec("echo $(id -u) $PWD", user=1234, cwd="/tmp")).stdout == "1234 /tmp\n"
            with env.with_default_user("1234"):
                assert (await env.exec("id -u")).stdout == "1234\n"
            assert (await env.exec("id -u", user="root")).stdout == "0\n"

    asyncio.run(play())


def test_what_stays_in_the_background_neither_blocks_nor_ends(opened: Opener) -> None:
    async def play() -> None:
        async with started(opened()) as env:
            pid = (await env.exec("sleep 1000 & echo $!")).stdout
            assert (await env.exec(f"kill -0 {pid}")).return_code == 0

    asyncio.run(play())


def test_a_command_that_takes_too_long_is_ended(opened: Opener) -> None:
    async def play() -> None:
        async with started(opened()) as env:
            with pytest.raises(RuntimeError):
                await env.exec("echo $$ > /tmp/pid; exec sleep 1000", timeout_sec=1)
            assert (await env.exec("kill -0 $(cat /tmp/pid)")).return_code != 0

    asyncio.run(play())


def test_files_are_copied_in_and_out(opened: Opener, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "x").write_text("deep")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)

    async def play() -> None:
        async with started(opened()) as env:
            await env.upload_dir(source, "/new/place")
            await env.upload_file(source / "run.sh", "/tmp")
            await env.upload_file(source / "run.sh", "/other/name.sh")
            assert (await env.exec("/new/place/run.sh && /tmp/run.sh && /other/name.sh")).stdout == "ran\nran\nran\n"
            await env.download_dir_with_exclusions(source_dir="/new", target_dir=tmp_path / "part", exclude=["below"])
            await env.exec("ln -s /etc/passwd /new/place/out; ln -s run.sh /new/place/in")
            await env.download_dir("/new/place", tmp_path / "got")
            await env.download_file("/new/place/below/x", tmp_path / "one" / "y")
            with pytest.raises(RuntimeError):
                await env.download_file("/missing", tmp_path / "missing")

    asyncio.run(play())
    assert (tmp_path / "got" / "below" / "x").read_text() == (tmp_path / "one" / "y").read_text() == "deep"
    assert (tmp_path / "got" / "in").is_symlink()
    assert not (tmp_path / "got" / "out").is_symlink()
    assert (tmp_path / "part" / "place" / "run.sh").is_file()
    assert not (tmp_path / "part" / "place" / "below").exists()


@pytest.mark.parametrize("is_public", [True, False])
def test_the_network_is_the_hosts_or_none(opened: Opener, is_public: bool) -> None:
    policy = NetworkPolicy(network_mode=NetworkMode.PUBLIC) if is_public else NO_NETWORK

    async def play() -> str:
        async with started(opened(network_policy=policy)) as env:
            return (await env.exec("readlink /proc/self/ns/net")).stdout.strip()

    assert (asyncio.run(play()) == str(Path("/proc/self/ns/net").readlink())) is is_public


def test_a_pinned_image_gets_the_files_of_the_environment(opened: Opener) -> None:
    async def play() -> None:
        environment = opened("", {"data.txt": "uploaded"}, docker_image="{base}", workdir="/work")
        async with started(environment) as env:
            assert (await env.exec("cat data.txt; pwd")).stdout == "uploaded/work\n"

    asyncio.run(play())


def test_mounted_folders_are_the_hosts(opened: Opener, tmp_path: Path) -> None:
    mount = {"type": "bind", "source": str(tmp_path / "given"), "target": "/given"}

    async def play() -> None:
        async with started(opened(mounts=[mount])) as env:
            assert env.is_path_mounted("/given", tmp_path / "given")
            await env.exec("echo there > /given/x")

    asyncio.run(play())
    assert (tmp_path / "given" / "x").read_text() == "there\n"


@pytest.mark.parametrize(
    ("dockerfile", "files"),
    [
        ("FROM {base}\n", {"docker-compose.yaml": "services: {{}}\n"}),
        ("FROM {base}\nFROM {base}\n", {}),
        ("RUN true\n", {}),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(opened: Opener, dockerfile: str, files: dict[str, str]) -> None:
    with pytest.raises(SandboxBuildFailedError):
        opened(dockerfile, files)


@pytest.mark.parametrize("dockerfile", ["FROM {base}\nRUN exit 1\n", "FROM {base}-missing\n"])
def test_an_image_that_cannot_be_made_ends_the_trial(opened: Opener, dockerfile: str) -> None:
    async def play() -> None:
        async with started(opened(dockerfile)):
            raise AssertionError("it has started")

    with pytest.raises(SandboxBuildFailedError):
        asyncio.run(play())


def test_hosts_cannot_be_allowed_one_by_one_and_there_are_no_gpus(opened: Opener) -> None:
    policy = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    with pytest.raises(ValueError):
        opened(network_policy=policy)


def test_an_unknown_option_is_named(opened: Opener) -> None:
    with pytest.raises(ValueError):
        SsrEnvironment.preflight({"unknown": "1"})
