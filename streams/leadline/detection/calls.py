"""Summarizer calls: which one stands for which."""

from __future__ import annotations

from leadline.contracts.events import Checkpoint
from leadline.detection.rules.base import CheckpointView

__all__ = ["call_input", "stands_for"]


def call_input(checkpoint: Checkpoint) -> int | None:
    """How much the call was given: tokens, or source spans where it gives no tokens; ``None`` where it says neither."""
    tokens = checkpoint.declared_input_tokens
    return checkpoint.source_spans if tokens is None else tokens


def stands_for(view: CheckpointView) -> bool:
    """Whether this call can close the incident of an earlier one at its level.

    A clean call over other input proves nothing of the input that was not read: where a retry was commanded, it must say that it
    is the retry, or be given at least as much as the call that opened the incident.
    """
    incident = view.incident
    if incident is None or incident.command is None or view.checkpoint.retry_of:
        return True
    given = call_input(view.checkpoint)
    return incident.call_input is None or (given is not None and given >= incident.call_input)
