"""A client of its own, written from docs/wire.md and docs/schemas alone: it imports nothing of Leadline."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def schema(record: str) -> Any:
    """Of ``leadline.round/1`` and its like."""
    return json.loads((SCHEMAS / f"{record.replace('/', '-')}.json").read_text(encoding="utf-8"))


class SecondClient:
    """One session, one partition, no group; everything that is sent or received is held to its schema."""

    def __init__(self, bootstrap: str, session_id: str, command_ttl_s: float = 600.0) -> None:
        self.session_id = session_id
        self.epoch = time.time_ns() // 1_000_000
        self.commands: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._rounds = 0
        self._partition: int | None = None
        self._ttl = timedelta(seconds=command_ttl_s)
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})

    def start(self, **fields: Any) -> None:
        self._send("leadline.session-start/1", **fields)

    def round(self, **fields: Any) -> None:
        self._rounds += 1
        measured = {
            "round": self._rounds,
            "trigger": "budget",
            "fleet": "",
            "distinct_source_spans": 10,
            "summary_depth_max": 1,
            "max_depth": 3,
            "session_start_spans": 10,
            "token_budget": 1_000,
        }
        self._send("leadline.round/1", **(measured | fields))

    def end(self) -> None:
        self._send("leadline.session-end/1")

    def listen(self, seconds: float) -> dict[str, Any] | None:
        """The next command that is ours and counts, acknowledged; ``None`` after ``seconds``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            command = json.loads(message.value())
            jsonschema.validate(command, schema("leadline.command/1"))
            if command["session_id"] != self.session_id or command["command_id"] in self._seen:
                continue
            self._seen.add(command["command_id"])
            if datetime.fromisoformat(command["expires_at"]) <= datetime.now(UTC):
                self._acknowledge(command, "expired")
                continue
            self.commands.append(command)
            self._acknowledge(command, "accepted")
            if command["kind"] == "resume":
                self._acknowledge(command, "done")
            return dict(command)
        return None

    def done(self, command: dict[str, Any]) -> None:
        self._acknowledge(command, "done")

    def close(self) -> None:
        self._producer.flush(10)
        self._consumer.close()

    def _acknowledge(self, command: dict[str, Any], outcome: str) -> None:
        self._send("leadline.ack/1", command_id=command["command_id"], seq=command["seq"], outcome=outcome)

    def _send(self, record: str, **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {
            "schema": record,
            "session_id": self.session_id,
            "agent_id": "second",
            "epoch": self.epoch,
            "ts": now,
            "event_id": uuid.uuid4().hex,
            **fields,
        }
        jsonschema.validate(event, schema(record))
        headers = [("schema", record.encode()), ("content-type", b"application/json")]
        reported: list[Any] = []
        self._producer.produce(
            "leadline.events",
            json.dumps(event).encode(),
            self.session_id.encode(),
            headers=headers,
            on_delivery=lambda error, message: reported.append((error, message)),
        )
        self._producer.flush(10)
        [(error, message)] = reported
        if error is not None:
            raise RuntimeError(str(error))
        if self._partition is None:
            # Commands come on the partition number on which our events arrive.
            self._partition = message.partition()
            self._consumer.assign([self._from()])

    def _from(self) -> TopicPartition:
        since = int((datetime.now(UTC) - self._ttl).timestamp() * 1000)
        assert self._partition is not None
        try:
            [found] = self._consumer.offsets_for_times([TopicPartition("leadline.commands", self._partition, since)], timeout=5)
            offset = found.offset if found.error is None else OFFSET_BEGINNING
        except Exception:
            offset = OFFSET_BEGINNING
        return TopicPartition("leadline.commands", self._partition, offset)
