"""Who may look, and what a browser may do with the page. A plain ASGI layer around everything else."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline.dashboard.bodies import BodyRefused, read_body
from leadline.dashboard.tries import Tries, too_many
from leadline.errors import SettingsError
from leadline.settings import Settings

__all__ = ["COOKIE", "Access", "Guard", "access_from", "is_loopback", "parse_proxies"]

COOKIE: Final = "leadline_dashboard"
_COOKIE_S: Final = 12 * 3600
_RENEW_S: Final = 3600
"""A cookie that is older is renewed when it is used: who keeps the page open stays signed in."""
_LEAST_TOKEN: Final = 16
_MOST_LOGIN_BYTES: Final = 4 * 1024
_MOST_ADDRESS: Final = 2_000
_OPEN_PATHS: Final = ("/login", "/static/", "/healthz", "/livez")
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


class _Login(Struct):
    """What the page for signing in sends."""

    token: str


class Access(NamedTuple):
    """How people are let in. Everything empty: whoever reaches this machine's loopback address."""

    token: str = ""
    act_token: str = ""
    user_header: str = ""
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    loopback: bool = True

    def trusts(self, client: str) -> bool:
        """Whether this address is one of the proxies'."""
        try:
            address = _plain(ipaddress.ip_address(client))
        except ValueError:
            return False
        return any(address in network for network in self.proxies)

    def place(self, request: Request) -> str:
        """Where a request comes from, as far as that can be believed: what the last proxy saw, if it is one of ours."""
        host = request.client.host if request.client is not None else ""
        seen = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return seen[:64] if seen and self.trusts(host) else host


def parse_proxies(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks, separated by commas. Raises :class:`SettingsError`."""
    found: list[IPv4Network | IPv6Network] = []
    for part in (each.strip() for each in text.split(",")):
        if not part:
            continue
        try:
            network = ipaddress.ip_network(part)
        except ValueError:
            raise SettingsError(
                f"LEADLINE_DASHBOARD_PROXIES names {part[:80]!r}: that is no IP address and no network (such as 10.0.0.0/8, "
                "without bits beyond its length). Give addresses and networks separated by commas."
            ) from None
        mapped = _plain(network.network_address)
        if mapped.version != network.version and network.prefixlen >= 96:
            network = ipaddress.ip_network((mapped, network.prefixlen - 96))
        found.append(network)
    return tuple(found)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address as such: a socket that takes both kinds shows it within an IPv6 one."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


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
    proxies = parse_proxies(settings.dashboard_proxies)
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
        self._tries = Tries(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        renewed = ""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
                if renewed:
                    headers.append("set-cookie", renewed)
            await send(message)

        request = Request(scope, receive)
        refused = await self._refusal(request)
        if refused is None and self._is_old(request):
            signed = Response()
            self._sign_in(request, signed)
            renewed = signed.headers["set-cookie"]
        await (self._app if refused is None else refused)(scope, receive, with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        headers, method, path = request.headers, request.method, request.scope["path"]
        if not self._ours(headers):
            return _said(403, "this page answers on its own name only: open it as http://127.0.0.1 or http://localhost")
        if method not in ("GET", "HEAD") and not _same_origin(headers):
            return _said(403, "a page of another site may not ask for this")
        if path == "/login" and method == "POST":
            return await self._login(request)
        if any(path == each or (each.endswith("/") and path.startswith(each)) for each in _OPEN_PATHS):
            return None
        user = self._user(request)
        if isinstance(user, Response):
            return user
        if user is not None:
            request.scope.setdefault("state", {})["user"] = user
            return None
        if "text/html" in headers.get("accept", "") and method == "GET":
            query = request.scope["query_string"].decode("latin-1")
            wanted = f"{path}?{query}" if query else path
            back = f"?{urlencode({'next': wanted})}" if wanted != "/" and len(wanted) <= _MOST_ADDRESS else ""
            return RedirectResponse(f"/login{back}", status_code=303)
        return _said(401, "a token is needed to look at this")

    def _ours(self, headers: Headers) -> bool:
        """Where no token protects the page, a name that only resolves to this machine must not (DNS rebinding)."""
        if self._access.token or self._access.user_header:
            return True
        try:
            host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:
            return False
        return is_loopback(host)

    def _user(self, request: Request) -> str | Response | None:
        """Who looks: a name from the proxy, or empty where nothing tells; ``None``: nobody who may; an answer: nobody for now."""
        access, headers = self._access, request.headers
        if access.user_header:
            name = headers.get(access.user_header, "").strip()
            if name and self._by_proxy(request):
                return name[:200]
        if access.token:
            given = headers.get("authorization", "")
            if given.startswith("Bearer "):
                if (refused := self._wrong(request, given[7:].strip())) is None:
                    return ""
                if refused.status_code == 429:
                    return refused
            return "" if self._signed_in_until(request) else None
        return None if access.user_header else ""

    def _by_proxy(self, request: Request) -> bool:
        return request.client is not None and self._access.trusts(request.client.host)

    async def _login(self, request: Request) -> Response:
        try:
            token = msgspec.json.decode(await read_body(request, _MOST_LOGIN_BYTES), type=_Login).token
        except BodyRefused as error:
            # What is still to come of it is not waited for.
            return _said(error.status, str(error), {"connection": "close"})
        except (msgspec.MsgspecError, ValueError, RecursionError):
            token = ""
        if (refused := self._wrong(request, token.strip())) is not None:
            return refused
        response = JSONResponse({"ok": True})
        self._sign_in(request, response)
        return response

    def _wrong(self, request: Request, token: str) -> Response | None:
        """What to answer to this token for looking; ``None``: it is the right one."""
        place = self._access.place(request)
        if wait_s := self._tries.wait_s(place):
            return _said(429, too_many(wait_s), {"retry-after": str(wait_s)})
        if self._access.token and _same(token, self._access.token):
            return None
        self._tries.wrong(place, token)
        return _said(401, "that is not the token")

    def _sign_in(self, request: Request, response: Response) -> None:
        """Lax, so that a link from elsewhere finds its reader signed in: whatever writes asks for its own token and origin."""
        until = str(int(self._clock()) + _COOKIE_S)
        forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        secure = request.url.scheme == "https" or (forwarded == "https" and self._by_proxy(request))
        response.set_cookie(
            COOKIE, f"{until}.{self._sign(until)}", max_age=_COOKIE_S, httponly=True, samesite="lax", secure=secure
        )

    def _signed_in_until(self, request: Request) -> int:
        """Seconds since 1970; 0: not at all, or no longer."""
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        good = until.isdigit() and _same(signature, self._sign(until)) and int(until) > self._clock()
        return int(until) if good else 0

    def _is_old(self, request: Request) -> bool:
        until = self._signed_in_until(request) if self._access.token else 0
        return bool(until) and until - self._clock() < _COOKIE_S - _RENEW_S

    def _sign(self, until: str) -> str:
        return hmac.new(self._access.token.encode(), f"leadline-dashboard {until}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _same_origin(headers: Headers) -> bool:
    """A browser names the page that asks; a program that is none names nothing."""
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:
        return False


def _said(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)
