"""Logging of a worker: one line an entry, for people or as JSON, safe whatever an agent puts into its ids and texts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import orjson

from leadline.contracts.text import printable, redact, safe
from leadline.contracts.times import format_ms

__all__ = ["Calm", "Human", "Json", "setup", "traced", "with_fields"]

_FIELDS: Final = "leadline_fields"
_MAX_MESSAGE: Final = 4000
_MAX_FIELD: Final = 256
_LOUD: Final = ("faust", "mode", "aiokafka", "asyncio", "kafka")


def with_fields(**fields: Any) -> dict[str, Any]:
    """``extra`` of a log call: named values that stay apart from the sentence, e.g. ``session=...``, ``offset=...``."""
    return {_FIELDS: fields}


def traced(traceparent: str) -> dict[str, str]:
    """The fields ``trace_id`` and ``span_id`` of a line about what has this context; none without one."""
    return {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]} if len(traceparent) >= 52 else {}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = getattr(record, _FIELDS, None)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): _shown(value) for name, value in found.items()}


def _shown(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else safe(str(value), _MAX_FIELD)


def _traceback(text: str) -> list[str]:
    return [printable(line, _MAX_MESSAGE) for line in redact(text).splitlines()]


class Human(logging.Formatter):
    """``time LEVEL logger: sentence  name=value``; a traceback follows, indented, its control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        time = format_ms(int(record.created * 1000))
        line = f"{time} {record.levelname:<7} {record.name}: {safe(record.getMessage(), _MAX_MESSAGE)}"
        line += "".join(f"  {name}={value}" for name, value in _fields(record).items())
        if record.exc_info:
            line += "".join(f"\n    {part}" for part in _traceback(self.formatException(record.exc_info)))
        return line


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": format_ms(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": safe(record.getMessage(), _MAX_MESSAGE),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = _traceback(self.formatException(record.exc_info))
        return orjson.dumps(entry, default=str).decode()


class Calm(logging.Filter):
    """Lets each of the engine's sentences through once in ``every_s``: with a broker away its clients repeat theirs ten
    times a second. What it held back is told with the next one. Never touches Leadline's own loggers."""

    def __init__(self, every_s: float = 10.0) -> None:
        super().__init__()
        self._every_s = every_s
        self._last: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("leadline") or record.levelno >= logging.CRITICAL or record.levelno <= logging.DEBUG:
            return True
        sentence = record.name, str(record.msg)[:200]
        last = self._last.get(sentence)
        if last is not None and record.created - last < self._every_s:
            self._held[sentence] = self._held.get(sentence, 0) + 1
            return False
        if len(self._last) > 1000:
            self._last.clear()
            self._held.clear()
        self._last[sentence] = record.created
        held = self._held.pop(sentence, 0)
        if held:
            record.__dict__.setdefault(_FIELDS, {"repeated": held})
        return True


def setup(level: str, as_json: bool, stream: TextIO | None = None) -> None:
    """Send everything to ``stream`` (standard error unless given). The engine's own loggers speak from WARNING on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Json() if as_json else Human())
    handler.addFilter(Calm())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _LOUD:
        logging.getLogger(name).setLevel(level if level == "DEBUG" else logging.WARNING)
