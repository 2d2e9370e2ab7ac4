"""The soak in small: the broker goes away and comes back, and every event arrives in its session's order.

The whole of it is ``make soak``; on Apache Kafka the broker is stopped and started, the embedded one is halted.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak import soak


def test_no_event_is_lost_and_none_is_out_of_order(tmp_path: Path) -> None:
    """20 sessions, an outage of two seconds: at least a start, two rounds and an end each."""
    told = soak("embedded", 5.0, 20, 2.0, tmp_path)
    assert told["outages"] == 1
    assert told["emitted"] >= 20 * 4
    assert (told["lost"], told["dropped"], told["left"], told["sessions_out_of_order"]) == (0, 0, 0, 0)
