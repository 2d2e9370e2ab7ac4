"""Incidents: opened by a rule that fires, updated while it stands, commanded once, resolved by measurements. Pure.

While an incident is open further firings update it and send no second command. Silence never resolves one: only a finding that
says OVER (or GOOD often enough in a row) does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from msgspec.structs import replace

from leadline.commands import issue
from leadline.commands.deadlines import watched
from leadline.commands.lifecycle import Instruction, Move, Signal, advance
from leadline.contracts import ids, limits
from leadline.contracts.codec import Event
from leadline.contracts.events import Ack
from leadline.contracts.manual import Manual
from leadline.contracts.orders import Cause, Command, CommandKind, Parameters, Tick, Violation
from leadline.contracts.session_state import CommandState, Incident, SessionState, Stage
from leadline.contracts.text import plural, safe
from leadline.detection.asking import standing
from leadline.detection.bounded import named
from leadline.detection.observe import Finding, Observation
from leadline.detection.policy import FleetPolicy
from leadline.detection.rounds import Arrival, goes_on
from leadline.detection.rules import UNHEEDED
from leadline.detection.rules.base import Exit

__all__ = ["settle"]

Outputs = list[Violation | Command]

_ACK_SIGNALS = {
    "accepted": Signal.ACCEPTED,
    "done": Signal.DONE,
    "refused": Signal.REFUSED,
    "expired": Signal.EXPIRED,
}
_KINDS: tuple[CommandKind, ...] = get_args(CommandKind)
_REPEATS_WITHOUT_ACK = 2
"""Firings after which a retry counts as repeated trouble though nobody acknowledged it."""


def settle(
    observation: Observation,
    event: Event,
    now: int,
    policy: FleetPolicy,
    cause: Cause,
    version: str = "",
    sent_at: int | None = None,
    moves: list[Move] | None = None,
    *,
    usurped: bool = False,
) -> Outputs:
    """Decide what is done about an observation at ``now`` (ms since 1970): updates its state, returns what to send.

    ``now`` is the event's own receive time, so that a replay ends in the same state; ``sent_at`` (unless given, ``now``) stamps
    the records that go out.

    ``version`` of the policy is named in what is sent; ids do not depend on it. ``moves``, where given, is told what became of
    the commands and incidents that were there. ``usurped``: what they were opened by was not the session's fleet.
    """
    state = observation.state
    if not observation.findings and not state.incidents and type(event) is not Ack and type(event) is not Manual:
        return []  # Nearly every event of a healthy fleet.
    sent_at = now if sent_at is None else sent_at
    settlement = _Settlement(observation.state, now, policy, cause, version, sent_at, [] if moves is None else moves)
    return settlement.run(observation, event, usurped)


class _Settlement:
    """One event's worth of work on one state; exists for the length of one :func:`settle`."""

    __slots__ = ("arrival", "cause", "moves", "now", "outputs", "policy", "sent_at", "state", "version")

    def __init__(
        self, state: SessionState, now: int, policy: FleetPolicy, cause: Cause, version: str, sent_at: int, moves: list[Move]
    ) -> None:
        self.state = state
        self.now = now
        self.sent_at = sent_at
        self.policy = policy
        self.cause = cause
        self.version = version
        self.moves = moves
        self.outputs: Outputs = []
        self.arrival: Arrival | None = None

    def run(self, observation: Observation, event: Event, usurped: bool) -> Outputs:
        state = self.state
        self.arrival = observation.arrival
        if observation.restarted or state.ended_at is not None:
            # The trouble was of a context that is gone: nothing is left to repair, and nothing recovered either.
            state.incidents = ()
        elif usurped:
            self._disown()
        if self.policy.modes:
            self._each(self._withdrawn)
        # On these types `type() is` is several times as fast as an isinstance() that says no.
        if type(event) is Tick:
            self._each(self._overdue)
        elif type(event) is Ack:
            self._acknowledged(event)
        elif type(event) is Manual:
            if state.ended_at is None:
                self._by_hand(event)
        else:
            self._each(self._release_again)
            if goes_on(event, observation.arrival):
                self._each(self._went_on)
        for finding in observation.findings:
            self._found(finding, event)
        return self.outputs

    def _by_hand(self, event: Manual) -> None:
        """Somebody halts the session, or releases what is halted. Twice is once, and so is a copy of what was done before."""
        state = self.state
        if event.event_id in state.done_by_hand:
            state.counts = replace(state.counts, duplicates=state.counts.duplicates + 1)
            return
        state.done_by_hand = (*state.done_by_hand, event.event_id)[-limits.RECENT_EVENTS :]
        rule = event.rule or issue.MANUAL
        standing = [one for one in self.state.incidents if not one.releasing]
        if event.action == "halt":
            if all(one.rule != issue.MANUAL for one in standing):
                self._open(issue.by_hand(self.state, event), event)
            return
        why = f"{issue.RELEASED_BY_HAND} by {safe(event.who, 100)}: {safe(event.why, 300)}"
        for incident in standing:
            if event.incident_id in ("", incident.incident_id) and incident.rule == rule:
                self._resolve(incident, Signal.RELEASED, why)

    def _disown(self) -> None:
        """Others spoke for the session before its fleet did: what that led to is released. What a person had it halted for
        stands, and is commanded anew: who acknowledged that was not the fleet, and may have been of another epoch."""
        why = f"{issue.WITHDRAWN}: the session's fleet has signed for it, and what was said before was not signed"

        def disown(incident: Incident) -> None:
            command = incident.command
            if incident.releasing:
                return
            if issue.MANUAL not in (incident.rule, incident.subject):
                self._resolve(incident, Signal.WITHDRAWN, why)
            elif command is not None:
                self._put(self._command(incident, command.kind, command.attempt + 1, command.parameters, command.reason))

        self._each(disown)

    def _each(self, step: Callable[[Incident], None]) -> None:
        """``step`` for each incident that is there, as it is by then: a step may have changed others, or ended them."""
        for incident in self.state.incidents:
            for known in self.state.incidents:
                if known.incident_id == incident.incident_id:
                    step(known)
                    break

    def _withdrawn(self, incident: Incident) -> None:
        """The policy changed meanwhile: what it no longer enforces is released, what it no longer looks at is forgotten."""
        mode = self.policy.mode(incident.rule)
        if incident.releasing or mode == "enforce" or mode == incident.mode:
            return
        if incident.command is not None:
            self._resolve(incident, Signal.WITHDRAWN, f"{issue.WITHDRAWN}: {incident.rule} is in mode {mode} now")
        elif mode == "off":
            self._drop(incident)
        else:
            self._put(replace(incident, mode=mode))

    def _put(self, incident: Incident) -> None:
        """Replace the incident of the same id, or add it."""
        incidents = self.state.incidents
        for index, known in enumerate(incidents):
            if known.incident_id == incident.incident_id:
                self.state.incidents = (*incidents[:index], incident, *incidents[index + 1 :])
                return
        self.state.incidents = (*incidents, incident)

    def _drop(self, incident: Incident) -> None:
        self.state.incidents = tuple(item for item in self.state.incidents if item.incident_id != incident.incident_id)

    def _found(self, finding: Finding, event: Event) -> None:
        known = standing(self.state, finding.rule, finding.subject)
        if known is None:
            if finding.decision.fired:
                self._open(finding, event)
        elif finding.decision.fired:
            self._fired_again(known, finding)
        elif finding.exit is Exit.OVER:
            self._resolve(known)
        else:
            self._stands(known, finding)

    def _open(self, finding: Finding, event: Event) -> None:
        if not self._has_room(finding):
            self.state.counts = replace(self.state.counts, overflow=self.state.counts.overflow + 1)
            return
        opened_by = issue.opened_by(event, self.state, self.arrival)
        self.state.opened += 1
        incident = issue.opened(self.state, finding, opened_by, self.policy, self.now, self.cause)
        self.outputs.append(issue.violation(self.state, incident, finding, self.sent_at, self.version))
        if incident.mode == "enforce" and finding.action != "none":
            incident = self._command(incident, finding.action, 1, finding.parameters, finding.message)
        self._put(incident)

    def _has_room(self, finding: Finding) -> bool:
        """Levels are many, and the agent names them: they never take the places of what is wrong with the session itself."""
        incidents = self.state.incidents
        if finding.level is not None:
            return sum(item.level is not None for item in incidents) < limits.MAX_LEVEL_INCIDENTS
        if len(incidents) >= limits.MAX_OPEN_INCIDENTS:
            released = next((item for item in incidents if item.releasing), None)
            if released is None:
                return False
            self._drop(released)
        return True

    def _command(self, incident: Incident, kind: CommandKind, attempt: int, parameters: Parameters, reason: str) -> Incident:
        incident, record = issue.command(
            self.state, incident, kind, attempt, parameters, reason, self.policy, self.now, self.sent_at, self.version
        )
        if record.kind == "cap-depth":
            self.state.depth_cap = parameters.max_depth
        self.outputs.append(record)
        return incident

    def _fired_again(self, incident: Incident, finding: Finding) -> None:
        facts = named((*incident.facts, *finding.facts))
        mode = self.policy.mode(incident.rule)
        extent = max(incident.extent, finding.extent)
        incident = replace(incident, extent=extent, firings=incident.firings + 1, good_rounds=0, facts=facts, mode=mode)
        command = incident.command
        if command is not None:
            command = replace(command, repeats=command.repeats + 1)
            if command.kind == finding.action and finding.parameters.plan:
                # Should it be issued again, then with a plan over the summaries that there are by now.
                command = replace(command, parameters=finding.parameters)
            if command.kind == "retry-level" and facts:
                # Should it be issued again, then for all that was lost by now.
                command = replace(command, parameters=replace(command.parameters, facts=list(facts)))
            incident = replace(incident, command=command)
        self._put(incident)
        if command is None and incident.mode == "enforce" and finding.action != "none":
            # What was only told at first has gone past the count at which something is done.
            self._put(self._command(incident, finding.action, 1, finding.parameters, finding.message))
        elif command is None or command.kind != "retry-level":
            self._effect(incident, finding)
        elif finding.action == "none":
            if command.stage in (Stage.ACCEPTED, Stage.EFFECTIVE):
                self._signal(incident, Signal.IMPROVED)  # It was made again, and what is left asks for nothing.
        elif finding.on_repeat is not None:
            if command.stage is Stage.ACCEPTED or command.repeats >= _REPEATS_WITHOUT_ACK:
                again = f"{finding.message} (again after {command.kind})"
                self._put(self._command(incident, finding.on_repeat, 1, Parameters(level=finding.level), again))
        elif command.stage is Stage.ACCEPTED:
            self._signal(incident, Signal.NO_EFFECT)

    def _stands(self, incident: Incident, finding: Finding) -> None:
        good = incident.good_rounds + 1 if finding.exit is Exit.GOOD else 0
        incident = replace(incident, good_rounds=good)
        self._put(incident)
        if good >= self.policy.good_rounds:
            self._resolve(incident)
        else:
            self._effect(incident, finding)

    def _effect(self, incident: Incident, finding: Finding) -> None:
        """Judge an accepted command by the newest measurement."""
        command = incident.command
        if command is None or finding.now is None or command.stage not in (Stage.ACCEPTED, Stage.EFFECTIVE):
            return
        if finding.improved:
            self._signal(incident, Signal.IMPROVED)
            return
        if command.kind == "cap-depth" and self._halted():
            return  # An agent that may not compact can make no flatter summaries.
        command = replace(command, misses=command.misses + 1)
        incident = replace(incident, command=command)
        self._put(incident)
        if command.misses >= self.policy.effect_rounds:
            self._signal(incident, Signal.NO_EFFECT)

    def _halted(self) -> bool:
        commands = (item.command for item in self.state.incidents)
        return any(command is not None and command.kind in ("halt", "stop-agent") for command in commands)

    def _went_on(self, incident: Incident) -> None:
        """The agent compacts while it should summarize a level again: what a measurement without effect is to other commands."""
        command = incident.command
        if incident.level is None or command is None or incident.releasing or command.misses:
            return
        if command.stage in (Stage.ACCEPTED, Stage.EFFECTIVE):
            self._put(replace(incident, command=replace(command, misses=1)))

    def _signal(self, incident: Incident, signal: Signal, why: str = "") -> None:
        command = incident.command
        assert command is not None
        after, instruction = advance(command, signal, self.now, self.policy)
        self.moves.append(Move(incident, command, signal, after.stage))
        incident = replace(incident, command=after)
        if instruction is Instruction.REISSUE:
            incident = self._command(incident, command.kind, command.attempt + 1, command.parameters, command.reason)
        elif instruction is Instruction.RELEASE:
            incident = self._release(incident, command, why)
        self._put(incident)
        if instruction is Instruction.ESCALATE:
            self._escalate(incident, signal)

    def _escalate(self, incident: Incident, signal: Signal) -> None:
        if incident.rule == UNHEEDED:
            return  # Stopping the agent was the last resort; the violation stays open for people.
        failed = incident.command
        assert failed is not None
        finding = issue.unheeded(self.state, incident, failed, issue.WHY.get(signal, signal.value), self.policy)
        if not incident.releasing and self._stopping(finding.subject):
            return
        child = issue.opened(self.state, finding, f"{incident.incident_id}/{failed.kind}", self.policy, self.now, incident.cause)
        # It belongs to the trace of what went unheeded, not to that of the event that happened to show it.
        child = replace(child, traceparent=incident.traceparent, tracestate=incident.tracestate)
        watched = self.policy.mode(UNHEEDED) != "off"
        if watched and not incident.release_unheeded:
            self.outputs.append(issue.violation(self.state, child, finding, self.sent_at, self.version))
        if incident.releasing:
            # The agent may still be halted: it is told again as soon as it is heard of.
            self._put(replace(incident, release_unheeded=True))
        if incident.releasing or not watched:
            return
        if child.mode == "enforce":
            child = self._command(child, "stop-agent", 1, Parameters(), finding.message)
        self._put(child)

    def _stopping(self, subject: str) -> bool:
        """Whether the agent was told to stop already, when an earlier command for the same trouble was not heeded."""
        return any(item.rule == UNHEEDED and item.subject == subject and not item.releasing for item in self.state.incidents)

    def _resolve(self, incident: Incident, signal: Signal = Signal.RECOVERED, why: str = "") -> None:
        """It is over: release the agent, and whatever was escalated from it. ``why``, unless the measurements say so."""
        if incident.command is None:
            self.moves.append(Move(incident, None, signal, Stage.RESOLVED))
            self._drop(incident)
        else:
            self._signal(incident, signal, why)
        subject = issue.subject_of(incident)
        for child in self.state.incidents:
            if child.rule == UNHEEDED and child.subject == subject and not child.releasing:
                self._resolve(child, signal, why)

    def _release(self, incident: Incident, command: CommandState, why: str) -> Incident:
        """Tell the agent that ``command`` is over; a cap on the depth stays."""
        measured = self.state.window[-1] if self.state.window and incident.level is None else None
        told = "the level closed"
        if measured is not None:
            told = f"raw ratio {measured.raw_ratio or 0.0:.2f}, {plural(measured.distinct_source_spans, 'source span')}"
        parameters = Parameters(releases=command.command_id, max_depth=self.state.depth_cap)
        reason = why or f"{issue.subject_of(incident)} is over: {told}"
        return self._command(replace(incident, releasing=True), "resume", 1, parameters, reason)

    def _release_again(self, incident: Incident) -> None:
        """An agent that is heard of after its release went unanswered may never have had it."""
        command = incident.command
        if incident.releasing and command is not None and command.stage is Stage.ESCALATED:
            self._put(self._command(incident, command.kind, command.attempt + 1, command.parameters, command.reason))

    def _acknowledged(self, ack: Ack) -> None:
        for incident in self.state.incidents:
            command = incident.command
            if command is None:
                continue
            if command.command_id == ack.command_id:
                if incident.releasing and ack.outcome in ("accepted", "done", "refused"):
                    self.moves.append(Move(incident, command, _ACK_SIGNALS[ack.outcome], Stage.RESOLVED))
                    self._drop(incident)
                else:
                    self._signal(incident, _ACK_SIGNALS[ack.outcome])
                return
            attempts = range(1, max(command.attempt, self.policy.attempts) + 1)
            earlier = (ids.command_id(incident.incident_id, kind, n) for kind in _KINDS for n in attempts)
            if ack.command_id in earlier:
                return
        self.state.counts = replace(self.state.counts, unmatched_acks=self.state.counts.unmatched_acks + 1)

    def _overdue(self, incident: Incident) -> None:
        command = incident.command
        if command is None or not watched(command) or command.deadline > self.now:
            return
        late = self.now - command.deadline
        if command.stage is Stage.ISSUED and not command.rearmed and late > self.policy.command_ttl_ms // 2:
            # The monitor was away, not the agent, which may not even have been sent it in time.
            rearmed = replace(command, rearmed=True, deadline=self.now + self.policy.command_ttl_ms)
            self._put(replace(incident, command=rearmed))
        elif command.stage is not Stage.ISSUED and not command.misses:
            # Nothing was measured that shows no effect: a silent agent is the matter of `unobserved`.
            self._put(replace(incident, command=replace(command, deadline=self.now + self.policy.effect_ttl_ms)))
        else:
            self._signal(incident, Signal.DEADLINE)
