"""The whole contract of sandboxes holds over Ray, and calls act once there, too."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from harness.remote_sandboxes.calls import ErrorCode, RemoteError  # noqa: E402
from harness.remote_sandboxes.host import HostSettings  # noqa: E402
from harness.remote_sandboxes.provider import RemoteProvider  # noqa: E402
from harness.remote_sandboxes.ray_transport import RayTransport, connect  # noqa: E402
from pytest_ssr.errors import SandboxUnavailableError  # noqa: E402
from pytest_ssr.interrupts import background  # noqa: E402
from pytest_ssr.sandbox.protocol import Limits  # noqa: E402
from pytest_ssr.testing import SandboxContract  # noqa: E402

LIMITS = Limits(wall_s=30)
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # A token of our own, which Ray would otherwise keep in the home directory.
        patch.delenv("RAY_AUTH_MODE", raising=False)
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 * MIB, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def transports(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RayTransport]]:
    readable = [tmp_path_factory.getbasetemp(), Path(sys.prefix), Path(sys.base_prefix)]
    transports = list(connect("bubblewrap", HostSettings(readable=readable)))
    yield transports
    for transport in transports:
        transport.close()


class _KeptTransport:
    """A transport that stays open for the next test."""

    def __init__(self, transport: RayTransport) -> None:
        self._transport, self.name = transport, transport.name
        self.call = transport.call

    def close(self) -> None:
        pass


@pytest.fixture
def provider(transports: list[RayTransport]) -> Iterator[RemoteProvider]:
    provider = RemoteProvider([_KeptTransport(transport) for transport in transports])
    yield provider
    provider.close()


@pytest.mark.bubblewrap
class TestRay(SandboxContract):
    pass


@pytest.mark.bubblewrap
def test_output_arrives_while_the_command_runs(provider: RemoteProvider, tmp_path: Path) -> None:
    times: list[float] = []
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        done = sandbox.evaluate(
            b"#!/bin/sh\necho one; sleep 0.5; echo two\n",
            limits=LIMITS,
            on_output=lambda _: times.append(time.monotonic()),
        )
    assert done.stdout == b"one\ntwo\n"
    assert times[-1] - times[0] > 0.3


@pytest.mark.bubblewrap
def test_an_interrupt_cancels_the_call(provider: RemoteProvider, tmp_path: Path) -> None:
    with provider.open(tmp_path, mount_at="/w") as sandbox:
        begin = time.monotonic()
        with background(lambda: sandbox.exec(["sleep", "60"], limits=Limits(wall_s=90))):
            time.sleep(0.5)
        assert sandbox.exec(["true"], limits=LIMITS).exit_code == 0
        assert time.monotonic() - begin < 20


@pytest.mark.bubblewrap
def test_a_lost_actor_is_an_error_and_never_a_result(cluster: None, tmp_path: Path) -> None:
    transports = connect("bubblewrap")
    provider = RemoteProvider(transports)
    sandbox = provider.open(tmp_path, mount_at="/w")
    running = background(lambda: sandbox.exec(["sleep", "60"], limits=Limits(wall_s=90)))
    time.sleep(0.5)
    ray.kill(transports[0]._actor)
    with pytest.raises(SandboxUnavailableError):
        running.result()
    provider.close()


@pytest.mark.bubblewrap
def test_folders_that_were_not_offered_are_refused(provider: RemoteProvider, tmp_path: Path) -> None:
    with pytest.raises(RemoteError) as caught:
        provider.open(tmp_path, mount_at="/w", readable=[Path("/var")])
    assert caught.value.code is ErrorCode.SANDBOX


def test_a_sandbox_that_does_not_work_on_a_node_is_an_error(cluster: None) -> None:
    with pytest.raises(SandboxUnavailableError):
        connect("apptainer:/no/such/image.sif")
