"""When a session must be looked at again though nothing came. Pure."""

from __future__ import annotations

from leadline.contracts.orders import Parameters
from leadline.contracts.session_state import CommandState, SessionState, Stage
from leadline.detection.observe import was_silent
from leadline.detection.policy import FleetPolicy

__all__ = ["next_deadline", "quiet_ms", "watched"]

_WATCHED = (Stage.ISSUED, Stage.ACCEPTED, Stage.EFFECTIVE)
_NOTHING = Parameters()


def next_deadline(state: SessionState, policy: FleetPolicy) -> int:
    """When the session must be looked at again though nothing came, ms since 1970."""
    if state.ended_at is not None:
        return state.ended_at + policy.ended_linger_ms
    due = state.last_seen + (policy.idle_ms if was_silent(state) else quiet_ms(policy))
    for incident in state.incidents:
        command = incident.command
        if command is not None and command.deadline < due and watched(command):
            due = command.deadline
    return due


def quiet_ms(policy: FleetPolicy) -> int:
    """How long a session without incidents may be silent before it is looked at again."""
    return policy.idle_ms if policy.mode("unobserved") == "off" else min(policy.idle_ms, policy.silence_ms)


def watched(command: CommandState) -> bool:
    """Whether its deadline means something. What asks for nothing but to stop is obeyed by silence, once accepted."""
    if command.kind in ("halt", "stop-agent") and command.parameters == _NOTHING:
        return command.stage is Stage.ISSUED
    return command.stage in _WATCHED
