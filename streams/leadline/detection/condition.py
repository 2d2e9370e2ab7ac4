"""One word for how a session is, the gravest first: what a table or a page shows."""

from __future__ import annotations

from typing import Final

from leadline.contracts.session_state import Incident, SessionState, Stage

__all__ = ["CONDITIONS", "condition"]

CONDITIONS: Final = (
    "ended",
    "halted",
    "recovering",
    "inverted",
    "ungrounded",
    "forgetting",
    "truncating",
    "pinned",
    "stalled",
    "unheeded",
    "drift",
    "eroding",
    "masked",
    "unobserved",
    "unknown",
    "healthy",
)

_BY_RULE: Final = {
    "inversion": "inverted",
    "provenance-floor": "ungrounded",
    "recall-floor": "forgetting",
    "budget-open": "truncating",
    "depth-pin": "pinned",
    "drift": "drift",
    "unheeded": "unheeded",
    "ungrounded-summary": "ungrounded",
    "silent-drop": "truncating",
    "no-progress": "stalled",
    "erosion": "eroding",
    "masked": "masked",
    "unobserved": "unobserved",
}


def condition(state: SessionState) -> str:
    """``halted`` once the agent has accepted a halt, ``recovering`` once measurements show its effect.

    ``unknown`` is a session of which nothing was measured yet; silence never makes one healthy.
    """
    if state.ended_at is not None:
        return "ended"
    words = {_of(incident) for incident in state.incidents}
    if not words and not state.window and not state.facts_reported:
        return "unknown"
    return next((word for word in CONDITIONS if word in words), "healthy")


def _of(incident: Incident) -> str:
    command = incident.command
    if incident.releasing or (command is not None and command.stage is Stage.EFFECTIVE):
        return "recovering"
    if command is not None and command.kind in ("halt", "stop-agent") and command.stage is Stage.ACCEPTED:
        return "halted"
    return _BY_RULE.get(incident.rule, incident.rule)
