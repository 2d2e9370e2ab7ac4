"""Agents are told that the monitor is there, and how far it has judged, and a broker that refuses it stops nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from leadline.contracts.codec import decode_order
from leadline.contracts.orders import Heartbeat
from leadline.errors import BrokerError
from leadline.processors.heartbeat import run_heartbeat
from leadline.processors.outputs import Outgoing, Sent
from tests.processors.running import REAL, RunningWorker, Topics, bodies, round_event, until


async def test_a_heartbeat_that_is_not_delivered_is_followed_by_the_next() -> None:
    """Refused once, confirmed the second time; nothing is sent while partitions change hands, or with 0 seconds."""
    tried: list[list[Outgoing]] = []
    ready = False
    done = asyncio.Event()

    async def confirm(records: Sequence[Outgoing]) -> list[Sent]:
        tried.append(list(records))
        if len(tried) == 1:
            raise BrokerError("away")
        done.set()
        return []

    def settled() -> bool:
        nonlocal ready
        ready, before = True, ready
        return before

    await asyncio.wait_for(run_heartbeat(lambda: {0: 3}, confirm, lambda: True, lambda: 0, 0.0), 1)
    task = asyncio.ensure_future(run_heartbeat(lambda: {4: 17, 2: -1}, confirm, settled, lambda: 0, 0.001))
    await asyncio.wait_for(done.wait(), 5)
    task.cancel()
    assert [(record.topic, record.partition) for record in tried[-1]] == [("leadline.commands", 2), ("leadline.commands", 4)]
    assert decode_order(tried[-1][1].value) == Heartbeat(partition=4, at="1970-01-01T00:00:00.000Z", every_ms=1, through=17)


@pytest.mark.broker
def test_a_worker_tells_how_far_it_has_judged(fresh_bootstrap: str, tmp_path: Path) -> None:
    """Every partition has its heartbeat; after a round at offset n on its partition, one says n + 1."""
    worker = RunningWorker(fresh_bootstrap, tmp_path, REAL, heartbeat_s=0.1)
    topics = Topics(fresh_bootstrap)
    try:
        worker.ready()
        topics.send("s", round_event("s", 1))
        topics.flush()
        [event] = until("the round", lambda: topics.read("leadline.events"))

        def told() -> bool:
            found = [one for one in bodies(topics.read("leadline.commands")) if one["schema"] == "leadline.heartbeat/1"]
            judged = {(one["partition"], one.get("through", -1)) for one in found}
            return {one["partition"] for one in found} == {0, 1, 2, 3} and (event.partition(), event.offset() + 1) in judged

        until("heartbeats", told)
    finally:
        topics.close()
        assert worker.stop() == 0
    assert json.loads(worker.ready_file.read_text())["partitions"] == [0, 1, 2, 3]
