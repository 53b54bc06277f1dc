"""Report files that cannot be written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pytest_ssr.errors import StoreWriteError, os_error_advice


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn an OSError into a StoreWriteError that names a path: that of the error, otherwise --out."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreWriteError(f"{error.filename or out}: {os_error_advice(error, option='--out')}") from None
