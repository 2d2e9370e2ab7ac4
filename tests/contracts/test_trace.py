"""Trace context in headers: what is valid goes on, the rest is ignored, nothing raises."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.contracts.trace import NO_TRACE, read_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE[::-1]}-{SPAN}-00"


def one(value: bytes | None) -> tuple[str, bool]:
    found = read_trace([("traceparent", value)])
    return found.traceparent, found.ignored


@pytest.mark.parametrize(
    "value",
    [
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{'0' * 32}-{'0' * 16}-00".encode(),
        GOOD.upper().encode(),
        b"00-4bf92f3",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        b"\xff\xfe",
        b"",
        None,
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f" {GOOD}".encode(),
        f"{GOOD}\n".encode(),
        f"00-{TRACE}-{SPAN}-0".encode(),
        f"00-{TRACE[:-1]}g-{SPAN}-01".encode(),
        f"00_{TRACE}_{SPAN}_01".encode(),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_invalid_context_is_ignored_and_told(value: bytes | None) -> None:
    assert one(value) == ("", True)


def test_a_valid_context_is_read() -> None:
    assert one(GOOD.encode()) == (GOOD, False)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert one(f"01-{TRACE}-{SPAN}-01-what-comes-next".encode()) == (f"01-{TRACE}-{SPAN}-01", False)


def test_the_last_valid_one_counts() -> None:
    headers = [("traceparent", GOOD.encode()), ("traceparent", OTHER.encode()), ("traceparent", b"x")]
    assert read_trace(headers).traceparent == OTHER


def test_the_state_goes_with_a_valid_parent_only() -> None:
    state = ("tracestate", b"vendor=value")
    assert read_trace([("traceparent", GOOD.encode()), state]).tracestate == "vendor=value"
    assert read_trace([state]).tracestate == ""
    assert read_trace([("traceparent", b"x"), state]).tracestate == ""


@pytest.mark.parametrize(
    "value", [None, b"\xff", b"a=" + b"x" * 600, b"a=1\nb", b"a=\x1b[31m"], ids=lambda value: repr(value)[:20]
)
def test_a_state_that_is_no_printable_ascii_or_too_long_is_left_out(value: bytes | None) -> None:
    assert read_trace([("traceparent", GOOD.encode()), ("tracestate", value)]) == (GOOD, "", False)


def test_other_headers_and_none_at_all() -> None:
    assert read_trace(None) == read_trace([]) == read_trace([("schema", b"x"), ("other", None)]) == NO_TRACE


@given(st.lists(st.tuples(st.sampled_from(["traceparent", "tracestate", "x"]), st.none() | st.binary(max_size=80)), max_size=5))
def test_no_header_raises(headers: list[tuple[str, bytes | None]]) -> None:
    found = read_trace(headers)
    assert found.traceparent.isascii()
    assert found.tracestate.isprintable()


def test_many_headers_without_a_value_are_quickly_ignored() -> None:
    began = time.perf_counter()
    assert read_trace([("traceparent", None)] * 200_000).ignored
    assert time.perf_counter() - began < 2
