"""A monitor without a broker, and what its topics say, fed to a view: what the reader does, without Kafka."""

from __future__ import annotations

from typing import Any

import msgspec

from leadline.contracts.codec import decode_event, encode
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Violation
from leadline.contracts.session_state import encode_state
from leadline.dashboard.history import Seen
from leadline.dashboard.view import FleetView
from tests.support.core import Monitor, ack, round_

__all__ = ["Feed", "inverting"]


class Feed:
    """Sends events to the monitor one by one; everything that it writes goes into ``view``, and the events are kept."""

    def __init__(self, view: FleetView | None = None, **monitor: Any) -> None:
        self.monitor = Monitor(**monitor)
        self.view = view if view is not None else FleetView()
        self.seen: list[Seen] = []

    def send(self, event: msgspec.Struct, after_ms: int = 1_000) -> None:
        self.monitor.now += after_ms
        outputs = self.monitor.send(event)
        record = self.monitor.log[-1]
        assert record.value is not None
        decoded = decode_event(record.value).event
        self.seen.append(Seen(record.offset, self.monitor.now, decoded))
        for output in outputs:
            apply = self.view.apply_violation if isinstance(output, Violation) else self.view.apply_command
            apply(encode(output))
        key = state_key(decoded.session_id, decoded.agent_id)
        state = self.monitor.load(key)
        self.view.apply_state(3, key.encode(), None if state is None else encode_state(state))


def inverting(feed: Feed) -> None:
    """Six rounds that fall below the floor while salience rises, the halt accepted, and two rounds that recover.

    Round 5: raw ratio 0.24, spans 160 after 170, cosine 0.55 after 0.54. Round 7: raw ratio 0.45, 180 spans.
    """
    falling = ((1, 0.60, 200, 0.50), (2, 0.50, 190, 0.51), (3, 0.40, 180, 0.52), (4, 0.30, 170, 0.54), (5, 0.24, 160, 0.55))
    for number, ratio, spans, cosine in falling:
        feed.send(round_(number, ratio, distinct_source_spans=spans, query_cosine_retained=cosine, summary_depth_max=2))
    (halt,) = [one for one in feed.monitor.commands if one.kind == "halt"]
    feed.send(ack(halt, "accepted", event_id="k1"), 300)
    feed.send(round_(6, 0.26, distinct_source_spans=165, query_cosine_retained=0.50, summary_depth_max=2))
    feed.send(round_(7, 0.45, distinct_source_spans=180, query_cosine_retained=0.48, summary_depth_max=2))
    for resume in [one for one in feed.monitor.commands if one.kind == "resume"]:
        feed.send(ack(resume, "done", event_id=f"k{resume.seq}"), 200)
