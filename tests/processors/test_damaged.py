"""A damaged local copy is only a copy: the changelog restores it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.broker.embedded import EmbeddedBroker
from leadline.contracts.session_state import decode_state
from tests.processors.running import RunningWorker, Topics, round_event, until


@pytest.mark.parametrize("pattern", ["MANIFEST*", "CURRENT"])
def test_it_is_wiped_and_restored_and_the_sessions_go_on(tmp_path: Path, pattern: str) -> None:
    with EmbeddedBroker() as broker:
        worker = RunningWorker(broker.address, tmp_path).ready()
        topics = Topics(broker.address)
        sessions = [f"s{number}" for number in range(8)]
        try:
            for number in (1, 2):
                for session in sessions:
                    topics.send(session, round_event(session, number))
            topics.flush()
            until("all sessions stored twice", lambda: seen(topics) == dict.fromkeys(sessions, 1))
            worker.kill()
            damaged = [path for path in (tmp_path / "data").rglob(pattern) if path.is_file()]
            assert damaged
            for path in damaged:
                path.write_bytes(b"\x00garbage")
            worker = RunningWorker(broker.address, tmp_path).ready()
            assert "wiped and restored" in worker.log
        finally:
            topics.close()
            worker.kill()


def seen(topics: Topics) -> dict[str, int]:
    """By session, 1 when its stored watermark is that of its last event."""
    states = {}
    for message in topics.read("leadline.sessions"):
        if message.value() is not None:
            state = decode_state(message.value())
            states[state.session_id] = state.offset
    ends: dict[str, int] = {}
    for message in topics.read("leadline.events"):
        ends[message.key().decode()] = message.offset()
    return {session: int(states.get(session) == offset) for session, offset in ends.items()}
