"""Convert a patch to and from a rollout's record, without loss."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import Patch

_TEXT, _BYTES = "patch", "patch_base64"


def encode_patch(patch: Patch) -> dict[str, object]:
    """Return the result of a rollout that submits a patch: its text, plus base64 if it is not valid text."""
    text = patch.data.decode("utf-8", "replace")
    encoded = {} if text.encode() == patch.data else {_BYTES: base64.b64encode(patch.data).decode()}
    return {_TEXT: text, **encoded}


def decode_patch(result: Mapping[str, object]) -> Patch | None:
    """Return the patch in a rollout's result, None if it has none; raises ArtifactError for an invalid one."""
    name = next((n for n in (_BYTES, _TEXT) if n in result), None)
    if name is None:
        return None
    text = str(result[name])
    try:
        data = base64.b64decode(text, validate=True) if name == _BYTES else text.encode("utf-8", "surrogateescape")
    except ValueError as error:
        raise ArtifactError(f"{name} cannot be read: {error}") from None
    return Patch.parse(data)
