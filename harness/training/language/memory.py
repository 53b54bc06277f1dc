"""Recognise exhausted memory, which Python, PyTorch and the operating system report in several ways."""

from __future__ import annotations

import errno
import sys

from pytest_ssr.errors import TrainingError

EXHAUSTED = (
    "memory is exhausted; begin in another folder (--out) with a lower --batch or --max-length, with "
    "--gradient-checkpointing, an adapter, --bits or, without an adapter, --dtype bfloat16. If something else took the "
    "memory, the same command continues from the last checkpoint"
)
"""The message for memory that does not suffice."""
_MESSAGES = (
    "DefaultCPUAllocator",
    "Cannot allocate memory",
    "CUDA error: out of memory",
    "ALLOC_FAILED",
    "std::bad_alloc",
)
"""Parts of the messages of errors for which PyTorch has no class.

They are of its allocator for CPUs, the operating system, the CUDA driver, CUDA's libraries, and C++.
"""


def raise_if_exhausted(error: BaseException) -> None:
    """Raise TrainingError if an error, or one that led to it, is due to exhausted memory of a GPU or the machine."""
    cause: BaseException | None = error
    while cause is not None:
        if _is_exhausted(cause):
            raise TrainingError(EXHAUSTED) from None
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _is_exhausted(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError) and any(part in str(error) for part in _MESSAGES):
        return True
    # An error of PyTorch is only raised where it has been imported.
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))
