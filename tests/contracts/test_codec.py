"""Reading: what is wrong is refused with its named reason, what is new is tolerated, and nothing else is ever raised."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline.contracts import limits
from leadline.contracts.codec import decode_command, decode_event, decode_violation, encode, plain_events
from leadline.contracts.events import Ack, Checkpoint, DeclaredDrop, Fact, FactStatus, Measures, Policy, Round, Scorer, Summary
from leadline.contracts.orders import Cause, Command, Measured, Parameters, Target, Tick, Violation
from leadline.contracts.reasons import Reason
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.contracts.times import format_ms
from leadline.errors import Malformed
from tests.support.core import START, checkpoint, end, round_, start

NOW = format_ms(START)
ROUND: dict[str, Any] = json.loads(encode(round_(7, ts=NOW)))
ORDER: dict[str, Any] = {"incident_id": "i", "session_id": "s", "agent_id": "a", "fleet": "", "epoch": 0, "rule": "inversion"}
COMMAND = Command(
    **ORDER,
    command_id="c",
    seq=1,
    kind="halt",
    issued_at=NOW,
    expires_at=NOW,
    attempt=1,
    reason="r",
    parameters=Parameters(target_raw_ratio=0.3, plan=[Target(summary_id="n1", depth=1, fan_out=2, tokens=3)]),
)
VIOLATION = Violation(
    **ORDER,
    violation_id="v",
    reason="boundary-crossed",
    severity="critical",
    mode="enforce",
    detected_at=NOW,
    message="m",
    action="halt",
    now=Measured(round=1, raw_tokens=1, summary_tokens=9, distinct_source_spans=2, summary_depth_max=3, raw_ratio=0.1),
    threshold={"raw_ratio_floor": 0.25},
    evidence={"lost": ["C1"], "unseen": 3, "growth": 1.5},
    caused_by=Cause(event_id="e", partition=1, offset=7),
)
EVENTS = [
    start(
        policy=Policy(
            token_budget=9, max_depth=3, scorer=Scorer(kind="bm25", penalizes_depth=False), eviction="overflow", decay=0.5
        ),
        facts=[Fact(fact_id="C1", fact_class="constraint", recall_floor=1.0, supersedes="C0")],
        epoch=2,
    ),
    round_(
        7,
        ts=NOW,
        before=Measures(raw_tokens=1, summary_tokens=2, distinct_source_spans=3, query_cosine_retained=-0.25),
        outcome="failed",
        fixed_tokens=9,
        dropped_spans=0,
        ungrounded_summaries=1,
        summaries=[Summary(id="n1", depth=2, tokens=5, fan_out=3, reachable=0)],
    ),
    checkpoint(
        2,
        round=7,
        stop_reason="length",
        facts=None,
        declared_drops=[DeclaredDrop(fact_id="T1", reason="done")],
        input_facts=["C1"],
        summary_visible=False,
    ),
    checkpoint(0, facts={"C1": "absent", "C2": "unknown"}),
    Ack(session_id="s", agent_id="a", command_id="c", seq=1, outcome="done", detail="restored", raw_tokens_restored=5),
    end(detail="bye"),
    Tick(session_id="s", agent_id="a", due_at=NOW),
]


def changed(**changes: Any) -> bytes:
    return json.dumps(ROUND | changes).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in ROUND.items() if key != name}).encode()


def text(old: str, new: str) -> bytes:
    """The round with a piece of its JSON text replaced."""
    value = json.dumps(ROUND)
    assert old in value
    return value.replace(old, new).encode()


def nested(deep: int) -> bytes:
    return changed(extra=0).replace(b'"extra": 0', b'"extra": ' + b"[" * deep + b"]" * deep)


def reason(value: bytes | None) -> Reason:
    with pytest.raises(Malformed) as refused:
        decode_event(value)
    return Reason(refused.value.reason)


RAW = '"raw_tokens": 60000'
REFUSED: list[tuple[str, bytes | None, Reason]] = [
    ("cut off", changed()[:-5], Reason.NOT_JSON),
    ("two in one", changed() * 2, Reason.NOT_JSON),
    ("byte order mark", b"\xef\xbb\xbf" + changed(), Reason.NOT_JSON),
    ("plain text", b"hello", Reason.NOT_JSON),
    ("single quotes", b"{'schema': 'leadline.round/1'}", Reason.NOT_JSON),
    ("no value", None, Reason.NOT_AN_OBJECT),
    ("null", b"null", Reason.NOT_AN_OBJECT),
    ("empty", b"", Reason.NOT_AN_OBJECT),
    ("array", b"[]", Reason.NOT_AN_OBJECT),
    ("string", b'"x"', Reason.NOT_AN_OBJECT),
    ("zero", b"0", Reason.NOT_AN_OBJECT),
    ("latin-1", text("budget", "BUDGET").replace(b"BUDGET", b"caf\xe9"), Reason.BAD_UTF8),
    ("surrogate written as UTF-8", text("budget", "BUDGET").replace(b"BUDGET", b"\xed\xa0\x80"), Reason.BAD_UTF8),
    ("high half", text('"s1"', r'"\ud800"'), Reason.LONE_SURROGATE),
    ("low half", text('"s1"', r'"\udc00x"'), Reason.LONE_SURROGATE),
    ("NaN", text("0.5", "NaN"), Reason.NOT_FINITE),
    ("Infinity", text("0.5", "Infinity"), Reason.NOT_FINITE),
    ("minus Infinity", text("0.5", "-Infinity"), Reason.NOT_FINITE),
    ("1e999", text("0.5", "1e999"), Reason.NOT_FINITE),
    ("-1e999", text("0.5", "-1e999"), Reason.NOT_FINITE),
    ("NaN in an unknown field", text(RAW, f'"new": NaN, {RAW}'), Reason.NOT_FINITE),
    ("1e999 in an unknown field", text(RAW, f'"new": 1e999, {RAW}'), Reason.NOT_FINITE),
    ("too large", changed(extra="x" * limits.MAX_RECORD_BYTES), Reason.OVER_SIZE),
    ("10,000 brackets", b"[" * 10_000 + b"]" * 10_000, Reason.NESTED_TOO_DEEP),
    ("one level too deep", nested(limits.MAX_NESTING), Reason.NESTED_TOO_DEEP),
    ("no tokens", without("raw_tokens"), Reason.MISSING_FIELD),
    ("no session", without("session_id"), Reason.MISSING_FIELD),
    ("no agent", without("agent_id"), Reason.MISSING_FIELD),
    ("no schema", without("schema"), Reason.MISSING_FIELD),
    ("nothing at all", b"{}", Reason.MISSING_FIELD),
    ("inside a list", changed(summaries=[{"id": "x", "depth": 1}]), Reason.MISSING_FIELD),
    ("text for a count", changed(raw_tokens="a string"), Reason.WRONG_TYPE),
    ("digits in a text", changed(raw_tokens="12"), Reason.WRONG_TYPE),
    ("12.0 for a count", changed(raw_tokens=12.0), Reason.WRONG_TYPE),
    ("12.5 for a count", changed(raw_tokens=12.5), Reason.WRONG_TYPE),
    ("null for a count", changed(raw_tokens=None), Reason.WRONG_TYPE),
    ("number for an id", changed(session_id=1), Reason.WRONG_TYPE),
    ("object for a list", changed(summaries={}), Reason.WRONG_TYPE),
    ("list for a time", changed(ts=[]), Reason.WRONG_TYPE),
    ("boolean for a time", changed(ts=True), Reason.WRONG_TYPE),
    ("number for the schema", changed(schema=1), Reason.WRONG_TYPE),
    ("true for a count", changed(raw_tokens=True), Reason.BOOLEAN_FOR_NUMBER),
    ("false for a depth", changed(summary_depth_max=False), Reason.BOOLEAN_FOR_NUMBER),
    ("true for a salience", changed(query_cosine_retained=True), Reason.BOOLEAN_FOR_NUMBER),
    ("true in a list", changed(summaries=[{"id": "x", "depth": 1, "tokens": True}]), Reason.BOOLEAN_FOR_NUMBER),
    ("negative count", changed(raw_tokens=-3), Reason.OUT_OF_RANGE),
    ("past 2^53", changed(raw_tokens=2**53), Reason.OUT_OF_RANGE),
    ("empty id", changed(session_id=""), Reason.OUT_OF_RANGE),
    ("long id", changed(session_id="s" * (limits.MAX_ID + 1)), Reason.OUT_OF_RANGE),
    ("salience past its bound", changed(query_cosine_retained=1e10), Reason.OUT_OF_RANGE),
    ("another outcome", changed(outcome="maybe"), Reason.OUT_OF_RANGE),
    (
        "too many summaries",
        changed(summaries=[{"id": "x", "depth": 1, "tokens": 1}] * (limits.MAX_SUMMARIES + 1)),
        Reason.OUT_OF_RANGE,
    ),
    ("21 digits", changed(raw_tokens=327267367867168100000), Reason.OVER_64_BITS),
    ("2^64", changed(raw_tokens=2**64), Reason.OVER_64_BITS),
    ("2^63", changed(raw_tokens=2**63), Reason.OVER_64_BITS),
    ("below -2^63", changed(raw_tokens=-(2**63) - 1), Reason.OVER_64_BITS),
    ("21 digits in a list", changed(summaries=[{"id": "x", "depth": 1, "tokens": 327267367867168100000}]), Reason.OVER_64_BITS),
    (
        "21 digits one down",
        changed(before={"raw_tokens": 1, "summary_tokens": 327267367867168100000, "distinct_source_spans": 1}),
        Reason.OVER_64_BITS,
    ),
    ("major 2", changed(schema="leadline.round/2"), Reason.UNKNOWN_MAJOR),
    ("major 0", changed(schema="leadline.round/0.9"), Reason.UNKNOWN_MAJOR),
    ("another record", changed(schema="leadline.thought/1"), Reason.UNKNOWN_RECORD),
    ("a command among events", encode(COMMAND), Reason.UNKNOWN_RECORD),
    ("no version", changed(schema="leadline.round"), Reason.UNKNOWN_RECORD),
    ("another script's digit", changed(schema="leadline.round/١"), Reason.UNKNOWN_RECORD),
    ("a line break behind", changed(schema="leadline.round/1\n"), Reason.UNKNOWN_RECORD),
]


@pytest.mark.parametrize(("value", "expected"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_wrong_is_refused_with_its_named_reason(value: bytes | None, expected: Reason) -> None:
    assert reason(value) is expected


def test_every_reason_is_reached() -> None:
    """Those that take the record's key or receive time are the fold's (tests/commands/test_fold.py), and those that take its
    signature the worker's (tests/security)."""
    of_the_fold = {Reason.KEY_MISMATCH, Reason.FUTURE_TIMESTAMP}
    of_signatures = {Reason.UNSIGNED, Reason.FOREIGN_KEY, Reason.BAD_SIGNATURE, Reason.STALE}
    assert {case[2] for case in REFUSED} == set(Reason) - of_the_fold - of_signatures


@pytest.mark.parametrize("record", EVENTS, ids=lambda record: type(record).__name__)
def test_an_event_comes_back_as_it_was(record: msgspec.Struct) -> None:
    assert decode_event(encode(record)).event == record


def test_what_the_monitor_writes_comes_back_as_it_was() -> None:
    assert decode_command(encode(COMMAND)) == COMMAND
    assert decode_violation(encode(VIOLATION)) == VIOLATION


@pytest.mark.parametrize("number", [0.1 + 0.2, 1 / 3, 5e-324, -0.0, 999_999_999.9999999])
def test_a_salience_is_exact_to_the_last_bit(number: float) -> None:
    """The rules compare it with the round before: rounding on the way would invent a rise."""
    back = decode_event(encode(round_(1, query_cosine_retained=number))).event
    assert isinstance(back, Round)
    assert back.query_cosine_retained is not None
    assert back.query_cosine_retained.hex() == number.hex()


def test_unknown_fields_are_ignored_and_counted_at_every_depth() -> None:
    value = changed(
        new_metric=1,
        nested={"a": [1, {"b": 2}]},
        summaries=[{"id": "x", "depth": 1, "tokens": 1, "new": 1}, {"id": "y", "depth": 1, "tokens": 1, "new": 2}],
        before={"raw_tokens": 1, "summary_tokens": 2, "distinct_source_spans": 3, "new": None},
    )
    decoded = decode_event(value)
    assert decoded.unknown_fields == 5
    assert isinstance(decoded.event, Round)
    assert decoded.event.raw_tokens == 60_000
    assert [item.id for item in decoded.event.summaries or ()] == ["x", "y"]
    assert not decoded.newer_minor


def test_a_big_number_in_an_unknown_field_does_no_harm() -> None:
    assert decode_event(changed(new=2**200)).unknown_fields == 1


def test_an_unknown_field_may_nest_up_to_the_bound() -> None:
    assert decode_event(nested(limits.MAX_NESTING - 1)).unknown_fields == 1


def test_brackets_in_a_text_do_not_nest() -> None:
    assert decode_event(changed(trigger="[" * 200, new='\\"{[' * 50)).unknown_fields == 1


def test_a_newer_minor_is_read_and_told() -> None:
    decoded = decode_event(changed(schema="leadline.round/1.7", new=1))
    assert decoded.newer_minor
    assert decoded.unknown_fields == 1
    assert not decode_event(changed(schema="leadline.round/1.0")).newer_minor


def test_an_old_agent_reads_a_newer_monitors_command_and_violation() -> None:
    """What a newer minor adds is ignored, at the top and inside."""
    command = json.loads(encode(COMMAND)) | {"schema": "leadline.command/1.2", "signature": "x"}
    command["parameters"]["plan"][0]["new"] = 1
    assert decode_command(json.dumps(command).encode()) == COMMAND
    violation = json.loads(encode(VIOLATION)) | {"schema": "leadline.violation/1.2", "runbook": "x"}
    assert decode_violation(json.dumps(violation).encode()) == VIOLATION


def test_a_command_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(Malformed) as refused:
        decode_command(encode(COMMAND).replace(b'"halt"', b'"dance"'))
    assert refused.value.reason == Reason.OUT_OF_RANGE


@pytest.mark.parametrize(
    "ts",
    [1_700_000_000, 1_700_000_000.25, -1, 2**70, "1700000000", "yesterday", "2026-11-12T08:30:00", "2026-11-12", "x" * 65],
    ids=str,
)
def test_a_time_that_is_none_is_dropped_and_told(ts: Any) -> None:
    """Seconds instead of RFC 3339, or a text without a zone: the receive time counts, the record stays."""
    decoded = decode_event(changed(ts=ts))
    assert decoded.ts is None
    assert decoded.bad_time
    assert decoded.event.session_id == "s1"


def test_a_time_that_is_one_is_read() -> None:
    assert decode_event(changed()).ts == START
    assert decode_event(changed(ts="", new=1)).ts is None
    assert decode_event(changed(new=1)).ts == START


def test_a_quoted_text_in_the_refusal_is_bounded_masked_and_on_one_line() -> None:
    """The sentence goes into a dead letter's header and a log; the field at fault is still named."""
    with pytest.raises(Malformed) as refused:
        decode_event(changed(outcome="\x1b[31m\npassword=hunter2 " + "y" * 200_000))
    detail = refused.value.detail
    assert len(detail) < 500
    assert detail.isprintable()
    assert "hunter2" not in detail
    assert "`outcome`" in detail


@pytest.mark.parametrize(
    "value",
    [b'"' + b'\\"' * 130_000, b'"' * 262_143, b'{"a":"' + b"\\" * 262_000, b"[" * 262_144, b'{"a":' * 52_000],
    ids=["escaped quotes", "quotes", "backslashes", "brackets", "objects"],
)
def test_garbage_costs_no_more_than_its_size(value: bytes) -> None:
    """Linear time: one hostile record must not hold up its neighbours (a quadratic search here took a quarter of an hour)."""
    began = time.perf_counter()
    with pytest.raises(Malformed):
        decode_event(value)
    assert time.perf_counter() - began < 2


def only_malformed(value: bytes) -> None:
    refusals = []
    for decode in (decode_event, decode_command, decode_violation):
        try:
            decode(value)
        except Malformed as refused:
            refusals.append(refused)
    for refusal in refusals:
        assert Reason(refusal.reason) in Reason
        refusal.detail.encode()
        assert len(refusal.detail) < 1000
    with suppress(Malformed):
        decode_state(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted({name for event in EVENTS for name in event.__struct_fields__} | {"schema"})


@given(st.binary(max_size=200))
@example(b"\x00")
@example(b'{"schema":"\\ud800"}')
def test_no_bytes_raise_anything_but_malformed(value: bytes) -> None:
    only_malformed(value)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=8) | json_values)
def test_no_json_raises_anything_but_malformed(value: Any) -> None:
    only_malformed(json.dumps(value).encode())


WIRE = [encode(record) for record in (*EVENTS, COMMAND, VIOLATION)]


@given(st.sampled_from(WIRE), st.integers(0, 2000), st.binary(max_size=4), st.integers(0, 6))
def test_no_damaged_record_raises_anything_but_malformed(value: bytes, place: int, put: bytes, cut: int) -> None:
    at = place % len(value)
    only_malformed(value[:at] + put + value[at + cut :])


@given(st.sampled_from([json.loads(value) for value in WIRE]), st.data())
def test_no_changed_field_raises_anything_but_malformed(record: dict[str, Any], data: st.DataObject) -> None:
    """A record in which one field is anything at all, also inside a nested record."""
    record = json.loads(json.dumps(record))
    part: dict[str, Any] = data.draw(st.sampled_from(parts(record)))
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(json_values)
    only_malformed(json.dumps(record).encode())


def parts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in parts(item)]
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in parts(item))]
    return []


def test_a_state_comes_back_as_it_was_and_another_major_is_refused() -> None:
    state = SessionState(session_id="s", agent_id="a", seen_mask=2**63 - 1)
    assert decode_state(encode_state(state)) == state
    with pytest.raises(Malformed):
        decode_state(encode_state(state).replace(b"session/1", b"session/2"))


def test_a_checkpoint_tells_absent_facts_from_none() -> None:
    """``facts`` left out means not reported; an empty list means that nothing survived."""
    silent = decode_event(encode(checkpoint(1))).event
    empty = decode_event(encode(checkpoint(1, facts={}))).event
    assert isinstance(silent, Checkpoint)
    assert isinstance(empty, Checkpoint)
    assert silent.facts is None
    assert empty.facts == []
    assert FactStatus(fact_id="C1", status="absent") not in empty.facts


def test_a_value_that_cannot_be_read_leaves_those_around_it_as_they_are() -> None:
    """Values are decoded many at a time: each event stands at the place of its own value, whatever its neighbours hold."""
    event = encode(Ack(session_id="s", agent_id="a", command_id="c", seq=1, outcome="done"))
    big = event[:-1] + b" " * limits.MAX_RECORD_BYTES + b"}"
    values = [event, None, b"{", event + event, big, event] + [event] * 200
    found = list(plain_events(values))
    assert [one is not None for one in found] == [True, False, False, False, False, True] + [True] * 200
