"""``observe(state, event, now)``: what an event says about its session. Pure.

It keeps the session's measurements, facts and counts up to date and asks every rule; what is done about the findings is decided
in :mod:`leadline.commands`.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.events import Ack, AgentEvent, Checkpoint, Round, SessionEnd, SessionStart
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Action, CommandKind, Measured, Parameters, Severity, Tick
from leadline.contracts.session_state import Measurement, SessionState
from leadline.detection import bounded
from leadline.detection import facts as following
from leadline.detection.calls import call_input
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import Arrival, arrive, measurement_of, remember
from leadline.detection.rules import CHECKPOINT_RULES, PRESENCE_RULES, ROUND_RULES, no_progress
from leadline.detection.rules.base import CheckpointView, Decision, Evidence, Exit, PresenceView, RoundView, Rule
from leadline.detection.rules.depth_pin import at_limit
from leadline.detection.rules.unobserved import contradiction

__all__ = ["SILENCE", "Finding", "Observation", "observe"]

V = TypeVar("V", RoundView, CheckpointView, PresenceView)


SILENCE: Final = "silence"
"""Subject of the `unobserved` incident that silence opens."""

_SHORT_EPOCH: Final = 2
_SHORT_EPOCHS_IN_A_ROW: Final = 3
"""So many epochs of so few rounds are a counter that counts the wrong thing: no rule that compares rounds can judge them."""

_MAX_LEVELS: Final = 16
"""Levels whose output sizes are followed."""


class Finding(NamedTuple):
    """A rule that fired, or that has an incident open and says how it stands."""

    rule: str
    subject: str
    """``L2`` for a checkpoint level, empty for the session as a whole."""
    decision: Decision
    exit: Exit
    improved: bool
    """Against the measurement at which the open incident began."""
    severity: Severity = "info"
    action: Action = "none"
    message: str = ""
    threshold: dict[str, float] = {}  # noqa: RUF012 - never changed
    evidence: Evidence = {}  # noqa: RUF012 - never changed
    parameters: Parameters = Parameters()
    facts: tuple[str, ...] = ()
    on_repeat: CommandKind | None = None
    round: int | None = None
    level: int | None = None
    call_input: int | None = None
    before: Measured | None = None
    now: Measured | None = None


class Observation(NamedTuple):
    """``reasons``: what each rule that was asked said, fired or not. ``restarted``: a new epoch began."""

    state: SessionState
    findings: tuple[Finding, ...] = ()
    reasons: tuple[tuple[str, Decision], ...] = ()
    restarted: bool = False
    arrival: Arrival | None = None
    """For a round: how it related to those before it."""


def observe(state: SessionState, event: Event, now: int, policy: FleetPolicy) -> Observation:
    """Apply ``event``, received at ``now`` (ms since 1970), to ``state``, which is not changed."""
    state = state.working_copy()
    if isinstance(event, Tick):
        return _tick(state, now, policy)
    if isinstance(event, Manual):
        return Observation(state)  # Nobody heard of the agent, and nothing was measured.
    restarted = False
    if event.epoch is not None and event.epoch != state.epoch:
        if event.epoch < state.epoch:
            return _stale(state, event, event.epoch, policy)
        restarted = _restart(state, event.epoch)
    state.last_seen = max(state.last_seen, now)
    if event.fleet:
        state.fleet = event.fleet
    if state.ended_at is not None and not isinstance(event, Ack):
        state.counts = replace(state.counts, after_end=state.counts.after_end + 1)
        return Observation(state, restarted=restarted)
    findings: list[Finding] = []
    if state.incidents and any(incident.subject == SILENCE for incident in state.incidents):
        _ask_presence(PresenceView(policy, "silence", state.counts.gaps), state, findings, [])
    if isinstance(event, Round):
        observation = _round(state, event, policy)
    elif isinstance(event, Checkpoint):
        observation = _checkpoint(state, event, policy)
    else:
        if isinstance(event, SessionStart):
            _start(state, event)
        elif isinstance(event, SessionEnd):
            state.ended_at = now
        observation = Observation(state)
    if not findings and not restarted:
        return observation
    return observation._replace(findings=(*findings, *observation.findings), restarted=restarted)


def _stale(state: SessionState, event: AgentEvent, epoch: int, policy: FleetPolicy) -> Observation:
    """An event of an epoch that is over is ignored. Rounds of one are no healthy session: somebody is not being watched."""
    state.counts = replace(state.counts, stale_epoch=state.counts.stale_epoch + 1)
    findings: list[Finding] = []
    reasons: list[tuple[str, Decision]] = []
    if isinstance(event, Round) and state.ended_at is None:
        wrong = f"it is of epoch {epoch}, which ended when epoch {state.epoch} began"
        stale = PresenceView(policy, "rounds", state.counts.gaps, event.round, contradiction=wrong)
        _ask_presence(stale, state, findings, reasons)
    return Observation(state, tuple(findings), tuple(reasons), arrival=Arrival.LATE)


def _tick(state: SessionState, now: int, policy: FleetPolicy) -> Observation:
    """Time has passed: is the session silent past its deadline?"""
    silent = now - state.last_seen
    findings: list[Finding] = []
    reasons: list[tuple[str, Decision]] = []
    if state.ended_at is None and silent >= policy.silence_ms:
        _ask_presence(PresenceView(policy, "silence", state.counts.gaps, silent_ms=silent), state, findings, reasons)
    return Observation(state, tuple(findings), tuple(reasons))


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


def _round(state: SessionState, event: Round, policy: FleetPolicy) -> Observation:
    gaps = state.counts.gaps
    last = state.last_round
    arrival = arrive(state, event)
    findings: list[Finding] = []
    reasons: list[tuple[str, Decision]] = []
    missed = max(0, state.counts.gaps - gaps)
    if arrival in (Arrival.DUPLICATE, Arrival.LATE):
        wrong = _told_otherwise(state, event) if arrival is Arrival.DUPLICATE else f"it comes after round {last}"
        if wrong:
            # A restart that kept its epoch looks like this: everything that it says is ignored.
            again = PresenceView(policy, "rounds", state.counts.gaps, event.round, contradiction=wrong)
            _ask_presence(again, state, findings, reasons)
        return Observation(state, tuple(findings), tuple(reasons), arrival=arrival)
    wrong = "" if event.outcome == "failed" else contradiction(event)
    if state.short_epochs >= _SHORT_EPOCHS_IN_A_ROW and state.seen_mask == 1:
        wrong = f"{state.short_epochs} epochs in a row ended after at most {_SHORT_EPOCH} rounds; nothing can be compared"
    presence = PresenceView(policy, "rounds", state.counts.gaps, event.round, missed, contradiction=wrong)
    _ask_presence(presence, state, findings, reasons)
    _measure(state, event, arrival, policy, findings, reasons)
    return Observation(state, tuple(findings), tuple(reasons), arrival=arrival)


def _measure(
    state: SessionState,
    event: Round,
    arrival: Arrival,
    policy: FleetPolicy,
    findings: list[Finding],
    reasons: list[tuple[str, Decision]],
) -> None:
    """Take the round's measurements into the state, and ask the rules about them where they are the newest."""
    if arrival is Arrival.SUPERSEDES:
        state.window = state.window[:-1]
        state.pinned_rounds = state.pinned_rounds - 1 if state.pinned_rounds else _pinned(state)
    if event.outcome == "failed":
        # A failed compaction left the working set as it was: nothing was measured, and there is nothing else to judge.
        state.counts = replace(state.counts, failed=state.counts.failed + 1)
        if arrival is not Arrival.REORDERED:
            state.stalled_rounds += 1
            now = state.window[-1] if state.window else measurement_of(event)
            view = _view(state, event, None, now, policy)._replace(taken_back=arrival is Arrival.SUPERSEDES)
            _ask(no_progress.RULE, view, state, policy, "", findings, reasons)
        return
    measurement = measurement_of(event)
    if measurement.raw_tokens + measurement.summary_tokens == 0:
        state.counts = replace(state.counts, unknown=state.counts.unknown + 1)
        return
    prev = state.window[-1] if state.window else None
    remember(state, measurement)
    if arrival is Arrival.REORDERED:
        return
    if not state.baseline_spans:
        state.baseline_spans = event.session_start_spans
    state.token_budget = event.token_budget
    state.max_depth = event.max_depth
    state.fixed_tokens = event.fixed_tokens or 0
    pinned = at_limit(event.summary_depth_max, event.max_depth, state.depth_cap)
    state.pinned_rounds = state.pinned_rounds + 1 if pinned else 0
    spun = no_progress.stalled(event, prev, policy)
    if spun is not None:
        state.stalled_rounds = state.stalled_rounds + 1 if spun else 0
    view = _view(state, event, prev, measurement, policy)._replace(stalled=spun)
    for rule in ROUND_RULES:
        decision = _ask(rule, view, state, policy, "", findings, reasons)
        if rule.name == "inversion" and decision is not None and decision.fired:
            view = view._replace(inversion_open=True)


def _view(state: SessionState, event: Round, prev: Measurement | None, now: Measurement, policy: FleetPolicy) -> RoundView:
    return RoundView(
        prev=prev,
        now=now,
        pinned_rounds=state.pinned_rounds,
        baseline_spans=state.baseline_spans or 0,
        max_depth=event.max_depth,
        penalizes_depth=state.penalizes_depth,
        eviction=state.eviction,
        policy=policy,
        inversion_open=any(item.rule == "inversion" and not item.releasing for item in state.incidents),
        event=event,
        fixed_tokens=state.fixed_tokens,
        token_budget=event.token_budget,
        window=state.window,
        stalled_rounds=state.stalled_rounds,
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


def _checkpoint(state: SessionState, event: Checkpoint, policy: FleetPolicy) -> Observation:
    if event.event_id:
        if event.event_id in state.recent_events:
            state.counts = replace(state.counts, duplicates=state.counts.duplicates + 1)
            return Observation(state)
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
    findings: list[Finding] = []
    reasons: list[tuple[str, Decision]] = []
    for rule in CHECKPOINT_RULES:
        _ask(rule, view, state, policy, f"L{event.level}", findings, reasons)
    return Observation(state, tuple(findings), tuple(reasons))


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


def _ask_presence(view: PresenceView, state: SessionState, findings: list[Finding], reasons: list[tuple[str, Decision]]) -> None:
    for rule in PRESENCE_RULES:
        _ask(rule, view, state, view.policy, SILENCE if view.aspect == "silence" else "", findings, reasons)


def _ask(
    rule: Rule[V],
    view: V,
    state: SessionState,
    policy: FleetPolicy,
    subject: str,
    findings: list[Finding],
    reasons: list[tuple[str, Decision]],
) -> Decision | None:
    """Ask one rule; put words to it only where it fired or has an incident open."""
    if policy.modes and policy.mode(rule.name) == "off":
        return None
    decision = rule.judge(view)
    reasons.append((rule.name, decision))
    if not decision.fired and not state.incidents:
        return decision
    open_one = next(
        (item for item in state.incidents if item.rule == rule.name and item.subject == subject and not item.releasing), None
    )
    if not decision.fired and open_one is None:
        return decision
    commanded = open_one is not None and open_one.command is not None
    asked = view
    if isinstance(view, CheckpointView):
        asked = view._replace(incident=open_one)
    leaving = Exit.STANDING if decision.fired else rule.exit(asked, decision)
    opening = open_one.opening if open_one is not None else None
    finding = Finding(rule.name, subject, decision, leaving, rule.improved(view, opening))
    if decision.fired:
        finding = finding._replace(
            severity=rule.severity,
            action=rule.action(view),
            # Words are made where somebody will read them: an incident that has its command needs no more.
            message="" if commanded and rule.on_repeat is None else bounded.said(rule.message(view)),
            threshold={} if open_one is not None else bounded.thresholds(rule.threshold(view)),
            evidence={} if open_one is not None else bounded.shown(rule.evidence(view)),
            parameters=bounded.told(rule.parameters(view)),
            facts=bounded.named(rule.facts(view)),
            on_repeat=rule.on_repeat,
        )
    if isinstance(view, RoundView):
        before = view.prev.measured() if view.prev is not None else None
        number = view.now.round if view.event is None else view.event.round
        finding = finding._replace(round=number, before=before, now=view.now.measured())
    elif isinstance(view, CheckpointView):
        checkpoint = view.checkpoint
        finding = finding._replace(round=checkpoint.round, level=checkpoint.level, call_input=call_input(checkpoint))
    else:
        finding = finding._replace(round=view.round)
    findings.append(finding)
    return decision
