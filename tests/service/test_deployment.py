"""The files of docs/deployment agree with the commands and the metrics that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from harness.cli.app import parse
from harness.models.factory import is_model
from harness.models.registry import read_registry

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "docs" / "deployment"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
_SUFFIXES = ("_total", "_bucket", "_count", "_sum")


def names_in(text: str) -> set[str]:
    """Return the names of metrics, as they are declared."""
    found = set(re.findall(r"\bssr_[a-z_]+", text))
    return {next((name.removesuffix(s) for s in _SUFFIXES if name.endswith(s)), name) for name in found}


def test_every_metric_of_the_grafana_dashboard_exists(served: tuple[str, object]) -> None:
    dashboard = json.loads((DEPLOYMENT / "grafana.json").read_text())
    queries = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    metrics = httpx.get(f"{served[0]}/metrics").text
    declared = names_in(" ".join(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE)))
    assert len(names_in(queries)) > 15
    assert names_in(queries) - declared == set()


def commands() -> list[list[str]]:
    """Return the commands of `ssr` in the files."""
    script = (DEPLOYMENT / "serve").read_text().replace("$1", "admin").replace("$2", "admin")
    lines = re.findall(r"(?:^|[; ])ssr ([a-z].*?)(?:>|$)", script, re.MULTILINE)
    return [*map(shlex.split, lines), COMPOSE["services"]["worker"]["command"]]


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_every_command_has_the_options_that_it_is_given(argv):
    assert parse(argv) is not None


def test_the_models_of_compose_are_those_of_its_profiles():
    registry = read_registry(DEPLOYMENT / "models.yaml")
    profiles = {name: service for name, service in COMPOSE["services"].items() if "profiles" in service}
    assert registry.keys() == profiles.keys()
    for name, entry in registry.items():
        assert urlsplit(entry.model.removeprefix("vllm:")).hostname == name
        assert is_model(entry.model)


def test_everything_that_compose_mounts_or_builds_exists():
    services = COMPOSE["services"].values()
    mounts = [str(v).partition(":")[0] for service in services for v in service.get("volumes", ())]
    assert all((ROOT / mount).exists() for mount in mounts if mount.startswith("./"))
    volumes = {mount for mount in mounts if re.fullmatch("[a-z]+", mount)}
    assert volumes == COMPOSE["volumes"].keys()
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOYMENT / "Dockerfile").read_text(), re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().split()
    for path in " ".join(copied).split():
        assert (ROOT / path).exists()
        assert f"!{path}" in ignored
