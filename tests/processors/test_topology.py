"""What is wired is what ``leadline topology`` says: a worker's parts are run without a broker, and what they send is noted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leadline.commands.fold import Incoming
from leadline.contracts.topics import COMMANDS, DEAD_LETTERS, EVENTS, SESSIONS, TOPICS, VIOLATIONS
from leadline.contracts.topology import STAGES
from leadline.processors import topology
from leadline.processors.engine import MonitorApp
from leadline.processors.fetch import Batch
from leadline.processors.outputs import Outgoing, Sent
from leadline.processors.send import Sender
from leadline.processors.silences import SilenceSource
from leadline.settings import Settings
from tests.processors.running import event, round_event
from tests.processors.test_real_fold import ROUNDS

START = 1_800_000_000_000
DAY = 24 * 3600 * 1000


class Wired:
    """A worker that was wired and not started; its records are confirmed at once and their topics noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.sent: list[Outgoing] = []
        self.committed: dict[tuple[str, int], int] = {}

        async def send_all(_sender: Sender, records: Sequence[Outgoing], _timeout: float) -> list[Sent | BaseException]:
            self.sent.extend(records)
            return [Sent(record.partition or 0, number) for number, record in enumerate(records)]

        async def commit(_app: MonitorApp, topic: str, offsets: Mapping[int, int]) -> bool:
            self.committed = {(topic, partition): offset for partition, offset in offsets.items()}
            return True

        monkeypatch.setattr(Sender, "send_all", send_all)
        monkeypatch.setattr(MonitorApp, "commit", commit)
        monkeypatch.setattr(MonitorApp, "flowing", lambda _app: True)
        monkeypatch.setattr(MonitorApp, "active_partitions", lambda _app, _topic: {0, 1})
        self.monitor = topology.wire(
            Settings(data_dir=folder, instance_id="w", heartbeat_s=0.01), now=lambda: self.now, partitions=2
        )
        self.app = self.monitor.app
        self.app.conf.tabledir.mkdir(parents=True)

    def arrive(self, records: list[Incoming]) -> None:
        """As if they had been read under the present assignment."""
        number = self.app.fetch._assigned
        self.app.fetch._arrive(number, [Batch(1, self.app.generation(), records, number)])

    async def watch(self, values: list[bytes]) -> set[str]:
        """Run the agent on records of one session on partition 1 until their offset is committed."""
        records = [Incoming(b"s", value, 1, offset, START) for offset, value in enumerate(values)]
        self.arrive(records)
        (agent,) = self.app.agents.values()
        end = {(EVENTS.name, 1): len(values)}
        return await self.run([agent.fun(silent_stream())], lambda: self.committed == end)

    async def run(self, work: list[Awaitable[Any]], done: Callable[[], bool]) -> set[str]:
        """The topics written to until ``done``."""
        before = len(self.sent)
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            async with asyncio.timeout(60):
                while not done():
                    await asyncio.sleep(0.01)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return {record.topic for record in self.sent[before:]}


@pytest.fixture
async def wired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wired]:
    made = Wired(tmp_path, monkeypatch)
    yield made
    await made.app.tables["sessions"].data.stop()


def silent_stream() -> Any:
    """As the engine hands it to an agent; the records come from elsewhere."""

    async def events() -> AsyncIterator[Any]:
        await asyncio.sleep(60)
        yield

    return SimpleNamespace(noack=lambda: SimpleNamespace(events=events))


def inverting() -> list[bytes]:
    """A session that inverts, and one record that is none."""
    rounds = [
        round_event(
            "s",
            number,
            raw,
            summary_tokens=summary,
            distinct_source_spans=spans,
            query_cosine_retained=salience,
            summary_depth_max=depth,
            session_start_spans=30,
        )
        for number, (raw, summary, spans, salience, depth) in enumerate(ROUNDS, 1)
    ]
    return [event("session-start", "s", session_start_spans=30), *rounds, b"{not json"]


async def test_each_stage_reads_and_writes_what_it_says(wired: Wired) -> None:
    """Rewire an agent, the table's changelog, an output or the clock, and this goes red."""
    app, counts = wired.app, wired.monitor.counts
    (agent,) = app.agents.values()
    (table,) = app.tables.values()
    values = inverting()
    reads = {"watch": agent.channel.get_topic_name(), "restore": table.changelog_topic.get_topic_name()}
    reads |= {"clock": "deadlines", "heartbeat": "time", "silences": SilenceSource.topic}
    writes = {"restore": set[str](), "silences": set[str]()}
    writes["watch"] = await wired.watch(values)
    wired.now += DAY
    # The engine hands its tasks the app or nothing, and so do we.
    tasks = {task.__name__: task for task in app._app_tasks}
    writes["clock"] = await wired.run([tasks["tick"]()], lambda: counts["ticks"] > 0)
    sent = len(wired.sent)
    writes["heartbeat"] = await wired.run([tasks["heartbeat"]()], lambda: len(wired.sent) >= sent + 2)
    told = {record.partition: json.loads(record.value or b"") for record in wired.sent[sent : sent + 2]}
    assert {partition: one.get("through", -1) for partition, one in told.items()} == {0: -1, 1: len(values)}
    assert {record.key for record in wired.sent[sent:]} == {None}
    assert [(stage.name, stage.reads, set(stage.writes)) for stage in STAGES] == [
        (stage.name, reads[stage.name], writes[stage.name]) for stage in STAGES
    ]
    assert {*reads} == {stage.name for stage in STAGES}


async def test_what_is_sent_is_of_the_topics_records(wired: Wired) -> None:
    await wired.watch(inverting())
    by_name = {topic.name: topic for topic in TOPICS}
    for record in wired.sent:
        assert record.partition == 1 or record.topic == DEAD_LETTERS.name
        if record.topic != DEAD_LETTERS.name:
            assert record.value is not None
            assert json.loads(record.value)["schema"] in by_name[record.topic].records
    assert {record.topic for record in wired.sent} == {VIOLATIONS.name, COMMANDS.name, DEAD_LETTERS.name, SESSIONS.name}


def test_every_topic_of_the_table_has_its_place() -> None:
    """What the table says of writers and readers is what the stages say."""
    read = {stage.reads for stage in STAGES}
    written = {name for stage in STAGES for name in stage.writes}
    for topic in TOPICS:
        assert ("monitor" in topic.writers) == (topic.name in written), topic.name
        assert ("monitor" in topic.readers) == (topic.name in read), topic.name


def test_the_picture_names_every_topic_and_stage() -> None:
    picture = topology.__doc__ or ""
    for name in [*(topic.name for topic in TOPICS), *(stage.name for stage in STAGES)]:
        assert name in picture


def test_the_sessions_changelog_is_only_compacted() -> None:
    assert SESSIONS.config == {"cleanup.policy": "compact"}
    assert EVENTS.partitioned_as_events
    assert SESSIONS.partitioned_as_events


async def test_a_batch_in_hand_while_reading_begins_anew_is_dropped(wired: Wired) -> None:
    """What came before it was forgotten with the second restore: judged all the same, it would hide that for good."""
    watch = wired.monitor.watch
    records = [Incoming(b"s", value, 1, offset, START) for offset, value in enumerate(inverting()[:-1])]
    watch._room.clear()  # Too much is unwritten: the pump holds what it took.
    wired.arrive(records[-1:])
    (agent,) = wired.app.agents.values()

    async def begin_anew() -> None:
        while wired.app.fetch._arrived:
            await asyncio.sleep(0)
        watch.restart([1])
        watch._room.set()
        wired.arrive(records)

    end = {(EVENTS.name, 1): len(records)}
    sent = await wired.run([agent.fun(silent_stream()), begin_anew()], lambda: wired.committed == end)
    assert {VIOLATIONS.name, COMMANDS.name} <= sent
    assert wired.monitor.counts["ignored_replayed"] == 0
    assert wired.monitor.counts["events"] == len(records)


@pytest.mark.parametrize(
    ("of_the_store", "of_the_group", "again"),
    [(6, 6, True), (5, 6, False), (6, 6, False)],
    ids=["again", "moved on", "sound"],
)
def test_nothing_is_read_when_the_restore_that_ended_was_overtaken(
    wired: Wired, monkeypatch: pytest.MonkeyPatch, of_the_store: int, of_the_group: int, again: bool
) -> None:
    """The engine tells of its end though the group has moved on, or a restore of the same partitions is still to come."""
    app, read = wired.app, list[tuple[int, Mapping[int, int | None]]]()
    monkeypatch.setattr(app.fetch, "assign", lambda generation, offsets: read.append((generation, offsets)))
    monkeypatch.setattr(app.fetch, "start", lambda: None)
    recovery = app.tables.recovery
    app.consumer_generation_id, recovery._generation_id = of_the_group, of_the_store
    if again:
        recovery.signal_recovery_start.set()
    app.on_rebalance_start()
    app.tables.on_actives_ready()
    app.on_rebalance_end()
    sound = of_the_store == of_the_group and not again
    assert read == ([(6, {0: None, 1: None})] if sound else [])
    assert (MonitorApp.not_ready(app) == "") is sound


def test_no_record_is_taken_while_a_restore_runs(wired: Wired) -> None:
    app = wired.app
    app.tables.on_actives_ready()
    assert app.not_ready() == ""
    app.in_recovery = True
    assert app.not_ready() == "state is being restored"
