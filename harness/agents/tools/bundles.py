"""Tools from a folder in SWE-agent's layout: `config.yaml` names them, `bin/` holds them, `install.sh` prepares.

All of it runs in the sandbox only. Of a configuration read here: for each tool its docstring, its arguments (name,
type, description, required), and its signature, in which `<name>` stands for an argument and `[...]` for what may be
left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.agents.desk import Desk
from harness.agents.tools.bash import ran
from harness.agents.tools.protocol import Observation
from pytest_ssr.errors import SandboxError, SettingsError

_MOST_BYTES = 4 * 1024**2
_PLACE = re.compile(r"<(\w+)>|\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class BundledTool:
    """One program of a bundle."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    signature: str
    folder: str
    """The bundle's name: its folder in the sandbox."""

    def use(self, arguments: Mapping[str, Any], desk: Desk) -> Observation:
        """Run the program with the arguments in its signature's order."""
        command = f"PATH={shlex.quote(f'{place(desk)}/{self.folder}/bin')}:$PATH {self._command(arguments)}"
        return ran(command, desk)

    def _command(self, arguments: Mapping[str, Any]) -> str:
        words = [self.name]
        for part in re.findall(r"\[[^\]]*\]|\S+", self.signature)[1:]:
            optional, names = part.startswith("["), [a or b for a, b in _PLACE.findall(part)]
            if any(n not in arguments for n in names):
                continue
            text = part.strip("[]") if optional else part
            filled = _PLACE.sub(lambda m: shlex.quote(str(arguments[m[1] or m[2]])), text)
            words.append(filled.strip("'\"") if not names else filled)
        return " ".join(words)


def place(desk: Desk) -> str:
    """Return where bundles lie in a sandbox."""
    return f"{desk.sandbox.scratch}/tools"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder of tools."""

    folder: Path
    tools: Sequence[BundledTool]

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """Read its configuration; raises SettingsError for a folder that holds none."""
        return cls(folder, read_bundle(folder))

    def install(self, desk: Desk) -> None:
        """Put it into a sandbox; raises SettingsError when its `install.sh` fails there."""
        install_bundle(self.folder, desk)


def read_bundle(folder: Path) -> list[BundledTool]:
    """Return the tools of a bundle; raises SettingsError for a folder that is none."""
    config = folder / "config.yaml"
    try:
        data = yaml.safe_load(config.read_text(encoding="utf-8"))
        tools = data["tools"]
        return [_tool(name, told or {}, folder) for name, told in tools.items()]
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"{config} describes no tools: {error}") from None


def _tool(name: str, told: Mapping[str, Any], folder: Path) -> BundledTool:
    given: Sequence[Mapping[str, Any]] = told.get("arguments") or ()
    properties = {}
    for argument in given:
        kind = {"type": argument.get("type", "string"), "description": argument.get("description", "")}
        if argument.get("enum"):
            kind["enum"] = list(argument["enum"])
        properties[argument["name"]] = kind
    required = [a["name"] for a in given if a.get("required", True)]
    signature = told.get("signature") or " ".join(
        [name, *(f"<{a['name']}>" if a.get("required", True) else f"[<{a['name']}>]" for a in given)]
    )
    if not (folder / "bin" / name).is_file():
        raise SettingsError(f"{folder} has no bin/{name}, which its config.yaml names")
    parameters = {"type": "object", "properties": properties, "required": required}
    return BundledTool(name, str(told.get("docstring") or name), parameters, signature, folder.name)


def install_bundle(folder: Path, desk: Desk) -> None:
    """Put a bundle into a sandbox and run its `install.sh` there; raises SettingsError when that fails."""
    top = f"{place(desk)}/{folder.name}"
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _MOST_BYTES:
            raise SettingsError(f"{path} is too large for a tool")
        relative = path.relative_to(folder)
        executable = relative.parts[0] == "bin" or bool(path.stat().st_mode & 0o100)
        desk.sandbox.write(f"{top}/{relative}", path.read_bytes(), executable=executable)
    if (folder / "install.sh").is_file():
        try:
            done = desk.sandbox.exec(["bash", "install.sh"], limits=desk.limits, env=desk.env, cwd=top)
        except SandboxError as error:
            raise SettingsError(f"{folder}/install.sh cannot be run: {error}") from None
        if done.exit_code != 0:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-300:]
            raise SettingsError(f"{folder}/install.sh ended with {done.limit or done.exit_code}: {said}")
