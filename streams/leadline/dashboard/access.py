"""Who may look, and what a browser may do with the page. A plain ASGI layer around everything else."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline.errors import SettingsError
from leadline.settings import Settings

__all__ = ["COOKIE", "Access", "Guard", "access_from", "is_loopback"]

COOKIE: Final = "leadline_dashboard"
_COOKIE_S: Final = 12 * 3600
_LEAST_TOKEN: Final = 16
_OPEN_PATHS: Final = ("/login", "/static/", "/healthz")
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
_HEADERS: Final = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Access(NamedTuple):
    """How people are let in. Everything empty: whoever reaches this machine's loopback address."""

    token: str = ""
    act_token: str = ""
    user_header: str = ""
    proxies: tuple[str, ...] = ()
    loopback: bool = True


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def access_from(settings: Settings) -> Access:
    """Raises :class:`SettingsError`: a token's file cannot be read, or an address beyond loopback without any protection."""
    token = _token(settings.dashboard_token_file, "LEADLINE_DASHBOARD_TOKEN_FILE")
    act_token = _token(settings.dashboard_act_token_file, "LEADLINE_DASHBOARD_ACT_TOKEN_FILE")
    proxies = tuple(part.strip() for part in settings.dashboard_proxies.split(",") if part.strip())
    for proxy in proxies:
        try:
            ipaddress.ip_address(proxy)
        except ValueError:
            raise SettingsError(
                f"LEADLINE_DASHBOARD_PROXIES names {proxy[:80]!r}: that is no IP address. Give addresses separated by commas."
            ) from None
    access = Access(token, act_token, settings.dashboard_user_header.lower(), proxies, is_loopback(settings.dashboard_host))
    if not access.loopback and not (access.token or access.user_header):
        raise SettingsError(
            f"the dashboard would listen on {settings.dashboard_host} for everybody: give LEADLINE_DASHBOARD_TOKEN_FILE, or "
            "LEADLINE_DASHBOARD_USER_HEADER behind a proxy that signs people in, or listen on 127.0.0.1"
        )
    if act_token and act_token == token:
        raise SettingsError("the dashboard's token for looking is also the one for acting: give two different ones")
    return access


def _token(file: str, variable: str) -> str:
    if not file:
        return ""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{variable}: {file} cannot be read ({type(error).__name__}); name a file that holds the token"
        ) from None
    if len(token) < _LEAST_TOKEN:
        raise SettingsError(f"{variable}: the token in {file} is shorter than {_LEAST_TOKEN} characters; make a longer one")
    return token


class Guard:
    """Refuses who may not look (401), pages of other sites that pose as this one (403), and writes the security headers."""

    def __init__(self, app: ASGIApp, access: Access, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        refused = await self._refusal(scope, receive)
        await (self._app if refused is None else refused)(scope, receive, with_headers)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        headers = Headers(scope=scope)
        if not self._ours(headers):
            return _said(403, "this page answers on its own name only: open it as http://127.0.0.1 or http://localhost")
        if scope["method"] not in ("GET", "HEAD") and not _same_origin(headers):
            return _said(403, "a page of another site may not ask for this")
        if scope["path"] == "/login" and scope["method"] == "POST":
            return await self._login(Request(scope, receive))
        user = self._user(scope, headers)
        if user is not None:
            scope.setdefault("state", {})["user"] = user
            return None
        if any(scope["path"] == path or (path.endswith("/") and scope["path"].startswith(path)) for path in _OPEN_PATHS):
            return None
        if "text/html" in headers.get("accept", "") and scope["method"] == "GET":
            return RedirectResponse("/login", status_code=303)
        return _said(401, "a token is needed to look at this")

    def _ours(self, headers: Headers) -> bool:
        """Where no token protects the page, a name that only resolves to this machine must not (DNS rebinding)."""
        if self._access.token or self._access.user_header:
            return True
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        return is_loopback(host)

    def _user(self, scope: Scope, headers: Headers) -> str | None:
        """Who looks: a name from the proxy, or empty where nothing tells; ``None``: nobody who may."""
        access = self._access
        if access.user_header:
            client = (scope.get("client") or ("", 0))[0]
            name = headers.get(access.user_header, "").strip()
            if name and client in access.proxies:
                return name[:200]
        if access.token:
            given = headers.get("authorization", "")
            if given.startswith("Bearer ") and _same(given[7:].strip(), access.token):
                return ""
            return "" if self._good_cookie(headers.get("cookie", "")) else None
        return None if access.user_header else ""

    async def _login(self, request: Request) -> Response:
        try:
            given: Any = await request.json()
        except ValueError:
            given = None
        token = given.get("token") if isinstance(given, dict) else None
        if not self._access.token or not isinstance(token, str) or not _same(token.strip(), self._access.token):
            return _said(401, "that is not the token")
        response = JSONResponse({"ok": True})
        until = str(int(self._clock()) + _COOKIE_S)
        value = f"{until}.{self._sign(until)}"
        response.set_cookie(
            COOKIE, value, max_age=_COOKIE_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return response

    def _good_cookie(self, header: str) -> bool:
        try:
            found = SimpleCookie(header).get(COOKIE)
        except CookieError:
            return False
        until, _, signature = (found.value if found is not None else "").partition(".")
        return until.isdigit() and _same(signature, self._sign(until)) and int(until) > self._clock()

    def _sign(self, until: str) -> str:
        return hmac.new(self._access.token.encode(), f"leadline-dashboard {until}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _same_origin(headers: Headers) -> bool:
    """A browser names the page that asks; a program that is none names nothing."""
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)
