"""What people do on the page, as records: a halt or release by hand onto the session's own partition, a silence onto its topic.

Off unless there is a token for it. Each act says who and why; it is answered once the broker has confirmed it.
"""

from __future__ import annotations

import asyncio
import hmac
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from confluent_kafka import KafkaException, Producer
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from leadline.contracts.codec import encode
from leadline.contracts.events import OptionalId
from leadline.contracts.manual import Manual, Silence, Who, Why
from leadline.contracts.signatures import HEADER
from leadline.contracts.text import safe
from leadline.contracts.times import format_ms
from leadline.contracts.topics import EVENTS, SILENCES
from leadline.dashboard.api import Parts
from leadline.dashboard.bodies import BodyRefused, read_body
from leadline.dashboard.tries import Tries, too_many
from leadline.dashboard.view import MANUAL
from leadline.detection.rules import RULE_NAMES
from leadline.security.keys import SigningKey
from leadline.settings import Settings, client_configs

__all__ = ["TOKEN_HEADER", "Acting"]

TOKEN_HEADER: Final = "x-leadline-act-token"
_CONFIRM_S: Final = 10.0
_MOST_BYTES: Final = 16 * 1024
_MOST_MINUTES: Final = 30 * 24 * 60


class _Asked(Struct, kw_only=True, forbid_unknown_fields=True):
    """What the page sends. ``who`` is ignored where a proxy tells."""

    action: Literal["halt", "resume", "silence", "lift"]
    why: Why
    who: Annotated[str, Meta(max_length=256)] = ""
    session_id: OptionalId = ""
    agent_id: OptionalId = ""
    fleet: OptionalId = ""
    rule: OptionalId = ""
    minutes: Annotated[int, Meta(ge=1, le=_MOST_MINUTES)] = 60
    silence_id: OptionalId = ""


class _Refused(Exception):
    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


class Acting:
    """``POST /api/acts``. Makes its client at the first act: a dashboard on which nobody acts needs no right to write.

    Raises :class:`leadline.errors.SettingsError` where it is to sign and its key cannot be read.
    """

    def __init__(self, settings: Settings, parts: Parts, now: Callable[[], int]) -> None:
        self._settings = settings
        self._parts = parts
        self._now = now
        self._client: Any = None
        self._tries = Tries(lambda: now() / 1000)
        file = settings.signing_key_file if parts.access.act_token else ""
        self._key = SigningKey.read(file, "LEADLINE_SIGNING_KEY_FILE") if file else None

    async def act(self, request: Request) -> Response:
        try:
            asked = await self._asked(request)
            topic, key, partition, record = self._record(asked)
            await asyncio.to_thread(self._send, topic, key, partition, encode(record))
        except _Refused as error:
            return JSONResponse({"error": str(error)}, status_code=error.status, headers=error.headers)
        except KafkaException as error:
            return JSONResponse({"error": f"the broker did not take it: {error.args[0].str()}"}, status_code=503)
        return JSONResponse({"ok": True, "id": getattr(record, "event_id", "") or getattr(record, "silence_id", "")})

    async def _asked(self, request: Request) -> _Asked:
        token = self._parts.access.act_token
        if not token:
            raise _Refused(403, "acting is turned off: start the dashboard with LEADLINE_DASHBOARD_ACT_TOKEN_FILE")
        given = request.headers.get(TOKEN_HEADER, "")
        place = getattr(request.state, "user", "") or self._parts.access.place(request)
        if wait_s := self._tries.wait_s(place):
            raise _Refused(429, too_many(wait_s), {"retry-after": str(wait_s)})
        if not hmac.compare_digest(given.encode(), token.encode()):
            self._tries.wrong(place, given)
            raise _Refused(403, "that is not the token for acting")
        try:
            asked = msgspec.json.decode(await read_body(request, _MOST_BYTES), type=_Asked)
        except BodyRefused as error:
            raise _Refused(error.status, str(error)) from None
        except msgspec.MsgspecError as error:
            raise _Refused(422, f"that cannot be done: {safe(str(error), 300)}") from None
        asked.who = getattr(request.state, "user", "") or asked.who.strip()
        if not asked.who:
            raise _Refused(422, "say who you are: every act is kept with a name")
        if not asked.why.strip():
            raise _Refused(422, "say why: every act is kept with a reason")
        return asked

    def _record(self, asked: _Asked) -> tuple[str, str, int, Manual | Silence]:
        """Topic, key, partition (-1: any) and the record. Raises :class:`_Refused`."""
        moment = self._now()
        now = format_ms(moment)
        who, why = msgspec.convert(asked.who, Who), asked.why.strip()
        if asked.action == "lift":
            return SILENCES.name, asked.silence_id, -1, self._lifted(asked, who, why)
        if asked.rule and asked.rule not in RULE_NAMES:
            raise _Refused(422, f"there is no rule {safe(asked.rule, 60)}")
        with self._parts.lock:
            session = self._parts.view.find(asked.session_id, asked.agent_id) if asked.session_id else None
        if asked.session_id and (session is None or not asked.agent_id):
            raise _Refused(404, "no such session is known now; name it with its agent")
        if asked.action == "silence":
            if not asked.rule or bool(asked.session_id) == bool(asked.fleet):
                raise _Refused(422, "a silence names one rule, and either a session or a fleet")
            silence = Silence(
                silence_id=f"sil-{uuid.uuid4().hex}",
                rule=asked.rule,
                fleet=asked.fleet,
                session_id=asked.session_id,
                agent_id=asked.agent_id if asked.session_id else "",
                at=now,
                expires_at=format_ms(moment + asked.minutes * 60_000),
                who=who,
                why=why,
            )
            return SILENCES.name, silence.silence_id, -1, silence
        if session is None:
            raise _Refused(422, "name the session, and its agent")
        rule = asked.rule if asked.action == "resume" else ""
        standing = [one.incident_id for one in session.row.open if one.rule == (rule or MANUAL) and not one.releasing]
        manual = Manual(
            session_id=session.who.session_id,
            agent_id=session.who.agent_id,
            fleet=session.who.fleet,
            ts=now,
            event_id=f"man-{uuid.uuid4().hex}",
            action="halt" if asked.action == "halt" else "resume",
            rule=rule,
            # A release of one incident must not serve for the next.
            incident_id=standing[0] if asked.action == "resume" and len(standing) == 1 else "",
            who=who,
            why=why,
        )
        return EVENTS.name, manual.session_id, session.partition, manual

    def _lifted(self, asked: _Asked, who: str, why: str) -> Silence:
        with self._parts.lock:
            known = self._parts.view.silences.get(asked.silence_id)
        if known is None:
            raise _Refused(404, "no such silence is in force")
        return msgspec.structs.replace(known, lifted=True, at=format_ms(self._now()), who=who, why=why)

    def _send(self, topic: str, key: str, partition: int, value: bytes) -> None:
        if self._client is None:
            order = {"enable.idempotence": self._settings.idempotence, "acks": "all"}
            times = {"linger.ms": 0, "message.timeout.ms": round(_CONFIRM_S * 1000), "log_level": 0}
            self._client = Producer({**client_configs(self._settings).confluent, **order, **times})
        failed: list[Any] = []
        options: dict[str, Any] = {} if partition < 0 else {"partition": partition}
        if self._key is not None:
            options["headers"] = [(HEADER, self._key.sign(topic, value))]
        self._client.produce(topic, value, key.encode(), on_delivery=lambda error, _: failed.append(error), **options)
        self._client.flush(_CONFIRM_S)
        error = failed[0] if failed else None
        if error is not None:
            raise KafkaException(error)
        if not failed:
            raise _Refused(503, "the broker did not confirm it in time; look whether it was done before doing it again")
