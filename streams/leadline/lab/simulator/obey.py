"""The closed loop: a simulated agent that hears the monitor's commands, and obeys or ignores them.

The sources can be read again: rehydration brings a span's text back at the price of its tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from leadline.contracts.events import Ack
from leadline.contracts.orders import Command, Parameters
from leadline.contracts.times import format_ms
from leadline.lab.replay import ReplayDriver
from leadline.lab.simulator.loop import Answer, Loop, Pass
from leadline.lab.simulator.records import AGENT, ROUND_MS, round_record, start_record, summary_name
from leadline.lab.simulator.settings import LoopSettings

__all__ = ["Lived", "live"]


class Lived(NamedTuple):
    """What became of a session. ``restored_tokens``: read again on command; ``waited``: rounds spent under a halt."""

    answer: Answer
    halts: int
    restored_tokens: int
    token_budget: int
    waited: int
    dropped: int
    """Summaries given up, since nothing below them fitted."""
    rounds: int

    @property
    def token_cost(self) -> float:
        """Tokens read again in the whole session, as a share of its budget."""
        return self.restored_tokens / self.token_budget


def live(settings: LoopSettings, seed: int, *, obey: bool) -> Lived:
    """A whole session with a monitor listening. Stopped on command, it answers from what it has then."""
    return _Agent(settings, seed, obey).live()


class _Agent:
    def __init__(self, settings: LoopSettings, seed: int, obey: bool) -> None:
        self._loop = Loop(settings, seed)
        self._obey = obey
        self._driver = ReplayDriver()
        self._session = f"closed-{seed}"
        self._halted: set[str] = set()
        self._stopped = False
        self._halts = 0
        self._restored = 0
        self._waited = 0
        self._dropped = 0

    def live(self) -> Lived:
        loop = self._loop
        self._driver.feed(start_record(self._session, loop))
        while loop.round < loop.settings.rounds and not self._stopped:
            one = self._wait() if self._halted else loop.step()
            heard = self._feed(round_record(self._session, loop, one, at=loop.round * ROUND_MS))
            if self._obey:
                self._act_on(heard)
        budget = loop.settings.token_budget
        return Lived(loop.answer(), self._halts, self._restored, budget, self._waited, self._dropped, loop.round)

    def _wait(self) -> Pass:
        """A round under a halt: nothing is read, summarized or evicted."""
        self._loop.round += 1
        self._waited += 1
        now = self._loop.measure()
        return Pass(self._loop.round, now, now, 0)

    def _feed(self, record: object) -> list[Command]:
        steps = self._driver.feed(record)  # type: ignore[arg-type]
        return [output for step in steps for output in step.outputs if isinstance(output, Command)]

    def _act_on(self, heard: list[Command]) -> None:
        while heard:
            command = heard.pop(0)
            before = self._restored
            self._act(command)
            ack = Ack(
                session_id=self._session,
                agent_id=AGENT,
                epoch=0,
                ts=format_ms(self._loop.round * ROUND_MS + 1_000),
                event_id=f"ack-{command.command_id}",
                command_id=command.command_id,
                seq=command.seq,
                outcome="done",
                raw_tokens_restored=self._restored - before,
            )
            heard += self._feed(ack)

    def _act(self, command: Command) -> None:
        told = command.parameters
        if command.kind == "halt":
            self._halts += 1
            self._halted.add(command.command_id)
            self._rehydrate(told)
        elif command.kind == "resume":
            self._halted.discard(told.releases or "")
        elif command.kind == "cap-depth" and told.max_depth is not None:
            self._loop.depth_limit = told.max_depth
            context = self._loop.context
            context.retained[: context.count][context.depth[: context.count] > told.max_depth] = False
        elif command.kind == "stop-agent":
            self._stopped = True

    def _rehydrate(self, told: Parameters) -> None:
        """Expand the plan's summaries in order, then the lowest and broadest of its own; then ground the rest."""
        context = self._loop.context
        planned = [int(target.summary_id.removeprefix(summary_name(0)[:-1])) for target in told.plan or ()]
        own = [row for row in context.kept().tolist() if context.depth[row] > 0]
        own.sort(key=lambda row: (int(context.depth[row]), -len(context.children[row]), row))
        for row in dict.fromkeys((*planned, *own)):
            if self._reached(told):
                break
            if context.retained[row]:
                self._expand(row)
        for row in own:
            if context.retained[row] and not context.reach(np.array([row]))[0]:
                self._ground(row)

    def _ground(self, row: int) -> None:
        """Read the shortest leaf below it again; where even that does not fit, drop the summary."""
        context, budget = self._loop.context, self._loop.settings.token_budget
        below = context.spans[context.leaves[row][: len(context.spans)]]
        leaf = int(below[np.argmin(context.tokens[below])])
        if int(context.tokens[context.kept()].sum() + context.tokens[leaf]) > budget:
            context.retained[row] = False
            self._dropped += 1
            return
        context.retained[leaf] = True
        context.born[leaf] = self._loop.round
        self._restored += int(context.tokens[leaf])

    def _expand(self, row: int) -> None:
        """The summary gives its place to as many of its leaves as fit the budget."""
        context, budget = self._loop.context, self._loop.settings.token_budget
        missing = context.spans[context.leaves[row][: len(context.spans)] & ~context.retained[context.spans]]
        room = budget - int(context.tokens[context.kept()].sum()) + int(context.tokens[row])
        fitting = missing[np.cumsum(context.tokens[missing]) <= room]
        if not len(fitting):
            return
        context.retained[row] = False
        context.retained[fitting] = True
        context.born[fitting] = self._loop.round
        self._restored += int(context.tokens[fitting].sum())

    def _reached(self, told: Parameters) -> bool:
        now = self._loop.measure()
        enough_raw = told.target_raw_ratio is None or (now.raw_ratio or 0.0) >= told.target_raw_ratio
        return enough_raw and (told.target_spans is None or now.distinct_source_spans >= told.target_spans)
