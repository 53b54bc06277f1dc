"""Provide a placeholder for an artifact's parser, so that pytest never imports it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import pytest


class UntrustedModule(pytest.File):
    """Collects no items, and warns why."""

    def collect(self) -> Iterable[pytest.Item]:
        """Warn, and yield no item."""
        warnings.warn(
            pytest.PytestCollectionWarning(
                f"{self.path} belongs to a bug artifact and is not imported; use --ssr-validate {self.path.parent}"
            ),
            stacklevel=1,
        )
        return ()
