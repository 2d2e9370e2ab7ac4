"""One session as the fleet page shows it: small, because there are many, and an array on the wire."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from leadline.contracts.session_state import Incident, SessionState, Stage
from leadline.detection.condition import CONDITIONS, condition

__all__ = ["IN_FLIGHT", "Open", "Row", "Who", "row_of"]

IN_FLIGHT: Final = (Stage.ISSUED.value, Stage.ACCEPTED.value, Stage.EFFECTIVE.value)
"""Stages of a command that is still to be heeded."""
_CODES: Final = {word: number for number, word in enumerate(CONDITIONS)}


class Who(Struct, frozen=True, array_like=True):
    """What does not change from round to round. ``slot`` is this process's own short name for the session."""

    slot: int
    session_id: str
    agent_id: str
    fleet: str


class Open(Struct, frozen=True, array_like=True):
    """An incident that is open. Times in ms since 1970; ``stage`` is empty where nothing was commanded."""

    incident_id: str
    rule: str
    subject: str
    mode: str
    opened_at: int
    opened_round: int
    firings: int
    kind: str = ""
    stage: str = ""
    attempt: int = 0
    issued_at: int = 0
    releasing: bool = False


class Row(Struct, frozen=True, array_like=True):
    """The newest measurements; ``None`` is unknown. ``condition`` is the place in ``CONDITIONS``."""

    slot: int
    condition: int
    raw_ratio: float | None
    spans: int | None
    depth: int | None
    round: int | None
    last_seen: int
    open: tuple[Open, ...] = ()


def row_of(slot: int, state: SessionState) -> Row:
    """What the fleet page needs of a session's record."""
    last = state.window[-1] if state.window else None
    ratio = None if last is None else last.raw_ratio
    return Row(
        slot,
        _CODES[condition(state)],
        None if ratio is None else round(ratio, 4),
        None if last is None else last.distinct_source_spans,
        None if last is None else last.summary_depth_max,
        state.last_round,
        state.last_seen,
        tuple(_open(incident) for incident in state.incidents),
    )


def _open(incident: Incident) -> Open:
    command = incident.command
    opened = (
        incident.incident_id,
        incident.rule,
        incident.subject,
        incident.mode,
        incident.opened_at,
        incident.opened_round,
        incident.firings,
    )
    if command is None:
        return Open(*opened)
    return Open(*opened, command.kind, command.stage.value, command.attempt, command.issued_at, incident.releasing)
