"""Load tools from a folder in SWE-agent's layout: `config.yaml` names them, `bin/` has them, `install.sh` prepares.

They run in the sandbox only. The keys read from each tool's configuration are its docstring, its arguments (name,
type, description, required), and its signature, in which `<name>` stands for an argument and `[...]` for an optional
part.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.agents.tools.bash import run_command
from harness.agents.tools.protocol import Observation
from harness.agents.workspace import Workspace
from pytest_ssr.errors import SandboxError, SettingsError

_MAX_BYTES = 4 * 1024**2
_PLACEHOLDER = re.compile(r"<(\w+)>|\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class BundledTool:
    """One program of a bundle."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    signature: str
    folder: str
    """The bundle's name: its folder in the sandbox."""

    def use(self, arguments: Mapping[str, Any], workspace: Workspace) -> Observation:
        """Run the program with the arguments in the order of its signature."""
        command = f"PATH={shlex.quote(f'{tools_folder(workspace)}/{self.folder}/bin')}:$PATH {self._command(arguments)}"
        return run_command(command, workspace)

    def _command(self, arguments: Mapping[str, Any]) -> str:
        command = [self.name]
        for part in re.findall(r"\[[^\]]*\]|\S+", self.signature)[1:]:
            optional, names = part.startswith("["), [a or b for a, b in _PLACEHOLDER.findall(part)]
            if any(n not in arguments for n in names):
                continue
            text = part.strip("[]") if optional else part
            filled = _PLACEHOLDER.sub(lambda m: shlex.quote(str(arguments[m[1] or m[2]])), text)
            command.append(filled.strip("'\"") if not names else filled)
        return " ".join(command)


def tools_folder(workspace: Workspace) -> str:
    """Return the folder of the bundles in a sandbox."""
    return f"{workspace.sandbox.scratch}/tools"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder of tools."""

    folder: Path
    tools: Sequence[BundledTool]

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """Return the bundle in a folder; raises SettingsError if its configuration is missing or invalid."""
        return cls(folder, read_bundle(folder))

    def install(self, workspace: Workspace) -> None:
        """Copy the bundle into a sandbox, in which `bash` finds its programs; raises SettingsError if that fails."""
        install_bundle(self.folder, workspace)
        workspace.programs += (f"{tools_folder(workspace)}/{self.folder.name}/bin",)


def read_bundle(folder: Path) -> list[BundledTool]:
    """Return the tools of a bundle; raises SettingsError if its configuration is missing or invalid."""
    path = folder / "config.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        tools = data["tools"]
        return [_tool(name, config or {}, folder) for name, config in tools.items()]
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"{path} does not describe tools: {error}") from None


def _tool(name: str, config: Mapping[str, Any], folder: Path) -> BundledTool:
    arguments: Sequence[Mapping[str, Any]] = config.get("arguments") or ()
    properties = {}
    for argument in arguments:
        kind = {"type": argument.get("type", "string"), "description": argument.get("description", "")}
        if argument.get("enum"):
            kind["enum"] = list(argument["enum"])
        properties[argument["name"]] = kind
    required = [a["name"] for a in arguments if a.get("required", True)]
    signature = config.get("signature") or " ".join(
        [name, *(f"<{a['name']}>" if a.get("required", True) else f"[<{a['name']}>]" for a in arguments)]
    )
    if not (folder / "bin" / name).is_file():
        raise SettingsError(f"{folder} has no bin/{name}, which its config.yaml names")
    parameters = {"type": "object", "properties": properties, "required": required}
    return BundledTool(name, str(config.get("docstring") or name), parameters, signature, folder.name)


def install_bundle(folder: Path, workspace: Workspace) -> None:
    """Copy a bundle into a sandbox and run its `install.sh` there; raises SettingsError if that fails."""
    top = f"{tools_folder(workspace)}/{folder.name}"
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _MAX_BYTES:
            raise SettingsError(f"{path} is too large for a tool")
        relative = path.relative_to(folder)
        executable = relative.parts[0] == "bin" or bool(path.stat().st_mode & 0o100)
        workspace.sandbox.write(f"{top}/{relative}", path.read_bytes(), executable=executable)
    if (folder / "install.sh").is_file():
        try:
            done = workspace.sandbox.exec(["bash", "install.sh"], limits=workspace.limits, env=workspace.env, cwd=top)
        except SandboxError as error:
            raise SettingsError(f"{folder}/install.sh cannot be run: {error}") from None
        if done.exit_code != 0:
            output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-300:]
            raise SettingsError(f"{folder}/install.sh ended with {done.limit or done.exit_code}: {output}")
