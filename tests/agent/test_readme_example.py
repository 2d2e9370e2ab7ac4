"""The example of the README runs as it stands there."""

from __future__ import annotations

from pathlib import Path

from leadline.agent import Client, MemoryTransport
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, SessionEnd, SessionStart

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = README.read_text().partition("```python\n")[2].partition("```")[0]


def test_the_example_has_at_most_15_lines() -> None:
    assert len(EXAMPLE.strip().splitlines()) <= 15


def test_the_example_runs_and_reports() -> None:
    """Over a transport in memory: a start, one round (1,600 raw before, 120 summary after, 2 spans), an end."""
    transport = MemoryTransport()
    client = Client(transport, fleet="research")
    source = EXAMPLE.replace("from leadline.agent import connect", "")
    exec(source, {"connect": lambda bootstrap, fleet: client})
    assert client.close() == 0
    start, rounded, end = (decode_event(record.value).event for record in transport.records("leadline.events"))
    assert isinstance(start, SessionStart)
    assert isinstance(rounded, Round)
    assert isinstance(end, SessionEnd)
    assert rounded.before is not None
    assert (rounded.before.raw_tokens, rounded.raw_tokens, rounded.summary_tokens) == (1_600, 0, 120)
    assert (rounded.distinct_source_spans, rounded.fleet, rounded.session_start_spans) == (2, "research", 2)
