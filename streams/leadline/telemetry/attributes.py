"""What the monitor's spans say. Ids and texts of agents are cleaned and bounded here, once. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from leadline.commands.fold import Step
from leadline.commands.lifecycle import Move
from leadline.contracts.events import Ack, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.orders import Command, Measured, Violation
from leadline.contracts.session_state import Measurement
from leadline.contracts.text import safe
from leadline.telemetry import names

__all__ = ["Attributes", "command", "evaluation", "moved", "recovered", "verdict", "who"]

Attributes = dict[str, Any]

_MAX_ID = 256
_MAX_TEXT = 1_000
_CAUSES = {SessionStart: "session-start", Round: "round", Checkpoint: "checkpoint", Ack: "ack", SessionEnd: "session-end"}


@lru_cache(maxsize=1_024)
def _id(text: str) -> str:
    """One session has several spans in a batch, and many sessions have one agent or fleet."""
    return safe(text, _MAX_ID)


def who(session_id: str, agent_id: str, fleet: str, epoch: int) -> Attributes:
    """Whose session it is, in the names of the generative AI conventions and in ours."""
    found: Attributes = {
        names.CONVERSATION: _id(session_id),
        names.AGENT_ID: _id(agent_id),
        names.EPOCH: epoch,
    }
    if fleet:
        found[names.FLEET] = found[names.AGENT_NAME] = _id(fleet)
    return found


def measured(now: Measured | Measurement | None) -> Attributes:
    if now is None:
        return {}
    found: Attributes = {
        names.RAW_TOKENS: now.raw_tokens,
        names.SUMMARY_TOKENS: now.summary_tokens,
        names.SPANS_LEFT: now.distinct_source_spans,
        names.DEPTH: now.summary_depth_max,
    }
    if now.raw_ratio is not None:
        found[names.RAW_RATIO] = now.raw_ratio
    if now.query_cosine_retained is not None:
        found[names.SALIENCE] = now.query_cosine_retained
    return found


def verdict(step: Step, item: Violation) -> Attributes:
    found = {
        **who(item.session_id, item.agent_id, item.fleet, item.epoch),
        names.VIOLATION: True,
        names.VIOLATION_ID: item.violation_id,
        names.INCIDENT_ID: item.incident_id,
        names.RULE: item.rule,
        names.REASON: item.reason,
        names.SEVERITY: item.severity,
        names.MODE: item.mode,
        names.ACTION: item.action,
        names.CAUSE: _CAUSES.get(type(step.event), "tick"),
        names.PARTITION: str(step.record.partition),
        names.OFFSET: step.record.offset,
        **measured(item.now),
    }
    _put(found, names.ROUND, item.round)
    _put(found, names.LEVEL, item.level)
    _put(found, names.POLICY, item.policy or None)
    _put(found, names.MESSAGE_ID, safe(item.caused_by.event_id, _MAX_ID) or None)
    return found


def evaluation(item: Violation) -> Attributes:
    """Of the event that the generative AI conventions have for a verdict."""
    found: Attributes = {
        names.EVALUATION_NAME: item.rule,
        names.EVALUATION_LABEL: item.severity,
        names.EVALUATION_WHY: safe(item.message, _MAX_TEXT),
    }
    _put(found, names.EVALUATION_VALUE, None if item.now is None else item.now.raw_ratio)
    return found


def command(step: Step, item: Command) -> Attributes:
    found = {
        **who(item.session_id, item.agent_id, item.fleet, item.epoch),
        names.VIOLATION: True,
        names.INCIDENT_ID: item.incident_id,
        names.RULE: item.rule,
        names.COMMAND_ID: item.command_id,
        names.COMMAND_KIND: item.kind,
        names.COMMAND_SEQ: item.seq,
        names.ATTEMPT: item.attempt,
        names.REASON: safe(item.reason, _MAX_TEXT),
        names.PARTITION: str(step.record.partition),
    }
    _put(found, names.POLICY, item.policy or None)
    return found


def moved(step: Step, move: Move) -> Attributes:
    state, kept = step.state, move.command
    found = {
        **who(state.session_id, state.agent_id, state.fleet, state.epoch),
        names.VIOLATION: True,
        names.INCIDENT_ID: move.incident.incident_id,
        names.RULE: move.incident.rule,
        names.SIGNAL: move.signal.value,
        names.STAGE: move.stage.value,
    }
    if kept is not None:
        found |= {
            names.COMMAND_ID: kept.command_id,
            names.COMMAND_KIND: kept.kind,
            names.COMMAND_SEQ: kept.seq,
            names.ATTEMPT: kept.attempt,
        }
    return found


def recovered(step: Step, move: Move) -> Attributes:
    state = step.state
    return {
        **who(state.session_id, state.agent_id, state.fleet, state.epoch),
        names.VIOLATION: True,
        names.INCIDENT_ID: move.incident.incident_id,
        names.RULE: move.incident.rule,
        names.INCIDENT_MS: max(0, step.receive - move.incident.opened_at),
        **measured(state.window[-1] if state.window else None),
    }


def _put(found: Attributes, name: str, value: Any) -> None:
    if value is not None:
        found[name] = value
