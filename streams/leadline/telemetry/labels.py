"""The labels that metrics have, and every value that each may take: no id and no free text is one."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["IGNORED", "IRREGULAR", "KINDS", "LABELS", "OTHER", "OUTCOMES", "REASONS", "RULES", "STAGES", "TOLERATED", "Label"]

OTHER: Final = "other"
"""Where a label's value is none of the known ones, and the fleets past the cap."""


class Label(NamedTuple):
    """``values`` are all that there can be besides :data:`OTHER`; empty: bounded by the cap of the fleets, or by what is
    installed."""

    name: str
    values: tuple[str, ...]
    meaning: str


RULES: Final = (
    "inversion",
    "provenance-floor",
    "depth-pin",
    "ungrounded-summary",
    "drift",
    "erosion",
    "masked",
    "budget-open",
    "recall-floor",
    "silent-drop",
    "no-progress",
    "unobserved",
    "unheeded",
    "manual",
)
KINDS: Final = ("halt", "cap-depth", "retry-level", "stop-agent", "resume")
OUTCOMES: Final = (
    "accepted",
    "done",
    "refused",
    "expired",
    "timeout",
    "no-effect",
    "effective",
    "resolved",
    "released",
    "withdrawn",
)
STAGES: Final = ("issued", "accepted", "effective", "escalated")
IGNORED: Final = ("tombstone", "replayed", "unknown-session", "tick-early", "unreadable-state")
TOLERATED: Final = ("unknown-fields", "newer-minor", "bad-time", "bad-trace-context")
IRREGULAR: Final = (
    "duplicates",
    "reordered",
    "late",
    "gaps",
    "stale_epoch",
    "superseded",
    "failed",
    "unknown",
    "bad_time",
    "after_end",
    "unmatched_acks",
    "overflow",
)
REASONS: Final = (
    "not-json",
    "not-an-object",
    "bad-utf8",
    "lone-surrogate",
    "not-finite",
    "over-size",
    "nested-too-deep",
    "missing-field",
    "wrong-type",
    "boolean-for-number",
    "out-of-range",
    "over-64-bits",
    "unknown-major",
    "unknown-record",
    "key-mismatch",
    "future-timestamp",
    "unsigned",
    "bad-signature",
    "foreign-key",
    "stale",
)

LABELS: Final = {
    label.name: label
    for label in (
        Label("rule", RULES, "rule"),
        Label("severity", ("info", "warning", "critical"), "severity of the violation"),
        Label("mode", ("shadow", "warn", "enforce"), "mode of the rule"),
        Label("fleet", (), "fleet; those past `LEADLINE_FLEETS_MAX` share `other`"),
        Label("kind", KINDS, "kind of command"),
        Label("attempt", ("first", "again"), "whether the command was issued before"),
        Label("outcome", OUTCOMES, "what the agent said, or what the monitor found"),
        Label("stage", STAGES, "where a command stands"),
        Label("cause", ("event", "timer"), "what the verdict was made on"),
        Label("why", IGNORED, "why a record led to nothing"),
        Label("what", TOLERATED, "what was read in spite of"),
        Label("how", IRREGULAR, "in which way, by the names of the session's counters"),
        Label("reason", REASONS, "why a record could not be read"),
        Label("signal", ("traces", "metrics"), "what was to be exported"),
        Label("version", (), "of Leadline, or of the policy"),
        Label("python", (), "version of Python"),
    )
}
