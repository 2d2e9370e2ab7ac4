"""What the detector makes of a sequence of events, without commands."""

from __future__ import annotations

from typing import NamedTuple

from leadline.contracts.codec import Event
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.detection.observe import Observation, observe
from leadline.detection.policy import FleetPolicy
from tests.support.core import START

__all__ = ["Seen", "watch"]


class Seen(NamedTuple):
    """The state after all events, and what was said of the last."""

    state: SessionState
    last: Observation

    @property
    def reasons(self) -> dict[str, str]:
        """What each rule said of the last event; a reason that fired ends in ``!``."""
        return {rule: decision.reason + "!" * decision.fired for rule, decision in self.last.reasons}

    @property
    def fired(self) -> set[str]:
        return {rule for rule, decision in self.last.reasons if decision.fired}


def watch(*events: Event, state: SessionState | None = None, policy: FleetPolicy | None = None) -> Seen:
    """Each event 20 s after the one before, the state encoded and decoded in between."""
    state = state or SessionState(session_id="s1", agent_id="a1")
    last = Observation(state)
    for number, event in enumerate(events):
        last = observe(state, event, START + 20_000 * number, policy or FleetPolicy())
        state = decode_state(encode_state(last.state))
    return Seen(state, last)
