"""The error tree, named by what the runtime must do next.

::

    LeadlineError
    ├── Malformed            the record can never be read: dead-letter it and go on
    ├── Retryable            the same call may succeed later: keep what was being sent and try again
    │   └── BrokerError      a broker could not be started, reached or asked
    ├── Refused              somebody must change something first: say what, and stop before doing harm
    │   ├── SettingsError    a setting is missing or wrong
    │   ├── TopicMismatch    the topics on the cluster are not those of the table
    │   └── LedgerError      an agent told its ledger something impossible (also a ValueError)
    └── Halted               the agent must stop compacting (raised only inside the agent, at its own request)
        ├── SalienceInversionError
        ├── RecallFloorViolation
        └── SessionHalted    the monitor said so
"""

from __future__ import annotations

__all__ = [
    "BrokerError",
    "Halted",
    "LeadlineError",
    "LedgerError",
    "Malformed",
    "RecallFloorViolation",
    "Refused",
    "Retryable",
    "SalienceInversionError",
    "SessionHalted",
    "SettingsError",
    "TopicMismatch",
]


class LeadlineError(Exception):
    """Root of every error that Leadline raises on purpose."""


class Malformed(LeadlineError):
    """A record that can never be read. ``reason`` is one of :class:`leadline.contracts.reasons.Reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Retryable(LeadlineError):
    """The same call may succeed later."""


class BrokerError(Retryable):
    """A broker could not be started, reached or asked; the message says what to do."""


class Refused(LeadlineError):
    """Going on would do harm; the message says what must change first."""


class SettingsError(Refused):
    """A setting is missing or wrong; the message names it."""


class TopicMismatch(Refused):
    """The topics on the cluster are not those of the table, or not of one piece; the message gives what is and what should be."""


class LedgerError(Refused, ValueError):
    """The ledger was told something impossible; it is unchanged, and the message names the id."""


class Halted(LeadlineError):
    """The agent must not compact any further until it has been repaired."""


class SalienceInversionError(Halted):
    """Compaction crossed the salience inversion boundary.

    Structural, not by answer quality: the raw ratio is below the grounding floor while distinct source spans fall
    and retained salience rises; or the provenance floor is breached; or the hierarchy is pinned at its depth limit
    (the salience-inversion document, "Decision Boundary").
    """


class RecallFloorViolation(Halted):
    """Facts of a class were kept below that class's recall floor at a checkpoint level."""


class SessionHalted(Halted):
    """The monitor commanded this session to halt; ``reason`` is the command's sentence."""
