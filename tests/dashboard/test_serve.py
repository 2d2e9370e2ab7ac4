"""The real process in front of a real broker: it rebuilds its view, streams what changes, and listens on loopback alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from leadline.contracts.codec import encode
from leadline.contracts.ids import state_key
from leadline.contracts.topics import COMMANDS, EVENTS, SESSIONS, VIOLATIONS
from leadline.processors import topics
from leadline.settings import load_settings
from tests.dashboard.feed import Feed, inverting
from tests.support.core import round_
from tests.support.ports import listening

PARTITION = 3
HOSTILE = '"><img src=x onerror=alert(1)>\x1b[31mred'


class Topics:
    """What agents and a monitor would have written."""

    def __init__(self, bootstrap: str) -> None:
        topics.create(load_settings({}, bootstrap=bootstrap, partitions=4), timeout_s=20.0)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def write(self, topic: str, key: str, value: bytes | None) -> None:
        self._producer.produce(topic, value, key.encode(), partition=PARTITION)

    def publish(self, feed: Feed) -> None:
        """All that the feed's monitor has read and written so far."""
        for record in feed.monitor.log:
            assert record.key is not None
            self.write(EVENTS.name, record.key.decode(), record.value)
        for one in feed.monitor.violations:
            self.write(VIOLATIONS.name, one.session_id, encode(one))
        for order in feed.monitor.commands:
            self.write(COMMANDS.name, order.session_id, encode(order))
        for key, value in feed.monitor.stored.items():
            self.write(SESSIONS.name, key, value)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(20.0) == 0


@contextlib.contextmanager
def dashboard(bootstrap: str, **environ: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``leadline dashboard`` on a free port: its address and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "leadline.cli.main", "dashboard", "--bootstrap", bootstrap, "--port", "0", "--json"],
        env={name: value for name, value in os.environ.items() if not name.startswith("LEADLINE_")} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)[1]
        yield json.loads(line)["address"], process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def stream(url: str) -> Iterator[Iterator[dict[str, Any]]]:
    with httpx.Client(timeout=30) as client, client.stream("GET", url) as response:
        yield (json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data:"))


@pytest.mark.timeout(120)
def test_rebuilds_its_view_streams_changes_and_stops_in_order(fresh_bootstrap: str) -> None:
    written, feed = Topics(fresh_bootstrap), Feed()
    inverting(feed)
    hostile = Feed(feed.view)
    hostile.send(round_(1, session_id=HOSTILE))
    written.publish(feed)
    written.publish(hostile)
    with dashboard(fresh_bootstrap) as (address, process):
        assert {host for host, _ in listening(process.pid)} == {"127.0.0.1"}
        with stream(f"{address}api/stream") as messages:
            first = next(message for message in messages if message["kind"] == "everything" or message["rows"])
            sessions = {who[1] for who in first["who"]}
            for message in messages:
                sessions |= {who[1] for who in message["who"]}
                if message["reading"]["as_of"] is not None and len(sessions) == 2:
                    break
            assert sessions == {"s1", HOSTILE}
            feed.send(round_(8, 0.44, distinct_source_spans=180, query_cosine_retained=0.48, summary_depth_max=2))
            (record,) = [value for key, value in feed.monitor.stored.items() if key == state_key("s1", "a1")]
            written.write(SESSIONS.name, state_key("s1", "a1"), record)
            written.flush()
            row = next(row for message in messages for row in message["rows"] if row[5] == 8)
            assert row[2] == 0.44
            written.write(SESSIONS.name, state_key("s1", "a1"), None)
            written.flush()
            gone = next(message["gone"] for message in messages if message["gone"])
            assert gone == [row[0]]
        reading = httpx.get(f"{address}healthz").json()
        assert reading["ok"]
        assert reading["behind"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.timeout(120)
def test_a_session_that_is_opened_shows_its_rounds_from_the_events_topic(fresh_bootstrap: str) -> None:
    """30 rounds, of which the session's record keeps 16."""
    written, feed = Topics(fresh_bootstrap), Feed()
    for number in range(1, 31):
        feed.send(round_(number))
    written.publish(feed)
    with dashboard(fresh_bootstrap) as (address, _), stream(f"{address}api/session/stream?session=s1&agent=a1") as messages:
        documents = (message["document"] for message in messages if "document" in message)
        document = next(each for each in documents if each["complete"])
        assert document["rounds"]["round"] == list(range(1, 31))
        assert document["session"]["session_id"] == "s1"
        missing = httpx.get(f"{address}api/session?session=nobody")
        assert missing.status_code == 404


@pytest.mark.timeout(60)
def test_what_is_wrong_at_the_start_is_one_sentence(fresh_bootstrap: str) -> None:
    def said(*arguments: str, **environ: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "leadline.cli.main", "dashboard", *arguments],
            env={name: value for name, value in os.environ.items() if not name.startswith("LEADLINE_")} | environ,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.returncode, done.stderr

    code, error = said("--bootstrap", fresh_bootstrap, "--host", "0.0.0.0")
    assert code == 2
    assert "for everybody" in error
    code, error = said("--bootstrap", fresh_bootstrap, "--port", "0")
    assert code == 2
    assert f"run `leadline topics create --bootstrap {fresh_bootstrap}` first" in error
    code, error = said("--port", "99999")
    assert code == 2
    assert "'--port': 99999 is not in the range" in error
