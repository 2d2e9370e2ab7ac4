"""Acting on the page: nobody without a token, everything with who and why, each act a record where the monitor reads it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from starlette.routing import Route

from leadline.contracts.codec import decode_event, decode_silence
from leadline.contracts.manual import Manual
from leadline.contracts.times import parse_ms
from leadline.contracts.topics import EVENTS, SILENCES
from leadline.dashboard.access import Access
from leadline.dashboard.acting import Acting, _Asked
from leadline.dashboard.api import Parts, make_app
from leadline.dashboard.hub import Hub
from leadline.dashboard.reader import Reading
from leadline.dashboard.view import FleetView
from leadline.detection.policy import DEFAULT_POLICY
from leadline.settings import load_settings
from tests.dashboard.feed import Feed, inverting
from tests.dashboard.test_serve import PARTITION, Topics, dashboard
from tests.support.core import round_

TOKEN = "acting-needs-this-one"
WHOSE = {"session_id": "s1", "agent_id": "a1"}
SAID = {"who": "ada", "why": "it deletes things"}


class Desk(NamedTuple):
    """A dashboard in front of a broker that knows one session."""

    address: str
    bootstrap: str

    def act(self, token: str = TOKEN, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.address}api/acts", json=body, headers={"x-leadline-act-token": token}, timeout=30)

    def record(self, topic: str, partitions: int, after: int = 0) -> tuple[int, bytes, bytes]:
        """Partition, key and value of the record number ``after`` and on that a person wrote, once it is there."""
        client = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"t-{os.getpid()}", "auto.offset.reset": "earliest"})
        try:
            client.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            deadline = time.monotonic() + 30
            seen = 0
            while time.monotonic() < deadline:
                message = client.poll(0.2)
                if message is None or message.error() is not None or b'"who"' not in (message.value() or b""):
                    continue
                seen += 1
                if seen > after:
                    return message.partition(), message.key(), message.value()
            raise AssertionError(f"nothing on {topic}")
        finally:
            client.close()


@pytest.fixture
def desk(fresh_bootstrap: str, tmp_path: Path) -> Iterator[Desk]:
    written, feed = Topics(fresh_bootstrap), Feed()
    inverting(feed)
    written.publish(feed)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with dashboard(fresh_bootstrap, LEADLINE_DASHBOARD_ACT_TOKEN_FILE=str(token)) as (address, _):
        deadline = time.monotonic() + 30
        while not httpx.get(f"{address}api/sessions").json()["sessions"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Desk(address, fresh_bootstrap)


@pytest.mark.timeout(150)
def test_what_people_do_is_a_record_where_the_monitor_reads_it(desk: Desk) -> None:
    """One dashboard for all of it: a start costs more than the acts."""
    assert httpx.get(f"{desk.address}api/config").json()["acting"]
    assert desk.act("wrong", action="halt", **WHOSE, **SAID).status_code == 403
    assert desk.act("", action="halt", **WHOSE, **SAID).status_code == 403

    halted = desk.act(action="halt", **WHOSE, **SAID)
    assert halted.status_code == 200, halted.text
    partition, key, value = desk.record(EVENTS.name, 4)
    assert (partition, key) == (PARTITION, b"s1"), "among the session's own events"
    manual = decode_event(value).event
    assert isinstance(manual, Manual)
    assert (manual.action, manual.who, manual.why, manual.fleet) == ("halt", "ada", "it deletes things", "f1")
    assert manual.event_id == halted.json()["id"]

    assert desk.act(action="resume", rule="inversion", **WHOSE, **SAID).status_code == 200
    released = decode_event(desk.record(EVENTS.name, 4, after=1)[2]).event
    assert isinstance(released, Manual)
    assert (released.action, released.rule) == ("resume", "inversion")
    assert released.incident_id == "", "it has ended already"

    silenced = desk.act(action="silence", rule="drift", fleet="f1", minutes=15, **SAID).json()["id"]
    silence = decode_silence(desk.record(SILENCES.name, 4)[2])
    assert (silence.silence_id, silence.rule, silence.fleet, silence.session_id) == (silenced, "drift", "f1", "")
    assert (parse_ms(silence.expires_at) or 0) - (parse_ms(silence.at) or 0) == 15 * 60_000
    deadline = time.monotonic() + 30
    while not (shown := httpx.get(f"{desk.address}api/session?session=s1&agent=a1").json()["silences"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [(one["rule"], one["who"], one["why"]) for one in shown] == [("drift", "ada", "it deletes things")]

    assert desk.act(action="lift", silence_id=silenced, **SAID).status_code == 200
    lifted = decode_silence(desk.record(SILENCES.name, 4, after=1)[2])
    assert (lifted.silence_id, lifted.lifted) == (silenced, True)

    long = desk.act(action="halt", **WHOSE, who="ada", why="x" * 17_000)
    assert (long.status_code, "16,384 bytes" in long.json()["error"]) == (413, True)

    refused = {
        "say who": {"action": "halt", **WHOSE, "why": "x"},
        "say why": {"action": "halt", **WHOSE, "who": "ada", "why": " "},
        "no such session": {"action": "halt", "session_id": "s1", "agent_id": "another", **SAID},
        "name the session": {"action": "halt", **SAID},
        "no rule": {"action": "silence", "rule": "gravity", "fleet": "f1", **SAID},
        "either a session or a fleet": {"action": "silence", "rule": "drift", **SAID},
        "no such silence": {"action": "lift", "silence_id": "x", **SAID},
        "cannot be done": {"action": "explode", **WHOSE, **SAID},
    }
    for sentence, body in refused.items():
        answer = desk.act(**body)
        assert answer.status_code in (404, 422), sentence
        assert sentence in answer.json()["error"]


@pytest.mark.timeout(60)
def test_acting_is_off_unless_there_is_a_token_for_it(fresh_bootstrap: str) -> None:
    Topics(fresh_bootstrap)
    with dashboard(fresh_bootstrap) as (address, _):
        answer = Desk(address, fresh_bootstrap).act("", action="halt", **WHOSE, **SAID)
        assert answer.status_code == 403
        assert "turned off" in answer.json()["error"]
        assert not httpx.get(f"{address}api/config").json()["acting"]


async def test_the_token_for_acting_is_not_guessed_without_end() -> None:
    """Five wrong ones a minute, then the right one is refused too; who looks and does not act is not disturbed."""
    now = [1_800_000_000_000]
    current = Reading(now[0], 0, 1.0)
    view, lock = FleetView(), threading.Lock()
    hub = Hub(view, lock, lambda: current, lambda: now[0])
    access = Access(act_token=TOKEN)
    parts = Parts(view, lock, hub, None, lambda: current, lambda: now[0], lambda: DEFAULT_POLICY, access)  # type: ignore[arg-type]
    acting = Acting(load_settings({}, bootstrap="127.0.0.1:1"), parts, lambda: now[0])
    app = make_app(parts, [Route("/api/acts", acting.act, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:

        async def act(token: str) -> httpx.Response:
            body = {"action": "halt", **WHOSE, **SAID}
            return await client.post("/api/acts", json=body, headers={"x-leadline-act-token": token})

        for guess in range(5):
            assert (await act(f"guess-{guess}")).status_code == 403
        refused = await act(TOKEN)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        assert refused.json()["error"] == "too many wrong tokens came from here: try again in 60 seconds"
        assert (await client.get("/api/fleet")).status_code == 200
        now[0] += 60_000
        assert (await act(TOKEN)).status_code == 404, "it is the right one, and there is no such session"


def test_a_release_names_the_incident_that_is_open() -> None:
    """Copied later, it does not serve for the next one."""
    feed = Feed()
    for number, ratio, spans, cosine in ((1, 0.60, 200, 0.50), (2, 0.24, 160, 0.55)):
        feed.send(round_(number, ratio, distinct_source_spans=spans, query_cosine_retained=cosine, summary_depth_max=2))
    (inversion,) = [one for one in feed.monitor.violations if one.rule == "inversion"]
    parts: Any = SimpleNamespace(view=feed.view, lock=threading.Lock(), access=SimpleNamespace(act_token=""))
    acting = Acting(load_settings({}), parts, lambda: feed.monitor.now)

    def named(**asked: Any) -> str:
        record = acting._record(msgspec.convert({**WHOSE, **SAID, **asked}, _Asked))[3]
        assert isinstance(record, Manual)
        return record.incident_id

    assert named(action="resume", rule="inversion") == inversion.incident_id
    assert named(action="resume") == "", "nobody halted it by hand"
    assert named(action="halt") == ""
