"""A log line about a verdict or command leads to its trace."""

from __future__ import annotations

import logging

import orjson

from leadline.processors.logs import Json, traced, with_fields
from tests.telemetry.watched import SPAN_ID, TRACE_ID, TRACEPARENT


def test_a_line_about_what_has_a_context_names_trace_and_span() -> None:
    record = logging.LogRecord("leadline", logging.INFO, "f", 1, "command halt", None, None)
    record.__dict__.update(with_fields(session="s1", **traced(TRACEPARENT)))
    line = orjson.loads(Json().format(record))
    assert (line["trace_id"], line["span_id"]) == (TRACE_ID, SPAN_ID)
    assert line["session"] == "s1"


def test_without_a_context_there_are_no_such_fields() -> None:
    assert traced("") == {}
