"""From OTLP topics to rounds on a real broker: nothing is lost over a restart, and what can't be read is passed over."""

from __future__ import annotations

import json
import uuid

from confluent_kafka import Producer

from tests.agent.support import create_topics
from tests.cli.run import leadline
from tests.ingest.sent import ADK, CLAUDE, HARNESS, OTHER, logs, spans
from tests.processors.running import Topics


def test_otlp_topics_become_rounds_once(bootstrap: str) -> None:
    """Two runs: what the first committed, the second does not read again; between them one more compaction came in."""
    name = uuid.uuid4().hex[:8]
    traces, records = f"otlp_spans_{name}", f"otlp_logs_{name}"
    create_topics(bootstrap, 2, "leadline.events", traces, records)
    options = ["--bootstrap", bootstrap, "--traces", traces, "--logs", records, "--group", f"otlp-{name}", "--for", "8", "--json"]
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (spans(ADK, OTHER), b"nonsense", spans(HARNESS)):
        producer.produce(traces, value)
    producer.produce(records, logs(CLAUDE))
    assert producer.flush(10) == 0
    first = leadline("ingest", "otlp", *options)
    assert first.code == 0, first.err
    assert first.json == {"messages": 4, "malformed": 1, "signals": 4, "rounds": 3}
    producer.produce(records, logs({**CLAUDE, "event.sequence": 8}))
    assert producer.flush(10) == 0
    second = leadline("ingest", "otlp", *options)
    assert second.json == {"messages": 1, "malformed": 0, "signals": 1, "rounds": 1}
    topics = Topics(bootstrap)
    rounds = [json.loads(message.value()) for message in topics.read("leadline.events")]
    topics.close()
    assert sorted(one["session_id"] for one in rounds) == ["adk-1", "cc-1", "cc-1", "pai-1"]
    epochs = [one["epoch"] for one in rounds if one["session_id"] == "cc-1"]
    assert epochs[0] < epochs[1]
