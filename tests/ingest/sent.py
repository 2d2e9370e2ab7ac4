"""Telemetry as frameworks send it: spans and log records in OTLP's JSON form."""

from __future__ import annotations

import json
from typing import Any

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NANOS = 1_790_000_000_000_000_000


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}} for key, value in values.items()
    ]


def spans(*given: tuple[str, dict[str, Any]], service: str = "desk", failed: bool = False) -> bytes:
    made = [
        {
            "traceId": TRACE,
            "spanId": f"{int(SPAN, 16) + number:016x}",
            "name": name,
            "endTimeUnixNano": str(NANOS + number),
            "attributes": attributes(values),
            "status": {"code": 2} if failed else {},
        }
        for number, (name, values) in enumerate(given)
    ]
    resource = {"attributes": attributes({"service.name": service})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": made}]}]}).encode()


def logs(*given: dict[str, Any], service: str = "claude-code", body: str = "claude_code.compaction") -> bytes:
    made = [
        {"timeUnixNano": str(NANOS + number), "body": {"stringValue": body}, "attributes": attributes(values)}
        for number, values in enumerate(given)
    ]
    resource = {"attributes": attributes({"service.name": service})}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": made}]}]}).encode()


ADK = (
    "compact_events token_threshold",
    {
        "gen_ai.operation.name": "compact_events",
        "gen_ai.conversation.id": "adk-1",
        "gen_ai.compaction.trigger": "token_threshold",
        "gen_ai.compaction.event_count": 6,
        "gen_ai.compaction.result_event_id": "e-1",
    },
)
HARNESS = (
    "compact_messages",
    {"gen_ai.conversation.compacted": True, "gen_ai.conversation.id": "pai-1", "compaction.strategy": "summarizing"},
)
FLAGGED = ("chat some-model", {"gen_ai.conversation.compacted": True, "gen_ai.conversation.id": "any-1"})
OTHER = ("chat some-model", {"gen_ai.conversation.id": "any-1"})
CLAUDE = {
    "event.name": "compaction",
    "session.id": "cc-1",
    "event.sequence": 7,
    "trigger": "auto",
    "success": "true",
    "pre_tokens": 155_000,
    "post_tokens": 9_000,
}
