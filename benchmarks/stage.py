"""A broker with Leadline's topics and a log on it, workers as processes, and what they cost, seen from outside."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import brokers

from benchmarks.report import tell
from leadline.broker import EmbeddedBroker
from leadline.commands.fold import Incoming
from leadline.contracts.topics import COMMANDS, DEAD_LETTERS, EVENTS, SESSIONS, TOPICS, VIOLATIONS

__all__ = ["PARTITIONS", "Broker", "Process", "Worker", "broker", "until"]

PARTITIONS: Final = 4
ROOT: Final = Path(__file__).resolve().parents[1]
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_groups = itertools.count()


@contextlib.contextmanager
def broker(kind: str, folder: Path) -> Iterator[Broker]:
    """A broker of ``kind`` with nothing on it. Raises ``RuntimeError`` with the reason where it can't be had."""
    if kind == "embedded":
        with EmbeddedBroker() as embedded:
            yield Broker(embedded.address, kind, embedded.pid or 0)
        return
    if reason := brokers.prepare():
        raise RuntimeError(reason)
    with brokers.ApacheKafka(folder / "kafka") as kafka:
        yield Broker(kafka.bootstrap, kind, kafka.nodes[0].pid or 0)


def until(what: str, check: Callable[[], Any], limit_s: float, pause_s: float = 0.01) -> Any:
    """The first true answer; ``TimeoutError`` past the limit."""
    deadline = time.monotonic() + limit_s
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s:g} s for {what}")
        time.sleep(pause_s)
    return answer


class Broker:
    """What a benchmark does with a broker. ``pid``: of its process."""

    def __init__(self, bootstrap: str, kind: str, pid: int) -> None:
        self.pid = pid
        self.bootstrap = bootstrap
        self.kind = kind
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._readers: dict[str, Consumer] = {}

    def group(self) -> str:
        """A group that nobody used before."""
        return f"benchmark-{os.getpid()}-{next(_groups)}"

    def make_topics(self, *, keep_events: bool) -> None:
        """All topics anew, with what their table says; the log may stay."""
        made = [topic for topic in TOPICS if not (keep_events and topic is EVENTS)]
        names = {topic.name for topic in made}
        old = names & self._admin.list_topics(timeout=20).topics.keys()
        if old:
            for future in self._admin.delete_topics(sorted(old)).values():
                future.result(30)
            until("topics to go", lambda: not old & self._admin.list_topics(timeout=20).topics.keys(), 30, 0.05)
        new = [NewTopic(topic.name, PARTITIONS, 1, config=dict(topic.config)) for topic in made]
        for future in self._admin.create_topics(new).values():
            future.result(30)
        until("topics to appear", lambda: names <= self._admin.list_topics(timeout=20).topics.keys(), 30, 0.05)

    def write(self, topic: str, records: Iterable[Incoming], *, by_key: bool = True) -> int:
        """Write records in order; returns how many. ``by_key``: the partition follows from the key, else from the record."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                # A batch that is sent again must not come behind the next one: every variant is to read the same order.
                "enable.idempotence": self.kind == "kafka",
                "max.in.flight.requests.per.connection": 5 if self.kind == "kafka" else 1,
            }
        )
        count = 0
        for count, record in enumerate(records, 1):
            where = {} if by_key else {"partition": record.partition}
            while True:
                try:
                    producer.produce(topic, record.value, record.key, headers=list(record.headers), **where)
                    break
                except BufferError:
                    producer.poll(0.1)
            if count % 1000 == 0:
                producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not take the log")
        return count

    def end(self, topic: str) -> int:
        """How many records were ever written."""
        reader = self._reader("ends")
        return sum(reader.get_watermark_offsets(TopicPartition(topic, n), timeout=20)[1] for n in range(PARTITIONS))

    def committed(self, group: str) -> int:
        """How many events the group has done with."""
        places = [TopicPartition(EVENTS.name, number) for number in range(PARTITIONS)]
        return sum(max(0, place.offset) for place in self._reader(group).committed(places, timeout=20))

    def ids(self, topic: str, name: str) -> set[str]:
        """The field ``name`` of every record of a topic that has it."""
        return {body[name] for body in map(orjson.loads, self.values(topic)) if name in body}

    def violation_ids(self) -> set[str]:
        return self.ids(VIOLATIONS.name, "violation_id")

    def command_ids(self) -> set[str]:
        return self.ids(COMMANDS.name, "command_id")

    def values(self, topic: str) -> Iterator[bytes]:
        """Every value of a topic, as it is now."""
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group(), "enable.auto.commit": False})
        try:
            ends = {n: reader.get_watermark_offsets(TopicPartition(topic, n), timeout=20)[1] for n in range(PARTITIONS)}
            reader.assign([TopicPartition(topic, number, 0) for number in ends])
            left = {number for number, end in ends.items() if end}
            deadline = time.monotonic() + 120
            while left and time.monotonic() < deadline:
                for message in reader.consume(10_000, 0.2):
                    if message.error() is None:
                        if message.value() is not None:
                            yield message.value()
                        if message.offset() + 1 >= ends[message.partition()]:
                            left.discard(message.partition())
            if left:
                raise TimeoutError(f"{topic} could not be read to its end")
        finally:
            reader.close()

    def dead_letters(self) -> int:
        return self.end(DEAD_LETTERS.name)

    def sessions(self) -> int:
        """Records of the changelog."""
        return self.end(SESSIONS.name)

    def _reader(self, group: str) -> Consumer:
        if group not in self._readers:
            self._readers[group] = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 2})
        return self._readers[group]

    def close(self) -> None:
        for reader in self._readers.values():
            with contextlib.suppress(KafkaException):
                reader.close()


class Process:
    """Another process, measured from outside."""

    def __init__(self, command: Sequence[str], log: Path, environ: dict[str, str] | None = None) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self.popen = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environ)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def cpu_s(self) -> float:
        """CPU seconds of all its threads, user and system, so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_bytes(self) -> int:
        """The most memory it had resident so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def check(self) -> None:
        """Raises ``RuntimeError`` with its last words when it has ended."""
        if self.popen.poll() is not None:
            raise RuntimeError(f"the process ended with {self.popen.returncode}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(30)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(10)


class Worker(Process):
    """``leadline monitor`` as users start it. ``settings`` by name."""

    def __init__(self, broker: Broker, folder: Path, policy: str, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ready_file = folder / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        policy_file = folder / "policy.toml"
        policy_file.write_text(policy)
        self.group = str(settings.setdefault("app_id", broker.group()))
        given: dict[str, Any] = {
            "bootstrap": broker.bootstrap,
            "data_dir": folder / "data",
            "ready_file": self.ready_file,
            "policy_file": policy_file,
            "log_level": "WARNING",
            # Static, so that a broker which never forgets a member does not wait for the last run's.
            "instance_id": "worker-1",
            "broker_away_s": 60,
            **settings,
        }
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LEADLINE_")}
        environ |= {f"LEADLINE_{name.upper()}": str(value) for name, value in given.items()}
        super().__init__([sys.executable, "-m", "leadline.cli.main", "monitor"], folder / "worker.log", environ)

    def ready(self, limit_s: float = 120.0) -> None:
        def settled() -> bool:
            self.check()
            return self.ready_file.exists()

        until("a ready worker", settled, limit_s, 0.002)

    def finish(self, broker: Broker, events: int, limit_s: float) -> None:
        """Wait until so many events are committed. Tells how far it is, now and then."""
        told = time.monotonic()
        deadline = told + limit_s
        while (done := broker.committed(self.group)) < events:
            self.check()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                tell(f"  {done:,} of {events:,} events")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{done} of {events} events were committed within {limit_s:g} s")
            time.sleep(0.02)
