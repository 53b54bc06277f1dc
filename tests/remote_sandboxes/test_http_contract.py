"""The whole contract of sandboxes holds over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_hosts import served_host

from harness.remote_sandboxes.host import HostSettings
from harness.remote_sandboxes.http_transport import HttpTransport
from harness.remote_sandboxes.provider import RemoteProvider
from pytest_ssr.sandbox import load_provider
from pytest_ssr.testing import SandboxContract


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    readable = [tmp_path_factory.getbasetemp(), Path(sys.prefix), Path(sys.base_prefix)]
    with served_host(load_provider("bubblewrap"), HostSettings(readable=readable)) as (address, _):
        yield address


@pytest.mark.bubblewrap
class TestHttp(SandboxContract):
    @pytest.fixture
    def provider(self, url: str) -> Iterator[RemoteProvider]:
        provider = RemoteProvider([HttpTransport(url)])
        yield provider
        provider.close()
