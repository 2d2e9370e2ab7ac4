"""A worker in its own process, and what a test needs to talk to it. Everything waits with a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, Producer, TopicPartition

from leadline.commands.fold import Incoming
from tests.support.wiped import group

ROOT = Path(__file__).parents[2]
WAIT_S = 90.0


def until(what: str, check: Callable[[], Any], limit_s: float = WAIT_S) -> Any:
    """The first true answer of ``check``; fails with ``what`` past the limit."""
    deadline = time.monotonic() + limit_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.02)
    return answer


FAKE = ("tests.processors.fake_worker",)
"""The worker with the tiny fold."""
REAL = ("leadline.processors.worker",)
"""The worker as it ships."""
MONITOR = ("leadline.cli.main", "monitor")
"""The worker as users start it."""


class RunningWorker:
    """``python -m COMMAND`` as a process; ``options`` are settings by name, an empty one is left out."""

    def __init__(self, bootstrap: str, folder: Path, command: Sequence[str] = FAKE, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.bootstrap = bootstrap
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        self.log_file = folder / "worker.log"
        settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "data_dir": folder / "data",
            "app_id": group(),
            "instance_id": "worker-1",
            "partitions": 4,
            "ready_file": self.ready_file,
            "create_topics": True,
            "drain_s": 15,
            # Whoever counts commands does not want them.
            "heartbeat_s": 0,
            **options,
        }
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LEADLINE_")}
        environ |= {f"LEADLINE_{name.upper()}": str(value) for name, value in settings.items() if value != ""}
        self._log = self.log_file.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, env=environ, stdout=self._log, stderr=self._log
        )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def ready(self) -> RunningWorker:
        def check() -> bool:
            assert self.process.poll() is None, f"the worker exited with {self.process.returncode}:\n{self.log}"
            return self.ready_file.exists()

        until("a ready worker", check)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._log.close()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._log.close()

    def exit_code(self, limit_s: float = WAIT_S) -> int:
        code = self.process.wait(limit_s)
        self._log.close()
        return code


class Topics:
    """Writes events and reads whole topics."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": 2_000_000})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "test-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "enable.partition.eof": True,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def send(self, key: str | bytes | None, value: bytes | None, headers: list[tuple[str, bytes]] | None = None) -> None:
        self._producer.produce("leadline.events", value, key=key, headers=headers)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(20) == 0

    def partitions(self, topic: str) -> int:
        return len(self._consumer.list_topics(topic, timeout=10).topics[topic].partitions)

    def ends(self, topic: str) -> dict[int, int]:
        return {
            number: self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(self.partitions(topic))
        }

    def read(self, topic: str) -> list[Message]:
        """Everything that is on a topic now."""
        ends = {number: end for number, end in self.ends(topic).items() if end}
        self._consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        found: list[Message] = []
        open_ends = dict(ends)
        deadline = time.monotonic() + 20
        while open_ends:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            number = message.partition()
            if message.error() is not None:
                open_ends.pop(number, None)
                continue
            found.append(message)
            if message.offset() + 1 >= open_ends.get(number, 0):
                open_ends.pop(number, None)
        return found

    def committed(self, group: str) -> int:
        """Sum of committed offsets of the events partitions."""
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            tps = [TopicPartition("leadline.events", number) for number in range(self.partitions("leadline.events"))]
            return sum(max(tp.offset, 0) for tp in reader.committed(tps, timeout=10))
        finally:
            reader.close()


def round_event(session: str, number: int, raw_tokens: int = 5, **more: Any) -> bytes:
    return json.dumps(
        {
            "schema": "leadline.round/1",
            "session_id": session,
            "agent_id": "agent",
            "event_id": f"{session}/{number}",
            "fleet": "",
            "epoch": 0,
            "ts": "",
            "round": number,
            "trigger": "budget",
            "raw_tokens": raw_tokens,
            "summary_tokens": 10,
            "distinct_source_spans": 3,
            "summary_depth_max": 2,
            "max_depth": 3,
            "session_start_spans": 9,
            "token_budget": 100,
            **more,
        }
    ).encode()


def event(kind: str, session: str, **more: Any) -> bytes:
    return json.dumps({"schema": f"leadline.{kind}/1", "session_id": session, "agent_id": "agent", **more}).encode()


def bodies(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in messages if message.value() is not None]


def incoming(message: Message) -> Incoming:
    """As a worker takes it: only the broker's own stamp is a receive time."""
    kind, stamp = message.timestamp()
    return Incoming(
        message.key(),
        message.value(),
        message.partition(),
        message.offset(),
        stamp if kind == TIMESTAMP_LOG_APPEND_TIME else -1,
        message.headers() or (),
    )
