"""Read images from a registry (OCI distribution specification): the manifest for this machine, its settings, layers.

Only anonymous access is offered, as to public images and registries on this machine; those are spoken to by HTTP.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SsrError

_DEFAULT_REGISTRY, _DEFAULT_HOST = "docker.io", "registry-1.docker.io"
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_TIMEOUT_S = 60.0
_MOST_JSON = 16 << 20


class ImageError(SsrError):
    """An image cannot be read from its registry."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image in its parts."""

    registry: str
    repository: str
    version: str
    """A tag or a digest."""

    @classmethod
    def parse(cls, name: str) -> Reference:
        """Return the parts of a name as Docker reads it: `python:3.12`, `ghcr.io/me/shop@sha256:…`."""
        rest, _, digest = name.partition("@")
        first, slash, other = rest.partition("/")
        has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
        registry, path = (first, other) if has_registry else (_DEFAULT_REGISTRY, rest)
        path, _, tag = path.partition(":")
        if registry == _DEFAULT_REGISTRY and "/" not in path:
            path = f"library/{path}"
        if not re.fullmatch(r"[a-z0-9._/-]+", path):
            raise ImageError(f"{name!r} is not the name of an image")
        return cls(registry, path, digest or tag or "latest")

    @property
    def address(self) -> str:
        """The address of the repository's API."""
        host = _DEFAULT_HOST if self.registry == _DEFAULT_REGISTRY else self.registry
        scheme = "http" if host.rpartition(":")[0] in _LOCAL or host in _LOCAL else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What an image says about the commands in it."""

    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    entrypoint: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> ImageSettings:
        """Read the member `config` of an image's configuration."""
        pairs = (text.partition("=") for text in config.get("Env") or ())
        return cls(
            env={name: value for name, _, value in pairs},
            workdir=config.get("WorkingDir") or "/",
            user=config.get("User") or "root",
            entrypoint=tuple(config.get("Entrypoint") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        return {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "WorkingDir": self.workdir,
            "User": self.user,
            "Entrypoint": list(self.entrypoint),
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """An image of a registry."""

    settings: ImageSettings
    layers: tuple[str, ...]
    """Digests, the lowest first."""
    has_triggers: bool
    """Whether the image has instructions for the Dockerfiles that begin with it (ONBUILD)."""


class Registry:
    """The repository of an image; downloads what is asked for and compares it with its digest."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._token = ""

    def manifest(self) -> Manifest:
        """Return the image for this machine; raises ImageError."""
        raw = self._json(f"manifests/{self._reference.version}", (*_INDEXES, *_MANIFESTS))
        if "manifests" in raw:
            machine = _MACHINES.get(platform.machine(), platform.machine())
            fitting = [m for m in raw["manifests"] if _is_for(m.get("platform") or {}, machine)]
            if not fitting:
                raise ImageError(f"{self._name} has no image for linux/{machine}")
            raw = self._json(f"manifests/{fitting[0]['digest']}", _MANIFESTS)
        try:
            layers = tuple(layer["digest"] for layer in raw["layers"])
            kinds = {layer.get("mediaType", "") for layer in raw["layers"]}
            config = self._json(f"blobs/{raw['config']['digest']}", ()).get("config") or {}
        except (KeyError, TypeError) as error:
            raise ImageError(f"the manifest of {self._name} cannot be read: {error!r}") from None
        if any(kind.endswith("zstd") for kind in kinds):
            raise ImageError(f"{self._name} has layers in the format zstd, which cannot be read")
        return Manifest(ImageSettings.from_json(config), layers, bool(config.get("OnBuild")))

    def download(self, digest: str, target: Path) -> None:
        """Write a layer to a file; raises ImageError."""
        with self._open(f"blobs/{digest}", ()) as response, target.open("wb") as file:
            try:
                shutil.copyfileobj(response, file, 1 << 20)
            except OSError as error:
                raise ImageError(f"a layer of {self._name} cannot be downloaded: {error}") from None
        with target.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != f"sha256:{found}":
            raise ImageError(f"a layer of {self._name} is not what its digest says")

    @property
    def _name(self) -> str:
        return f"{self._reference.registry}/{self._reference.repository}"

    def _json(self, path: str, accept: tuple[str, ...]) -> dict[str, Any]:
        with self._open(path, accept) as response:
            raw = response.read(_MOST_JSON)
        digest = path.rpartition("/")[2]
        if digest.startswith("sha256:") and hashlib.sha256(raw).hexdigest() != digest.removeprefix("sha256:"):
            raise ImageError(f"{path} of {self._name} is not what its digest says")
        try:
            data = json.loads(raw)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise ImageError(f"{path} of {self._name} is not a JSON object")
        return data

    def _open(self, path: str, accept: tuple[str, ...]) -> Any:
        for attempt in (1, 2):
            headers = {"Accept": ", ".join(accept) or "*/*"}
            request = urllib.request.Request(f"{self._reference.address}/{path}", headers=headers)
            if self._token:
                # A layer may lie elsewhere, and that server refuses the token.
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            try:
                return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
            except urllib.error.HTTPError as error:
                challenge = error.headers.get("WWW-Authenticate") or ""
                if error.code != 401 or attempt == 2 or not challenge.lower().startswith("bearer"):
                    raise ImageError(f"the registry refuses {self._name}, {path}: status {error.code}") from None
                self._token = self._anonymous_token(challenge)
            except OSError as error:
                raise ImageError(f"the registry of {self._name} cannot be reached: {error}") from None
        raise AssertionError("the second attempt returns or raises")

    def _anonymous_token(self, challenge: str) -> str:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        wanted = {"service": fields.get("service", ""), "scope": f"repository:{self._reference.repository}:pull"}
        try:
            address = f"{fields['realm']}?{urllib.parse.urlencode(wanted)}"
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response:
                told = json.loads(response.read(_MOST_JSON))
            return str(told.get("token") or told["access_token"])
        except (OSError, KeyError, ValueError) as error:
            raise ImageError(f"the registry of {self._name} gives no token: {error}") from None


def _is_for(described: Mapping[str, Any], machine: str) -> bool:
    return described.get("os") == "linux" and described.get("architecture") == machine
