"""One process of the demo's fleet: a thread an agent, one SDK client for all. ``python -m leadline.demo.fleet PLAN RESULT``.

The plan says which agents; the result is what each agent knows of itself at the end. Everything else goes over the broker.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from leadline.agent import Session, connect
from leadline.agent.emitter import Emitter
from leadline.agent.listener import CommandListener
from leadline.contracts.events import AgentEvent
from leadline.contracts.orders import Command
from leadline.contracts.trace import NO_TRACE, TraceContext
from leadline.demo.agent import DemoAgent
from leadline.demo.kinds import kind_named
from leadline.settings import client_configs, load_settings

__all__ = ["AgentPlan", "AgentResult", "FleetPlan", "Heard", "live", "main"]

_SETTLE_S: Final = 1.5
"""How long an agent listens on after its last round, before it ends its session."""
_GRACE_S: Final = 20.0
"""How much longer than planned an agent goes on while an order to it has no release."""


class AgentPlan(Struct, frozen=True):
    """One agent. The same ``seed`` brings the same spans."""

    session_id: str
    agent_id: str
    kind: str
    seed: int


class FleetPlan(Struct, frozen=True):
    """The agents of one process. Times in seconds; ``pace``: least and most between two rounds."""

    bootstrap: str
    fleet: str
    duration: float
    pace: tuple[float, float]
    agents: list[AgentPlan]


class Heard(Struct, frozen=True):
    """A command as the listener's thread received it. ``latency_ms``: since the causing event was emitted, by the agent's clock;
    ``None`` where the command is not the first answer to its cause."""

    command_id: str
    incident_id: str
    kind: str
    latency_ms: float | None


class AgentResult(Struct, frozen=True):
    """What an agent knows of itself at the end. ``unreleased``: incidents with an order and no ``resume``."""

    session_id: str
    rounds: int
    halted_rounds: int
    state: str
    raw_ratio: float | None
    heard: list[Heard]
    unreleased: list[str]
    dropped_events: int


class _Stopwatch:
    """Between a session and its client: notes when each event went out and when each command came in."""

    def __init__(self, emitter: Emitter, listener: CommandListener) -> None:
        self._emitter = emitter
        self._listener = listener
        self._emitted: dict[str, float] = {}
        self._session: Session | None = None
        self.heard: dict[str, Heard] = {}
        self.unreleased: set[str] = set()

    # the session's sink

    def emit(self, event: AgentEvent, *, trace: TraceContext = NO_TRACE) -> bool:
        self._emitted[event.event_id] = time.monotonic()
        return self._emitter.emit(event, trace=trace)

    # the session's listener

    def register(self, recipient: Session) -> None:
        self._session = recipient
        self._listener.register(self)

    def unregister(self, recipient: Session) -> None:
        self._listener.unregister(self)

    # the listener's recipient

    @property
    def session_id(self) -> str:
        assert self._session is not None
        return self._session.session_id

    @property
    def agent_id(self) -> str:
        assert self._session is not None
        return self._session.agent_id

    def receive(self, command: Command) -> None:
        now = time.monotonic()
        assert self._session is not None
        if command.command_id not in self.heard:
            caused = self._emitted.get(command.caused_by.event_id)
            answers = command.kind not in ("resume", "stop-agent") and command.attempt == 1
            latency = (now - caused) * 1000 if answers and caused is not None else None
            self.heard[command.command_id] = Heard(command.command_id, command.incident_id, command.kind, latency)
        if command.kind == "resume":
            self.unreleased.discard(command.incident_id)
        else:
            self.unreleased.add(command.incident_id)
        self._session.receive(command)


def live(agent: DemoAgent, stopwatch: _Stopwatch, plan: FleetPlan, random: Random, stop: threading.Event) -> None:
    """An agent's whole life: rounds until its time is over and every order to it is released."""
    stop.wait(random.uniform(0, plan.pace[1]))
    over = time.monotonic() + plan.duration
    last = time.monotonic()
    with agent.session:
        while not (stop.is_set() or agent.stopped):
            now = time.monotonic()
            if now < over or agent.session.pending or stopwatch.unreleased:
                if now > over + _GRACE_S:
                    return
                agent.turn()
                last = now
            elif now > last + _SETTLE_S:
                return
            stop.wait(random.uniform(*plan.pace))


def main(argv: Sequence[str]) -> int:
    plan = msgspec.json.decode(Path(argv[1]).read_bytes(), type=FleetPlan)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # TLS and SASL come from the environment, as for every client of this project.
    settings = client_configs(load_settings(bootstrap=plan.bootstrap)).confluent
    extra = {name: value for name, value in settings.items() if name not in ("bootstrap.servers", "client.id")}
    client = connect(plan.bootstrap, fleet=plan.fleet, config=extra, spool=False)
    lives: list[tuple[DemoAgent, _Stopwatch]] = []
    with ThreadPoolExecutor(len(plan.agents)) as pool:
        for one in plan.agents:
            stopwatch = _Stopwatch(client.emitter, client.listener)
            agent = DemoAgent(
                kind_named(one.kind),
                one.seed,
                one.session_id,
                one.agent_id,
                stopwatch,
                listener=stopwatch,
                fleet=plan.fleet,
            )
            lives.append((agent, stopwatch))
        running = [pool.submit(live, agent, watch, plan, Random(agent.session.session_id), stop) for agent, watch in lives]
    emitted, _ = client.counters()
    dropped = sum(emitted.dropped.values()) + client.close(10.0)
    results = [
        AgentResult(
            session_id=agent.session.session_id,
            rounds=agent.turns,
            halted_rounds=agent.halts,
            state=agent.session.state.value,
            raw_ratio=agent.session.measure().raw_ratio,
            heard=list(watch.heard.values()),
            unreleased=sorted(watch.unreleased),
            dropped_events=dropped if not at else 0,
        )
        for at, (agent, watch) in enumerate(lives)
    ]
    part = Path(argv[2]).with_suffix(".part")
    part.write_bytes(msgspec.json.encode(results))
    part.replace(argv[2])
    for each in running:
        each.result()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
