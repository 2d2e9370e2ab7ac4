"""The published JSON Schemas are those of the code, and what the code writes is valid by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from leadline.contracts.codec import encode
from leadline.contracts.events import (
    Ack,
    Checkpoint,
    DeclaredDrop,
    Fact,
    FactStatus,
    Measures,
    Policy,
    Round,
    Scorer,
    SessionEnd,
    SessionStart,
    Summary,
)
from leadline.contracts.orders import Cause, Command, Heartbeat, Measured, Parameters, Target, Tick, Violation
from leadline.contracts.schemas import RECORDS, file_name, schema_of, write_schemas
from leadline.contracts.session_state import (
    CommandState,
    Counts,
    FactRecord,
    Incident,
    Measurement,
    SessionState,
    Stage,
    encode_state,
)

DOCS = Path(__file__).parents[2] / "docs" / "schemas"
NOW = "2026-11-12T08:30:00.000Z"
WHO: dict[str, Any] = {"session_id": "s", "agent_id": "a", "fleet": "f", "epoch": 1, "ts": NOW, "event_id": "e"}
ORDER: dict[str, Any] = {"incident_id": "i", "session_id": "s", "agent_id": "a", "fleet": "", "epoch": 0, "rule": "inversion"}
MEASURED = Measured(
    round=3,
    raw_tokens=1,
    summary_tokens=9,
    distinct_source_spans=2,
    summary_depth_max=3,
    raw_ratio=0.1,
    query_cosine_retained=0.6,
)

SAMPLES: list[msgspec.Struct] = [
    SessionStart(
        **WHO,
        policy=Policy(
            token_budget=9, max_depth=3, scorer=Scorer(kind="bm25", penalizes_depth=False), eviction="overflow", decay=0.5
        ),
        session_start_spans=214,
        facts=[Fact(fact_id="C1", fact_class="constraint", recall_floor=1.0, supersedes="C0")],
    ),
    SessionStart(session_id="s", agent_id="a"),
    Round(
        **WHO,
        round=1,
        trigger="budget",
        raw_tokens=0,
        summary_tokens=9,
        distinct_source_spans=1,
        query_cosine_retained=-0.5,
        summary_depth_max=2,
        max_depth=3,
        session_start_spans=214,
        token_budget=100,
        before=Measures(raw_tokens=1, summary_tokens=2, distinct_source_spans=3),
        outcome="failed",
        summaries=[Summary(id="n1", depth=2, tokens=5, fan_out=3, reachable=0)],
    ),
    Checkpoint(
        **WHO,
        level=1,
        stop_reason="length",
        declared_drops=[DeclaredDrop(fact_id="T1", reason="done")],
        facts=[FactStatus(fact_id="C1", status="absent")],
        summary_visible=False,
    ),
    Ack(**WHO, command_id="c", seq=1, outcome="done", raw_tokens_restored=5),
    SessionEnd(**WHO),
    Tick(session_id="s", agent_id="a", due_at=NOW),
    Violation(
        **ORDER,
        violation_id="v",
        reason="boundary-crossed",
        severity="critical",
        mode="enforce",
        detected_at=NOW,
        message="m",
        action="halt",
        before=MEASURED,
        now=MEASURED,
        threshold={"raw_ratio_floor": 0.25},
        evidence={"lost": ["C1"], "unseen": 3},
        caused_by=Cause(event_id="e", partition=1, offset=7),
    ),
    Command(
        **ORDER,
        command_id="c",
        seq=1,
        kind="halt",
        issued_at=NOW,
        expires_at=NOW,
        attempt=1,
        reason="r",
        parameters=Parameters(target_raw_ratio=0.3, plan=[Target(summary_id="n1", depth=1)]),
    ),
    Heartbeat(partition=3, at=NOW, every_ms=5_000, through=17),
    SessionState(
        session_id="s",
        agent_id="a",
        window=(Measurement(1, 2, 3, 4, None, 5),),
        facts={"C1": FactRecord(lost_level=1, excused="declared")},
        incidents=(Incident("i", "inversion", "", "enforce", 1, 1, command=CommandState("c", 1, "halt", Stage.ISSUED, 1, 0, 9)),),
        counts=Counts(gaps=2),
    ),
]


def wire(record: msgspec.Struct) -> Any:
    return json.loads(encode_state(record) if isinstance(record, SessionState) else encode(record))


def schema_for(record: msgspec.Struct) -> Any:
    return json.loads((DOCS / file_name(type(record))).read_text(encoding="utf-8"))


def records_in(value: Any) -> list[dict[str, Any]]:
    """``value`` and the records nested in it; maps by name (evidence, threshold, facts of a state) are no records."""
    if isinstance(value, list):
        return [found for item in value for found in records_in(item)]
    if not isinstance(value, dict):
        return []
    inner = [found for name, item in value.items() if name not in {"evidence", "threshold"} for found in records_in(item)]
    return [value, *inner] if value.keys() != {"C1"} else inner


def test_the_published_schemas_are_current(tmp_path: Path) -> None:
    """``python -m leadline.contracts.schemas docs/schemas`` would change nothing."""
    made = {path.name: path.read_text(encoding="utf-8") for path in write_schemas(tmp_path)}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.json")}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.__name__))
def test_each_schema_is_a_valid_schema(record: type[msgspec.Struct]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(record))


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_what_is_written_is_valid(record: msgspec.Struct) -> None:
    jsonschema.validate(wire(record), schema_for(record), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_field_that_a_newer_writer_added_is_allowed(record: msgspec.Struct) -> None:
    """Evolution within a major only adds: at the top and inside nested records."""
    value = wire(record)
    for part in records_in(value):
        part["brand_new"] = {"nested": [1]}
    jsonschema.validate(value, schema_for(record), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"raw_tokens": -3}, "a negative count"),
        ({"raw_tokens": "12"}, "a string for a count"),
        ({"raw_tokens": True}, "a boolean for a count"),
        ({"session_id": ""}, "an empty id"),
        ({"schema": "leadline.round/2"}, "another major"),
        ({"outcome": "maybe"}, "a word that is none of the outcomes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_decoder_refuses_the_schema_refuses(change: dict[str, Any], why: str) -> None:
    value = wire(SAMPLES[2]) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema_for(SAMPLES[2]), cls=jsonschema.Draft202012Validator)


def test_a_newer_minor_is_valid() -> None:
    value = wire(SAMPLES[2]) | {"schema": "leadline.round/1.4"}
    jsonschema.validate(value, schema_for(SAMPLES[2]), cls=jsonschema.Draft202012Validator)
