"""A demo agent: a compaction loop that reports through an SDK session and does what the session is told. No I/O of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leadline.agent import Session, State
from leadline.agent.report import Sink
from leadline.agent.session import Listener, wall_clock
from leadline.contracts.events import Scorer
from leadline.contracts.orders import Command, Parameters
from leadline.contracts.text import plural
from leadline.demo import repair
from leadline.demo.kinds import Kind
from leadline.demo.loop import Call, CompactionLoop
from leadline.demo.material import FACTS

__all__ = ["DemoAgent"]


class DemoAgent:
    """One session of one kind. The same ``seed`` and the same commands at the same turns make the same numbers.

    ``sink`` and ``listener`` are the client's emitter and listener, or stand-ins in a test.
    """

    def __init__(
        self,
        kind: Kind,
        seed: int,
        session_id: str,
        agent_id: str,
        sink: Sink,
        *,
        listener: Listener | None = None,
        clock: Callable[[], int] = wall_clock,
        **options: Any,
    ) -> None:
        mechanism = kind.mechanism
        self.kind = kind
        self.session = Session(
            sink,
            session_id,
            agent_id=agent_id,
            token_budget=mechanism.token_budget,
            max_depth=mechanism.max_depth,
            listener=listener,
            facts=FACTS,
            session_start_spans=mechanism.start_spans,
            scorer=Scorer(kind="cosine to the task query, recency decay", penalizes_depth=False),
            eviction="continuous",
            decay=mechanism.decay,
            clock=clock,
            **options,
        )
        self.loop = CompactionLoop(mechanism, seed, self.session.ledger)
        self.turns = 0
        self.halts = 0
        """Rounds spent halted."""

    @property
    def stopped(self) -> bool:
        """The monitor ended this session."""
        return self.session.state is State.STOPPED

    def turn(self) -> None:
        """One round: do what was commanded, then compact if that is allowed, and report."""
        self.turns += 1
        session = self.session
        session.poll()
        for command in session.pending:
            if command.kind == "cap-depth":
                self._mend(command)
        for command in session.retries:
            self._mend(command)
        if session.may_compact():
            done = self.loop.step()
            self._report(done.calls)
            session.compacted("budget", before=done.before, outcome=done.outcome)
            return
        self.halts += 1
        done = self.loop.hold()
        grounded = [command.parameters for command in session.pending if command.kind == "halt"]
        if grounded:
            self._rehydrate(grounded)
        else:
            session.compacted("hold", before=done.before, outcome=done.outcome)

    def _rehydrate(self, halts: list[Parameters]) -> None:
        for parameters in halts:
            repair.adopt(self.loop, parameters)
        result = self.session.rehydrate(self._restore, archives=True)
        for item_id in result.dropped:
            self.loop.drop(item_id)

    def _restore(self, span_id: str) -> int | None:
        item = self.loop.archive.pop(span_id, None)
        if item is None:
            return None
        self.loop.items[span_id] = item
        return item.tokens

    def _mend(self, command: Command) -> None:
        if command.kind == "cap-depth":
            calls = repair.cap_depth(self.loop, self.session.depth_limit)
        else:
            calls = repair.retry_level(self.loop, command.parameters)
        self._report(calls, retry_of="" if command.kind == "cap-depth" else command.command_id)
        self.session.done(command, f"{plural(len(calls), 'summary', 'summaries')} made anew")

    def _report(self, calls: tuple[Call, ...] | list[Call], retry_of: str = "") -> None:
        for call in calls:
            self.session.checkpoint(
                call.level,
                text=call.output.text,
                input_facts=list(call.facts),
                retry_of=retry_of,
                declared_input_tokens=call.declared_tokens,
                consumed_input_tokens=call.consumed_tokens,
                source_spans=call.source_spans,
                seen_spans=call.seen_spans,
                output_tokens=call.output.tokens,
                stop_reason="end_turn",
            )
