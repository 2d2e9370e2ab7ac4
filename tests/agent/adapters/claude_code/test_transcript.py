"""What a transcript tells of its compactions. Tokens are a quarter of the characters."""

from __future__ import annotations

import json
from typing import TypeVar

import pytest

from leadline.agent import Fact
from leadline.agent.adapters.claude_code import Transcript, events_of
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import Checkpoint, Round, SessionEnd, SessionStart
from leadline.lab.replay import ReplayDriver
from tests.agent.adapters.claude_code.recording import SESSION, Recording, compacted

E = TypeVar("E")


def told(made: Recording, kind: type[E], transcript: Transcript | None = None) -> list[E]:
    return [event for event in events_of(made.raw, transcript) if isinstance(event, kind)]


def test_a_compaction_is_a_round_with_what_was_there_before_and_after() -> None:
    """Four messages of 10 tokens; one is preserved beside the summary of 15, which stands on the three others."""
    [done] = told(compacted(), Round)
    assert done.before is not None
    assert (done.before.raw_tokens, done.before.summary_tokens, done.before.distinct_source_spans) == (40, 0, 4)
    assert (done.raw_tokens, done.summary_tokens, done.distinct_source_spans) == (10, 15, 4)
    assert (done.trigger, done.round, done.session_start_spans) == ("auto", 1, 4)
    assert done.summaries is not None
    assert [(one.depth, one.fan_out, one.reachable) for one in done.summaries] == [(1, 3, 3)]
    assert done.ts == "2026-11-01T10:06:00.000Z"


def test_summaries_of_summaries_are_deeper_and_lead_to_all_that_was_said() -> None:
    rounds = told(compacted(3), Round)
    assert [done.summary_depth_max for done in rounds] == [1, 2, 3]
    assert [done.distinct_source_spans for done in rounds] == [4, 8, 12]
    assert [done.raw_tokens for done in rounds] == [10, 10, 10]


def test_what_the_transcript_does_not_say_is_not_claimed() -> None:
    """Neither what the summarizer read, nor the window, nor how deep summaries may be."""
    start, call, *_ = events_of(compacted().raw)
    assert isinstance(start, SessionStart)
    assert (start.policy.token_budget, start.policy.max_depth) == (None, None)
    assert isinstance(call, Checkpoint)
    assert (call.source_spans, call.seen_spans, call.declared_input_tokens, call.stop_reason) == (None, None, None, None)
    assert (call.level, call.output_tokens) == (1, 15)


@pytest.mark.parametrize("key", ["uuids", "allUuids"])
def test_preserved_messages_by_id(key: str) -> None:
    made = Recording()
    first = made.user("u" * 40)
    made.assistant("a" * 40)
    last = made.user("u" * 40)
    made.boundary("manual", preservedMessages={"anchorUuid": "x", key: [first, last]})
    made.summary("s" * 40)
    [done] = told(made, Round)
    assert (done.raw_tokens, done.trigger) == (20, "manual")


def test_nothing_preserved_is_nothing_kept() -> None:
    made = Recording()
    made.user("u" * 40)
    made.boundary()
    made.summary("s" * 40)
    [done] = told(made, Round)
    assert (done.raw_tokens, done.summary_tokens, done.distinct_source_spans) == (0, 10, 1)


@pytest.mark.parametrize("text", ["", "Error: failed to generate summary"])
def test_what_is_no_summary_leads_to_nothing(text: str) -> None:
    """Two messages go; the one that is kept is all that is left to stand on."""
    made = Recording()
    made.user("u" * 40)
    made.assistant("a" * 40)
    kept = made.user("u" * 40)
    made.boundary(preservedMessages={"uuids": [kept]})
    made.summary(text)
    [done] = told(made, Round)
    assert (done.ungrounded_summaries, done.dropped_spans, done.distinct_source_spans) == (1, 2, 1)


def test_records_that_come_again_count_once() -> None:
    """A second compaction in one process appends the history of the first once more, with its ids."""
    made = compacted(1)
    made.user("u" * 40)
    made.lines += made.lines[:5]
    made.boundary()
    made.summary("s" * 40)
    *_, last = told(made, Round)
    assert last.distinct_source_spans == 5
    assert last.before is not None
    assert (last.before.raw_tokens, last.before.summary_tokens) == (20, 15)


def test_subagents_tools_and_pictures() -> None:
    """A subagent's lines are another conversation; a tool's call and result are text; a picture's tokens are not known."""
    made = Recording()
    made.user("u" * 40)
    made.user("x" * 4_000, isSidechain=True)
    made.assistant("a" * 38, "t1")
    made.result("t1", "r" * 40)
    made.user([{"type": "image", "source": {}}])
    made.boundary()
    made.summary("s" * 40)
    [done] = told(made, Round)
    assert done.before is not None
    assert (done.before.raw_tokens, done.before.distinct_source_spans) == (10 + 11 + 10, 3)


def test_facts_are_looked_for_in_the_summary() -> None:
    facts = [Fact("c1", "never rotate the credential", fact_class="constraint")]
    [kept] = told(compacted(), Checkpoint, Transcript(facts=facts))
    [lost] = told(compacted(facts_kept=False), Checkpoint, Transcript(facts=facts))
    assert kept.facts is not None
    assert lost.facts is not None
    assert [fact.status for fact in kept.facts + lost.facts] == ["verbatim", "absent"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "[]",
        "null",
        '{"type": "user"}',
        '{"type": "user", "uuid": 7, "message": {"content": "x"}}',
        '{"type": "user", "uuid": "z", "message": "x"}',
        '{"type": "user", "uuid": "z", "message": {"content": [1, {"type": "text"}, {"type": "tool_result"}]}}',
        '{"type": "assistant", "uuid": "z", "message": {"content": {"a": 1}}, "timestamp": "yesterday"}',
        '{"type": "system", "subtype": "compact_boundary", "uuid": "z", "compactMetadata": {"preservedMessages": 7}}',
        '{"type": "system", "subtype": "compact_boundary", "uuid": "z", "compactMetadata": [1]}',
        '{"type": "user", "uuid": "z", "isCompactSummary": true, "message": {"content": null}}',
    ],
)
def test_a_strange_line_harms_no_other(line: str) -> None:
    made = compacted()
    made.lines.insert(4, line)
    assert [type(event) for event in events_of(made.raw)][-1] is SessionEnd
    assert [done.outcome for done in told(made, Round)] == ["ok"]


def test_the_same_transcript_gives_the_same_events() -> None:
    """So that what was sent before is recognized; each is one that the monitor reads."""
    first, again = ([encode(event) for event in events_of(compacted(3).raw)] for _ in range(2))
    assert first == again
    assert {decode_event(value).event.session_id for value in first} == {SESSION}


def test_the_monitor_judges_a_history() -> None:
    """An empty summary is found in it, and named."""
    made = Recording()
    for turn in range(60):
        made.user(f"{turn} " + "u" * 400)
    made.boundary()
    made.summary("")
    driver = ReplayDriver()
    for event in events_of(made.raw):
        driver.feed(event)
    assert ("silent-drop", "empty-summary") in {(violation.rule, violation.reason) for violation in driver.violations}
    assert driver.dead_letters == []


@pytest.mark.parametrize(("levels", "tokens"), [(200, 299), (300, 301), (900, 301)])
def test_a_tool_input_nested_deeper_than_can_be_written_is_cut(levels: int, tokens: int) -> None:
    """Each level is ``{"a":`` and ``}``, six characters, around two more; the outermost 200 are kept. Part of a token is one."""
    nested: object = []
    for _ in range(levels - 1):
        nested = {"a": nested}
    made = Recording()
    block = {"type": "tool_use", "id": "c", "name": "Read", "input": nested}
    made.lines.append(json.dumps({"type": "assistant", "uuid": "deep", "message": {"role": "assistant", "content": [block]}}))
    made.boundary()
    made.summary("s" * 40)
    [done] = told(made, Round)
    assert done.before is not None
    assert done.before.raw_tokens == tokens


def test_a_time_before_1970_is_ignored() -> None:
    """The session, whose first message has none that is usable, is of epoch 0."""
    made = Recording()
    made.user("u" * 40, timestamp="1969-12-31T23:59:59.000Z")
    made.boundary()
    made.summary("s" * 40)
    [start] = told(made, SessionStart)
    assert start.epoch == 0
    [done] = told(made, Round)
    assert done.ts == "2026-11-01T10:03:00.000Z"
