"""Times: RFC 3339 with a zone, or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.contracts.times import format_ms, parse_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_OF_YEAR_9999 = 253_402_300_799_999


@given(st.integers(0, MS_OF_YEAR_9999))
def test_a_time_comes_back_as_it_was(ms: int) -> None:
    text = format_ms(ms)
    assert parse_ms(text) == ms
    assert len(text) == 24
    assert text == (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-12T08:30:00.000Z", 1_794_472_200_000),
        ("2026-11-12t08:30:00z", 1_794_472_200_000),
        ("2026-11-12T09:30:00+01:00", 1_794_472_200_000),
        ("2026-11-12T00:00:00-08:30", 1_794_472_200_000),
        ("2026-11-12T08:30:00.123456Z", 1_794_472_200_123),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_a_time_with_a_zone_is_read(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "2026-11-12T08:30:00", "2026-11-12", "1794472200", "08:30:00Z", "2026-13-01T00:00:00Z", "now", "\x00"]
)
def test_what_names_no_zone_or_is_no_time_is_none(text: str) -> None:
    """Refused rather than guessed."""
    assert parse_ms(text) is None


@given(
    st.text(max_size=30) | st.from_regex(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", fullmatch=True)
)
def test_no_text_raises(text: str) -> None:
    found = parse_ms(text)
    assert found is None or isinstance(found, int)
