"""The files of docs/deployment/kubernetes are valid, agree with each other, and use options that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.app import parse
from harness.cli.commands.sandbox_server import MIN_TOKEN_CHARACTERS
from harness.settings.service import SandboxServerSettings

kubernetes_validate = pytest.importorskip("kubernetes_validate")
FOLDER = Path(__file__).parents[2] / "docs" / "deployment" / "kubernetes"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))


def load(name: str) -> dict[str, Any]:
    """Return the object of a file."""
    loaded = yaml.safe_load((FOLDER / name).read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("version", ["1.33", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", FILES)
def test_a_file_follows_the_schema(name: str, version: str) -> None:
    kubernetes_validate.validate(load(name), version, strict=True)


def test_a_wrong_field_is_noticed() -> None:
    servers = load("sandbox-servers.yaml")
    servers["spec"]["template"]["spec"]["hostUser"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(servers, "1.33", strict=True)


def test_the_commands_have_these_options() -> None:
    for name in ("sandbox-servers.yaml", "client.yaml"):
        parsed = parse(load(name)["spec"]["template"]["spec"]["containers"][0]["args"])
        assert parsed is not None
        if isinstance(parsed.settings, SandboxServerSettings):
            assert (parsed.settings.host, parsed.settings.port) == ("0.0.0.0", 8701)


def test_the_objects_refer_to_each_other() -> None:
    servers, client = (load(name)["spec"]["template"] for name in ("sandbox-servers.yaml", "client.yaml"))
    service, policy, secret = load("service.yaml"), load("network-policy.yaml"), load("token.yaml")
    labels, container = servers["metadata"]["labels"], servers["spec"]["containers"][0]
    assert labels == service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"]
    assert service["spec"]["clusterIP"] == "None"
    assert f"http://{service['metadata']['name']}:8701" in " ".join(client["spec"]["containers"][0]["args"])
    assert client["metadata"]["labels"] == policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert policy["spec"]["egress"] == []
    volumes = {volume["name"]: volume for volume in servers["spec"]["volumes"]}
    assert volumes.keys() == {mount["name"] for mount in container["volumeMounts"]}
    reference = client["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]
    assert {reference["name"], volumes["token"]["secret"]["secretName"]} == {secret["metadata"]["name"]}
    # The servers refuse a token that was not replaced.
    assert len(secret["stringData"][reference["key"]]) < MIN_TOKEN_CHARACTERS
