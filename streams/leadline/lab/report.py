"""What a replay found, as one JSON object: the output of ``leadline replay --json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from leadline.contracts.session_state import Incident, SessionState
from leadline.detection.condition import condition
from leadline.lab.replay import ReplayDriver

__all__ = ["report", "session_names", "session_report"]


def report(driver: ReplayDriver) -> dict[str, Any]:
    """``violations`` and ``commands`` as they would be on the wire, ``sessions`` by name, ``dead_letters`` by offset.

    Sessions are named as :func:`session_names` says; a session that was removed after its end is listed with its last
    state. A dead letter's ``line`` is its offset.
    """
    names = session_names(driver.last_states)
    return {
        "violations": [msgspec.to_builtins(violation) for violation in driver.violations],
        "commands": [msgspec.to_builtins(command) for command in driver.commands],
        "sessions": {names[key]: session_report(state) for key, state in driver.last_states.items()},
        "dead_letters": [
            {"line": letter.source.offset, "reason": str(letter.reason), "detail": letter.error} for letter in driver.dead_letters
        ],
    }


def session_names(states: dict[str, SessionState]) -> dict[str, str]:
    """A name for each state key: the session id; ``session/agent`` for all agents that share a session id.

    Where that still leaves two of one name (``/`` in ids), those keep their state key, which is never ambiguous.
    """
    agents = Counter(state.session_id for state in states.values())
    names = {
        key: state.session_id if agents[state.session_id] == 1 else f"{state.session_id}/{state.agent_id}"
        for key, state in states.items()
    }
    used = Counter(names.values())
    return {key: name if used[name] == 1 else key for key, name in names.items()}


def session_report(state: SessionState) -> dict[str, Any]:
    """One session's last state, for a reader who does not want the whole record."""
    return {
        "state": condition(state),
        "session_id": state.session_id,
        "agent_id": state.agent_id,
        "fleet": state.fleet,
        "epoch": state.epoch,
        "last_round": state.last_round,
        "open_incidents": _open(state.incidents),
        "counts": msgspec.structs.asdict(state.counts),
    }


def _open(incidents: Iterable[Incident]) -> list[dict[str, Any]]:
    """Incidents that are not resolved; one that only waits for its release to be acknowledged is resolved."""
    found = []
    for incident in incidents:
        if incident.releasing:
            continue
        command = incident.command
        found.append(
            {
                "incident_id": incident.incident_id,
                "rule": incident.rule,
                "subject": incident.subject,
                "mode": incident.mode,
                "opened_round": incident.opened_round,
                "firings": incident.firings,
                "command": None
                if command is None
                else {
                    "command_id": command.command_id,
                    "kind": command.kind,
                    "stage": str(command.stage),
                    "attempt": command.attempt,
                },
            }
        )
    return found
