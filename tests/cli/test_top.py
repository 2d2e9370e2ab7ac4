"""``leadline top``: the overview in the terminal, from the topics alone."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from leadline.cli.top import _screen
from leadline.contracts.codec import encode
from leadline.contracts.orders import Heartbeat
from leadline.contracts.times import format_ms
from leadline.contracts.topics import COMMANDS
from leadline.dashboard.reader import Reader, Reading
from leadline.dashboard.view import FleetView
from leadline.errors import Refused
from tests.cli.run import leadline
from tests.dashboard.feed import Feed, inverting
from tests.dashboard.test_serve import HOSTILE, PARTITION, Topics
from tests.support.core import round_


@pytest.mark.timeout(120)
def test_shows_the_fleet_once_as_text_and_as_json(fresh_bootstrap: str) -> None:
    """One session that inverted and was released, one halted, one whose id is a terminal escape; another fleet beside them."""
    written, feed = Topics(fresh_bootstrap), Feed()
    inverting(feed)
    written.publish(feed)
    troubled = Feed()
    for number, ratio, spans, cosine in ((1, 0.60, 200, 0.5), (2, 0.24, 150, 0.6)):
        changes = {"distinct_source_spans": spans, "query_cosine_retained": cosine, "summary_depth_max": 2}
        troubled.send(round_(number, ratio, session_id="s2", **changes))
    troubled.send(round_(1, session_id=HOSTILE, fleet="f2"))
    written.publish(troubled)
    beat = Heartbeat(partition=PARTITION, at=format_ms(time.time_ns() // 1_000_000 - 600_000), every_ms=5_000)
    written.write(COMMANDS.name, "beat", encode(beat))
    written.flush()

    told = leadline("top", "--json", "--bootstrap", fresh_bootstrap)
    assert told.code == 0
    assert told.json["sessions"] == 3
    assert {word: count for word, count in told.json["conditions"].items() if count} == {"inverted": 1, "healthy": 2}
    assert told.json["commands_in_flight"] == {"halt": 1}
    assert told.json["incidents"]["inversion"] == 1
    assert told.json["reading"]["behind"] == 0
    assert (told.json["monitor"]["partitions"], told.json["monitor"]["silent"]) == (1, 1)

    shown = leadline("top", "--once", "--bootstrap", fresh_bootstrap)
    assert shown.code == 0
    assert "\x1b[31m" not in shown.out
    assert "3 sessions" in shown.out
    assert re.search(r"No monitor watches this fleet: the last sign of life came \d+ s ago", shown.out.replace("\n", " "))
    lines = [line for line in shown.out.splitlines() if " s1 " in line or " s2 " in line]
    assert [line.split()[1] for line in lines] == ["s2", "s1"], "the troubled one first"
    assert "inverted" in lines[0]
    assert "halt issued" in lines[0]

    one = leadline("top", "--json", "--fleet", "f2", "--bootstrap", fresh_bootstrap)
    assert one.json["sessions"] == 1


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_every_line_fits_and_columns_are_left_out_whole(width: int) -> None:
    """The least telling go first; at 80 columns what is open and what was commanded is still there, for ids of any length."""
    view = FleetView(changes=False)
    feed = Feed(view)
    inverting(feed)
    feed.send(round_(1, session_id="research-2026-12-01-" + "x" * 200 + "-0042", fleet="research"))
    written = io.StringIO()
    out = Console(file=written, width=width)
    out.print(_screen(view, Reading(time.time_ns() // 1_000_000, 0, 1.0), "", width, 40))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heading = next(line for line in lines if " session " in line and "state" in line)
    shown = heading.strip("│ ").split()
    every = ["session", "fleet", "state", "ratio", "spans", "depth", "round", "open", "command"]
    assert shown == [name for name in every if name in shown]
    assert set(shown) >= {"session", "state", *(["open", "ratio", "spans", "command"] if width >= 80 else [])}
    assert width < 160 or shown == every
    assert any("-0042 " in line for line in lines), "the end of a long id tells it apart"


def test_it_keeps_no_changes_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may run for weeks: whatever comes and goes in its view must leave nothing behind."""
    views: list[FleetView] = []

    def read(_settings: object, view: FleetView, *_: object) -> Reader:
        views.append(view)
        raise Refused("seen enough")

    monkeypatch.setattr("leadline.cli.top.Reader", read)
    assert leadline("top", "--once").code != 0
    feed = Feed(views[0])
    feed.send(round_(1))
    assert len(views[0]) == 1
    assert not views[0].take_changes()


@pytest.mark.timeout(60)
def test_without_a_broker_it_says_so() -> None:
    shown = leadline("top", "--once", "--bootstrap", "127.0.0.1:1")
    assert shown.code == 3
    assert "no broker answered at 127.0.0.1:1" in shown.err
