"""Who may look: loopback without a token, a token or a trusted proxy for anything else; and what a browser may do."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from leadline.dashboard.access import Access, access_from
from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY
from leadline.errors import SettingsError
from leadline.settings import load_settings

TOKEN = "looking-at-it-is-fine"
NOW = 1_800_000_000_000
OPEN = Access()


@asynccontextmanager
async def browser(
    access: Access = OPEN, base: str = "http://127.0.0.1:8642", client: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """Requests to the application from ``client``, as if they came over a socket."""
    view, lock = FleetView(), threading.Lock()

    def reading() -> Reading:
        return Reading(NOW, 0, 1.0)

    hub = Hub(view, lock, reading, lambda: NOW)
    parts = Parts(view, lock, hub, None, reading, lambda: NOW, lambda: DEFAULT_POLICY, access)  # type: ignore[arg-type]
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
        assert (await client.get("/healthz")).status_code == 200, "a probe needs no token, and learns nothing"
        for wrong in ("", "looking", TOKEN + "x"):
            assert (await client.get("/api/fleet", headers={"authorization": f"Bearer {wrong}"})).status_code == 401
        assert (await client.get("/api/fleet", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 200


async def test_signing_in_gives_a_cookie_that_scripts_cannot_read_and_that_cannot_be_made() -> None:
    async with browser(Access(token=TOKEN), "http://dash.example") as client:
        assert (await client.post("/login", json={"token": "wrong-token-wrong"})).status_code == 401
        assert (await client.post("/login", content=b"{")).status_code == 401
        signed_in = await client.post("/login", json={"token": TOKEN})
        cookie = signed_in.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert (await client.get("/api/fleet")).status_code == 200
        until, _, signature = client.cookies["leadline_dashboard"].partition(".")
        for forged in (f"{int(until) + 9}.{signature}", f"1.{signature}", "x", f"{until}."):
            client.cookies.clear()
            sent = await client.get("/api/fleet", headers={"cookie": f"leadline_dashboard={forged}"})
            assert sent.status_code == 401, forged


async def test_the_word_of_a_proxy_is_taken_from_the_proxy_alone() -> None:
    access = Access(user_header="x-forwarded-user", proxies=("10.0.0.5",))
    async with browser(access, "http://dash.example", client="10.0.0.5") as client:
        assert (await client.get("/api/fleet")).status_code == 401
        told = await client.get("/api/config", headers={"x-forwarded-user": "ada"})
        assert told.json()["user"] == "ada"
    async with browser(access, "http://dash.example", client="10.0.0.6") as client:
        assert (await client.get("/api/fleet", headers={"x-forwarded-user": "ada"})).status_code == 401


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
    with pytest.raises(SettingsError, match="no IP address"):
        access_from(settings(proxies="proxy.example"))
