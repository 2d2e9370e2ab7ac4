"""Every threshold and deadline, with its default; a fleet can have its own."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from leadline.contracts.manual import Silence
from leadline.contracts.orders import Mode

__all__ = ["DEFAULT_POLICY", "FleetPolicy", "Policy"]


class FleetPolicy(Struct, frozen=True, kw_only=True):
    """What holds for one fleet. Times in milliseconds."""

    raw_ratio_floor: float = 0.25
    """`inversion` and `drift` need a raw ratio below this (salience-inversion document, Decision Boundary)."""
    raw_ratio_exit: float = 0.30
    """An inversion is over at this raw ratio or above, and rehydration aims at it."""
    span_floor_fraction: float = 0.20
    """The provenance floor, as a share of the spans at session start."""
    span_exit_factor: float = 1.2
    """A provenance-floor incident is over at this multiple of the floor at once, or after ``good_rounds`` at the floor."""
    pin_rounds: int = 5
    """`depth-pin` fires past this many consecutive rounds at the depth limit."""
    depth_cap: int = 2
    """What `cap-depth` asks for."""
    recall_floor: float = 1.0
    """For facts whose class declares no floor of its own."""
    rerank_spare: float = 0.10
    """A call that keeps facts word for word or not at all, with this share of its budget to spare, selected its input."""
    erosion_ratio: float = 0.5
    """`erosion` needs a raw ratio below this: summaries outweigh raw text."""
    erosion_horizon: int = 12
    """`erosion` fires when the raw ratio or the spans reach their floor within this many rounds at the present pace."""
    masked_span_fall: float = 0.10
    """`masked` needs spans to have fallen by this share of what they were at the window's beginning."""
    stall_freed_fraction: float = 0.01
    """A pass that frees at most this share of the tokens frees nothing."""
    stall_rounds: int = 2
    """`no-progress` fires at this many passes in a row that get nowhere; at once where the context grew."""
    stall_halt_rounds: int = 3
    """From this many on `no-progress` halts; so many failed passes in a row are told."""
    budget_tolerance: float = 0.04
    """A context within this share of its budget counts as held; a smaller change of its size as none."""
    same_size_calls: int = 3
    """So many outputs of exactly one size at a level, without a stop reason, are taken for a cap."""
    same_size_tokens: int = 128
    """Outputs smaller than this are at no cap, however often their size repeats."""
    placeholder_tokens: int = 16
    """A summary of at most this many tokens is a placeholder, where its input had `placeholder_input_tokens`."""
    placeholder_input_tokens: int = 1_000
    """Inputs of at least this many tokens make a tiny summary a placeholder."""
    silence_ms: int = 900_000
    """`unobserved` fires when a session that has not ended is silent this long."""
    good_rounds: int = 3
    """Good rounds in a row that end an incident which hovers between its entry and exit level."""
    command_ttl_ms: int = 60_000
    """How long a command may wait for its acknowledgement."""
    effect_ttl_ms: int = 300_000
    """How long an accepted command may take to show effect."""
    effect_rounds: int = 3
    """Measurements without effect after which an accepted command counts as without effect."""
    attempts: int = 3
    """How often a command is issued before it is escalated."""
    ended_linger_ms: int = 600_000
    """How long an ended session's record is kept, so that late and doubled events are still recognized."""
    idle_ms: int = 7 * 24 * 3600 * 1000
    """A session that was silent this long is removed."""
    modes: dict[str, Mode] = {}
    """Mode by rule; a rule not named here is ``enforce``."""

    def mode(self, rule: str) -> Mode:
        return self.modes.get(rule, "enforce")


class Policy(Struct, frozen=True, kw_only=True):
    """The policy in force: a default and, by fleet name, what differs. ``version`` is named in what it decides."""

    version: str = "default"
    default: FleetPolicy = FleetPolicy()
    fleets: dict[str, FleetPolicy] = {}
    silences: tuple[Silence, ...] = ()
    """Those that may be in force, whatever the policy's version; see :mod:`leadline.detection.silences`."""

    def of(self, fleet: str) -> FleetPolicy:
        return self.fleets.get(fleet, self.default)


DEFAULT_POLICY: Final = Policy()
