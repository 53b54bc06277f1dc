"""Serve images from this machine as a registry does, and pack folders as their layers."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import platform
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass
class ImageRegistry:
    """What is served, by the end of the path, and the paths that have been asked for."""

    address: str = ""
    served: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    token: str = ""
    """If set, only requests with it are answered, and whoever asks gets it."""

    def add(self, name: str, *layers: bytes, **config: Any) -> str:
        """Add an image with a list of machines, and return its whole name."""
        settings = self._blob(json.dumps({"config": config}).encode())
        manifest = {
            "config": {"digest": settings},
            "layers": [{"digest": self._blob(layer), "mediaType": "application/tar+gzip"} for layer in layers],
        }
        raw = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        other = {"digest": "sha256:0", "platform": {"os": "linux", "architecture": "other"}}
        own = {"digest": digest, "platform": {"os": "linux", "architecture": MACHINE}}
        self.served[f"{name}/manifests/{digest}"] = raw
        self.served[f"{name}/manifests/latest"] = json.dumps({"manifests": [other, own]}).encode()
        return f"{self.address}/{name}"

    def _blob(self, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.served[f"blobs/{digest}"] = data
        return digest


def layer(*entries: tuple[str, bytes | None], folder: Path | None = None) -> bytes:
    """Return a layer of files, or of folders for those without content, and of a whole folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        if folder is not None:
            archive.add(folder, ".", filter=_owned_by_root)
        for name, data in entries:
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return gzip.compress(packed.getvalue(), 1)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


@contextlib.contextmanager
def image_registry(token: str = "") -> Iterator[ImageRegistry]:
    """Serve images until the end of the block."""
    registry = ImageRegistry(token=token)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            if self.path.startswith("/token"):
                self._send(200, json.dumps({"token": registry.token}).encode())
            elif registry.token and self.headers.get("Authorization") != f"Bearer {registry.token}":
                self._send(401, b"{}", f'Bearer realm="http://{registry.address}/token",service="s"')
            else:
                found = next((v for k, v in registry.served.items() if self.path.endswith(f"/{k}")), None)
                self._send(404 if found is None else 200, found or b"{}")

        def _send(self, status: int, body: bytes, challenge: str = "") -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if challenge:
                self.send_header("www-authenticate", challenge)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
