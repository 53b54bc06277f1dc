"""Decide who may send a request: by its Host and Origin, its token, and how many came before it."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from harness.service.problems import ProblemCode, ProblemError, problem_response
from harness.service.tokens import Scope, Token, Tokens, hash_of
from pytest_ssr.errors import StoreError

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS = frozenset({"/health", "/ready"})
_COOKIE = "ssr_form"
_MAX_CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request."""

    id: str
    """Of its token; `local` for a request to a loopback address without one."""
    scope: Scope


LOCAL = Principal("local", Scope.ADMIN)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may send requests."""

    tokens: Tokens
    is_loopback: bool = True
    """Whether only this machine reaches the service: then no token is needed, but requests that a page of another
    site makes a browser send are refused."""
    admin_token: str = ""
    """A token of the scope admin that is not in the database; empty if there is none."""
    requests_per_s: float = 0.0
    """Of one client; 0 for no limit."""


class AccessMiddleware:
    """Refuse requests that may not be sent; others get a Principal as `request.state.principal`."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app, self._rules = app, rules
        self._buckets = Buckets(rules.requests_per_s)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, state = Headers(scope=scope), scope.setdefault("state", {})
        try:
            self._require_own_host(headers)
            if scope["method"] not in _SAFE_METHODS:
                _require_own_origin(headers, scope["scheme"])
            if scope["path"] not in _OPEN_PATHS:
                state["principal"] = await self._principal(headers, is_api=scope["path"].startswith("/api/"))
                self._require_rate(scope, state["principal"])
        except ProblemError as error:
            response = problem_response(error.code, str(error), state.get("request_id", ""), headers=error.headers)
            await response(scope, receive, send)
            return
        except StoreError:
            detail = "the database that holds the tokens cannot be used now"
            response = problem_response(ProblemCode.UNAVAILABLE, detail, state.get("request_id", ""))
            await response(scope, receive, send)
            return
        await self._app(scope, receive, _with_cookie(scope, headers, send))

    def _require_own_host(self, headers: Headers) -> None:
        # A page of another site can have a name that leads to this machine; then only the Host tells.
        if self._rules.is_loopback and not is_loopback(_host_of(headers.get("host", ""))):
            raise ProblemError(ProblemCode.FOREIGN_HOST, "the Host is not a name of this machine; use localhost")

    async def _principal(self, headers: Headers, *, is_api: bool) -> Principal:
        secret = _secret_of(headers.get("authorization", ""))
        if secret is None:
            if self._rules.is_loopback:
                return LOCAL
            raise _unauthorized("a token is needed; an administrator creates one: ssr serve token create", is_api)
        if self._rules.admin_token and hmac.compare_digest(hash_of(secret), hash_of(self._rules.admin_token)):
            return Principal("variable", Scope.ADMIN)
        token: Token | None = await run_in_threadpool(self._rules.tokens.check, secret)
        if token is None:
            raise _unauthorized("the token is unknown, expired or revoked", is_api)
        return Principal(token.id, token.scope)

    def _require_rate(self, scope: ASGIScope, principal: Principal) -> None:
        address = scope["client"][0] if scope.get("client") else ""
        wait_s = self._buckets.take(principal.id if principal is not LOCAL else address)
        if wait_s > 0:
            detail = f"more than {self._rules.requests_per_s:g} requests per second; try again later"
            raise ProblemError(ProblemCode.RATE_LIMITED, detail, headers={"Retry-After": str(int(wait_s) + 1)})


class Buckets:
    """Count requests by client: each may send a number per second, and twice as many at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request; return the seconds after which it may be sent, 0 if it may be sent now."""
        if not self._per_s:
            return 0.0
        now, most = self._clock(), max(1.0, 2 * self._per_s)
        left, seen = self._left.pop(client, (most, now))
        left = min(most, left + (now - seen) * self._per_s)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _MAX_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_s


def principal_of(request: Request) -> Principal:
    """Return who has sent a request."""
    principal: Principal = request.state.principal
    return principal


def form_token(request: Request) -> str:
    """Return what the forms of a page send back as `form_token`."""
    return str(request.state.form_token)


def require_form_token(request: Request, sent: str) -> None:
    """Raise ProblemError unless a form was sent by a page of this service, to the same browser."""
    expected = _cookie_of(request.headers)
    if not expected or not hmac.compare_digest(sent.encode(), expected.encode()):
        raise ProblemError(ProblemCode.FORM_EXPIRED, "the form is not from this service, or too old; load it again")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is one of this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _with_cookie(scope: ASGIScope, headers: Headers, send: Send) -> Send:
    """Give the page a token for its forms, and a browser that has none the cookie that it is compared with."""
    known = _cookie_of(headers)
    token = scope["state"]["form_token"] = known or secrets.token_urlsafe(24)
    if known or "text/html" not in headers.get("accept", ""):
        return send
    secure = "; Secure" if scope["scheme"] == "https" else ""
    cookie = f"{_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"set-cookie", cookie.encode())]
        await send(message)

    return sending


def _cookie_of(headers: Mapping[str, str]) -> str:
    return cookie_parser(headers.get("cookie", "")).get(_COOKIE, "")


def _require_own_origin(headers: Headers, scheme: str) -> None:
    """Refuse what a page of another site makes a browser send."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    is_own = origin is None or origin == f"{scheme}://{headers.get('host', '')}"
    if not is_own or site not in ("same-origin", "none"):
        raise ProblemError(ProblemCode.FOREIGN_ORIGIN, "a page of another site may not send this request")


def _unauthorized(detail: str, is_api: bool) -> ProblemError:
    # A browser asks for name and password and sends them with everything from then on, event streams included.
    challenge = "Bearer" if is_api else 'Basic realm="pytest-ssr: any name, and a token as the password"'
    return ProblemError(ProblemCode.UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})


def _secret_of(authorization: str) -> str | None:
    """Return the token of a request, None if it has none; the wrong kind of header yields an unknown token."""
    if not authorization:
        return None
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return value.strip() if kind.lower() == "bearer" else ""


def _host_of(header: str) -> str:
    """Return the name or address of a Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
