"""The order of rounds: what is next, what is a duplicate, what comes late, what is missing.

Each case has one outcome, counted in :class:`~leadline.contracts.session_state.Counts`:

==================  ==================================================================================================
next, or later      applied; rounds skipped on the way are counted as ``gaps`` until they arrive
seen already        ignored (``duplicates``); yet the last round, reported ok and then ``failed``, is taken back, and one that
                    failed or measured nothing and is then done is applied (both ``superseded``)
missing until now   kept in the window in its place (``reordered``, one gap fewer); later rounds were judged already, so it
                    opens no incident
beyond the reach    ignored (``late``); the reach is :data:`REACH` rounds
==================  ==================================================================================================
"""

from __future__ import annotations

from bisect import insort
from enum import Enum
from typing import Final

from msgspec.structs import replace

from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.events import Checkpoint, Round
from leadline.contracts.session_state import Measurement, SessionState

__all__ = ["REACH", "SEEN", "Arrival", "arrive", "goes_on", "is_pass", "measurement_of", "remember"]

REACH: Final = 62
"""How many rounds back a missing round is still recognized as missing rather than as a duplicate."""

SEEN: Final = (1 << (REACH + 1)) - 1
"""All the bits of a session's ``seen_mask``."""


class Arrival(Enum):
    """How a round relates to those before it."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    LATE = "late"
    SUPERSEDES = "supersedes"


def is_pass(trigger: str, outcome: str) -> bool:
    """Whether such a round was a pass that was meant to free something: neither skipped nor failed, no hold, no rehydration."""
    return outcome == "ok" and trigger not in ("rehydrate", "hold")


def goes_on(event: Event, arrival: Arrival | None) -> bool:
    """Whether the agent compacts: not where an event says again, or late, what it did before."""
    if type(event) is Round:
        return arrival is Arrival.NEXT and is_pass(event.trigger, event.outcome)
    return type(event) is Checkpoint and arrival is None


def measurement_of(event: Round) -> Measurement:
    return Measurement(
        event.round,
        event.raw_tokens,
        event.summary_tokens,
        event.distinct_source_spans,
        event.query_cosine_retained,
        event.summary_depth_max,
    )


def arrive(state: SessionState, event: Round) -> Arrival:
    """Tell how ``event`` relates to the rounds seen, and note it in ``state`` (a working copy): numbers and counts only."""
    last, number, counts = state.last_round, event.round, state.counts
    if last is None:
        # Without a session start the monitor may have joined late: what came before is unknown, not missing.
        missed = max(0, number - 1) if state.started else 0
        state.last_round = number
        state.seen_mask = 1
        if missed:
            state.counts = replace(counts, gaps=counts.gaps + missed)
        return Arrival.NEXT
    ahead = number - last
    if ahead > 0:
        state.last_round = number
        state.seen_mask = ((state.seen_mask << ahead) | 1) & SEEN if ahead <= REACH else 1
        if ahead > 1:
            state.counts = replace(counts, gaps=counts.gaps + ahead - 1)
        return Arrival.NEXT
    if -ahead > REACH:
        state.counts = replace(counts, late=counts.late + 1)
        return Arrival.LATE
    bit = 1 << -ahead
    if not state.seen_mask & bit:
        state.seen_mask |= bit
        # A round from before the first one seen is no gap that was counted, so there may be none to take off.
        state.counts = replace(counts, reordered=counts.reordered + 1, gaps=max(0, counts.gaps - 1))
        return Arrival.REORDERED
    measured = event.outcome != "failed" and event.raw_tokens + event.summary_tokens > 0
    if number == last and measured and not (state.window and state.window[-1].round == number):
        # It had failed, or measured nothing, and was done again under its number.
        state.counts = replace(counts, superseded=counts.superseded + 1)
        return Arrival.NEXT
    if event.outcome == "failed" and state.window and state.window[-1].round == number:
        state.counts = replace(counts, superseded=counts.superseded + 1)
        return Arrival.SUPERSEDES
    state.counts = replace(counts, duplicates=counts.duplicates + 1)
    return Arrival.DUPLICATE


def remember(state: SessionState, measurement: Measurement) -> None:
    """Put a measurement into the window, in the order of rounds; the oldest fall out."""
    window = state.window
    if not window or window[-1].round < measurement.round:
        state.window = (window if len(window) < limits.WINDOW_ROUNDS else window[1:]) + (measurement,)
        return
    entries = list(window)
    insort(entries, measurement, key=lambda entry: entry.round)
    state.window = tuple(entries[-limits.WINDOW_ROUNDS :])
