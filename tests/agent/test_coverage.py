"""What a summarizer call left out, by ids; and texts that are no summaries."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.agent.coverage import is_placeholder, uncovered
from leadline.contracts import limits
from leadline.contracts.events import Checkpoint
from tests.agent.support import Sink, session


def test_sources_and_retained_must_cover_everything() -> None:
    """C1 summarizes m1 and m2 and m3 to m6 are kept; C2 reads C1, m7 and m8 and keeps nothing."""
    first = [f"m{n}" for n in range(1, 7)]
    assert uncovered(first, ["m1", "m2"], ["m3", "m4", "m5", "m6"]) == []
    second = ["C1", "m3", "m4", "m5", "m6", "m7", "m8"]
    assert uncovered(second, ["C1", "m7", "m8"]) == ["m3", "m4", "m5", "m6"]


def test_ids_decide_not_ranges_or_copies() -> None:
    """e3 and e4 carry the same time; a range of times would hold both, the sources do not."""
    assert uncovered(["e1", "e2", "e3", "e4"], ["e1", "e2", "e3"]) == ["e4"]
    assert uncovered(["s5", "s6", "s7", "s6"], ["s5"]) == ["s6", "s7"]


def test_more_sources_than_there_were_is_no_loss() -> None:
    assert uncovered([], ["a"], ["b"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "Error generating summary: 429",
        "error: failed to summarize",
        "[Error creating summary]",
        "Failed to generate summary",
        "Unable to summarise the conversation.",
        "Could not produce a summary",
        "No summary",
        "Summary unavailable",
        "N/A",
        "null",
    ],
)
def test_texts_that_stand_for_a_summary_that_was_not_written(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The user asked to fix the error that generating summaries raised.",
        "Errors: none. The port is 8080.",
        "Nothing was lost.",
        "Summary of the session: the credential must not be rotated after step 4.",
        "None of the tests failed; the summary is in notes.md",
    ],
)
def test_texts_that_may_be_summaries(text: str) -> None:
    assert not is_placeholder(text)


def reported(**call: Any) -> Checkpoint:
    sink = Sink()
    with session(sink) as one:
        one.checkpoint(1, **call)
    (event,) = [event for event in sink.events if isinstance(event, Checkpoint)]
    return event


def test_a_session_says_that_a_text_is_a_placeholder_whatever_its_stop_reason() -> None:
    assert reported(text="Error generating summary", stop_reason="end_turn", source_spans=195).stop_reason == "placeholder"
    assert reported(text="The port is 8080.", stop_reason="end_turn").stop_reason == "end_turn"
    assert reported(visible=False, stop_reason="end_turn").stop_reason == "end_turn"


def test_an_empty_text_is_no_output_unless_the_call_counted_some() -> None:
    assert reported(text=" \n").output_tokens == 0
    assert reported(text="", output_tokens=12).output_tokens == 12


def test_a_session_names_what_was_left_out_as_many_as_fit() -> None:
    assert reported(unseen_span_ids=["m3", "m4"]).unseen_span_ids == ["m3", "m4"]
    many = reported(unseen_span_ids=[f"m{n}" for n in range(1000)]).unseen_span_ids
    assert many is not None
    assert len(many) == limits.MAX_SUMMARIES
