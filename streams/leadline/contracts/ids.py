"""Ids derived from their cause: the same cause makes the same id, so a replay doubles nothing."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["command_id", "incident_id", "state_key", "violation_id"]


def _derive(prefix: str, *parts: str) -> str:
    together = b""
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        # Length-prefixed, so that no two lists of parts run together into the same bytes.
        together += len(data).to_bytes(4, "big") + data
    return f"{prefix}-{blake2b(together, digest_size=12).hexdigest()}"


def incident_id(session_id: str, agent_id: str, epoch: int, rule: str, subject: str, opened_by: str) -> str:
    """``subject`` tells apart incidents of one rule in one session (``L2``); ``opened_by`` is the opening round or event."""
    return _derive("inc", session_id, agent_id, str(epoch), rule, subject, opened_by)


def violation_id(incident: str) -> str:
    """One violation an incident."""
    return _derive("vio", incident)


def command_id(incident: str, kind: str, attempt: int) -> str:
    """Attempts are different commands: an agent acts on each once."""
    return _derive("cmd", incident, kind, str(attempt))


def state_key(session_id: str, agent_id: str) -> str:
    """Key of a session's state record. Two agents that use one session id are two states.

    Length-prefixed, so that no pair of ids is mistaken for another.
    """
    return f"{len(session_id)}:{session_id}{agent_id}"
