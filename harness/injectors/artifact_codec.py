"""Convert an artifact's five files to and from a rollout's record, without loss."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ssr.errors import ArtifactError
from pytest_ssr.records.artifact import FIVE_FILES, BugArtifact, read_artifact

_TEXTS, _BYTES = "files", "files_base64"


def encode_artifact(artifact: BugArtifact) -> dict[str, object]:
    """Return the result of a rollout that submits an artifact: text, plus base64 for files that are not valid text."""
    contents = artifact.contents()
    texts = {name: data.decode("utf-8", "replace") for name, data in contents.items()}
    lossy = [name for name in texts if texts[name].encode() != contents[name]]
    encoded = {_BYTES: {name: base64.b64encode(contents[name]).decode() for name in lossy}} if lossy else {}
    return {_TEXTS: texts, **encoded}


def decode_artifact(result: Mapping[str, Any]) -> BugArtifact | None:
    """Return the artifact in a rollout's result, None if it has none; raises ArtifactError for an invalid one."""
    if _TEXTS not in result:
        if "artifact" in result:
            raise ArtifactError("the recording does not contain the five files: it is from an earlier version")
        return None
    try:
        contents = {n: str(t).encode("utf-8", "surrogateescape") for n, t in result[_TEXTS].items()}
        contents |= {n: base64.b64decode(t) for n, t in result.get(_BYTES, {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ArtifactError(f"the recorded files cannot be read: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        for name in set(contents) & set(FIVE_FILES):
            Path(folder, name).write_bytes(contents[name])
        return read_artifact(Path(folder))
