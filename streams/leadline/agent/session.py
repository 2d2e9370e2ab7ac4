"""One agent session: reports its rounds and checkpoints, and obeys the monitor's commands at the agent's own boundaries."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Protocol, Self, Unpack, get_args

from leadline.agent import checks
from leadline.agent.asked import answered, bounds, in_vain, rehydrating
from leadline.agent.boundary import Boundary
from leadline.agent.calls import CallCounts, assessed, counted
from leadline.agent.commanded import Commanded
from leadline.agent.facts import Fact
from leadline.agent.holding import Holding
from leadline.agent.inbox import Inbox
from leadline.agent.ledger import Ledger
from leadline.agent.options import GuardMode, HoldMode, Options
from leadline.agent.presence import Presence
from leadline.agent.rehydrate import Rehydration, Restore, rehydrate
from leadline.agent.report import Identity, Reporter, Sink
from leadline.agent.signals import Signals
from leadline.contracts import limits
from leadline.contracts.events import FactState, Policy, RoundOutcome
from leadline.detection.policy import FleetPolicy
from leadline.detection.signals import span_floor
from leadline.errors import Halted, Refused

__all__ = ["Listener", "Session", "wall_clock"]

_log = logging.getLogger("leadline.agent")

_OUTCOMES = get_args(RoundOutcome)
_MAX_DEPTH = 1_024
_HOLD_SECONDS = 6.0

_epochs = count()
"""Tells apart the sessions that one process starts within a millisecond."""


class Listener(Protocol):
    """Where commands come from."""

    def register(self, recipient: Session) -> None: ...

    def unregister(self, recipient: Session) -> None: ...


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Session(Commanded):
    """A context manager: entering it starts the session, leaving it ends it.

    All methods belong to the agent's own thread, but for :meth:`receive`. Commands are acted on when the agent comes by:
    :meth:`may_compact`, :meth:`poll`, :meth:`compacted` and :meth:`rehydrate` look for new ones.

    At the compaction boundary the local guard only notes in :attr:`warnings` what it finds: with ``guard="raise"``, and only
    then, a pass that crosses it raises.

    ``token_budget``: for raw, summary and fixed tokens together; ``max_depth``: the agent's own limit of summary depth;
    the rest is in :class:`~leadline.agent.options.Options`. Raises :class:`leadline.errors.Refused`, here and in every method,
    for what no record can carry: ids that are no text, counts that are no whole numbers, options that do not exist.
    """

    def __init__(
        self,
        sink: Sink,
        session_id: str,
        *,
        agent_id: str,
        token_budget: int,
        max_depth: int,
        listener: Listener | None = None,
        presence: Presence | None = None,
        **options: Unpack[Options],
    ) -> None:
        checks.known_only(options, Options.__annotations__)
        checks.text("session_id", session_id)
        checks.text("agent_id", agent_id)
        fleet = checks.text("fleet", options.get("fleet", ""), 0)
        token_budget = checks.whole("token_budget", token_budget)
        max_depth = checks.whole("max_depth", max_depth, most=_MAX_DEPTH)
        clock = options.get("clock", wall_clock)
        epoch = checks.optional_whole("epoch", options.get("epoch"))
        self.session_id = session_id
        self.agent_id = agent_id
        # An epoch that nobody gave is the time: a restarted session's is higher than the last one's.
        self.epoch = max(0, clock()) * 1_000 + next(_epochs) % 1_000 if epoch is None else epoch
        self.ledger = Ledger()
        self.fixed_tokens = checks.optional_whole("fixed_tokens", options.get("fixed_tokens"))
        stated = Policy(
            token_budget=token_budget,
            max_depth=max_depth,
            scorer=checks.scorer(options.get("scorer")),
            eviction=checks.choice("eviction", options.get("eviction"), (None, "continuous", "overflow")),
            decay=None if options.get("decay") is None else checks.fraction("decay", options.get("decay"), 0.0, 1e9),
        )
        self._token_budget = token_budget
        self._policy = options.get("policy") or FleetPolicy()
        guard: GuardMode = checks.choice("guard", options.get("guard", "report"), get_args(GuardMode))
        self._boundary = Boundary(stated, self._policy, guard)
        self.warnings = self._boundary.warnings
        """What the local guard found lately."""
        self._baseline = checks.optional_whole("session_start_spans", options.get("session_start_spans"))
        self._facts = {fact.fact_id: fact for fact in checks.fact_list(options.get("facts", ()))}
        self._round = checks.whole("first_round", options.get("first_round", 1), 1) - 1
        self._dropped = 0
        self._started = self._ended = False
        self._vain = ""
        self._listener = listener
        self._report = Reporter(sink, Identity(session_id, agent_id, fleet, self.epoch), stated, clock)
        inbox = Inbox(self.epoch, self._report.ack, clock)
        holding = Holding(
            session_id,
            presence,
            checks.choice("hold", options.get("hold", "asynchronous"), get_args(HoldMode)),
            checks.fraction("hold_seconds", options.get("hold_seconds", _HOLD_SECONDS), 0.0, 3_600.0),
            checks.classes("fail_closed", options.get("fail_closed", ())),
            self._facts,
        )
        super().__init__(inbox, holding, max_depth, options.get("on_command"), options.get("on_state"))

    # -- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end("" if kind is None else f"ended by {kind.__name__}")

    def start(self) -> None:
        """Announce the session: policy, declared facts, baseline. A second call does nothing."""
        if not self._started:
            self._started = True
            self._holding.start()
            if self._listener is not None:
                self._listener.register(self)
            self._announce(self._facts.values())

    def declare(self, facts: Iterable[Fact]) -> None:
        """Facts that came up during the session; one that supersedes an earlier fact excuses that one's loss."""
        new = {fact.fact_id: fact for fact in checks.fact_list(facts)}
        self._facts |= new
        self._announce(new.values())

    def end(self, detail: str = "") -> None:
        """Close the session; commands to stop it are done by this. A second call does nothing."""
        if self._ended or not self._started:
            return
        for command in self._inbox.pending("stop-agent"):
            self.done(command)
        self._ended = True
        self._holding.end()
        if self._listener is not None:
            self._listener.unregister(self)
        self._report.ended(detail)

    # -- what the agent reports

    def measure(self) -> Signals:
        """The working set as it is now; pass it as ``before`` to :meth:`compacted`."""
        return self.ledger.measure()

    @property
    def free_tokens(self) -> int:
        """What still fits into the budget."""
        return max(0, self._token_budget - (self.fixed_tokens or 0) - self.measure().total_tokens)

    @contextmanager
    def compaction(self, trigger: str = "budget") -> Iterator[None]:
        """A compaction pass as a block: measured before and after, reported when it ends, as ``failed`` when it raises."""
        with self._report.compacting(trigger):
            before = self.measure()
            try:
                yield
            except BaseException:
                self.compacted(trigger, before=before, outcome="failed")
                raise
            self.compacted(trigger, before=before)

    def compacted(
        self,
        trigger: str = "budget",
        *,
        before: Signals | None = None,
        outcome: RoundOutcome = "ok",
        dropped_spans: int | None = None,
    ) -> Signals:
        """Report one compaction round, measured now, after its eviction pass; returns the measurement.

        ``dropped_spans``: raw items evicted for good in this round; left out, the ledger's own count. Raises
        :class:`leadline.errors.SalienceInversionError` only with ``guard="raise"``, once the round was sent. With
        ``hold="hold-on-compact"`` it waits here where the guard has found something, for a bounded time.
        """
        signals, found = self._compacted(trigger, before, outcome, dropped_spans)
        self._wait(found)
        return signals

    def _compacted(
        self, trigger: str, before: Signals | None, outcome: RoundOutcome, dropped_spans: int | None
    ) -> tuple[Signals, Halted | None]:
        """The round, and what is wrong with it if the agent is to wait for a verdict on that."""
        if not isinstance(trigger, str) or not trigger.isascii():
            trigger = checks.text("trigger", trigger, 0, 8 * limits.MAX_ID)
        if outcome not in _OUTCOMES:
            checks.choice("outcome", outcome, _OUTCOMES)
        if dropped_spans is not None:
            dropped_spans = checks.whole("dropped_spans", dropped_spans)
        self.poll()
        signals = self.ledger.measure()
        if self._baseline is None:
            self._baseline = self.ledger.spans_added
        self._round += 1
        dropped, self._dropped = self._dropped, self.ledger.spans_dropped
        event_id = self._report.round(
            self._round,
            trigger,
            signals,
            baseline=self._baseline,
            before=before,
            outcome=outcome,
            dropped_spans=self._dropped - dropped if dropped_spans is None else dropped_spans,
            fixed_tokens=self.fixed_tokens,
        )
        if outcome == "failed" or not signals.total_tokens:
            # As the monitor does: nothing was measured, so nothing is compared with it.
            return signals, None
        cap = self.depth_cap
        if cap is not None and signals.summary_depth_max <= cap:
            for command in self._inbox.pending("cap-depth"):
                self.done(command)
        found = self._boundary.passed(signals, self._baseline, cap, trigger, outcome)
        return signals, found if self._holding.judged_by_guard(event_id, found) else None

    def _wait(self, found: Halted | None) -> None:
        if found is not None:
            self._holding.came_to(self._holding.wait(self._commanded), found)
            self.poll()

    def _commanded(self) -> bool:
        """Whether a command has come that was not looked at yet, or one that stops is in force."""
        return self._inbox.waiting or bool(self._inbox.halts)

    def retract(self, trigger: str = "budget") -> None:
        """The round reported last turned out to have failed: take it back. The next one gets a new number."""
        if self._boundary.take_back():
            self._report.round(self._round, trigger, self.measure(), baseline=self._baseline or 0, outcome="failed")

    def checkpoint(
        self,
        level: int,
        *,
        text: str | None = None,
        visible: bool = True,
        statuses: Mapping[str, FactState] | None = None,
        declared_drops: Mapping[str, str] | None = None,
        input_facts: Iterable[str] | None = None,
        retry_of: str | None = None,
        **counts: Unpack[CallCounts],
    ) -> dict[str, FactState]:
        """Report one summarizer call at ``level``; returns what became of each declared fact.

        ``text``: the summary, looked at here and never sent. ``visible=False``: it is opaque, so facts are unknown.
        ``statuses`` overrides what :func:`leadline.agent.facts.assess` finds. ``declared_drops``: reasons by fact id.
        ``input_facts``: the facts that were in the call's input, where that is not all of them. Without declared facts no list
        of them is sent. Raises :class:`leadline.errors.RecallFloorViolation` only with ``guard="raise"``, once the checkpoint was
        sent.

        ``retry_of``: the id of the command that this call obeys, ``""`` for none. Left out, the call is taken for the answer to
        the pending commands that ask for this level again (:attr:`retries`), if the agent has looked since they came; while a
        ``halt`` with this level is in force, every call at the level is. The commands answered are acknowledged as done.

        With ``hold="hold-on-compact"`` it waits here as :meth:`compacted` does.
        """
        known, found = self._checkpoint(
            level,
            text,
            visible,
            statuses,
            declared_drops,
            input_facts,
            retry_of,
            counts,
        )
        self._wait(found)
        return known

    def _checkpoint(
        self,
        level: int,
        text: str | None,
        visible: bool,
        statuses: Mapping[str, FactState] | None,
        declared_drops: Mapping[str, str] | None,
        input_facts: Iterable[str] | None,
        retry_of: str | None,
        counts: CallCounts,
    ) -> tuple[dict[str, FactState], Halted | None]:
        """What became of the facts, and what is wrong with that if the agent is to wait for a verdict."""
        level = checks.whole("level", level, most=_MAX_DEPTH)
        if text is not None and not isinstance(text, str):
            raise Refused(f"text must be a string, or None where it is not visible, not {type(text).__name__}")
        given = None if input_facts is None else list(input_facts)
        states = assessed(self._facts, given, text, visible)
        states |= statuses or {}
        known = bool(states) or (statuses is not None and bool(self._facts))
        if not known and not self._facts:
            given = None
        obeyed, name = answered(self._inbox.seen(), self._inbox.halts, level, retry_of)
        event = self._report.checkpoint(
            level,
            self._round,
            states if known else None,
            self._facts,
            drops=declared_drops or {},
            input_facts=given,
            visible=visible,
            retry_of=name,
            **counted(counts, text if visible else None),
        )
        for command in obeyed:
            self.done(command)
        found = self._boundary.summarized(event)
        return states, found if self._holding.judged_by_guard(event.event_id, found) else None

    def rehydrate(self, restore: Restore, *, to_raw_ratio: float | None = None, archives: bool = False) -> Rehydration:
        """Bring raw spans back as the halts in force ask, acknowledge them, and report a round with trigger ``rehydrate``.

        ``restore(span_id)`` puts a span's text back into the working set and returns its tokens, or ``None`` when it cannot.
        Without a halt, the target is ``to_raw_ratio`` or the policy's exit level. Texts of the result's ``dropped`` items are
        to be dropped by the agent: they made room. ``archives=True`` promises that those of raw spans among them are kept where
        ``restore`` finds them; without it, only copies of raw spans go without a loss.

        A halt is refused only when nothing could be done at all. One that has a ``level`` is not answered here but by that
        level's next :meth:`checkpoint`. Where this helps nothing, as in a session that is stopped, one warning is logged.
        """
        result, found = self._rehydrate(restore, to_raw_ratio, archives)
        self._wait(found)
        return result

    # -- inside

    def _rehydrate(self, restore: Restore, to_raw_ratio: float | None, archives: bool) -> tuple[Rehydration, Halted | None]:
        """What was done, and what is wrong with the result if the agent is to wait for a verdict on it."""
        self.poll()
        halts = rehydrating(self._inbox.halts)
        before = self.measure()
        result = rehydrate(
            self.ledger,
            restore,
            bounds(
                halts,
                to_raw_ratio=to_raw_ratio,
                otherwise=self._policy.raw_ratio_exit,
                token_budget=max(0, self._token_budget - (self.fixed_tokens or 0)),
                least_spans=span_floor(self._baseline or 0, self._policy),
            ),
            plan=[target.summary_id for command in halts for target in command.parameters.plan or ()],
            drop_ungrounded=any(command.parameters.drop_ungrounded for command in halts),
            archives=archives,
        )
        for command in rehydrating(self._inbox.pending()):
            if result.reached or result.changed:
                self.done(command, result.detail, result.raw_tokens_restored)
            else:
                self.refuse(command, result.detail)
        vain = in_vain(self.state, self._inbox.halts, result.changed)
        if vain and vain != self._vain:
            self._vain = vain
            _log.warning("rehydrating session %.80r is in vain: %s", self.session_id, vain)
        return result, self._compacted("rehydrate", before, "ok", None)[1]

    def _announce(self, facts: Iterable[Fact]) -> None:
        self._boundary.declared(self._report.started(self._baseline, facts))
