"""What a browser or a program can ask: JSON, two streams of server-sent events, and the page's own files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from leadline import __version__
from leadline.dashboard.access import Access, Guard
from leadline.dashboard.history import MOST_SESSIONS, History, Past
from leadline.dashboard.hub import Hub
from leadline.dashboard.limits import MOST_STREAMS, Streams
from leadline.dashboard.reader import Reading
from leadline.dashboard.session_page import session_page
from leadline.dashboard.view import FleetView, Session
from leadline.detection.condition import CONDITIONS
from leadline.detection.policy import Policy
from leadline.detection.rules import RULE_NAMES

__all__ = ["PAGES", "Parts", "make_app"]

PAGES: Final = ("/", "/session", "/incidents", "/shadow")
"""Addresses of the one page; the rest of the address says what it shows."""
_STATIC: Final = Path(__file__).parent / "static"
_SESSION_EVERY_S: Final = 0.5
_MOST: Final = 1_000
_CURRENT_MS: Final = 30_000
"""As old may the view be and still count as current: a probe must not hide a page because a broker takes a moment."""


class Parts(NamedTuple):
    """What the server is put together from. ``lock`` guards ``view``."""

    view: FleetView
    lock: threading.Lock
    hub: Hub
    history: History
    reading: Callable[[], Reading]
    now: Callable[[], int]
    policy: Callable[[], Policy]
    access: Access = Access()
    trace_url: str = ""
    most_streams: int = MOST_STREAMS


def make_app(parts: Parts, extra: list[BaseRoute] | None = None, lifespan: Any = None) -> Starlette:
    """The ASGI application, guarded. ``extra`` routes come first."""
    api = _Api(parts)
    routes: list[BaseRoute] = [
        *(extra or []),
        Route("/api/config", api.config),
        Route("/api/fleet", api.fleet),
        Route("/api/sessions", api.sessions),
        Route("/api/stream", api.stream),
        Route("/api/session", api.session),
        Route("/api/session/stream", api.session_stream),
        Route("/api/violations", api.violations),
        Route("/api/commands", api.commands),
        Route("/api/shadow", api.shadow),
        Route("/healthz", api.health),
        Route("/livez", api.alive),
        Route("/login", lambda _request: FileResponse(_STATIC / "login.html")),
        *(Route(path, lambda _request: FileResponse(_STATIC / "index.html")) for path in PAGES),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(Guard, access=parts.access)
    return app


class _Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class _Api:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._streams = Streams(parts.most_streams)

    async def config(self, request: Request) -> Response:
        """What the page needs to know of its server."""
        access = self._parts.access
        return _Json(
            {
                "version": __version__,
                "acting": bool(access.act_token),
                "rules": list(RULE_NAMES),
                "user": getattr(request.state, "user", ""),
                "traces": bool(self._parts.trace_url),
            }
        )

    async def health(self, _request: Request) -> Response:
        """Whether what it shows is current. A silent monitor is no fault of this process."""
        reading = self._parts.reading()
        good = reading.as_of is not None and not reading.stopped and self._parts.now() - reading.as_of <= _CURRENT_MS
        return _Json({"ok": good, **self._reading()}, status_code=200 if good else 503)

    async def alive(self, _request: Request) -> Response:
        """Whether it reads at all: where it does not, only a new process helps."""
        reading = self._parts.reading()
        return _Json({"ok": not reading.stopped, "error": reading.error}, status_code=503 if reading.stopped else 200)

    async def fleet(self, _request: Request) -> Response:
        with self._parts.lock:
            overview = self._parts.view.overview() | {"monitor": self._parts.view.monitor(self._parts.now())}
        return _Json({**overview, "reading": self._reading()})

    async def sessions(self, request: Request) -> Response:
        """Sessions, the gravest condition first; filtered by ``fleet``, ``agent``, ``state``, ``rule``, ``q`` (in an id)."""
        wanted = request.query_params
        limit = _limit(wanted.get("limit"))
        with self._parts.lock:
            found = [one for one in self._parts.view.sessions() if _matches(one, wanted)]
        found.sort(key=_gravity)
        return _Json({"sessions": [_as_object(one) for one in found[:limit]], "matching": len(found), "reading": self._reading()})

    async def stream(self, _request: Request) -> Response:
        """The fleet page's stream; see :class:`leadline.dashboard.hub.Hub`."""
        return self._streams.answer(self._parts.hub.follow())

    async def session(self, request: Request) -> Response:
        """Everything about ``session`` of ``agent`` (of any agent where none is named)."""
        found = self._document(*_asked(request))
        if found is None:
            return _Json(
                {"error": "no such session is known now: it was never seen, or it ended and was removed"}, status_code=404
            )
        return _Json(found)

    async def session_stream(self, request: Request) -> Response:
        """The same, again whenever it changes."""
        session_id, agent_id = _asked(request)

        async def events() -> AsyncIterator[ServerSentEvent]:
            last: Any = None
            while True:
                mark = self._mark(session_id, agent_id)
                if mark != last:
                    last = mark
                    document = self._document(session_id, agent_id)
                    yield ServerSentEvent(orjson.dumps({"document": document, "reading": self._reading()}).decode())
                else:
                    yield ServerSentEvent(orjson.dumps({"reading": self._reading()}).decode())
                await asyncio.sleep(_SESSION_EVERY_S)

        return self._streams.answer(events())

    async def violations(self, request: Request) -> Response:
        return self._search("violations", request)

    async def commands(self, request: Request) -> Response:
        return self._search("commands", request)

    async def shadow(self, _request: Request) -> Response:
        """What enforcement would have done."""
        with self._parts.lock:
            report = self._parts.view.journal.shadow()
        return _Json({**report, "reading": self._reading()})

    def _search(self, what: str, request: Request) -> Response:
        asked = request.query_params
        rule, fleet = asked.get("rule", ""), asked.get("fleet", "")
        with self._parts.lock:
            journal = self._parts.view.journal
            found = journal.search(what, asked.get("q", ""), _limit(asked.get("limit")), rule=rule, fleet=fleet)
            kept = len(journal.violations if what == "violations" else journal.commands)
        return _Json({what: found, "kept": kept, "reading": self._reading()})

    def _document(self, session_id: str, agent_id: str) -> dict[str, Any] | None:
        parts = self._parts
        with parts.lock:
            found = parts.view.find(session_id, agent_id)
            if found is None:
                return None
            who = found.who
            past = parts.history.open(who.session_id, found.partition)
            return session_page(
                found.state(),
                parts.view.journal,
                past.of_agent(who.agent_id) if past is not None else [],
                parts.policy().of(who.fleet),
                complete=past is None or past.complete,
                trace_url=parts.trace_url,
            ) | {"silences": parts.view.silences_now(parts.now(), who), "past": _missing(past, parts.history.error)}

    def _mark(self, session_id: str, agent_id: str) -> Any:
        """Changes with anything that the document is made from."""
        parts = self._parts
        with parts.lock:
            found = parts.view.find(session_id, agent_id)
            if found is None:
                return None
            past = parts.history.open(found.who.session_id, found.partition)
            journal = parts.view.journal
            violations, commands = journal.of_session(found.who.session_id, found.who.agent_id)
            counts = (past.version, past.complete) if past is not None else (), len(violations), len(commands)
            silences = [one["silence_id"] for one in parts.view.silences_now(parts.now(), found.who)]
            return found.offset, found.value, counts, silences, parts.history.error

    def _reading(self) -> dict[str, Any]:
        return {**self._parts.reading()._asdict(), "now": self._parts.now()}


def _missing(past: Past | None, error: str) -> str:
    """Why less is shown of a session than there may be, in a sentence; empty where nothing is missing."""
    if past is None:
        return f"{MOST_SESSIONS} other sessions are being looked at: of this one only the last rounds are shown for now"
    return error


def _asked(request: Request) -> tuple[str, str]:
    return request.query_params.get("session", ""), request.query_params.get("agent", "")


def _limit(text: str | None) -> int:
    return min(_MOST, max(1, int(text))) if text is not None and text.isascii() and text.isdigit() else 200


def _matches(session: Session, wanted: Any) -> bool:
    who, row = session.who, session.row
    words = wanted.get("q", "").lower()
    return (
        (not wanted.get("fleet") or who.fleet == wanted["fleet"])
        and (not wanted.get("agent") or who.agent_id == wanted["agent"])
        and (not wanted.get("state") or CONDITIONS[row.condition] == wanted["state"])
        and (not wanted.get("rule") or any(one.rule == wanted["rule"] for one in row.open))
        and (not words or words in who.session_id.lower() or words in who.agent_id.lower())
    )


_CALM: Final = (CONDITIONS.index("ended"),)


def _gravity(session: Session) -> tuple[bool, int, str]:
    return session.row.condition in _CALM, session.row.condition, session.who.session_id


def _as_object(session: Session) -> dict[str, Any]:
    who, row = session.who, session.row
    return {
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "fleet": who.fleet,
        "state": CONDITIONS[row.condition],
        "raw_ratio": row.raw_ratio,
        "spans": row.spans,
        "depth": row.depth,
        "round": row.round,
        "last_seen": row.last_seen,
        "incidents": [one.rule for one in row.open],
        "commands": [{"kind": one.kind, "stage": one.stage, "issued_at": one.issued_at} for one in row.open if one.kind],
    }
