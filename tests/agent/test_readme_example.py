"""The example of the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from leadline.agent import Client, MemoryTransport, Session
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round, SessionEnd, SessionStart
from leadline.contracts.orders import CommandKind

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


def test_the_table_of_commands_names_each_of_them_and_what_a_session_has() -> None:
    """All but ``resume``, which the session obeys by itself."""
    table = README.read_text().partition("| command | what it asks |")[2].partition("\n\n")[0]
    named = {kind for row in table.splitlines() for kind in re.findall(r"`([a-z-]+)`", row.split("|")[1] if "|" in row else "")}
    assert named == set(get_args(CommandKind)) - {"resume"}
    used = set(re.findall(r"`session\.(\w+)", table))
    assert used == {"may_compact", "rehydrate", "depth_limit", "retries", "may_summarize", "checkpoint", "state"}
    assert all(hasattr(Session, name) for name in used)
