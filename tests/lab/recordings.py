"""Hand-made recordings for the tests: events as plain objects, time in seconds from a fixed start."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from leadline.contracts.times import format_ms, parse_ms

START = parse_ms("2026-11-12T08:00:00.000Z") or 0
HOSTILE = "<!channel> \x1b[31m[bold]x"


def at(seconds: float) -> str:
    return format_ms(START + round(seconds * 1000))


def start(session: str = "s", seconds: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "schema": "leadline.session-start/1",
        "session_id": session,
        "agent_id": "a",
        "ts": at(seconds),
        "session_start_spans": 214,
    } | more


def compaction(number: int, session: str = "s", seconds: float | None = None, ratio: float = 0.6, **more: Any) -> dict[str, Any]:
    """Round ``number``, 20 s after the one before, keeping ``ratio`` of 100,000 tokens raw."""
    raw = round(100_000 * ratio)
    return {
        "schema": "leadline.round/1",
        "session_id": session,
        "agent_id": "a",
        "fleet": "f",
        "epoch": 0,
        "ts": at(20 * number if seconds is None else seconds),
        "event_id": f"{session}-{number}",
        "round": number,
        "trigger": "budget",
        "raw_tokens": raw,
        "summary_tokens": 100_000 - raw,
        "distinct_source_spans": 200,
        "query_cosine_retained": 0.5,
        "summary_depth_max": 1,
        "max_depth": 4,
        "session_start_spans": 214,
        "token_budget": 180_000,
    } | more


def inverting(session: str = "s", **more: Any) -> list[dict[str, Any]]:
    """A session whose second round crosses the salience inversion boundary, and nothing else."""
    return [
        start(session),
        compaction(1, session, ratio=0.6, summary_depth_max=2, **more),
        compaction(2, session, ratio=0.2, summary_depth_max=2, distinct_source_spans=150, query_cosine_retained=0.6, **more),
    ]


def lines(records: Iterable[dict[str, Any] | str]) -> str:
    return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


def write(path: Path, records: Iterable[dict[str, Any] | str]) -> Path:
    path.write_text(lines(records), encoding="utf-8")
    return path
