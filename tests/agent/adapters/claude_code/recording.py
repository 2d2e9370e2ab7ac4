"""Transcripts of Claude Code in its own form, made line by line."""

from __future__ import annotations

import json
from typing import Any

SESSION = "cc-1"


class Recording:
    """Lines in their order; a minute passes with each. Ids count up: ``m1``, ``b2``, ``s3``..."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def _add(self, prefix: str, kind: str, **fields: Any) -> str:
        self._count += 1
        uuid = f"{prefix}{self._count}"
        record = {
            "parentUuid": None,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-11-01T10:{self._count:02}:00.000Z",
            "sessionId": SESSION,
            **fields,
        }
        self.lines.append(json.dumps(record))
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self._add("m", "user", message={"role": "user", "content": content}, **fields)

    def assistant(self, text: str, *calls: str, **fields: Any) -> str:
        blocks: list[Any] = [{"type": "text", "text": text}]
        blocks += [{"type": "tool_use", "id": call, "name": "Read", "input": {}} for call in calls]
        return self._add("m", "assistant", message={"role": "assistant", "content": blocks}, **fields)

    def result(self, call: str, text: str) -> str:
        return self.user([{"type": "tool_result", "tool_use_id": call, "content": text}])

    def boundary(self, trigger: str = "auto", **metadata: Any) -> str:
        said = {"trigger": trigger, "preTokens": 155_000, **metadata}
        return self._add("b", "system", subtype="compact_boundary", content="Conversation compacted", compactMetadata=said)

    def summary(self, text: str) -> str:
        return self._add("s", "user", isCompactSummary=True, message={"role": "user", "content": text})

    @property
    def raw(self) -> list[bytes]:
        return [line.encode() for line in self.lines]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def compacted(rounds: int = 1, facts_kept: bool = True) -> Recording:
    """Before each compaction four messages of 40 characters (10 tokens) come in; the last one is preserved."""
    made = Recording()
    for number in range(rounds):
        for turn in range(2):
            made.user(f"{f'question {number}-{turn} ':u<40}")
            last = made.assistant(f"{f'answer {number}-{turn} ':a<40}")
        made.boundary(preservedSegment={"headUuid": last, "anchorUuid": "x", "tailUuid": last})
        kept = "never rotate the credential" if facts_kept else ""
        made.summary(f"{f'summary {number} {kept} ':s<60}")
    return made
