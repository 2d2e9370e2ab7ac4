"""Writes ``data/salience-inversion-40.jsonl``: the 40-round session of the salience-inversion document.

The document gives some points of each curve; between them the values run straight. Run it as
``python -m tests.scenarios.make_data``; a test holds the file to this script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["FILE", "lines"]

FILE = Path(__file__).parent / "data" / "salience-inversion-40.jsonl"
ROUNDS = 40
BUDGET = 180_000
TOTAL = 176_000
"""Retained tokens: within 4% of the budget throughout."""

Points = Sequence[tuple[int, float]]
RAW_RATIO: Points = ((1, 0.71), (28, 0.09), (40, 0.09))
SPANS: Points = ((1, 214), (30, 37), (40, 37))
SALIENCE: Points = ((1, 0.41), (40, 0.68))
DEPTH: Points = ((1, 1), (6, 2), (12, 3))
"""Steps, not a line: 1 at first, at its limit of 3 from round 12; the document does not say when it became 2."""


def between(points: Points, number: int) -> float:
    """The value at a round, on the straight line between the two points around it."""
    for (left, low), (right, high) in pairwise(points):
        if left <= number <= right:
            return low + (high - low) * (number - left) / (right - left)
    raise ValueError(f"round {number} lies outside the curve")


def rounds() -> Iterator[dict[str, Any]]:
    for number in range(1, ROUNDS + 1):
        raw = round(between(RAW_RATIO, number) * TOTAL)
        yield {
            "schema": "leadline.round/1",
            "session_id": "research-and-synthesize",
            "agent_id": "researcher",
            "fleet": "document",
            "epoch": 0,
            "ts": f"2026-11-12T08:{number:02}:00.000Z",
            "event_id": f"round-{number}",
            "round": number,
            "trigger": "budget",
            "raw_tokens": raw,
            "summary_tokens": TOTAL - raw,
            "distinct_source_spans": round(between(SPANS, number)),
            "query_cosine_retained": round(between(SALIENCE, number), 4),
            "summary_depth_max": next(int(depth) for first, depth in reversed(DEPTH) if first <= number),
            "max_depth": 3,
            "session_start_spans": 214,
            "token_budget": BUDGET,
        }


def lines() -> str:
    """The whole file."""
    start = {
        "schema": "leadline.session-start/1",
        "session_id": "research-and-synthesize",
        "agent_id": "researcher",
        "fleet": "document",
        "epoch": 0,
        "ts": "2026-11-12T08:00:00.000Z",
        "event_id": "start",
        "policy": {
            "token_budget": BUDGET,
            "max_depth": 3,
            "scorer": {"kind": "cosine-to-query", "penalizes_depth": False},
            "eviction": "continuous",
        },
        "session_start_spans": 214,
    }
    return "".join(json.dumps(event) + "\n" for event in (start, *rounds()))


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(lines(), encoding="utf-8")
