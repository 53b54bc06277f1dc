"""Write the shell commands by which `container_grade` grades a task inside a container."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from harness.exporters import container_grade

_UNPACK = "import base64, sys, zlib; sys.stdout.buffer.write(zlib.decompress(base64.b64decode(sys.stdin.read())))"


def unpacked(data: bytes) -> str:
    """Return a shell command that prints these bytes, whatever they are; the project's own modules are not imported."""
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    return f"printf %s {packed} | python3 -I -c '{_UNPACK}'"


def write_grader(folder: str, specification: dict[str, Any]) -> list[str]:
    """Return the commands that write the grader and what it has to know into a folder, as the shell names it."""
    grader = Path(container_grade.__file__).read_bytes()
    return [
        f"{unpacked(grader)} > {folder}/grade.py",
        f"{unpacked(json.dumps(specification).encode())} > {folder}/told.json",
    ]
