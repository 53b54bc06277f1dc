"""Let browsers log in with a token: the cookie of a session stands for the token, and does not contain it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from harness.service.dashboard.rendering import render
from harness.service.rates import TOO_MANY_FAILURES, Buckets, require_patience
from harness.service.tokens import Tokens

COOKIE = "ssr_session"
_SESSION_S = 12 * 3600
_SEE_OTHER, _UNAUTHORIZED = 303, 401
_MOST_FIELDS = 10


class Sessions:
    """The sessions of a process; they end with it, and with their tokens."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = secrets.token_bytes(32), clock

    def cookie(self, token_id: str) -> str:
        """Return the value of a cookie for a token."""
        text = f"{token_id}.{int(self._clock()) + _SESSION_S}"
        return f"{text}.{self._signature(text)}"

    def token_id(self, cookie: str) -> str:
        """Return the id of the token that a cookie stands for; empty if it is forged or has expired."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return ""
        token_id, _, expires_at = text.partition(".")
        return token_id if self._clock() < int(expires_at) else ""

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def login_router(tokens: Tokens, sessions: Sessions, failures: Buckets) -> APIRouter:
    """Return the routes to log in and out. failures: counts wrong tokens by address."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    def form(next: str = "/") -> Response:
        return _form(_own_path(next))

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        secret, target = _entered(await request.body())
        token = await run_in_threadpool(tokens.check, secret.strip())
        if token is None:
            require_patience(failures.take(address), TOO_MANY_FAILURES)
            return _form(_own_path(target), has_failed=True)
        response = RedirectResponse(_own_path(target), _SEE_OTHER)
        # A proxy that ends TLS says so; to believe it can only make the cookie stricter.
        is_secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
        response.set_cookie(
            COOKIE, sessions.cookie(token.id), _SESSION_S, httponly=True, samesite="strict", secure=is_secure
        )
        return response

    @router.post("/logout")
    def log_out() -> Response:
        response = RedirectResponse("/login", _SEE_OTHER)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    return router


def _entered(body: bytes) -> tuple[str, str]:
    """Return the token that was entered, and where to go then; others wait while a body is read, so it is bounded."""
    try:
        values = dict(parse_qsl(body.decode(errors="replace"), max_num_fields=_MOST_FIELDS))
    except ValueError:
        values = {}
    return values.get("token", ""), values.get("next", "")


def _form(target: str, *, has_failed: bool = False) -> Response:
    html = render("login.html", target=target, has_failed=has_failed)
    return HTMLResponse(html, _UNAUTHORIZED if has_failed else 200, headers={"Cache-Control": "no-store"})


def _own_path(target: str) -> str:
    """Return a path of this service; the first page instead of an address of another one."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own else "/"
