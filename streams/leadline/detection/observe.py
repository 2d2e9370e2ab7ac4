"""``observe(state, event, now)``: what an event says about its session. Pure.

It keeps the session's measurements, facts and counts up to date and asks the rules; what is done about the findings is decided
in :mod:`leadline.commands`.

One path serves all, but for :mod:`leadline.detection.quiet`, which sees first. With ``explain`` every rule is asked and its
reason kept, for people and for tests. Without it, a rule is asked only where it could matter: where it has an incident open, or
where its own ``may_fire`` does not rule it out. What is found and what is remembered is the same either way; a property test and
the fuzzer hold the two to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.events import Ack, AgentEvent, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Tick
from leadline.contracts.session_state import Measurement, SessionState
from leadline.detection import facts as following
from leadline.detection.asking import Finding, Reasons, ask, standing
from leadline.detection.policy import FleetPolicy
from leadline.detection.quiet import SHORT_EPOCHS_IN_A_ROW, worth_asking
from leadline.detection.rounds import Arrival, arrive, measurement_of, remember
from leadline.detection.rules import CHECKPOINT_RULES, PRESENCE_RULES, ROUND_RULES, no_progress, unobserved
from leadline.detection.rules.base import CheckpointView, Decision, PresenceView, RoundView, Rule
from leadline.detection.rules.depth_pin import at_limit

__all__ = ["SILENCE", "Finding", "Observation", "apply", "observe", "was_silent"]


SILENCE: Final = "silence"
"""Subject of the `unobserved` incident that silence opens."""

_SHORT_EPOCH: Final = 2
_MAX_LEVELS: Final = 16
"""Levels whose output sizes are followed."""


class Observation(NamedTuple):
    """``reasons``: what each rule that was asked said, fired or not. ``restarted``: a new epoch began."""

    state: SessionState
    findings: tuple[Finding, ...] = ()
    reasons: tuple[tuple[str, Decision], ...] = ()
    restarted: bool = False
    arrival: Arrival | None = None
    """For a round: how it related to those before it. Of other events only what was ignored has one."""


def observe(state: SessionState, event: Event, now: int, policy: FleetPolicy, *, explain: bool = True) -> Observation:
    """Apply ``event``, received at ``now`` (ms since 1970), to ``state``, which is not changed."""
    return apply(state.working_copy(), event, now, policy, explain=explain)


def apply(state: SessionState, event: Event, now: int, policy: FleetPolicy, *, explain: bool = False) -> Observation:
    """Apply ``event`` to ``state`` itself: a working copy that nobody else holds. Without ``explain`` no reasons are kept."""
    findings: list[Finding] = []
    reasons: Reasons | None = [] if explain else None
    # On these types `type() is` is several times as fast as an isinstance() that says no.
    if type(event) is Tick:
        _tick(state, now, policy, findings, reasons)
        return Observation(state, tuple(findings), tuple(reasons or ()))
    if type(event) is Manual:
        return Observation(state)  # Nobody heard of the agent, and nothing was measured.
    restarted = False
    if event.epoch is not None and event.epoch != state.epoch:
        if event.epoch < state.epoch:
            _stale(state, event, event.epoch, policy, findings, reasons)
            return Observation(state, tuple(findings), tuple(reasons or ()), arrival=Arrival.LATE)
        restarted = _restart(state, event.epoch)
    if now > state.last_seen:
        state.last_seen = now
    if event.fleet and event.fleet != state.fleet:
        state.fleet = event.fleet
    if state.ended_at is not None and type(event) is not Ack:
        state.counts = replace(state.counts, after_end=state.counts.after_end + 1)
        return Observation(state, restarted=restarted)
    if was_silent(state):
        _ask_presence(PresenceView(policy, "silence", state.counts.gaps), state, findings, None)
    arrival: Arrival | None = None
    if type(event) is Round:
        arrival = _round(state, event, policy, findings, reasons)
    elif type(event) is Checkpoint:
        arrival = _checkpoint(state, event, policy, findings, reasons)
    elif type(event) is SessionStart:
        _start(state, event)
    elif type(event) is SessionEnd:
        state.ended_at = now
    return Observation(state, tuple(findings), tuple(reasons or ()), restarted, arrival)


def was_silent(state: SessionState) -> bool:
    """Whether an incident that silence opened stands."""
    return bool(state.incidents) and any(incident.subject == SILENCE for incident in state.incidents)


def _stale(
    state: SessionState, event: AgentEvent, epoch: int, policy: FleetPolicy, findings: list[Finding], reasons: Reasons | None
) -> None:
    """An event of an epoch that is over is ignored. Rounds of one are no healthy session: somebody is not being watched."""
    state.counts = replace(state.counts, stale_epoch=state.counts.stale_epoch + 1)
    if isinstance(event, Round) and state.ended_at is None:
        wrong = f"it is of epoch {epoch}, which ended when epoch {state.epoch} began"
        stale = PresenceView(policy, "rounds", state.counts.gaps, event.round, contradiction=wrong)
        _ask_presence(stale, state, findings, reasons)


def _tick(state: SessionState, now: int, policy: FleetPolicy, findings: list[Finding], reasons: Reasons | None) -> None:
    """Time has passed: is the session silent past its deadline?"""
    silent = now - state.last_seen
    if state.ended_at is None and silent >= policy.silence_ms:
        _ask_presence(PresenceView(policy, "silence", state.counts.gaps, silent_ms=silent), state, findings, reasons)


def _restart(state: SessionState, epoch: int) -> bool:
    """A new epoch: everything measured before belongs to another context. Returns whether one was under way."""
    was_used = state.last_round is not None or state.started or bool(state.facts)
    if state.last_round is not None:
        state.short_epochs = state.short_epochs + 1 if state.seen_mask.bit_count() <= _SHORT_EPOCH else 0
    state.epoch = epoch
    state.started = False
    state.ended_at = None
    state.last_round = None
    state.seen_mask = 0
    state.pinned_rounds = 0
    state.stalled_rounds = 0
    state.output_sizes = {}
    state.depth_cap = None
    state.baseline_spans = None
    state.window = ()
    state.facts = {}
    state.facts_reported = None
    state.recent_events = ()
    state.incidents = ()
    state.counts = replace(state.counts, gaps=0)
    return was_used


def _start(state: SessionState, event: SessionStart) -> None:
    """Policy, baseline and facts. Sent again in the same epoch it adds facts, and never lowers the baseline."""
    state.started = True
    policy = event.policy
    state.token_budget = policy.token_budget if policy.token_budget is not None else state.token_budget
    state.max_depth = policy.max_depth if policy.max_depth is not None else state.max_depth
    state.eviction = policy.eviction or state.eviction
    if policy.scorer is not None and policy.scorer.penalizes_depth is not None:
        state.penalizes_depth = policy.scorer.penalizes_depth
    if event.session_start_spans is not None:
        state.baseline_spans = max(event.session_start_spans, state.baseline_spans or 0)
    followed = following.declare(state.facts, event.facts)
    state.facts = followed.facts
    if followed.overflow:
        state.counts = replace(state.counts, overflow=state.counts.overflow + followed.overflow)


def _round(state: SessionState, event: Round, policy: FleetPolicy, findings: list[Finding], reasons: Reasons | None) -> Arrival:
    last, gaps = state.last_round, state.counts.gaps
    arrival = arrive(state, event)
    missed = max(0, state.counts.gaps - gaps)
    if arrival in (Arrival.DUPLICATE, Arrival.LATE):
        wrong = _told_otherwise(state, event) if arrival is Arrival.DUPLICATE else f"it comes after round {last}"
        if wrong:
            # A restart that kept its epoch looks like this: everything that it says is ignored.
            again = PresenceView(policy, "rounds", state.counts.gaps, event.round, contradiction=wrong)
            _ask_presence(again, state, findings, reasons)
        return arrival
    wrong = "" if event.outcome == "failed" else unobserved.contradiction(event)
    if state.short_epochs >= SHORT_EPOCHS_IN_A_ROW and state.seen_mask == 1:
        wrong = f"{state.short_epochs} epochs in a row ended after at most {_SHORT_EPOCH} rounds; nothing can be compared"
    if missed or wrong or reasons is not None or standing(state, unobserved.RULE.name, "") is not None:
        presence = PresenceView(policy, "rounds", state.counts.gaps, event.round, missed, contradiction=wrong)
        _ask_presence(presence, state, findings, reasons)
    if arrival is Arrival.SUPERSEDES:
        state.window = state.window[:-1]
        state.pinned_rounds = state.pinned_rounds - 1 if state.pinned_rounds else _pinned(state)
    if event.outcome == "failed":
        _failed(state, event, arrival, policy, findings, reasons)
    else:
        _measure(state, event, arrival, policy, findings, reasons)
    return arrival


def _failed(
    state: SessionState,
    event: Round,
    arrival: Arrival,
    policy: FleetPolicy,
    findings: list[Finding],
    reasons: Reasons | None,
) -> None:
    """A failed compaction left the working set as it was: nothing was measured, and there is nothing else to judge."""
    state.counts = replace(state.counts, failed=state.counts.failed + 1)
    if arrival is not Arrival.REORDERED:
        state.stalled_rounds += 1
        now = state.window[-1] if state.window else measurement_of(event)
        view = _view(state, event, None, now, policy, None, arrival is Arrival.SUPERSEDES)
        ask(no_progress.RULE, view, state, policy, "", findings, reasons)


def _measure(
    state: SessionState,
    event: Round,
    arrival: Arrival,
    policy: FleetPolicy,
    findings: list[Finding],
    reasons: Reasons | None,
) -> None:
    """Take the round's measurements into the state, and ask the rules about them where they are the newest."""
    raw, summary, depth, limit, window = (
        event.raw_tokens,
        event.summary_tokens,
        event.summary_depth_max,
        event.max_depth,
        state.window,
    )
    if raw + summary == 0:
        state.counts = replace(state.counts, unknown=state.counts.unknown + 1)
        return
    measurement = Measurement(event.round, raw, summary, event.distinct_source_spans, event.query_cosine_retained, depth)
    prev = window[-1] if window else None
    remember(state, measurement)
    if arrival is Arrival.REORDERED:
        return
    # To compare is half as dear as to set.
    if not state.baseline_spans:
        state.baseline_spans = event.session_start_spans
    if state.token_budget != event.token_budget:
        state.token_budget = event.token_budget
    if state.max_depth != limit:
        state.max_depth = limit
    if state.fixed_tokens != event.fixed_tokens:
        state.fixed_tokens = event.fixed_tokens or 0
    if depth >= limit and at_limit(depth, limit, state.depth_cap):
        if no_progress.ran(event):
            state.pinned_rounds += 1
    elif state.pinned_rounds:
        state.pinned_rounds = 0
    spun, looked = None, state.stalled_rounds or no_progress.may_stall(event, prev)
    if looked:
        spun = no_progress.stalled(event, prev, policy)
        if spun is not None:
            state.stalled_rounds = state.stalled_rounds + 1 if spun else 0
    if reasons is None:
        baseline, pinned, stalled = state.baseline_spans or 0, state.pinned_rounds, state.stalled_rounds
        rules = worth_asking(state.window, event, raw / (raw + summary), baseline, pinned, stalled, policy, findings)
        if state.incidents:
            rules = _and_standing(rules, state)
        if not rules:
            return
    else:
        rules = ROUND_RULES
    view = _view(state, event, prev, measurement, policy, spun if looked else no_progress.stalled(event, prev, policy))
    for rule in rules:
        fired = ask(rule, view, state, policy, "", findings, reasons)
        if fired and rule.name == "inversion":
            view = view._replace(inversion_open=True)


def _and_standing(rules: Sequence[Rule[RoundView]], state: SessionState) -> Sequence[Rule[RoundView]]:
    """``rules`` and those that have an incident open, in their order."""
    names = {item.rule for item in state.incidents if not item.subject and not item.releasing}
    return [rule for rule in ROUND_RULES if rule in rules or rule.name in names] if names else rules


def _view(
    state: SessionState,
    event: Round,
    prev: Measurement | None,
    now: Measurement,
    policy: FleetPolicy,
    stalled: bool | None,
    taken_back: bool = False,
) -> RoundView:
    return RoundView(
        prev,
        now,
        state.pinned_rounds,
        state.baseline_spans or 0,
        event.max_depth,
        state.penalizes_depth,
        state.eviction,
        policy,
        standing(state, "inversion", "") is not None,
        event,
        state.fixed_tokens,
        event.token_budget,
        state.window,
        state.stalled_rounds,
        stalled,
        taken_back,
    )


def _told_otherwise(state: SessionState, event: Round) -> str:
    """What is odd about a round that was seen before; empty where it is the same one again."""
    known = next((entry for entry in state.window if entry.round == event.round), None)
    if known is None or event.outcome == "failed" or known == measurement_of(event):
        return ""
    return "it was reported before, with other measurements"


def _pinned(state: SessionState) -> int:
    """Consecutive rounds at the depth limit, counted anew from the window."""
    depths = (entry.summary_depth_max for entry in reversed(state.window))
    return sum(1 for _ in takewhile(lambda depth: at_limit(depth, state.max_depth or 0, state.depth_cap), depths))


def _checkpoint(
    state: SessionState, event: Checkpoint, policy: FleetPolicy, findings: list[Finding], reasons: Reasons | None
) -> Arrival | None:
    if event.event_id:
        if event.event_id in state.recent_events:
            state.counts = replace(state.counts, duplicates=state.counts.duplicates + 1)
            return Arrival.DUPLICATE
        state.recent_events = (*state.recent_events, event.event_id)[-limits.RECENT_EVENTS :]
    followed = following.follow(state.facts, event)
    state.facts = followed.facts
    if followed.overflow:
        state.counts = replace(state.counts, overflow=state.counts.overflow + followed.overflow)
    if event.facts is not None:
        state.facts_reported = True
    elif state.facts_reported is None:
        state.facts_reported = False
    view = CheckpointView(event, state.facts, policy, same_size=_same_size(state, event))
    for rule in CHECKPOINT_RULES:
        ask(rule, view, state, policy, f"L{event.level}", findings, reasons)
    return None


def _same_size(state: SessionState, event: Checkpoint) -> int:
    """How many outputs in a row had exactly this size at this level."""
    size, level = event.output_tokens, str(event.level)
    if size is None:
        return 1
    known = state.output_sizes.get(level)
    count = known[1] + 1 if known is not None and known[0] == size else 1
    if known is not None or len(state.output_sizes) < _MAX_LEVELS:
        state.output_sizes = {**state.output_sizes, level: (size, count)}
    return count


def _ask_presence(view: PresenceView, state: SessionState, findings: list[Finding], reasons: Reasons | None) -> None:
    for rule in PRESENCE_RULES:
        ask(rule, view, state, view.policy, SILENCE if view.aspect == "silence" else "", findings, reasons)
