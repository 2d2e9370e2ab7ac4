"""What people do by hand, each with who and why: records that the dashboard writes and the monitor obeys."""

from __future__ import annotations

from typing import Annotated, Literal, final

from msgspec import Meta, Struct

from leadline.contracts import limits
from leadline.contracts.events import Id, OptionalId, Timestamp

__all__ = ["Manual", "Silence"]

Who = Annotated[str, Meta(min_length=1, max_length=limits.MAX_ID)]
Why = Annotated[str, Meta(min_length=1, max_length=limits.MAX_DETAIL)]


@final
class Manual(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="schema", tag="leadline.manual/1"
):
    """Halt this session, or release it. It stands on ``leadline.events`` among the session's own events, and a command follows
    with the life of any other.

    ``halt`` opens an incident of the rule ``manual``. ``resume`` ends it, or the open incidents of ``rule`` where one is named;
    with ``incident_id``, that one alone. An ``event_id`` acts once.
    """

    session_id: Id
    agent_id: Id
    fleet: OptionalId = ""
    ts: Timestamp = ""
    event_id: Id
    action: Literal["halt", "resume"]
    rule: OptionalId = ""
    incident_id: OptionalId = ""
    who: Who
    why: Why


class Silence(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="schema",
    tag="leadline.silence/1",
):
    """One rule is in shadow for a session, or for a fleet, until it expires: recorded and flagged, nothing commanded.

    The last record of a ``silence_id`` counts; ``lifted`` ends it early. A session is named with its agent.
    """

    silence_id: Id
    rule: Id
    fleet: OptionalId = ""
    session_id: OptionalId = ""
    agent_id: OptionalId = ""
    at: Timestamp
    expires_at: Timestamp
    lifted: bool = False
    who: Who
    why: Why
