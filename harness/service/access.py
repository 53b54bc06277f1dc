"""Decide who may send a request: by its Host and Origin, its token or session, and how many came before it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from harness.service.problems import ProblemCode, ProblemError, problem_response
from harness.service.rates import TOO_MANY_FAILURES, Buckets, require_patience
from harness.service.sessions import COOKIE, Sessions
from harness.service.tokens import Scope, Token, Tokens
from pytest_ssr.errors import StoreError

LOGIN = "/login"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS = frozenset({"/health", "/ready", LOGIN})
_OPEN_FOLDER = "/static/"
_API = "/api/"


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

    is_loopback: bool = True
    """Whether only this machine reaches the service: then no token is needed, but requests that a page of another
    site makes a browser send are refused."""
    requests_per_s: float = 0.0
    """Of one client; 0 for no limit."""


class AccessMiddleware:
    """Refuse requests that may not be sent; others get a Principal as `request.state.principal`."""

    def __init__(self, app: ASGIApp, rules: AccessRules, tokens: Tokens, sessions: Sessions, failures: Buckets) -> None:
        """failures: counts wrong tokens by address."""
        self._app, self._rules, self._tokens, self._sessions = app, rules, tokens, sessions
        self._failures = failures
        self._requests = Buckets(rules.requests_per_s, 2 * rules.requests_per_s)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, state, path = Headers(scope=scope), scope.setdefault("state", {}), scope["path"]
        try:
            if "\0" in path or (b"%00" in scope["query_string"] and not path.startswith(_API)):
                # No database has such names, and PostgreSQL refuses to look for them. The API validates its values.
                raise ProblemError(ProblemCode.NOT_FOUND, "there is nothing at this address")
            self._require_own_host(headers)
            if scope["method"] not in _SAFE_METHODS:
                _require_own_origin(headers)
            else:
                _require_own_page(headers)
            is_open = path in _OPEN_PATHS or path.startswith(_OPEN_FOLDER)
            if not is_open:
                state["principal"] = await self._principal(scope, headers)
            self._require_rate(scope, state.get("principal", LOCAL))
        except ProblemError as error:
            if error.code is ProblemCode.UNAUTHORIZED and _is_page(scope, headers):
                target = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
                await RedirectResponse(f"{LOGIN}?next={quote(target, safe='')}", 303)(scope, receive, send)
                return
            response = problem_response(error.code, str(error), state.get("request_id", ""), headers=error.headers)
            await response(scope, receive, send)
            return
        except StoreError:
            detail = "the database that holds the tokens cannot be used now"
            response = problem_response(ProblemCode.UNAVAILABLE, detail, state.get("request_id", ""))
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _require_own_host(self, headers: Headers) -> None:
        # A page of another site can have a name that leads to this machine; then only the Host shows it.
        if self._rules.is_loopback and not is_loopback(_host_of(headers.get("host", ""))):
            raise ProblemError(ProblemCode.FOREIGN_HOST, "the Host is not a name of this machine; use localhost")

    async def _principal(self, scope: ASGIScope, headers: Headers) -> Principal:
        token: Token | None = None
        if "authorization" in headers:
            kind, _, secret = headers["authorization"].partition(" ")
            if kind.lower() == "bearer":
                token = await run_in_threadpool(self._tokens.check, secret.strip())
            if token is None:
                # Only after the check: behind a proxy all clients have its address, and those with a token never wait.
                require_patience(self._failures.take(_address_of(scope)), TOO_MANY_FAILURES)
                raise unauthorized("the token is unknown, expired or revoked")
        elif cookie := cookie_parser(headers.get("cookie", "")).get(COOKIE, ""):
            token_id = self._sessions.token_id(cookie)
            token = await run_in_threadpool(self._tokens.get_valid, token_id) if token_id else None
        if token is not None:
            return Principal(token.id, token.scope)
        if self._rules.is_loopback:
            return LOCAL
        raise unauthorized("a token is needed; an administrator creates one: ssr serve token create")

    def _require_rate(self, scope: ASGIScope, principal: Principal) -> None:
        wait_s = self._requests.take(principal.id if principal is not LOCAL else _address_of(scope))
        require_patience(wait_s, f"more than {self._rules.requests_per_s:g} requests per second")


def principal_of(request: Request) -> Principal:
    """Return who has sent a request."""
    principal: Principal = request.state.principal
    return principal


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is one of this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unauthorized(detail: str) -> ProblemError:
    """Return the error for a request without a valid token."""
    return ProblemError(ProblemCode.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})


def _require_own_origin(headers: Headers) -> None:
    """Refuse what a page of another site makes a browser send; other programs send neither header."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    # A proxy may have changed the scheme, so that only host and port are compared.
    try:
        is_own = origin is None or urlsplit(origin).netloc == headers.get("host", "")
    except ValueError:
        # Such as `http://[`, which is the origin of no page.
        is_own = False
    if not is_own or site not in ("same-origin", "none"):
        raise ProblemError(ProblemCode.FOREIGN_ORIGIN, "a page of another site may not send this request")


def _require_own_page(headers: Headers) -> None:
    """Refuse what a page of another site embeds or fetches, such as a stream; a link to a page of ours is allowed."""
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    if site not in ("same-origin", "none") and mode != "navigate":
        raise ProblemError(ProblemCode.FOREIGN_ORIGIN, "a page of another site may not read this")


def _is_page(scope: ASGIScope, headers: Headers) -> bool:
    """Return whether a browser wants to show the answer, so that it can show the form of the login."""
    wants_page = "text/html" in headers.get("accept", "")
    return scope["method"] == "GET" and wants_page and not scope["path"].startswith(_API)


def _address_of(scope: ASGIScope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _host_of(header: str) -> str:
    """Return the name or address of a Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
