"""The fleet as the topics tell it: rows, changes, removal, and what a stale or broken record does."""

from __future__ import annotations

import msgspec
import pytest

from leadline.contracts.codec import encode
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Heartbeat
from leadline.contracts.session_state import encode_state
from leadline.contracts.times import format_ms
from leadline.dashboard.journal import Journal, percentile
from leadline.dashboard.view import FleetView
from leadline.detection.condition import CONDITIONS
from tests.dashboard.feed import Feed, inverting
from tests.support.core import START, WHO, end, policy, round_


def key_of(session_id: str = "s1", agent_id: str = "a1") -> bytes:
    return state_key(session_id, agent_id).encode()


def test_a_session_is_one_row_with_its_newest_measurements() -> None:
    feed = Feed()
    feed.send(round_(1, 0.60, distinct_source_spans=200))
    feed.send(round_(2, 0.45, distinct_source_spans=190, summary_depth_max=2))
    changes = feed.view.take_changes()
    assert [(who.session_id, who.agent_id, who.fleet) for who in changes.who] == [("s1", "a1", "f1")]
    (row,) = changes.rows
    assert (row.raw_ratio, row.spans, row.depth, row.round) == (0.45, 190, 2, 2)
    assert CONDITIONS[row.condition] == "healthy"
    assert row.last_seen == feed.monitor.now


def test_changes_are_told_once_and_everything_again_and_again() -> None:
    feed = Feed()
    feed.send(round_(1))
    assert feed.view.take_changes()
    assert not feed.view.take_changes()
    assert len(feed.view.everything().rows) == 1
    feed.send(round_(2))
    changes = feed.view.take_changes()
    assert (len(changes.who), len(changes.rows)) == (0, 1), "who it is was told before"


def test_a_halt_goes_through_its_life_on_the_row() -> None:
    """inverted with a halt issued, halted once accepted, recovering while it is released, healthy once that is acknowledged."""
    feed = Feed()
    words: list[str] = []
    original = feed.send

    def send(event: msgspec.Struct, after_ms: int = 1_000) -> None:
        original(event, after_ms)
        word = CONDITIONS[feed.view.everything().rows[0].condition]
        words.extend([word] if words[-1:] != [word] else [])

    feed.send = send  # type: ignore[method-assign]
    inverting(feed)
    assert [word for word in words if word in ("inverted", "halted", "recovering")] == ["inverted", "halted", "recovering"]
    assert "inversion" not in [one.rule for one in feed.view.everything().rows[0].open]


def test_a_tombstone_removes_the_session() -> None:
    feed = Feed()
    feed.send(round_(1))
    feed.view.take_changes()
    feed.view.apply_state(3, key_of(), None)
    changes = feed.view.take_changes()
    assert (changes.rows, changes.gone, len(feed.view)) == ([], [0], 0)
    assert feed.view.find("s1") is None


def test_an_older_state_that_comes_late_changes_nothing() -> None:
    """What a monitor that was declared dead may still write."""
    feed = Feed()
    feed.send(round_(1, 0.60))
    older = encode_state(feed.monitor.state())
    feed.send(round_(2, 0.50))
    feed.view.apply_state(3, key_of(), older)
    assert feed.view.everything().rows[0].round == 2


def test_what_cannot_be_read_is_counted_and_left_out() -> None:
    view = FleetView()
    view.apply_state(0, b"k", b"not a state")
    view.apply_violation(b"{}")
    view.apply_command(None)
    view.apply_state(0, None, b"{}")
    assert (view.unreadable, len(view)) == (3, 0)


def test_a_monitor_that_misses_its_heartbeats_is_told() -> None:
    """One beat each 10 s: silent after four of them, on the partition that it concerns."""
    view = FleetView()
    assert view.monitor(START) == {"partitions": 0, "silent": 0, "since": None}
    for partition, at in ((0, START), (1, START + 35_000)):
        view.apply_command(encode(Heartbeat(partition=partition, at=format_ms(at), every_ms=10_000)))
    assert view.monitor(START + 40_000)["silent"] == 0
    assert view.monitor(START + 40_001) == {"partitions": 2, "silent": 1, "since": START}
    assert (view.unreadable, len(view.journal.commands)) == (0, 0)


def test_counts_name_every_condition() -> None:
    feed = Feed()
    feed.send(round_(1))
    feed.send(round_(1, **{**WHO, "session_id": "s2"}))
    feed.send(end(session_id="s2"))
    counts = feed.view.counts()
    assert list(counts) == list(CONDITIONS)
    assert {word: count for word, count in counts.items() if count} == {"healthy": 1, "ended": 1}


def test_the_overview_counts_incidents_commands_and_times_them() -> None:
    """The halt's event was received and judged at one moment: 0 ms. The release comes 2.3 s after the verdict."""
    feed = Feed()
    inverting(feed)
    overview = feed.view.overview()
    assert overview["sessions"] == 1
    assert overview["time_to_release_ms"]["p50"] == 2_300
    assert overview["time_to_verdict_ms"]["p99"] == 0
    assert overview["time_to_verdict_ms"]["of"] == len(feed.monitor.violations)


def test_a_verdict_is_timed_from_the_receipt_of_its_event_whichever_topic_is_read_first() -> None:
    for violation_first in (True, False):
        feed = Feed()
        inverting(feed)
        record = next(one for one in feed.monitor.violations if one.rule == "inversion")
        journal = Journal()
        kept = feed.view.journal.violations.get(record.incident_id)
        assert kept is not None
        at = kept.at
        if violation_first:
            journal.add_violation(record)
            journal.opened(record.incident_id, at - 40)
        else:
            journal.add_violation(record, at - 40)
        journal.opened(record.incident_id, at - 99)  # a later record of the session: the first one counts
        assert list(journal.verdicts) == [40]


def test_a_violation_and_a_command_count_once_by_id() -> None:
    feed = Feed()
    inverting(feed)
    violation, command = feed.monitor.violations[0], feed.monitor.commands[0]
    assert not feed.view.journal.add_violation(violation)
    assert not feed.view.journal.add_command(command)


def test_the_search_wants_every_word_and_gives_the_newest_first() -> None:
    feed = Feed()
    inverting(feed)
    journal = feed.view.journal
    assert [one["kind"] for one in journal.search("commands", "inversion", 10)] == ["resume", "halt"]
    assert [one["kind"] for one in journal.search("commands", "s1 HALT", 10)] == ["halt"]
    assert journal.search("commands", "halt nobody", 10) == []
    assert journal.search("violations", "", 1)[0]["at"] == max(kept.at for kept in journal.violations.values())
    assert journal.search("violations", "", 10, fleet="another") == []
    assert {one["rule"] for one in journal.search("violations", "", 10, rule="inversion")} == {"inversion"}


def test_the_journal_forgets_the_oldest() -> None:
    view = FleetView(Journal(most=2))
    for number in range(3):
        feed = Feed(view)
        feed.monitor.now += number
        for each in ((1, 0.60, 200), (2, 0.24, 150)):
            changes = {"session_id": f"s{number}", "distinct_source_spans": each[2], "query_cosine_retained": each[0] * 0.1}
            feed.send(round_(each[0], each[1], summary_depth_max=2, **changes))
    kept = {one.record.session_id for one in view.journal.violations.values()}
    assert kept == {"s1", "s2"}


def test_the_journal_forgets_the_oldest_in_whatever_order_they_are_read() -> None:
    """Two partitions, one after the other, each with a record of the times 0 to 3: the newest two of each stay."""
    feed, journal = Feed(), Journal(most=4)
    inverting(feed)
    violation, command = feed.monitor.violations[0], feed.monitor.commands[0]
    for partition in "ab":
        for at in range(4):
            name, moment = f"{partition}{at}", format_ms(START + at * 1_000)
            assert journal.add_violation(msgspec.structs.replace(violation, incident_id=name, detected_at=moment))
            journal.add_command(msgspec.structs.replace(command, command_id=name, issued_at=moment))
    assert not journal.add_violation(msgspec.structs.replace(violation, incident_id="c1", detected_at=format_ms(START + 1_000)))
    assert sorted(kept.record.incident_id for kept in journal.violations.values()) == ["a2", "a3", "b2", "b3"]
    assert sorted(kept.record.command_id for kept in journal.commands.values()) == ["a2", "a3", "b2", "b3"]


def test_who_never_takes_changes_keeps_none() -> None:
    feed = Feed(FleetView(changes=False))
    feed.send(round_(1))
    feed.send(round_(2, fleet="another"))
    feed.view.apply_state(0, key_of(), None)
    assert len(feed.view) == 0
    assert not feed.view.take_changes()


def test_shadow_tells_what_enforcement_would_have_done() -> None:
    feed = Feed(policy=policy(modes={"inversion": "shadow"}))
    for number, ratio, spans, cosine in ((1, 0.60, 200, 0.5), (2, 0.24, 150, 0.6)):
        feed.send(round_(number, ratio, distinct_source_spans=spans, query_cosine_retained=cosine, summary_depth_max=2))
    report = feed.view.journal.shadow()
    row = next(row for row in report["rows"] if row["rule"] == "inversion")
    assert (row["action"], row["incidents"], row["sessions"], row["fleet"]) == ("halt", 1, 1, "f1")
    assert report["actions"] == {"halt": 1}
    assert feed.monitor.commands == []


@pytest.mark.parametrize(
    ("values", "share", "expected"), [((), 0.5, None), ((7,), 0.99, 7), ((1, 2, 3, 4), 0.5, 2), ((4, 1), 0.99, 4)]
)
def test_percentile_is_the_nearest_rank(values: tuple[int, ...], share: float, expected: int | None) -> None:
    assert percentile(values, share) == expected
