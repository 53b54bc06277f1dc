"""Read arrays from files that hold no code."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 24
"""Most bytes of a file of a policy, which may come from a stranger, and of the arrays in it."""


def read_file(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file; raises OSError, or ValueError if it is too large or not a regular file."""
    # Opening a pipe may never end.
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"{path} has more than {most_bytes} bytes")
    return data


def load_arrays(path: Path, kinds: Mapping[str, tuple[str, int]], *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the arrays in a file; raises OSError or ValueError if it cannot be read.

    kinds: the kind of each array's items (`numpy.dtype.kind`), and its number of dimensions. most_bytes: of all arrays
    together.
    """
    import numpy as np

    with path.open("rb") as file:
        try:
            # An array is not read beyond the size that its file declares here, whatever shape it declares.
            with zipfile.ZipFile(file) as members:
                size = sum(item.file_size for item in members.infolist())
            if size > most_bytes:
                raise ValueError(f"it unpacks to {size} bytes, and {most_bytes} are allowed")
            file.seek(0)
            with np.load(file, allow_pickle=False) as data:
                arrays = {name: data[name] for name in kinds}
            for name, expected in kinds.items():
                if (arrays[name].dtype.kind, arrays[name].ndim) != expected:
                    raise ValueError(f"the array {name} has another type or shape")
        # NumPy, zipfile, the unpackers and the parser of an array's header raise errors of many kinds.
        except Exception as error:
            raise ValueError(f"{path} is damaged: {error}") from None
    return arrays
