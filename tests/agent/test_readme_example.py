"""The example of the README runs as it stands there."""

from __future__ import annotations

from leadline.agent import Client, MemoryTransport
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, SessionEnd, SessionStart

EXAMPLE = """
from leadline.agent import connect

client = connect("localhost:9092", fleet="research")
archive = {}  # span id -> tokens; in your agent: whatever puts a span's text back
with client.session("s-1", agent_id="a-1", token_budget=180_000, max_depth=3) as session:
    session.ledger.add_raw("m1", tokens=900, salience=0.41)
    session.ledger.add_raw("m2", tokens=700, salience=0.38)
    if session.may_compact():
        with session.compaction("budget"):  # measured before and after, and reported
            session.ledger.summarize("S1", ["m1", "m2"], tokens=120, salience=0.66)
            session.ledger.evict(["m1", "m2"], archived=True)
            archive.update(m1=900, m2=700)
    else:  # the monitor said halt: bring raw spans back, as its command asks
        session.rehydrate(restore=archive.get)
"""


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
