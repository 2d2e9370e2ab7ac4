"""OTLP as the collector's Kafka exporter writes it (``otlp_json`` and ``otlp_proto``), as signals.

Protobuf needs the package opentelemetry-proto (extra ``otlp``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import orjson

from leadline.contracts.reasons import Reason
from leadline.errors import Malformed
from leadline.ingest.mapping import Signal, Value

__all__ = ["Kind", "decode"]

Kind = Literal["traces", "logs"]
_ERROR = 2


def decode(value: bytes, kind: Kind) -> list[Signal]:
    """The signals of one Kafka message. Raises :class:`leadline.errors.Malformed` for what is no OTLP of this kind."""
    try:
        given = orjson.loads(value) if value.lstrip()[:1] in (b"{", b"[") else _from_proto(value, kind)
        return list(_spans(given) if kind == "traces" else _logs(given))
    except Malformed:
        raise
    except Exception as error:
        raise Malformed(Reason.NOT_JSON, f"no OTLP {kind}: {type(error).__name__}") from None


def _from_proto(value: bytes, kind: Kind) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest() if kind == "traces" else ExportLogsServiceRequest()
    message.ParseFromString(value)
    given: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    if value and not given:
        raise Malformed(Reason.WRONG_TYPE, f"no OTLP {kind}")
    return given


def _spans(given: dict[str, Any]) -> Iterator[Signal]:
    for group in _list(given, "resourceSpans"):
        resource = _attributes(_dict(group, "resource"))
        for scope in _list(group, "scopeSpans"):
            for span in _list(scope, "spans"):
                failed = _dict(span, "status").get("code") in (_ERROR, "STATUS_CODE_ERROR")
                yield Signal(
                    "span",
                    _str(span, "name"),
                    _attributes(span),
                    resource,
                    _ms(span, "endTimeUnixNano"),
                    _hex(span, "traceId", 32),
                    _hex(span, "spanId", 16),
                    failed,
                )


def _logs(given: dict[str, Any]) -> Iterator[Signal]:
    for group in _list(given, "resourceLogs"):
        resource = _attributes(_dict(group, "resource"))
        for scope in _list(group, "scopeLogs"):
            for record in _list(scope, "logRecords"):
                body = _value(_dict(record, "body"))
                name = _str(record, "eventName") or (body if isinstance(body, str) else "")
                time = _ms(record, "timeUnixNano") or _ms(record, "observedTimeUnixNano")
                ids = (_hex(record, "traceId", 32), _hex(record, "spanId", 16))
                yield Signal("log", name, _attributes(record), resource, time, *ids)


def _list(given: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = given.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TypeError(name)
    return found


def _dict(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name) or {}
    if not isinstance(found, dict):
        raise TypeError(name)
    return found


def _str(given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    return found if isinstance(found, str) else ""


def _ms(given: dict[str, Any], name: str) -> int:
    return int(given.get(name) or 0) // 1_000_000


def _hex(given: dict[str, Any], name: str, length: int) -> str:
    """Ids are hexadecimal in OTLP's JSON; protobuf's own JSON has them in base64."""
    found = _str(given, name)
    if len(found) == length:
        return found.lower()
    import base64

    return base64.b64decode(found).hex() if found else ""


def _attributes(given: dict[str, Any]) -> dict[str, Value]:
    return dict(_pairs(_list(given, "attributes")))


def _pairs(attributes: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Value]]:
    for attribute in attributes:
        yield _str(attribute, "key"), _value(_dict(attribute, "value"))


def _value(given: dict[str, Any]) -> Value:
    """Lists and maps tell nothing that is asked for."""
    if "intValue" in given:
        return int(given["intValue"])
    for name in ("stringValue", "boolValue", "doubleValue"):
        if name in given:
            found = given[name]
            return found if isinstance(found, str | bool | int | float) else None
    return None
