"""Keep results in a folder of a store by everything that they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_ssr.storage.store import Store, key_of


class StoredRecords:
    """Results in a folder of a store, by everything that they depend on."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def get(self, *key: object) -> dict[str, Any] | None:
        """Return the stored data, or None."""
        return self._store.record(self._folder, key_of(*key))

    def put(self, data: Mapping[str, Any], *key: object) -> None:
        """Store data, replacing the previous ones."""
        self._store.put_file(self._folder, f"{key_of(*key)}.json", json.dumps(data).encode())
