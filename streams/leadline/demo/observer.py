"""What the topics say of the demo's sessions: rounds, violations, commands, acknowledgements, and the monitor's own state."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from leadline.agent.kafka import take
from leadline.contracts.codec import decode_event, decode_order, decode_violation
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import SessionState, decode_state
from leadline.contracts.topics import COMMANDS, EVENTS, SESSIONS, VIOLATIONS
from leadline.detection.condition import condition
from leadline.errors import BrokerError, Malformed
from leadline.settings import Settings, client_configs

__all__ = ["Observed", "Observer", "Viewer"]

_LEADER_S: Final = 20.0


class Viewer(Protocol):
    """Who is told while it happens; :class:`leadline.cli.live.LiveView` is one."""

    def note(self, text: str) -> None: ...

    def set_condition(self, session_id: str, agent_id: str, condition: str) -> None: ...

    def on_round(self, record: Round) -> None: ...

    def on_violation(self, record: Violation) -> None: ...

    def on_command(self, record: Command) -> None: ...

    def on_ack(self, record: Ack) -> None: ...


class Observed:
    """Everything seen so far, each violation and command once, by id."""

    def __init__(self) -> None:
        self.rounds = 0
        self.violations: dict[str, Violation] = {}
        self.commands: dict[str, Command] = {}
        self.acks: dict[str, set[str]] = {}
        """Outcomes by command id."""
        self.states: dict[str, SessionState] = {}
        """The monitor's latest record of each session, by session id."""


class Observer:
    """Reads four topics from where they end now, without a group, on a thread of its own.

    ``mine``: the session ids that count. Raises :class:`BrokerError` when the topics can't be read.
    """

    def __init__(self, settings: Settings, partitions: int, mine: frozenset[str], viewer: Viewer) -> None:
        self.observed = Observed()
        self.error: BaseException | None = None
        self._mine = mine
        self._viewer = viewer
        self._client: Any = Consumer(
            {
                **client_configs(settings).confluent,
                "group.id": f"leadline-demo-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._read: dict[str, Callable[[bytes | None], None]] = {
            EVENTS.name: self._event,
            VIOLATIONS.name: self._violation,
            COMMANDS.name: self._command,
            SESSIONS.name: self._state,
        }
        try:
            self._client.assign([self._end(topic, number) for topic in self._read for number in range(partitions)])
        except KafkaException as error:
            self._client.close()
            raise BrokerError(f"the topics at {settings.bootstrap} cannot be read: {error.args[0].str()}") from None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-observer", daemon=True)
        self._thread.start()

    def wait_until(self, enough: Callable[[Observed], bool], seconds: float) -> bool:
        """Whether ``enough`` came true within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not enough(self.observed):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._stop.set()
        self._thread.join(5.0)

    def _end(self, topic: str, number: int) -> TopicPartition:
        """Where the partition ends. One that was just created may have no leader for a moment."""
        deadline = time.monotonic() + _LEADER_S
        while True:
            try:
                _, high = self._client.get_watermark_offsets(TopicPartition(topic, number), timeout=10.0)
                return TopicPartition(topic, number, high)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for message in take(self._client, 500, 0.1):
                    if message.error() is None:
                        self._read[message.topic()](message.value())
        except Exception as error:
            self.error = error
        finally:
            self._client.close()

    def _event(self, value: bytes | None) -> None:
        try:
            event = decode_event(value).event
        except Malformed:
            return
        if event.session_id not in self._mine:
            return
        if isinstance(event, Round):
            self.observed.rounds += 1
            self._viewer.on_round(event)
        elif isinstance(event, Ack):
            known = self.observed.acks.setdefault(event.command_id, set())
            if event.outcome not in known:
                known.add(event.outcome)
                self._viewer.on_ack(event)

    def _violation(self, value: bytes | None) -> None:
        violation = decode_violation(value)
        if violation.session_id in self._mine and violation.violation_id not in self.observed.violations:
            self.observed.violations[violation.violation_id] = violation
            self._viewer.on_violation(violation)

    def _command(self, value: bytes | None) -> None:
        command = decode_order(value)
        if not isinstance(command, Command):
            return
        if command.session_id in self._mine and command.command_id not in self.observed.commands:
            self.observed.commands[command.command_id] = command
            self._viewer.on_command(command)

    def _state(self, value: bytes | None) -> None:
        if value is not None:
            state = decode_state(value)
            if state.session_id in self._mine:
                self.observed.states[state.session_id] = state
                self._viewer.set_condition(state.session_id, state.agent_id, condition(state))
