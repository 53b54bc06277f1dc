"""Keep the tokens of the service: only their hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from harness.database.engine import database_time, describing, reading
from harness.database.schema import tokens
from pytest_ssr.errors import SettingsError

PREFIX = "ssr_"
_MAX_NAME = 100
_USED_EVERY_S = 60
"""How exactly it is recorded when a token was used: a write for each request would slow them down."""


class Scope(StrEnum):
    """What a token allows; each includes the previous ones."""

    READ = "read"
    RUN = "run"
    """Start and cancel jobs."""
    ADMIN = "admin"
    """Add and remove projects."""

    def includes(self, other: Scope) -> bool:
        """Return whether this scope allows what another allows."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    usd_per_day: float | None = None
    """What its jobs may spend on models in 24 hours; None without a limit."""

    def is_valid(self, now: float) -> bool:
        """Return whether it can be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    """The tokens of a database. All methods raise StoreError."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def create(
        self, name: str, scope: Scope, *, expires_at: float | None = None, usd_per_day: float | None = None
    ) -> tuple[Token, str]:
        """Return a new token and its secret, which cannot be read again; raises SettingsError for an invalid name.

        usd_per_day: what its jobs may spend on models in 24 hours; None without a limit.
        """
        if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
            raise SettingsError(f"the name of a token needs 1 to {_MAX_NAME} printable characters", option="name")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(secrets.token_hex(8), name, scope, self.now(), expires_at, None, None, usd_per_day)
        values = {
            "id": token.id,
            "name": name,
            "hash": hash_of(secret),
            "scope": str(scope),
            "created_at": token.created_at,
            "expires_at": expires_at,
            "usd_per_day": usd_per_day,
        }
        with describing(self._engine.url), self._engine.begin() as connection:
            connection.execute(sa.insert(tokens).values(values))
        return token, secret

    def now(self) -> float:
        """Return the time by the clock that the times of tokens are of, whichever machine asks."""
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            return database_time(connection)

    def list(self) -> Sequence[Token]:
        """Return all tokens, the oldest first, including revoked ones."""
        statement = sa.select(tokens).order_by(tokens.c.created_at, tokens.c.id)
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            return [_token(row) for row in connection.execute(statement)]

    def revoke(self, token_id: str) -> bool:
        """Make a token invalid from now on; return whether it was valid."""
        statement = sa.update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        with describing(self._engine.url), self._engine.begin() as connection:
            return connection.execute(statement.values(revoked_at=database_time(connection))).rowcount > 0

    def check(self, secret: str) -> Token | None:
        """Return the valid token with a secret; None if it does not exist."""
        return self._valid(tokens.c.hash == hash_of(secret))

    def get_valid(self, token_id: str) -> Token | None:
        """Return the valid token with an id; None if it does not exist."""
        return self._valid(tokens.c.id == token_id)

    def _valid(self, condition: sa.ColumnElement[bool]) -> Token | None:
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            row = connection.execute(sa.select(tokens).where(condition)).one_or_none()
            now = database_time(connection)
        token = _token(row) if row is not None else None
        if token is None or not token.is_valid(now):
            return None
        if token.used_at is None or now - token.used_at > _USED_EVERY_S:
            with describing(self._engine.url), self._engine.begin() as connection:
                connection.execute(sa.update(tokens).where(tokens.c.id == token.id).values(used_at=now))
        return token

    def valid_among(self, ids: Collection[str]) -> set[str]:
        """Return the ids of those tokens that are valid."""
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            now = database_time(connection)
            found = connection.execute(sa.select(tokens).where(tokens.c.id.in_(ids))).all()
        return {row.id for row in found if _token(row).is_valid(now)}

    def any_valid(self) -> bool:
        """Return whether a token can be used."""
        now = self.now()
        return any(token.is_valid(now) for token in self.list())


def hash_of(secret: str) -> str:
    """Return the hash of a secret. It is random and long, so that a slow hash would protect nothing more."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _token(row: Any) -> Token:
    values = {field.name: getattr(row, field.name) for field in fields(Token)}
    return Token(**{**values, "scope": Scope(row.scope)})
