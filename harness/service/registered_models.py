"""Keep the models that an administrator has registered: no other can be reached from a job."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase

import sqlalchemy as sa

from harness.database.engine import describing, reading
from harness.database.indexing import replace_rows
from harness.database.schema import models
from harness.models.factory import NAMED, is_key_of_provider, is_model
from harness.models.registry import Entry, read_entry
from pytest_ssr.errors import SettingsError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ROLES = ("injector", "solver", "judge")
"""Settings of jobs that may name a model."""
_MOST = 200
_MAX_CHARS = 500


class KeyNotAllowedError(SettingsError):
    """A registered model names a variable that the operator of the process does not let it use."""

    def __init__(self, message: str, *, variable: str) -> None:
        super().__init__(message)
        self.variable = variable


class RegisteredModels:
    """The registered models of a database. All methods raise StoreError."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def all(self) -> dict[str, Entry]:
        """Return the models by name, sorted."""
        statement = sa.select(models.c.name, models.c.entry).order_by(models.c.name)
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            rows = connection.execute(statement).all()
        return {row.name: read_entry(json.loads(row.entry), row.name) for row in rows}

    def put(self, name: str, entry: Entry) -> None:
        """Register a model, in place of one of the same name; raises SettingsError for one that is not possible."""
        if not NAME.fullmatch(name):
            raise SettingsError(
                "the name of a model has up to 64 letters, digits, dots, dashes and underscores", option="name"
            )
        if not is_model(entry.model) or entry.model.startswith(NAMED) or len(entry.model) > _MAX_CHARS:
            raise SettingsError("a model is PROVIDER/MODEL, vllm:URL, vllm:PATH or scripted:FILE", option="model")
        # Both are checked: what is stored must be readable.
        values = asdict(read_entry(asdict(entry), name))
        with describing(self._engine.url), self._engine.begin() as connection:
            others = sa.select(sa.func.count()).where(models.c.name != name)
            if int(connection.scalar(others) or 0) >= _MOST:
                raise SettingsError(f"there are {_MOST} models; remove one first", option="name")
            row = {"name": name, "entry": json.dumps(values), "created_at": time.time()}
            replace_rows(connection, models, [row], key=["name"])

    def remove(self, name: str) -> bool:
        """Remove a model; False if it does not exist. Jobs that wait for it fail."""
        with describing(self._engine.url), self._engine.begin() as connection:
            return connection.execute(sa.delete(models).where(models.c.name == name)).rowcount > 0


def for_use(name: str, entry: Entry, keys: Sequence[str]) -> Entry:
    """Return a registered model as a process may use it, whose variables are not all for the model's server.

    keys: patterns of the variables that it may use; that of a provider is also for the provider's own server. A server
    of another address gets no key but the one of `key`. Errors show nothing of the server. Raises KeyNotAllowedError.
    """
    # Names of litellm may hold an address, such as huggingface/https://HOST.
    has_address = bool(entry.url) or "://" in entry.model or "arn:" in entry.model
    is_own = not has_address and is_key_of_provider(entry.model, entry.key)
    if entry.key and not is_own and not any(fnmatchcase(entry.key, pattern) for pattern in keys):
        raise KeyNotAllowedError(
            f"model:{name} may not use the variable {entry.key}; whoever runs the workers allows it by --model-keys",
            variable=entry.key,
        )
    return replace(entry, hidden=True, keyless=has_address and not entry.key)


def models_in(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the names of registered models in the settings of a job, by the name of the setting."""
    values = {name: settings.get(name) for name in ROLES}
    return {n: v.partition(NAMED)[2] for n, v in values.items() if isinstance(v, str) and NAMED in v}
