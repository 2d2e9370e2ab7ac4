"""Reading the watched topic beside the event loop: what comes, in which order, how much of it, and what ends it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition

from leadline.commands.fold import Incoming
from leadline.errors import LeadlineError, Refused, TopicMismatch
from leadline.processors import topics as declared
from leadline.processors.fetch import Batch, Fetch, consumer_config
from leadline.settings import Settings
from tests.processors.running import Topics, until

TOPIC = "leadline.events"


class Record:
    """As much of a client's message as is looked at."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None, stamp: int = TIMESTAMP_LOG_APPEND_TIME):
        self._at = partition, offset
        self._error = error
        self._stamp = stamp

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"%d" % self._at[1]

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return self._stamp, 1000 + self._at[1]


class Client:
    """A client of the broker that holds what the test gives it, and counts what is taken."""

    def __init__(self, _config: dict[str, Any] | None = None) -> None:
        self.given: deque[Record] = deque()
        self.assigned: list[list[TopicPartition]] = []
        self.taken = 0
        self.closed = threading.Event()
        self.polled = threading.Event()
        self.fail: Exception | None = None

    def __call__(self, _config: dict[str, Any]) -> Client:
        return self

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.append(partitions)

    def poll(self, wait_s: float) -> Record | None:
        self.polled.set()
        if self.fail is not None:
            raise self.fail
        if not self.given:
            threading.Event().wait(min(wait_s, 0.01))
            return None
        self.taken += 1
        return self.given.popleft()

    def consume(self, most: int, _wait_s: float) -> list[Record]:
        found = [self.given.popleft() for _ in range(min(most, len(self.given)))]
        self.taken += len(found)
        return found

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def client() -> Client:
    return Client()


async def started(client: Client, *, batch_max: int = 100, waiting_max: int = 1000, heard: Callable[[], object] = int) -> Fetch:
    fetch = Fetch({}, TOPIC, batch_max, waiting_max, client, heard)
    fetch.start()
    return fetch


async def within(fetch: Fetch) -> Batch:
    return await asyncio.wait_for(fetch.next(), 20)


def offsets(batch: Batch) -> list[int]:
    return [record.offset for record in batch.records]


async def test_one_batch_a_partition_in_order_under_the_generation_it_was_assigned_with(client: Client) -> None:
    """Partition 2 from offset 7, partition 0 from its beginning: nothing was committed there."""
    client.given.extend([Record(0, 0), Record(2, 7), Record(0, 1), Record(2, 8)])
    fetch = await started(client)
    fetch.assign(5, {2: 7, 0: None})
    found: dict[int, Batch] = {}
    while sum(len(each.records) for each in found.values()) < 4:
        batch = await within(fetch)
        assert batch.generation == 5
        known = found.get(batch.partition)
        found[batch.partition] = batch._replace(records=[*known.records, *batch.records] if known else batch.records)
    assert (offsets(found[0]), offsets(found[2])) == ([0, 1], [7, 8])
    assert found[2].records[0] == Incoming(b"k", b"7", 2, 7, 1007, ())
    assert {(tp.topic, tp.partition, tp.offset) for tp in client.assigned[0]} == {(TOPIC, 2, 7), (TOPIC, 0, OFFSET_BEGINNING)}
    await fetch.stop()
    assert client.closed.is_set()


async def test_only_the_brokers_own_stamp_is_a_receive_time(client: Client) -> None:
    client.given.append(Record(0, 3, stamp=TIMESTAMP_CREATE_TIME))
    fetch = await started(client)
    fetch.assign(1, {0: 3})
    assert (await within(fetch)).records[0].timestamp == -1
    await fetch.stop()


async def test_nothing_is_read_before_something_is_assigned(client: Client) -> None:
    fetch = await started(client)
    await fetch.stop()
    assert not client.polled.is_set()


async def test_what_nobody_takes_is_bounded(client: Client) -> None:
    """Ten wait at most (one poll goes over it by what it brings); each that is taken makes room."""
    client.given.extend(Record(0, offset) for offset in range(40))
    fetch = await started(client, batch_max=5, waiting_max=10)
    fetch.assign(1, {0: 0})
    until("ten records that wait", lambda: fetch.waiting >= 10)
    found: list[int] = []
    while len(found) < 40:
        assert client.taken - len(found) <= 15
        found += offsets(await within(fetch))
    assert found == list(range(40))
    assert fetch.waiting == 0
    await fetch.stop()


async def test_what_was_read_before_partitions_changed_hands_is_dropped(client: Client) -> None:
    client.given.extend([Record(0, 0), Record(0, 1)])
    fetch = await started(client)
    fetch.assign(1, {0: 0})
    until("two records", lambda: fetch.waiting == 2)
    await asyncio.sleep(0)  # The thread's batch is in the loop by now.
    fetch.assign(2, {1: 4})
    client.given.append(Record(1, 4))
    batch = await within(fetch)
    assert (batch.generation, batch.partition, offsets(batch)) == (2, 1, [4])
    assert fetch.waiting == 0
    await fetch.stop()


async def test_what_was_on_its_way_when_partitions_changed_hands_is_dropped_too(client: Client) -> None:
    """The same generation, read from another place: what was read before then must not come between."""
    client.given.extend([Record(0, 7), Record(0, 8)])
    fetch = await started(client)
    fetch.assign(1, {0: 7})
    until("two records in the thread", lambda: fetch.waiting == 2)  # The loop has not run: they have not arrived.
    fetch.assign(1, {0: 3})
    client.given.append(Record(0, 3))
    assert offsets(await within(fetch)) == [3]
    assert fetch.waiting == 0
    await fetch.stop()


async def test_records_that_come_are_an_answer_of_the_broker(client: Client) -> None:
    told: list[int] = []
    client.given.append(Record(0, 0))
    fetch = await started(client, heard=lambda: told.append(1))
    fetch.assign(1, {0: 0})
    await within(fetch)
    assert told == [1]
    await fetch.stop()


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), TopicMismatch, "is gone, or was made anew"),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Refused, "may not be read by this client"),
        (KafkaError(KafkaError._FATAL, "x", True), LeadlineError, "cannot be read any more"),
    ],
)
async def test_what_cannot_pass_ends_it_with_a_sentence(
    client: Client, error: KafkaError, kind: type[Exception], sentence: str
) -> None:
    client.given.append(Record(0, 0, error))
    fetch = await started(client)
    fetch.assign(1, {0: 0})
    with pytest.raises(kind, match=sentence):
        await within(fetch)
    assert client.closed.wait(20)
    await fetch.stop()


async def test_an_error_that_passes_is_left_to_the_client(client: Client) -> None:
    client.given.extend([Record(0, 0, KafkaError(KafkaError._TRANSPORT)), Record(0, 0)])
    fetch = await started(client)
    fetch.assign(1, {0: 0})
    assert offsets(await within(fetch)) == [0]
    await fetch.stop()


async def test_a_client_that_raises_ends_the_waiting(client: Client) -> None:
    client.fail = OSError("no files left")
    fetch = await started(client)
    fetch.assign(1, {0: 0})
    with pytest.raises(OSError, match="no files left"):
        await within(fetch)
    await fetch.stop()


@pytest.fixture
def served(fresh_bootstrap: str) -> Iterator[Topics]:
    declared.create(Settings(bootstrap=fresh_bootstrap, partitions=2))
    topics = Topics(fresh_bootstrap)
    yield topics
    topics.close()


async def test_from_a_real_broker_from_where_it_was_told(served: Topics, tmp_path: Path) -> None:
    """Three records on the session's partition, the first of them done with; then it is told to begin anew."""
    for number in range(3):
        served.send("s", b"%d" % number)
    served.flush()
    partition = served.read(TOPIC)[0].partition()
    settings = Settings(bootstrap=served.bootstrap, data_dir=tmp_path)
    fetch = Fetch(consumer_config(settings), TOPIC, 100, 1000)
    fetch.start()
    try:
        for generation, start, wanted in ((1, 1, [1, 2]), (2, None, [0, 1, 2])):
            fetch.assign(generation, {partition: start})
            found: list[int] = []
            while len(found) < len(wanted):
                batch = await within(fetch)
                assert (batch.generation, batch.partition) == (generation, partition)
                found += [int(record.value or b"") for record in batch.records]
            assert found == wanted
    finally:
        await fetch.stop()
