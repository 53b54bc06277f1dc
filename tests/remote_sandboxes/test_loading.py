"""Names of remote sandboxes select servers, and an invalid name is one clear error."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from remote_hosts import TOKEN, served_host

from harness.cli.main import main
from harness.remote_sandboxes import loading
from harness.remote_sandboxes.host import HostSettings
from harness.remote_sandboxes.http_transport import HttpTransport
from harness.remote_sandboxes.provider import RemoteProvider
from pytest_ssr.errors import SandboxError, SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox import choose, load_provider, require_slots
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import Limits, WithImage


def test_the_name_of_a_server_is_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_host(ProcessProvider(), token=TOKEN) as (url, _):
        monkeypatch.setenv("SSR_SANDBOX_TOKEN", f" {TOKEN}\n")
        provider = choose(f"remote:{url}")
        assert isinstance(provider, WithImage)
        assert (provider.name, provider.image) == ("remote", url)
        assert len(provider.image_digest()) == 64
        done = provider.exec_in_image(["cat"], limits=Limits(), stdin=b"x")
        assert done.stdout == b"x"
        provider.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "address", ["x", "ftp://host:1", "http://", "http://user:secret@host:1", "http://[", "http://host:1,", "http://h:x"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_provider(f"remote:{address}")
    assert caught.value.option == "sandbox"
    assert "secret" not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.remote_sandboxes.connection._PROBE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    provider = RemoteProvider([HttpTransport(f"http://127.0.0.1:{port}", retry_s=0.1)])
    with pytest.raises(SandboxUnavailableError):
        provider.open(Path(__file__).parent, mount_at="/w")
    provider.close()


def test_a_name_with_several_addresses_is_several_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object, **__: object) -> list[tuple[object, ...]]:
        addresses = [(socket.AF_INET6, "fd00::1"), (socket.AF_INET, "10.0.0.2"), (socket.AF_INET, "10.0.0.1")]
        return [(family, socket.SOCK_STREAM, 6, "", (address, 8701)) for family, address in addresses]

    monkeypatch.setattr("socket.getaddrinfo", found)
    assert loading.resolved("http://ssr-sandboxes:8701") == ["http://10.0.0.1:8701", "http://10.0.0.2:8701"]
    assert loading.resolved("https://ssr-sandboxes:8701") == ["https://ssr-sandboxes:8701"]
    assert loading.resolved("http://localhost:8701") == ["http://localhost:8701"]


def test_a_lost_server_is_passed_over(tmp_path: Path) -> None:
    with served_host(ProcessProvider()) as (url, _):
        with served_host(ProcessProvider()) as (other, _):
            provider = RemoteProvider([HttpTransport(each, retry_s=0.1) for each in (other, url)])
            assert provider.probe().works
        for _ in range(4):
            with provider.open(tmp_path, mount_at="/w") as sandbox:
                assert sandbox.exec(["true"], limits=Limits()).exit_code == 0
        provider.close()


def test_a_server_that_is_down_at_the_start_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("harness.remote_sandboxes.connection._PROBE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        down = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with served_host(ProcessProvider()) as (url, _):
        provider = choose(f"remote:{down},{url}")
        assert isinstance(provider, RemoteProvider)
        assert [record.args for record in caplog.records if record.name.startswith("harness.")] == [(down,)]
        # All hosts that are left show the same system.
        assert len(provider.image_digest()) == 64
        with provider.open(tmp_path, mount_at="/w") as sandbox:
            assert sandbox.exec(["true"], limits=Limits()).exit_code == 0
        provider.close()
    with pytest.raises(SandboxUnavailableError) as caught:
        choose(f"remote:{down},{url}")
    assert down in str(caught.value)
    assert url in str(caught.value)


def test_a_server_that_refuses_the_client_is_not_left_out() -> None:
    with served_host(ProcessProvider()) as (url, _), served_host(ProcessProvider(), token=TOKEN) as (refusing, _):
        assert not RemoteProvider([HttpTransport(url), HttpTransport(refusing, token="")]).probe().works


def test_the_number_of_slots_is_that_of_all_servers() -> None:
    two, three = HostSettings(slots=2), HostSettings(slots=3)
    with served_host(ProcessProvider(), two) as (url, _), served_host(ProcessProvider(), three) as (other, _):
        provider = choose(f"remote:{url},{other}")
        require_slots(provider, 5)
        with pytest.raises(SettingsError) as caught:
            require_slots(provider, 6)
        assert (caught.value.option, "6" in str(caught.value)) == ("sandbox", True)
        provider.close()  # type: ignore[attr-defined]
    require_slots(ProcessProvider(), 1000)


def test_servers_with_different_systems_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to("/usr/bin/python3")
    other_settings = HostSettings(python=tmp_path / "python")
    with served_host(ProcessProvider()) as (url, _), served_host(ProcessProvider(), other_settings) as (other, _):
        provider = RemoteProvider([HttpTransport(each) for each in (url, other)])
        with pytest.raises(SandboxError):
            provider.image_digest()
        provider.close()


@pytest.mark.parametrize(
    ("argv", "token"),
    [
        (["--host", "0.0.0.0"], ""),
        (["--host", "0.0.0.0"], "short"),
        (["--token-file", "/no/such/file"], ""),
        (["--token-file", "/dev/null"], ""),
        (["--host", "no such host"], TOKEN),
        (["--port", "99999"], ""),
        (["--sandbox", "jail"], ""),
    ],
)
def test_a_server_does_not_start(argv: list[str], token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_SANDBOX_TOKEN", token)
    assert main(["sandbox-server", *argv]) == 2
