"""``unobserved``: the monitor cannot see. Blind is not healthy.

Rounds are missing, the session has been silent past its deadline without an end, or what it reports contradicts itself.
"""

from __future__ import annotations

from leadline.contracts.events import Round
from leadline.contracts.text import plural
from leadline.detection.rules.base import Decision, Evidence, Exit, PresenceView, Rule, always

__all__ = ["RULE", "contradiction"]

MISSING = Decision(True, "rounds-missing")
SILENT = Decision(True, "session-silent")
CONTRADICTION = Decision(True, "counters-inconsistent")
SEEN = Decision(False, "observed")


def contradiction(event: Round) -> str:
    """What a round says that cannot all be true; empty where it is consistent."""
    if event.raw_tokens + event.summary_tokens == 0:
        return ""  # Nothing was measured, so nothing can disagree.
    if event.summary_tokens > 0 and event.summary_depth_max == 0:
        return "summary tokens without a summary (depth 0)"
    if event.summary_tokens == 0 and event.summary_depth_max > 0:
        return f"depth {event.summary_depth_max} without summary tokens"
    if event.raw_tokens > 0 and event.distinct_source_spans == 0:
        return "raw tokens without a source span"
    listed = event.summaries
    if listed and max(item.depth for item in listed) > event.summary_depth_max:
        return f"a listed summary is deeper than depth {event.summary_depth_max}"
    return ""


def judge(view: PresenceView) -> Decision:
    if view.aspect == "silence":
        return SEEN if view.silent_ms is None else SILENT
    if view.missed_rounds:
        return MISSING
    return CONTRADICTION if view.contradiction else SEEN


def leave(view: PresenceView, decision: Decision) -> Exit:
    """Silence is over with the next event; for the rest it takes several rounds that came in order and agree with themselves."""
    return Exit.OVER if view.aspect == "silence" else Exit.GOOD


def message(view: PresenceView) -> str:
    if view.silent_ms is not None:
        return f"unobserved: silent for {view.silent_ms / 1000:.0f} s without an end; its state is not known, and not healthy"
    if view.missed_rounds:
        return f"unobserved: {plural(view.missed_rounds, 'round is', 'rounds are')} missing before round {view.round}"
    return f"unobserved: what round {view.round} reports contradicts itself: {view.contradiction}"


def threshold(view: PresenceView) -> dict[str, float]:
    return {"silence_ms": view.policy.silence_ms}


def evidence(view: PresenceView) -> Evidence:
    found: Evidence = {"gaps": view.gaps}
    if view.silent_ms is not None:
        found["silent_ms"] = view.silent_ms
    if view.contradiction:
        found["contradiction"] = view.contradiction
    return found


RULE: Rule[PresenceView] = Rule(
    name="unobserved",
    severity="warning",
    action=always("none"),
    judge=judge,
    exit=leave,
    message=message,
    threshold=threshold,
    evidence=evidence,
)
