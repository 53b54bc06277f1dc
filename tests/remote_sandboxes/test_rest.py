"""Any HTTP client can use a sandbox server: calls in JSON, their description, the examples of the documentation."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from remote_hosts import TOKEN, served_host

from harness.other_systems import SERVER_ROUTES
from harness.remote_sandboxes import rest
from harness.remote_sandboxes.async_client import AsyncSandboxClient
from harness.remote_sandboxes.calls import ErrorCode, Exec, RemoteError
from harness.remote_sandboxes.host import HostSettings, SandboxHost
from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.process import ProcessProvider
from pytest_ssr.sandbox.protocol import Image, Limit, Limits

schemathesis = pytest.importorskip("schemathesis")
EMPTY = {"entries": [{"path": ".", "mode": 0o755, "mtime_ns": 0}]}
PAGE = Path(__file__).parents[2] / "docs" / "sandbox-protocol.md"
DESCRIPTION = json.loads(json.dumps(rest.openapi()))


@pytest.fixture
def served() -> Iterator[tuple[str, SandboxHost]]:
    with served_host(ProcessProvider(), HostSettings(slots=2), token=TOKEN) as served:
        yield served


class Client:
    """Makes calls, and checks each response against the description."""

    def __init__(self, url: str) -> None:
        self._url = url

    def post(self, path: str, body: dict[str, Any], key: str = "", **headers: str) -> httpx.Response:
        sent = {"Authorization": f"Bearer {TOKEN}", rest.KEY_HEADER: key or secrets.token_urlsafe(24)}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        all_headers = httpx.Headers(sent)
        all_headers.update(names)
        path = path if path.startswith("/") else f"/v1/{path}"
        response = httpx.post(f"{self._url}{path}", json=body, headers=all_headers, timeout=60)
        self._check(response, DESCRIPTION["paths"][re.sub("sandboxes/[^/]+", "sandboxes/{sandbox}", path)]["post"])
        return response

    def images(self) -> Any:
        response = httpx.get(f"{self._url}/images", headers={"Authorization": f"Bearer {TOKEN}"})
        self._check(response, DESCRIPTION["paths"]["/images"]["get"])
        return response.json()

    def _check(self, response: httpx.Response, described: dict[str, Any]) -> None:
        if response.status_code != rest.RUNS:
            known = described["responses"].get(str(response.status_code), described["responses"]["default"])
            (content,) = known["content"].values()
            schema = {**content["schema"], "components": DESCRIPTION["components"]}
            jsonschema.validate(response.json(), schema, jsonschema.Draft202012Validator)

    def open(self) -> str:
        """Return the path of a new sandbox."""
        tree = self.post("add-tree", EMPTY).json()["tree"]
        return f"sandboxes/{self.post('open', {'tree': tree, 'mount_at': '/w'}).json()['id']}"

    def refusal(self, path: str, body: dict[str, Any], key: str = "", **headers: str) -> tuple[int, ErrorCode]:
        response = self.post(path, body, key, **headers)
        return response.status_code, ErrorCode(response.json()["code"])


@pytest.fixture
def client(served: tuple[str, SandboxHost]) -> Client:
    return Client(served[0])


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_description_is_openapi(served: tuple[str, SandboxHost]) -> None:
    described = httpx.get(f"{served[0]}/openapi.json").json()
    assert described == DESCRIPTION
    schema = schemathesis.openapi.from_dict(described)
    schema.validate()
    assert len(list(schema.get_all_operations())) == len(rest.ARGUMENTS)
    assert rest.STATUSES.keys() == set(ErrorCode)


@pytest.mark.parametrize(("path", "here"), SERVER_ROUTES.items())
def test_an_address_of_another_system_names_the_one_here(served: tuple[str, SandboxHost], path: str, here: str) -> None:
    response = httpx.post(f"{served[0]}{path}", json={})
    assert (response.status_code, response.json()["code"]) == (404, ErrorCode.OTHER_SYSTEM)
    assert here in response.json()["message"]


def test_a_sandbox_in_json(client: Client, served: tuple[str, SandboxHost]) -> None:
    sandbox = client.open()
    assert served[1].counts.sandboxes == 1
    assert client.post(f"{sandbox}/write", {"path": "a", "content": encoded(b"\xff\0")}).json() == {}
    done = client.post(f"{sandbox}/exec", {"argv": ["cat", "a", "-"], "stdin": encoded(b"x"), "env": [["A", "b"]]})
    assert (done.json()["exit_code"], done.json()["limit"]) == (0, None)
    assert base64.b64decode(done.json()["stdout"]) == b"\xff\0x"
    assert client.post(f"{sandbox}/read", {"path": "a", "max_bytes": 9}).json() == {"content": encoded(b"\xff\0")}
    assert b"GIT binary patch" in base64.b64decode(client.post(f"{sandbox}/diff", {}).json()["diff"])
    late = client.post(f"{sandbox}/exec", {"argv": ["sleep", "9"], "limits": {"wall_s": 0.1}}).json()
    assert (late["exit_code"], late["limit"]) == (None, Limit.WALL_TIME)
    assert client.post("exec-in-image", {"argv": ["cat"], "stdin": encoded(b"y")}).json()["stdout"] == encoded(b"y")
    assert client.post(f"{sandbox}/close", {}).json() == {}
    assert served[1].counts.sandboxes == 0


def test_the_files_of_a_tree_in_json(client: Client) -> None:
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # x
    entries = [*EMPTY["entries"], {"path": "x", "mode": 0o644, "mtime_ns": 0, "digest": digest, "size": 1}]
    assert client.post("add-tree", {"entries": entries}).json() == {"digests": [digest], "tree": ""}
    assert client.post("put-files", {"digests": [digest], "files": [encoded(b"x")]}).status_code == 200
    tree = client.post("add-tree", {"entries": entries}).json()["tree"]
    opened = client.post("open", {"tree": tree, "mount_at": "/w"}).json()
    read = client.post(f"sandboxes/{opened['id']}/read", {"path": "x", "max_bytes": 1}).json()
    assert read["content"] == encoded(b"x")


def test_a_key_acts_once_and_for_one_call(client: Client, tmp_path: Path) -> None:
    sandbox, key, counter = client.open(), secrets.token_hex(16), tmp_path / "counter"
    body = {"argv": ["sh", "-c", f"echo x >> {counter}; cat"], "stdin": encoded(b"y")}
    replies = [client.post(f"{sandbox}/exec", body, key).json() for _ in range(2)]
    assert replies[0] == replies[1]
    assert counter.read_text() == "x\n"
    reused = (409, ErrorCode.KEY_REUSED)
    assert client.refusal(f"{sandbox}/exec", body | {"stdin": ""}, key) == reused
    assert client.refusal(f"{sandbox}/exec", body | {"argv": ["cat"]}, key) == reused
    assert client.refusal("exec-in-image", body, key) == reused
    assert client.refusal(f"{client.open()}/exec", body, key) == reused


def test_calls_in_json_have_the_same_admission_and_ceilings(client: Client) -> None:
    sandbox, _ = client.open(), client.open()
    assert client.refusal("exec-in-image", {"argv": ["true"]}) == (503, ErrorCode.BUSY)
    assert client.refusal("open", {"tree": "x", "mount_at": "/w"}) == (503, ErrorCode.BUSY)
    above = {"argv": ["true"], "limits": {"processes": 2_000}}
    assert client.refusal(f"{sandbox}/exec", above) == (422, ErrorCode.CEILING)


def test_calls_in_json_that_are_refused(client: Client, served: tuple[str, SandboxHost]) -> None:
    sandbox, malformed = client.open(), (400, ErrorCode.MALFORMED)
    execute = f"{sandbox}/exec"
    for body in (
        {},
        {"argv": "true"},
        {"argv": ["true"], "limit": {}},
        {"argv": ["true"], "limits": {"wall": 1}},
        {"argv": ["true"], "limits": {"wall_s": 1e300}},
        {"argv": ["true"], "stdin": "?"},
        {"argv": ["true"], "stdin": 1},
    ):
        assert client.refusal(execute, body) == malformed
    assert client.refusal("put-files", {"digests": [], "files": [""]}) == malformed
    assert client.refusal("add-tree", {"entries": [{**EMPTY["entries"][0], "owner": "root"}]}) == malformed
    body = {"argv": ["true"]}
    assert client.refusal(execute, body, "short") == malformed
    assert client.refusal(execute, body, authorization="Bearer another-token-for-tests") == (401, "unauthorized")
    assert client.refusal(execute, body, content_type="text/plain") == (415, "unsupported-media-type")
    assert client.refusal(execute, body, host="attacker.example") == (403, "foreign-host")
    assert client.refusal(execute, body, origin="http://attacker.example") == (403, "browser")
    assert client.refusal(f"{sandbox}/read", {"path": "x", "max_bytes": 1}) == (404, ErrorCode.FILE_NOT_FOUND)
    assert client.refusal("sandboxes/x/exec", body) == (404, ErrorCode.UNKNOWN_SANDBOX)
    for content in (b"[]", b"{", b'{"argv": ["true"], "limits": {"wall_s": NaN}}'):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": rest.MEDIA_TYPE, rest.KEY_HEADER: "k" * 16}
        assert httpx.post(f"{served[0]}/v1/{execute}", content=content, headers=headers).status_code == 400


def test_a_call_that_takes_long_is_asked_for_again(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    with served_host(ProcessProvider(), HostSettings(lease_s=1), token=TOKEN) as (url, _):
        client = Client(url)
        sandbox, key = client.open(), secrets.token_hex(16)
        body = {"argv": ["sh", "-c", f"echo x >> {counter}; sleep 3"]}
        statuses = []
        while not statuses or statuses[-1] == rest.RUNS:
            statuses.append(client.post(f"{sandbox}/exec", body, key).status_code)
        # Each request has renewed the lease, which is shorter than the command.
        assert (statuses[0], statuses[-1]) == (202, 200)
        assert counter.read_text() == "x\n"
        client.post("exec-in-image", {"argv": ["sleep", "60"]}, key := secrets.token_hex(16))
        assert client.post("cancel", {"call": key}).status_code == 200
        assert client.refusal("exec-in-image", {"argv": ["sleep", "60"]}, key) == (409, ErrorCode.CANCELLED)


class Engine(ProcessProvider):
    """Keeps images."""

    def __init__(self) -> None:
        self.images = {"box:1": Image("box:1", "sha256:1", 1)}

    def local_images(self) -> list[Image]:
        return list(self.images.values())

    def pull(self, image: str) -> Image:
        if "absent" in image:
            raise SandboxUnavailableError(f"{image}: {image.rpartition('-')[2]}")
        return self.images.setdefault(image, Image(image, "sha256:2", 2))


def test_images_are_listed_and_pulled() -> None:
    settings = HostSettings(images=["box:*", "team.example:5000/*"])
    with served_host(Engine(), settings, token=TOKEN) as (url, _):
        client, key = Client(url), secrets.token_hex(16)
        box = {"name": "box:1", "id": "sha256:1", "size_bytes": 1}
        assert client.images() == {"images": [box]}
        team = {"name": "team.example:5000/box@sha256:2", "id": "sha256:2", "size_bytes": 2}
        assert client.post("/images", {"image": team["name"]}, key).json() == team
        assert client.images() == {"images": [box, team]}
        assert client.refusal("/images", {"image": "box:1"}, key) == (409, ErrorCode.KEY_REUSED)
        assert client.refusal("/images", {"image": "box:1"}, authorization="") == (401, ErrorCode.UNAUTHORIZED)
        assert httpx.get(f"{url}/images").status_code == 401
        for name in ("", "../containers", "a/../b", "a b", "/a", "a\n", "ä"):
            assert client.refusal("/images", {"image": name}) == (400, ErrorCode.MALFORMED)


@pytest.mark.parametrize(
    ("patterns", "allowed", "refused"),
    [
        (
            (),
            ["python:3.13", "swebench/x:latest", "absent"],
            ["10.0.0.7:5000/x", "localhost/x", "ghcr.io/a/b", "a:1/b"],
        ),
        (("ghcr.io/team/*",), ["ghcr.io/team/a/b:1"], ["ghcr.io/other/a", "python:3.13", "x/ghcr.io/team/a"]),
    ],
)
def test_only_some_images_are_pulled(patterns: tuple[str, ...], allowed: list[str], refused: list[str]) -> None:
    with served_host(Engine(), HostSettings(images=patterns), token=TOKEN) as (url, _):
        client = Client(url)
        for name in refused:
            assert client.refusal("/images", {"image": name}) == (403, ErrorCode.IMAGE_NOT_ALLOWED)
        statuses = [client.post("/images", {"image": name}).status_code for name in allowed]
        assert set(statuses) <= {200, 502}


def test_a_client_does_not_learn_why_an_image_cannot_be_pulled(capsys: pytest.CaptureFixture[str]) -> None:
    with served_host(Engine(), token=TOKEN) as (url, _):
        answers = [Client(url).post("/images", {"image": f"absent-{why}"}) for why in ("refused", "unknown")]
    assert {(a.status_code, a.json()["code"]) for a in answers} == {(502, ErrorCode.IMAGE_UNAVAILABLE)}
    assert answers[0].json() == answers[1].json()
    err = capsys.readouterr().err
    assert ("absent-refused" in err, "absent-unknown" in err) == (True, True)


def test_a_server_without_images_says_so(client: Client) -> None:
    assert client.refusal("/images", {"image": "box:1"}) == (501, ErrorCode.NO_IMAGES)
    assert client.images()["code"] == ErrorCode.NO_IMAGES


@pytest.mark.docker
def test_an_image_is_pulled_by_the_engine_of_a_server() -> None:
    registry, base = os.environ.get("SSR_TEST_REGISTRY"), os.environ.get("SSR_TEST_IMAGE")
    if registry is None or base is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("SSR_TEST_REGISTRY or SSR_TEST_IMAGE is missing")
    name, provider = f"{registry}/pulled/box:1", DockerProvider()
    engine = provider._engine()
    engine.images.get(base).tag(name)
    engine.images.push(name)
    engine.images.remove(name)
    try:
        with served_host(provider, HostSettings(images=[f"{registry}/*"]), token=TOKEN) as (url, _):
            client = Client(url)
            assert name not in {image["name"] for image in client.images()["images"]}
            pulled = client.post("/images", {"image": name}).json()
            assert pulled in client.images()["images"]
            absent = client.refusal("/images", {"image": f"{registry}/pulled/absent:1"})
            assert absent == (502, ErrorCode.IMAGE_UNAVAILABLE)
    finally:
        engine.images.remove(name)
        provider.close()


def examples(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    ("language", "command", "output"),
    [
        ("bash", ["bash", "-euo", "pipefail", "-c"], "42\n\n42\n\n/ value\n\n"),
        ("python", [sys.executable, "-c"], "0 b'42\\n'\n"),
    ],
)
def test_the_examples_run_as_printed(
    language: str, command: list[str], output: str, served: tuple[str, SandboxHost], tmp_path: Path
) -> None:
    variables = {**os.environ, "SERVER": served[0], "SSR_SANDBOX_TOKEN": TOKEN}
    run = [*command, examples(language)]
    done = subprocess.run(run, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert output in done.stdout.replace("{}", "")
    assert served[1].counts.sandboxes == 0


def test_the_table_of_errors_is_complete() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    described = {ErrorCode(code): int(status) for status, text in rows for code in re.findall("`([a-z-]+)`", text)}
    assert described == rest.STATUSES


def run(work: Callable[[AsyncSandboxClient], Awaitable[None]], url: str, *, retry_s: float = 30) -> None:
    async def main() -> None:
        async with AsyncSandboxClient(url, token=TOKEN, retry_s=retry_s) as client:
            await work(client)

    # In a thread: a browser of another test may have left its loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, main()).result()


def test_many_sandboxes_at_a_time_from_asyncio(served: tuple[str, SandboxHost], tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"in ")

    async def work(client: AsyncSandboxClient) -> None:
        async def use(number: int) -> bytes:
            async with await client.open(tmp_path) as sandbox:
                await sandbox.write("x", b"%d" % number)
                done = await sandbox.exec(["sh", "-c", "cat in x - > y; printenv A"], stdin=b".", env={"A": "b"})
                assert (done.exit_code, done.stdout) == (0, b"b\n")
                assert served[1].counts.sandboxes <= 2
                return await sandbox.read("y")

        assert await asyncio.gather(*map(use, range(6))) == [b"in %d." % number for number in range(6)]

    run(work, served[0])
    assert served[1].counts.sandboxes == 0


def test_errors_are_raised_in_asyncio(served: tuple[str, SandboxHost]) -> None:
    async def work(client: AsyncSandboxClient) -> None:
        sandbox = await client.open()
        with pytest.raises(FileNotFoundError):
            await sandbox.read("x")
        with pytest.raises(RemoteError) as caught:
            await sandbox.exec(["true"], limits=Limits(processes=2_000))
        assert caught.value.code is ErrorCode.CEILING
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(RemoteError) as caught:
            await sandbox.exec(["true"])
        assert caught.value.code is ErrorCode.UNKNOWN_SANDBOX

    run(work, served[0])
    for url in ("ftp://x", "http://user@x"):
        with pytest.raises(SettingsError):
            AsyncSandboxClient(url)


def test_a_cancelled_task_cancels_its_call(served: tuple[str, SandboxHost]) -> None:
    async def work(client: AsyncSandboxClient) -> None:
        async with await client.open() as sandbox:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await sandbox.exec(["sleep", "60"])
            deadline = time.monotonic() + 30
            while served[1].counts.running_calls and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            assert served[1].counts.running_calls == 0
            assert (await sandbox.exec(["true"])).exit_code == 0

    run(work, served[0])


def test_idle_sandboxes_of_asyncio_keep_their_leases() -> None:
    with served_host(ProcessProvider(), HostSettings(lease_s=2), token=TOKEN) as (url, host):

        async def work(client: AsyncSandboxClient) -> None:
            sandbox = await client.open()
            await asyncio.sleep(4)
            assert (await sandbox.exec(["sleep", "3"])).exit_code == 0

        run(work, url)
        assert host.counts.sandboxes == 0


def test_a_lost_server_is_unavailable_in_asyncio(served: tuple[str, SandboxHost]) -> None:
    async def work(client: AsyncSandboxClient) -> None:
        with pytest.raises(SandboxUnavailableError):
            await client.describe()

    run(work, "http://127.0.0.1:1", retry_s=0.1)


def test_a_call_of_asyncio_acts_once_although_its_connection_is_lost(
    served: tuple[str, SandboxHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, request, sent = tmp_path / "counter", httpx.AsyncClient.request, threading.Event()

    async def lose_first(self: httpx.AsyncClient, method: str, url: str, **options: Any) -> httpx.Response:
        response = await request(self, method, url, **options)
        if url.endswith("/exec") and not sent.is_set():
            sent.set()
            raise httpx.ReadError("lost")
        return response

    async def work(client: AsyncSandboxClient) -> None:
        async with await client.open() as sandbox:
            monkeypatch.setattr(httpx.AsyncClient, "request", lose_first)
            assert (await sandbox.exec(["sh", "-c", f"echo x >> {counter}"])).exit_code == 0

    run(work, served[0])
    assert sent.is_set()
    assert counter.read_text() == "x\n"


def test_the_diff_and_a_script_in_asyncio(served: tuple[str, SandboxHost], tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\n")
    arrived: list[bytes] = []

    async def work(client: AsyncSandboxClient) -> None:
        async with await client.open(str(tmp_path)) as sandbox:
            assert (await sandbox.diff()).paths == ()
            script = b'#!/bin/sh\nsed -i "s/1/$NEW/" code.py; echo out; echo error >&2; exit 3\n'
            done = await sandbox.evaluate(script, env={"NEW": "2"}, on_output=arrived.append)
            assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"error\n")
            patch = await sandbox.diff()
            assert patch.paths == ("code.py",), "the script is not part of the tree"
            assert b"-a = 1\n+a = 2\n" in patch.data
            assert (await sandbox.evaluate(script)).stdout == b"out\n"

    run(work, served[0])
    assert sorted(b"".join(arrived).split()) == [b"error", b"out"]


def test_output_in_asyncio_arrives_once_although_its_connection_is_lost(
    served: tuple[str, SandboxHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, arrived, raw, sent = tmp_path / "counter", list[bytes](), httpx.Response.aiter_raw, threading.Event()

    async def lose_first(self: httpx.Response) -> AsyncIterator[bytes]:
        async for data in raw(self):
            yield data
            if arrived and not sent.is_set():
                sent.set()
                raise httpx.ReadError("lost")

    async def work(client: AsyncSandboxClient) -> None:
        async with await client.open() as sandbox:
            monkeypatch.setattr(httpx.Response, "aiter_raw", lose_first)
            # The command ends only after its output has arrived.
            script = f"echo x >> {counter}; echo out; until [ -e go ]; do sleep 0.1; done; echo end"
            running = asyncio.create_task(sandbox.exec(["sh", "-c", script], on_output=arrived.append))
            while not sent.is_set():
                await asyncio.sleep(0.02)
            monkeypatch.setattr(httpx.Response, "aiter_raw", raw)
            await sandbox.write("go", b"")
            assert (await running).stdout == b"out\nend\n"

    run(work, served[0])
    assert b"".join(arrived) == b"out\nend\n"
    assert counter.read_text() == "x\n"


def test_a_refusal_in_frames_is_raised_in_asyncio(served: tuple[str, SandboxHost]) -> None:
    async def work(client: AsyncSandboxClient) -> None:
        async with await client.open() as sandbox:
            with pytest.raises(RemoteError) as caught:
                await sandbox.exec(["true"], limits=Limits(processes=2_000), on_output=lambda _: None)
            assert caught.value.code is ErrorCode.CEILING

    run(work, served[0])
    with pytest.raises(RemoteError) as caught:
        run_with_another_token(served[0])
    assert caught.value.code is ErrorCode.UNAUTHORIZED


def run_with_another_token(url: str) -> None:
    async def main() -> None:
        async with AsyncSandboxClient(url, token="another-token-than-theirs") as client:
            await client.call(Exec(("true",), streams=True), b"", sandbox="x", on_output=lambda _: None)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, main()).result()
