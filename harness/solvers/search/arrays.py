"""Read arrays from files that hold no code."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load_arrays(path: Path, kinds: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """Return the arrays in a file; raises OSError or ValueError if it cannot be read.

    kinds: the kind of each array's items (`numpy.dtype.kind`), and its number of dimensions.
    """
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in kinds}
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, MemoryError, NotImplementedError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    for name, expected in kinds.items():
        if (arrays[name].dtype.kind, arrays[name].ndim) != expected:
            raise ValueError(f"{path} is damaged: the array {name} has another type or shape")
    return arrays
