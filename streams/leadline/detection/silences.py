"""Silences: a rule in shadow for a session or a fleet, for a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from leadline.contracts.manual import Silence
from leadline.contracts.orders import Mode
from leadline.contracts.times import parse_ms
from leadline.detection.policy import FleetPolicy

__all__ = ["concerns", "in_force", "silenced"]


def in_force(silence: Silence, now: int) -> bool:
    """Whether it holds at ``now`` (ms since 1970). One without a readable end never does."""
    until = parse_ms(silence.expires_at)
    return not silence.lifted and until is not None and now < until


def concerns(silence: Silence, fleet: str, session_id: str, agent_id: str) -> bool:
    """A session's own, or its fleet's. One that names neither concerns nobody: a slip must not silence everything."""
    if silence.session_id:
        return (silence.session_id, silence.agent_id) == (session_id, agent_id)
    return silence.fleet != "" and silence.fleet == fleet


def silenced(
    policy: FleetPolicy, silences: Iterable[Silence], fleet: str, session_id: str, agent_id: str, now: int
) -> FleetPolicy:
    """``policy`` with each rule in shadow that is silenced here and now, unless it is off or told only."""
    rules = {each.rule for each in silences if concerns(each, fleet, session_id, agent_id) and in_force(each, now)}
    quiet: dict[str, Mode] = {rule: "shadow" for rule in rules if policy.mode(rule) == "enforce"}
    return replace(policy, modes={**policy.modes, **quiet}) if quiet else policy
