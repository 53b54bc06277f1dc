"""The five files as a rollout's record holds them, and back: no byte of them is lost."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ssr.artifact import FIVE_FILES, BugArtifact, read_artifact
from pytest_ssr.errors import ArtifactError

_TEXTS, _BYTES = "files", "files_base64"


def recorded(artifact: BugArtifact) -> dict[str, object]:
    """Return the result of a rollout that hands in an artifact: texts, and bytes where these lose some."""
    contents = artifact.contents()
    texts = {name: data.decode("utf-8", "replace") for name, data in contents.items()}
    lost = [name for name in texts if texts[name].encode() != contents[name]]
    exact = {_BYTES: {name: base64.b64encode(contents[name]).decode() for name in lost}} if lost else {}
    return {_TEXTS: texts, **exact}


def handed_in(result: Mapping[str, Any]) -> BugArtifact | None:
    """Return the artifact of a rollout's result, None where there is none; raises ArtifactError for what is none."""
    if _TEXTS not in result:
        if "artifact" in result:
            raise ArtifactError("the five files are not in the recording: an earlier version made it")
        return None
    try:
        contents = {n: str(t).encode("utf-8", "surrogateescape") for n, t in result[_TEXTS].items()}
        contents |= {n: base64.b64decode(t) for n, t in result.get(_BYTES, {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ArtifactError(f"the recorded files cannot be read: {error}") from None
    with tempfile.TemporaryDirectory() as place:
        for name in set(contents) & set(FIVE_FILES):
            Path(place, name).write_bytes(contents[name])
        return read_artifact(Path(place))
