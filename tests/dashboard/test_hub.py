"""A large fleet reaches a page in pieces, and in order."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from leadline.dashboard import hub as hubs
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from tests.dashboard.feed import Feed
from tests.support.core import round_


def told(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\r\n\r\n")
    assert b"\n" not in event[:-4]
    message: dict[str, Any] = json.loads(event[6:])
    return message


def test_many_sessions_come_in_pieces_each_row_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five sessions, two a message: the first says what the words are, each but the last that more follows."""
    monkeypatch.setattr(hubs, "_ROWS", 2)
    feed = Feed()
    names = [f"s\n{number}" for number in range(5)]
    for name in names:
        feed.send(round_(1, session_id=name))
    feed.view.take_changes()
    hub = Hub(feed.view, threading.Lock(), lambda: Reading(1, 0, 1.0), lambda: 2, every_s=0.0)

    async def looked() -> list[dict[str, Any]]:
        events = hub.follow()
        messages = [told(await anext(events)) for _ in range(3)]
        feed.send(round_(2, session_id=names[3]))
        running = asyncio.create_task(hub.run())
        async for event in events:
            messages.append(told(event))
            if messages[-1]["rows"]:
                break
        running.cancel()
        await events.aclose()  # type: ignore[attr-defined]
        return messages

    *first, last = asyncio.run(looked())
    first = [message for message in first if message["rows"]]
    assert [(message["kind"], message["more"], len(message["rows"])) for message in first] == [
        ("everything", True, 2),
        ("changes", True, 2),
        ("changes", False, 1),
    ]
    assert [who[1] for message in first for who in message["who"]] == names
    for message in first:
        assert [who[0] for who in message["who"]] == [row[0] for row in message["rows"]]
    assert "conditions" in first[0]
    assert (last["kind"], last["more"], last["who"]) == ("changes", False, [])
    assert [(row[0], row[5]) for row in last["rows"]] == [(3, 2)]
    assert hub.pages == 0
