"""Start the services of a task that has a compose file, as Harbor does, without access to this machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.harbor.command import Done, run_docker
from harness.harbor.schema import CONFIGURATION
from harness.harbor.task import COMPOSE, DOCKERFILE, HarborTask, Place, Refusal, TaskError
from pytest_ssr.errors import SandboxError
from pytest_ssr.sandbox.docker import images
from pytest_ssr.sandbox.docker.reaper import owner

MAIN = "main"
"""The service of the agent."""
KEEP_ALIVE = ("sh", "-c", "sleep infinity")
_IMAGES = "ssr-harbor"
"""The name of the images of services; their tags are hashes of the task's folder with the name of the service."""
_LOGS = {"VERIFIER_LOGS": "/logs/verifier", "AGENT_LOGS": "/logs/agent", "ARTIFACTS": "/logs/artifacts"}
"""Folders that compose files of older tasks mount themselves."""
_HOST_OPTIONS = ("privileged", "devices", "cap_add", "security_opt", "device_cgroup_rules", "cgroup_parent")
_NAMESPACES = ("network_mode", "pid", "ipc", "uts", "userns_mode", "cgroup")


@dataclass(frozen=True, slots=True)
class Project:
    """A compose project of one task."""

    name: str
    place: Place
    folder: Path
    """Holds the files that are added to the task's own."""

    def write(self, network: str, *, has_bridge: bool = True) -> None:
        """Write what is added to the task's file: what `main` is made of, names of images, labels, the network's mode.

        has_bridge: whether builds have a network of their own. Raises TaskError if a service needs this machine.
        """
        environment = self.place.environment
        main: dict[str, Any] = {"command": list(KEEP_ALIVE)}
        if self.place.image:
            main["image"] = self.place.image
        elif (self.place.folder / DOCKERFILE).is_file():
            main["build"] = {"context": _literal(str(self.place.folder))}
        limits = {"cpus": environment.processors, "memory": environment.memory_bytes}
        main["deploy"] = {"resources": {"limits": {key: str(value) for key, value in limits.items() if value}}}
        self._write("first", {"services": {MAIN: main}})
        self._write("last", {})
        for folder in _LOGS:
            (self.folder / folder).mkdir(exist_ok=True)
            (self.folder / folder).chmod(0o777)
        for reason in _own_paths(self._own(), self.root):
            raise self._refused(reason)
        whole = self.configuration()
        for reason in _accesses(whole, self.root, self.folder):
            raise self._refused(reason)
        services = {name: self._added(name, service, has_bridge) for name, service in whole["services"].items()}
        services[MAIN]["environment"] = {key: _literal(value) for key, value in environment.env.items()}
        if network != "public":
            services[MAIN]["network_mode"] = "none"
        label = {"labels": {images.LABEL: owner()}}
        kept = {
            kind: {name: label for name, value in whole.get(kind, {}).items() if not (value or {}).get("external")}
            for kind in ("networks", "volumes")
        }
        self._write("last", {"services": services, **kept})

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def _own(self) -> Any:
        """Return the task's own file, as it is written."""
        try:
            return yaml.safe_load((self.place.folder / COMPOSE).read_bytes())
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise TaskError(Refusal.UNREADABLE, f"{self.place.folder / COMPOSE} cannot be read: {error}") from None

    def _added(self, name: str, service: Mapping[str, Any], has_bridge: bool) -> dict[str, Any]:
        """Return what is added to a service: files of the task that it mounts cannot be written."""
        added: dict[str, Any] = {"labels": {images.LABEL: owner()}}
        if service.get("build"):
            added["image"] = self.image(name)
            added["pull_policy"] = "build"
            if not has_bridge:
                added["build"] = {"network": "host"}
        mounts = [v for v in service.get("volumes") or () if v.get("type") == "bind"]
        own = [v for v in mounts if not Path(v["source"]).is_relative_to(self.folder)]
        if own:
            added["volumes"] = [{**v, "source": _literal(v["source"]), "read_only": True} for v in own]
        return added

    @property
    def root(self) -> Path:
        """The directory of the task."""
        place = self.place.folder.resolve()
        return next((f for f in (place, *place.parents) if (f / CONFIGURATION).is_file()), place)

    def image(self, service: str) -> str:
        """Return the name of the image that is built for a service."""
        return f"{_IMAGES}:{hashlib.sha256(os.fsencode(self.place.folder)).hexdigest()[:16]}-{service}"

    @property
    def _variables(self) -> dict[str, str]:
        """The variables that compose files can use: those of the task, and those that Harbor sets for them."""
        environment = self.place.environment
        variables = {
            **environment.env,
            "CONTEXT_DIR": str(self.place.folder),
            "MAIN_IMAGE_NAME": self.image(MAIN),
            "PREBUILT_IMAGE_NAME": self.place.image,
            "CPUS": str(environment.processors or ""),
            "MEMORY": f"{environment.memory_bytes >> 20}M" if environment.memory_bytes else "",
        }
        for name, target in _LOGS.items():
            variables[f"HOST_{name}_PATH"] = str(self.folder / name)
            variables[f"ENV_{name}_PATH"] = target
        return {name: value for name, value in variables.items() if value}

    def configuration(self) -> dict[str, Any]:
        """Return all files together, with paths that are absolute."""
        return dict(json.loads(self.run("config", "--format", "json").output))

    def run(self, *arguments: str, seconds: float = 600.0, check: bool = True) -> Done:
        """Run a command of the project; raises SandboxError if it fails."""
        files = (self.folder / "first.json", self.place.folder / COMPOSE, self.folder / "last.json")
        named = [part for file in files for part in ("--file", str(file))]
        done = run_docker(
            "compose", "--project-name", self.name, "--project-directory", str(self.place.folder), *named,
            *arguments, seconds=seconds, merged=check and arguments[0] not in ("config", "ps"), env=self._variables,
        )  # fmt: skip
        if check and done.exit_code != 0:
            raise SandboxError(f"the services of {self.place.folder} failed ({arguments[0]}): {done.failure}")
        return done

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self.run("ps", "--all", "--quiet", service).output.strip()

    def _refused(self, reason: str) -> TaskError:
        return TaskError(Refusal.HOST_ACCESS, f"{self.place.folder / COMPOSE}: {reason}")


def require_compose(task: HarborTask) -> None:
    """Raise TaskError if a task has several services, and the engine has no compose plugin."""
    places = [task.place, *(step.verification.place for step in task.steps)]
    needs_compose = any(place is not None and place.compose is not None for place in places)
    if needs_compose and run_docker("compose", "version", seconds=60.0).exit_code != 0:
        message = f"{task.folder}: it has several services, and docker has no compose plugin here"
        raise TaskError(Refusal.NO_COMPOSE, message)


def _literal(text: str) -> str:
    """Return a text in which compose replaces nothing."""
    return text.replace("$", "$$")


def _own_paths(document: Any, root: Path) -> Iterator[str]:
    """Yield what a compose file names outside of its task, of which the merged configuration shows only the content."""
    top = document if isinstance(document, dict) else {}
    if "include" in top:
        yield "it includes other compose files"
    services = top.get("services")
    for name, service in services.items() if isinstance(services, dict) else ():
        if not isinstance(service, dict):
            continue
        extended = service.get("extends")
        given = service.get("env_file") or []
        files = [*(given if isinstance(given, list) else [given]), extended if isinstance(extended, dict) else {}]
        for entry in files:
            path = entry if isinstance(entry, str) else (entry.get("path") or entry.get("file") or "")
            if "$" in path or not (root / "environment" / path).resolve().is_relative_to(root):
                yield f"the service {name} reads {path}, which is outside of the task's directory"


def _accesses(whole: Mapping[str, Any], root: Path, own: Path) -> Iterator[str]:
    """Yield what services need of this machine.

    own: the folder of the project, whose logs they may mount.
    """
    for name, service in whole["services"].items():
        for option in _HOST_OPTIONS:
            if service.get(option):
                yield f"the service {name} has {option}"
        for option in _NAMESPACES:
            value = str(service.get(option) or "")
            if value == "host" or value.startswith("container:"):
                yield f"the service {name} has {option}: {value}"
        build = service.get("build") or {}
        paths = [v["source"] for v in service.get("volumes") or () if v.get("type") == "bind"]
        paths += [build.get("context", ""), *(build.get("additional_contexts") or {}).values()]
        if build.get("dockerfile"):
            paths.append(os.path.join(build.get("context", ""), build["dockerfile"]))
        if build.get("ssh") or build.get("privileged") or build.get("network") == "host":
            yield f"the build of the service {name} needs this machine"
        for path in paths:
            if path.startswith("/") and not _is_inside(path, root, own):
                yield f"the service {name} uses {path}, which is outside of the task's directory"
    for kind in ("secrets", "configs"):
        for name, entry in (whole.get(kind) or {}).items():
            if entry.get("environment") or (entry.get("file") and not _is_inside(entry["file"], root, own)):
                yield f"{kind}.{name} is not a file of the task"
    for name, volume in (whole.get("volumes") or {}).items():
        if (volume or {}).get("driver_opts"):
            yield f"the volume {name} has driver_opts"


def _is_inside(path: str, *folders: Path) -> bool:
    resolved = Path(os.path.realpath(path))
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders)
