"""Find the interpreter of mini-swe-agent's environment, or build it once with uv in the store.

The environment is always separate: litellm and its dependencies determine the versions there, and the agent runs apart
from the code that grades.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.datasets.environments import uv_program
from pytest_ssr.errors import SettingsError
from pytest_ssr.storage.store import Store, key_of

VARIABLE = "SSR_MINI_PYTHON"
PACKAGES = ("mini-swe-agent==2.4.6", "litellm==1.105.3")
"""The installed packages. Releases of litellm around this one cannot be imported with tools, or were malicious."""
_FOLDER, _MARKER = "environments", "made.json"
_BUILD_S, _QUERY_S = 1800.0, 60.0
_VERSIONS = """
import importlib.metadata as m, json
print(json.dumps({n: m.version(n) for n in ("mini-swe-agent", "litellm", "tenacity")}))
"""


def mini_python(named: Path | None, store: Store | None) -> tuple[Path, str]:
    """Return the interpreter, and the versions of its packages that results depend on.

    named: the user's interpreter; by default SSR_MINI_PYTHON, or one that is built in the store. Raises SettingsError
    if it has no mini-swe-agent of the supported release series, MissingExtraError if uv is needed and missing.
    """
    configured = named or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if configured is not None:
        return configured, _versions(configured, "--mini-python" if named else VARIABLE)
    if store is None:
        raise SettingsError(f"mini-swe-agent needs a separate interpreter: set {VARIABLE} to one that has it")
    key = key_of("mini-swe-agent", 1, PACKAGES)
    with store.alone(f"environment-{key}"):
        python = _build(store.root / _FOLDER / key)
    return python, _versions(python, str(python))


def _build(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if (folder / _MARKER).exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    uv = uv_program()
    _run([uv, "venv", "--quiet", "--python", ">=3.11", str(folder)])
    _run([uv, "pip", "install", "--quiet", "--no-build", "--python", str(python), *PACKAGES])
    (folder / _MARKER).write_text("{}\n")
    return python


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S, cwd="/")
    except subprocess.TimeoutExpired:
        raise SettingsError(f"mini-swe-agent's environment was not built within {_BUILD_S:g} s") from None
    if done.returncode:
        reason = " ".join(done.stderr.split())[-400:]
        raise SettingsError(
            f"mini-swe-agent's environment cannot be built: {reason}; name an interpreter with it by --mini-python"
        )


def _versions(python: Path, source: str) -> str:
    """Return the package versions of an interpreter; raises SettingsError if mini-swe-agent cannot run there.

    source: the option or variable that named the interpreter, for messages.
    """
    install = f"install {' '.join(PACKAGES)} there, or leave {VARIABLE} and --mini-python out"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _VERSIONS], capture_output=True, text=True, check=False, timeout=_QUERY_S
        )
        versions = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"{source}: {python} is not a working interpreter: {reason}") from None
    if not isinstance(versions, dict):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise SettingsError(f"{source}: {python} has no mini-swe-agent with litellm and tenacity ({last}); {install}")
    if not str(versions["mini-swe-agent"]).startswith("2."):
        raise SettingsError(f"{source}: {python} has mini-swe-agent {versions['mini-swe-agent']}, not 2.x; {install}")
    return json.dumps(versions)
