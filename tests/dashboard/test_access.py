"""Who may look: loopback without a token, a token or a trusted proxy for anything else; and what a browser may do."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.responses import Response

from leadline.dashboard.access import COOKIE, Access, Guard, access_from, parse_proxies
from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.history import History
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY
from leadline.errors import SettingsError
from leadline.settings import load_settings

TOKEN = "looking-at-it-is-fine"
NOW = 1_800_000_000_000
OPEN = Access()


CURRENT = Reading(NOW, 0, 1.0)


@asynccontextmanager
async def browser(
    access: Access = OPEN,
    base: str = "http://127.0.0.1:8642",
    client: str = "127.0.0.1",
    read: Reading = CURRENT,
    shows: FleetView | None = None,
    history: History | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """Requests to the application from ``client``, as if they came over a socket."""
    view, lock = shows if shows is not None else FleetView(), threading.Lock()

    def reading() -> Reading:
        return read

    hub = Hub(view, lock, reading, lambda: NOW)
    parts = Parts(view, lock, hub, history, reading, lambda: NOW, lambda: DEFAULT_POLICY, access)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=make_app(parts), client=(client, 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=base) as found:
        yield found


async def test_on_loopback_nobody_is_asked() -> None:
    async with browser() as client:
        assert (await client.get("/api/fleet")).status_code == 200
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8642", ""])
async def test_a_name_that_is_not_ours_is_refused_even_if_it_resolves_to_us(host: str) -> None:
    """A page of another site that lets its name point at 127.0.0.1 must not read this one."""
    async with browser() as client:
        assert (await client.get("/api/fleet", headers={"host": host})).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8642", "[::1]:8642", "127.0.0.1"])
async def test_names_of_loopback_are_ours(host: str) -> None:
    async with browser() as client:
        assert (await client.get("/api/fleet", headers={"host": host})).status_code == 200


async def test_with_a_token_nothing_is_shown_without_it() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        for path in ("/api/fleet", "/api/sessions", "/api/stream", "/api/session?session=s", "/api/violations", "/api/shadow"):
            assert (await client.get(path)).status_code == 401, path
        sent_on = await client.get("/", headers={"accept": "text/html"})
        assert (sent_on.status_code, sent_on.headers["location"]) == (303, "/login")
        probed = await client.get("/healthz")
        assert probed.status_code == 200, "a probe needs no token"
        assert probed.json() == {
            "ok": True,
            "as_of": NOW,
            "behind": 0,
            "restored": 1.0,
            "error": "",
            "stopped": False,
            "now": NOW,
        }, "and learns nothing of the fleet"
        assert (await client.get("/livez")).json() == {"ok": True, "error": ""}
        for wrong in ("", "looking", TOKEN + "x"):
            assert (await client.get("/api/fleet", headers={"authorization": f"Bearer {wrong}"})).status_code == 401
        assert (await client.get("/api/fleet", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 200


@pytest.mark.parametrize(
    ("read", "ready", "alive"),
    [
        (Reading(None, 9, 0.5), 503, 200),
        (Reading(NOW - 30_000, 9, 1.0, "no broker answers"), 200, 200),
        (Reading(NOW - 30_001, 9, 1.0), 503, 200),
        (Reading(NOW, 0, 1.0, "reading stopped: ValueError", stopped=True), 503, 503),
    ],
    ids=["rebuilding", "a moment without a broker", "half a minute old", "stopped"],
)
async def test_probes_tell_what_is_old_from_what_is_dead(read: Reading, ready: int, alive: int) -> None:
    async with browser(read=read) as client:
        assert (await client.get("/healthz")).status_code == ready
        assert (await client.get("/livez")).status_code == alive


async def test_signing_in_gives_a_cookie_that_scripts_cannot_read_and_that_cannot_be_made() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        assert (await client.post("/login", json={"token": "wrong-token-wrong"})).status_code == 401
        assert (await client.post("/login", content=b"{")).status_code == 401
        signed_in = await client.post("/login", json={"token": TOKEN})
        cookie = signed_in.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower(), "a link from a chat finds its reader signed in"
        assert TOKEN not in cookie
        assert (await client.get("/api/fleet")).status_code == 200
        beside = {"cookie": f'foo={{"a":1}}; {COOKIE}={client.cookies[COOKIE]}; x=[1]'}
        until, _, signature = client.cookies[COOKIE].partition(".")
        client.cookies.clear()
        sent = await client.get("/api/fleet", headers=beside)
        assert sent.status_code == 200, "whatever cookies another application on this host sets"
        for forged in (f"{int(until) + 9}.{signature}", f"1.{signature}", "x", f"{until}."):
            client.cookies.clear()
            sent = await client.get("/api/fleet", headers={"cookie": f"leadline_dashboard={forged}"})
            assert sent.status_code == 401, forged


@pytest.mark.parametrize(
    ("proxies", "client", "believed"),
    [
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("10.0.0.5", "::ffff:10.0.0.5", True),
        ("::ffff:10.0.0.5", "10.0.0.5", True),
        ("127.0.0.1, 10.42.0.0/16", "10.42.7.7", True),
        ("10.42.0.0/16", "::ffff:10.42.7.7", True),
        ("10.42.0.0/16", "10.43.0.1", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "10.42.7.7", False),
        ("10.0.0.5", "unix", False),
    ],
)
async def test_the_word_of_a_proxy_is_taken_from_the_proxy_alone(proxies: str, client: str, believed: bool) -> None:
    access = Access(user_header="x-forwarded-user", proxies=parse_proxies(proxies))
    async with browser(access, "http://dash.example", client=client) as asking:
        assert (await asking.get("/api/fleet")).status_code == 401
        told = await asking.get("/api/config", headers={"x-forwarded-user": "ada"})
        assert (told.status_code == 200 and told.json()["user"] == "ada") is believed


@pytest.mark.parametrize(
    ("proxies", "secure"), [("10.0.0.0/8", True), ("192.168.0.1", False)], ids=["a trusted proxy", "a stranger"]
)
async def test_behind_a_proxy_with_tls_the_cookie_goes_over_tls_alone(proxies: str, secure: bool) -> None:
    access = Access(token=TOKEN, proxies=parse_proxies(proxies))
    async with browser(access, "http://dash.example", client="10.0.0.5") as client:
        for forwarded in ("https", "https, http"):
            signed_in = await client.post("/login", json={"token": TOKEN}, headers={"x-forwarded-proto": forwarded})
            assert ("; Secure" in signed_in.headers["set-cookie"]) is secure
        plain = await client.post("/login", json={"token": TOKEN}, headers={"x-forwarded-proto": "http"})
        assert "; Secure" not in plain.headers["set-cookie"]


async def test_a_link_survives_signing_in() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        sent_on = await client.get("/session?session=a%26b&agent=a1", headers={"accept": "text/html"})
        back = parse_qs(urlsplit(sent_on.headers["location"]).query)
        assert back == {"next": ["/session?session=a%26b&agent=a1"]}
        long = await client.get(f"/session?session={'x' * 5_000}", headers={"accept": "text/html"})
        assert long.headers["location"] == "/login"


async def test_a_cookie_that_is_used_is_renewed() -> None:
    """Given for twelve hours at the time 0; renewed with the first request after an hour, not with each."""
    now = [0.0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response("seen")(scope, receive, send)

    transport = httpx.ASGITransport(app=Guard(app, Access(token=TOKEN), lambda: now[0]))
    async with httpx.AsyncClient(transport=transport, base_url="http://dash.example") as client:
        given = (await client.post("/login", json={"token": TOKEN})).cookies[COOKIE]
        now[0] = 3_600
        assert "set-cookie" not in (await client.get("/")).headers
        now[0] = 3_601
        again = await client.get("/")
        assert again.text == "seen"
        assert again.cookies[COOKIE].startswith(f"{3_601 + 12 * 3_600}.")
        now[0] = 12 * 3_600
        assert (await client.get("/")).status_code == 200
        sent = await client.get("/", headers={"cookie": f"{COOKIE}={given}"})
        assert (sent.status_code, "set-cookie" in sent.headers) == (401, False), "the first one has lapsed"


@pytest.mark.parametrize(
    "body", [b"", b"[" * 4_000, b'{"a":' + b"[" * 4_000, b'{"token":"\\ud800"}', b'{"token":"\xff"}', b'{"token":1}', b"[]"]
)
async def test_whatever_is_sent_for_signing_in_is_answered(body: bytes) -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        assert (await client.post("/login", content=body)).status_code == 401


async def test_a_token_is_not_guessed_without_end() -> None:
    """Five different wrong ones a minute from one place, by whatever way; the same again is no further guess."""
    now = [1_000.0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response("seen")(scope, receive, send)

    guard = Guard(app, Access(token=TOKEN, proxies=parse_proxies("10.0.0.1")), lambda: now[0])

    def come(client: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=guard, client=(client, 1)), base_url="http://dash.example")

    async with come("10.9.9.9") as client:
        for guess in ("a", "b", "a", "a", "a", "a", "c"):
            assert (await client.post("/login", json={"token": guess})).status_code == 401
        for guess in ("d", "e"):
            now[0] += 1
            assert (await client.get("/api/fleet", headers={"authorization": f"Bearer {guess}"})).status_code == 401
        refused = await client.post("/login", json={"token": TOKEN})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "58")
        assert refused.json()["error"] == "too many wrong tokens came from here: try again in 58 seconds"
        assert (await client.get("/", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 429
        assert (await client.get("/healthz", headers={"authorization": "Bearer f"})).text == "seen"
        now[0] += 58
        assert (await client.post("/login", json={"token": TOKEN})).status_code == 200, "three of them are a minute old"
    async with come("10.0.0.1") as client:
        for guess in "vwxyz":
            sent = await client.post("/login", json={"token": guess}, headers={"x-forwarded-for": f"{guess}, 9.9.9.9"})
            assert sent.status_code == 401
        for seen, status in (("9.9.9.9", 429), ("9.9.9.8", 200)):
            sent = await client.post("/login", json={"token": TOKEN}, headers={"x-forwarded-for": seen})
            assert sent.status_code == status, "behind a proxy that is trusted it is told by what that saw"
    async with come("10.9.9.8") as client:
        for guess in "vwxyz":
            await client.post("/login", json={"token": guess}, headers={"x-forwarded-for": guess})
        assert (await client.post("/login", json={"token": TOKEN}, headers={"x-forwarded-for": "x"})).status_code == 429


async def test_of_a_long_body_no_more_is_read_than_it_may_have() -> None:
    """4 KiB, whether its length is told or not; strangers may send it."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1_000
            yield b"x" * 1_000

    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        assert (await client.post("/login", content=endless())).status_code == 413
        assert read <= 6_000
        for length in ("4097", "9" * 5_000):
            sent = await client.post("/login", content=b"{}", headers={"content-length": length})
            assert sent.status_code == 413


@pytest.mark.parametrize(("name", "access"), [("origin", Access(token=TOKEN)), ("host", OPEN)])
async def test_a_name_that_cannot_be_read_is_refused(name: str, access: Access) -> None:
    async with browser(access) as client:
        value = "http://[" if name == "origin" else "["
        assert (await client.post("/login", json={"token": TOKEN}, headers={name: value})).status_code == 403


async def test_a_page_of_another_site_cannot_post() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        sent = await client.post("/login", json={"token": TOKEN}, headers={"origin": "http://evil.example"})
        assert sent.status_code == 403


async def test_every_answer_carries_the_policy_for_browsers() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        for path in ("/", "/api/fleet", "/static/app.js", "/nothing"):
            headers = (await client.get(path, headers={"accept": "text/html"})).headers
            policy = {part.split()[0]: part.split()[1:] for part in headers["content-security-policy"].split(";")}
            assert policy["default-src"] == ["'none'"], path
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"], path
            assert policy["frame-ancestors"] == ["'none'"], path
            assert "unsafe" not in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff", path


def settings(**given: Any) -> Any:
    return load_settings({}, **{f"dashboard_{name}": value for name, value in given.items()})


def token_file(tmp_path: Path, text: str = TOKEN) -> str:
    file = tmp_path / "token"
    file.write_text(text + "\n")
    return str(file)


def test_beyond_loopback_a_token_or_a_proxy_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="LEADLINE_DASHBOARD_TOKEN_FILE"):
        access_from(settings(host="0.0.0.0"))
    assert access_from(settings(host="0.0.0.0", token_file=token_file(tmp_path))).token == TOKEN
    assert access_from(settings(host="::", user_header="X-Forwarded-User")).user_header == "x-forwarded-user"
    for loopback in ("127.0.0.1", "::1", "localhost"):
        assert access_from(settings(host=loopback)).token == ""


def test_a_token_that_cannot_be_used_is_refused_without_saying_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        access_from(settings(token_file=str(tmp_path / "none")))
    with pytest.raises(SettingsError, match="shorter than 16") as told:
        access_from(settings(token_file=token_file(tmp_path, "hunter2")))
    assert "hunter2" not in str(told.value)
    same = token_file(tmp_path)
    with pytest.raises(SettingsError, match="two different"):
        access_from(settings(token_file=same, act_token_file=same))
    for wrong in ("proxy.example", "10.0.0.1/8", "10.0.0.0/33"):
        with pytest.raises(SettingsError, match="no IP address"):
            access_from(settings(proxies=wrong))
