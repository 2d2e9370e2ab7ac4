"""One session's page: rounds on an axis, marks where things happened, the story, forecast, facts and provenance."""

from __future__ import annotations

from typing import Any

from leadline.contracts.events import Summary
from leadline.dashboard.session_page import session_page
from leadline.detection.policy import FleetPolicy
from tests.dashboard.feed import Feed, inverting
from tests.support.core import WHO, checkpoint, declared, end, round_, start


def page(feed: Feed, **options: Any) -> dict[str, Any]:
    events = [seen for seen in feed.seen if seen.event.agent_id == "a1"]
    given: dict[str, Any] = {"complete": True} | options
    return session_page(feed.monitor.state(), feed.view.journal, events, FleetPolicy(), **given)


def test_rounds_are_columns_of_one_length() -> None:
    feed = Feed()
    inverting(feed)
    rounds = page(feed)["rounds"]
    assert rounds["round"] == [1, 2, 3, 4, 5, 6, 7]
    assert rounds["raw_ratio"] == [0.6, 0.5, 0.4, 0.3, 0.24, 0.26, 0.45]
    assert rounds["spans"][4:6] == [160, 165]
    assert {len(column) for column in rounds.values()} == {7}


def test_what_the_events_topic_has_lost_comes_from_the_record_and_the_other_way_round() -> None:
    """The record keeps 16 rounds; of 20 the events give the first ones, here rounds 1 to 10."""
    feed = Feed()
    for number in range(1, 21):
        feed.send(round_(number))
    feed.seen = feed.seen[:10]
    rounds = page(feed)["rounds"]
    assert rounds["round"] == list(range(1, 21))
    assert rounds["at"][:10] == [seen.at for seen in feed.seen]
    assert rounds["at"][10:] == [-1] * 10


def test_rounds_of_an_epoch_that_is_over_are_not_drawn() -> None:
    feed = Feed()
    for number in (1, 2, 3):
        feed.send(round_(number, 0.9))
    feed.send(round_(1, 0.5, epoch=1))
    assert page(feed)["rounds"]["raw_ratio"] == [0.5]


def test_a_pass_that_failed_measured_nothing() -> None:
    feed = Feed()
    feed.send(round_(1, 0.6))
    feed.send(round_(2, 0.1, outcome="failed"))
    assert page(feed)["rounds"]["round"] == [1]


def test_incident_command_ack_and_release_are_marked_where_they_happened() -> None:
    """The verdict and the halt at round 5, its acknowledgement between 5 and 6, the release at 7."""
    feed = Feed()
    inverting(feed)
    marks = page(feed)["marks"]
    said = {(mark["kind"], mark["label"]): mark["x"] for mark in marks}
    assert said["incident", "inversion"] == 5
    assert said["command", "halt"] == 5
    assert said["ack", "halt accepted"] == 5.5
    assert said["release", "resume"] == 7
    assert said["ack", "resume done"] == 7.5
    assert [mark["x"] for mark in marks] == sorted(mark["x"] for mark in marks)


def test_the_thresholds_are_the_policys_and_the_sessions() -> None:
    """A fifth of 214 spans, rounded down: 42."""
    feed = Feed()
    feed.send(round_(1))
    assert page(feed)["thresholds"] == {
        "raw_ratio_floor": 0.25,
        "raw_ratio_exit": 0.30,
        "span_floor": 42,
        "max_depth": 4,
        "pin_rounds": 5,
    }


def test_the_story_is_told_in_order() -> None:
    feed = Feed()
    feed.send(start(declared("F1", "F2"), session_start_spans=214))
    inverting(feed)
    feed.send(end(detail="finished"))
    story = page(feed)["story"]
    kinds = [entry["kind"] for entry in story if entry["kind"] not in ("erosion", "masked", "drift")]
    assert kinds == ["start", "inversion", "halt", "ack", "resume", "ack", "end"]
    texts = {entry["kind"]: entry["text"] for entry in story}
    assert texts["start"] == "The session began with 214 source spans, 2 declared facts."
    assert "raw ratio 0.24 is below 0.25, source spans fell 170 -> 160" in texts["inversion"]
    assert texts["halt"].startswith("Halt commanded for inversion: rehydrate to raw ratio 0.30, at least 42 source spans")
    assert texts["resume"].endswith("2.3 s after the verdict")
    assert texts["end"] == "The session ended: finished"
    assert next(entry["text"] for entry in story if entry["kind"] == "ack") == "The agent accepted the halt after 0.3 s"


def test_the_headline_says_how_it_stands_and_why() -> None:
    feed = Feed()
    for number, ratio, spans, cosine in ((1, 0.60, 200, 0.5), (2, 0.24, 150, 0.6)):
        feed.send(round_(number, ratio, distinct_source_spans=spans, query_cosine_retained=cosine, summary_depth_max=2))
    told = page(feed)["headline"]
    assert told.startswith("Inverted: salience inversion: raw ratio 0.24 is below 0.25")
    assert told.endswith("Now: raw ratio 0.24, 150 source spans at depth 2.")


def test_a_forecast_where_the_ratio_falls_and_none_where_it_is_steady() -> None:
    """0.60, 0.57, … 0.36 over nine rounds: 0.11 above the floor, 0.03 a round, so four rounds."""
    falling, steady = Feed(), Feed()
    for number in range(1, 10):
        falling.send(round_(number, 0.63 - 0.03 * number))
        steady.send(round_(number))
    (ahead,) = page(falling)["forecast"]
    assert (ahead["what"], ahead["rounds"], ahead["floor"], ahead["from_round"]) == ("raw_ratio", 4, 0.25, 9)
    assert page(steady)["forecast"] == []


def test_summaries_by_depth_and_which_have_no_ground() -> None:
    listed = [
        Summary(id="S1", depth=1, tokens=100, fan_out=4, reachable=4),
        Summary(id="S2", depth=1, tokens=300, fan_out=8, reachable=8),
        Summary(id="S3", depth=2, tokens=50, fan_out=2, reachable=0),
    ]
    feed = Feed()
    feed.send(round_(1, summaries=listed, ungrounded_summaries=1))
    feed.send(round_(2))  # lists none: the last list stands
    provenance = page(feed)["provenance"]
    assert provenance["round"] == 1
    assert provenance["ungrounded"] == 1
    assert provenance["by_depth"] == [
        {"depth": 1, "summaries": 2, "tokens": 400, "fan_out": 6.0, "ungrounded": 0},
        {"depth": 2, "summaries": 1, "tokens": 50, "fan_out": 2.0, "ungrounded": 1},
    ]
    assert [item["id"] for item in provenance["listed"]] == ["S3", "S2", "S1"], "what has no ground comes first"


def test_without_listed_summaries_there_is_no_provenance() -> None:
    feed = Feed()
    feed.send(round_(1))
    assert page(feed)["provenance"] is None


def test_facts_and_the_level_each_was_lost_at() -> None:
    feed = Feed()
    feed.send(start(declared("F1", "F2", "F3")))
    feed.send(checkpoint(1, {"F1": "verbatim", "F2": "abstracted", "F3": "verbatim"}, event_id="c1"))
    feed.send(checkpoint(2, {"F1": "verbatim", "F2": "absent", "F3": "absent"}, drops=["F3"], event_id="c2"))
    facts = page(feed)["facts"]
    assert [(fact["fact_id"], fact["kept_level"], fact["lost_level"], fact["excused"]) for fact in facts] == [
        ("F2", 1, 2, ""),
        ("F3", 1, None, "declared"),
        ("F1", 2, None, ""),
    ]
    levels = page(feed)["levels"]
    assert [(level["level"], level["facts_kept"], level["facts"]) for level in levels] == [(1, 3, 3), (2, 1, 3)]


def test_what_an_agent_wrote_is_made_printable_and_bounded() -> None:
    hostile = "\x1b[31mred\x1b[0m<script>alert(1)</script> password=hunter2 " + "x" * 5_000
    feed = Feed()
    feed.send(round_(1))
    feed.send(end(detail=hostile[:1_000]))
    (told,) = [entry["text"] for entry in page(feed)["story"] if entry["kind"] == "end"]
    assert "\x1b" not in told
    assert "\\x1b[31mred" in told
    assert "hunter2" not in told
    assert "<script>" in told, "markup is text, and the page shows it as text"
    assert len(told) < 600


def test_a_link_to_the_trace_needs_a_template_and_a_sound_trace() -> None:
    feed = Feed()
    feed.send(round_(1))
    state = feed.monitor.state()
    state.traceparent = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    told = session_page(state, feed.view.journal, [], FleetPolicy(), complete=True, trace_url="https://t/{trace_id}?x=1")
    assert told["trace"] == {"trace_id": "ab" * 16, "url": f"https://t/{'ab' * 16}?x=1"}
    state.traceparent = "00-javascript:alert(1)-x-01"
    assert session_page(state, feed.view.journal, [], FleetPolicy(), complete=True)["trace"] is None


def test_another_agent_that_uses_the_same_session_id_is_another_session() -> None:
    feed = Feed()
    feed.send(round_(1, 0.6))
    feed.send(round_(1, 0.1, **{**WHO, "agent_id": "a2"}))
    assert page(feed)["rounds"]["raw_ratio"] == [0.6]
