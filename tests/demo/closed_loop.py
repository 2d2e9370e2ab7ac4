"""One demo agent, its SDK session and the monitor's decisions in a closed loop: no broker, no threads; rounds move the clock."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.agent import Signals
from leadline.contracts.codec import encode
from leadline.contracts.events import AgentEvent
from leadline.contracts.orders import Command
from leadline.contracts.trace import NO_TRACE, TraceContext
from leadline.demo.agent import DemoAgent
from leadline.demo.kinds import Kind
from leadline.lab.replay import ReplayDriver

START = 1_700_000_000_000
ROUND_MS = 200


class ClosedLoop:
    """``delay``: rounds that a command is on its way; ``None``: the agent never hears of any."""

    def __init__(self, kind: Kind, seed: int, *, delay: int | None = None) -> None:
        self.kind = kind
        self.driver = ReplayDriver(start=START)
        self.delay = delay
        self.sent: list[bytes] = []
        self.measured: list[Signals] = []
        self.heard: list[Command] = []
        self._underway: list[tuple[int, Command]] = []
        self._time = START
        self.agent = DemoAgent(kind, seed, f"{kind.name}-1", "agent-1", self, clock=lambda: self._time, epoch=0, fleet="demo")
        self.agent.session.start()

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        """The session's way out: straight into the monitor."""
        value = encode(event)
        self.sent.append(value)
        for step in self.driver.feed(value, at=self._time):
            for output in step.outputs:
                if isinstance(output, Command) and self.delay is not None:
                    self._underway.append((self.agent.turns + self.delay, output))
        return True

    def run(self, rounds: int) -> ClosedLoop:
        for _ in range(rounds):
            self.step()
        return self

    def step(self) -> None:
        self._time += ROUND_MS
        self.driver.move_to(self._time)
        due = [command for when, command in self._underway if when <= self.agent.turns]
        self._underway = [(when, command) for when, command in self._underway if when > self.agent.turns]
        for command in due:
            self.heard.append(command)
            self.agent.session.receive(command)
        self.agent.turn()
        self.measured.append(self.agent.session.measure())

    def rules(self) -> list[str]:
        """Rules found, in order, each once."""
        return list(dict.fromkeys(violation.rule for violation in self.driver.violations))

    def commanded(self) -> list[str]:
        return [command.kind for command in self.driver.commands]

    def open_incidents(self) -> list[str]:
        return [incident.rule for state in self.driver.states.values() for incident in state.incidents]


def closed_loops(kind: Kind, seeds: range, rounds: int, *, delay: int | None = None) -> Iterator[ClosedLoop]:
    for seed in seeds:
        yield ClosedLoop(kind, seed, delay=delay).run(rounds)
