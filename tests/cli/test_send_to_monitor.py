"""A file sent to a running ``leadline monitor``, and what comes of it, all with the verbs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import leadline
from tests.processors.running import MONITOR, RunningWorker, Topics, event, round_event, until
from tests.processors.test_real_fold import states

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

MALFORMED = {
    b"{not json": "not-json",
    b"[1, 2]": "not-an-object",
    b'{"schema":"leadline.round/1","session_id":"\xff"}': "bad-utf8",
    event("round", "bad"): "missing-field",
    b'{"schema":"leadline.round/9","session_id":"bad"}': "unknown-major",
}


def test_good_and_malformed_lines(bootstrap: str, tmp_path: Path) -> None:
    """100 good lines and 5 malformed ones among them: 100 observed, and 5 dead letters with their reasons and bytes."""
    lines = [round_event(f"good-{session}", number) for number in range(1, 11) for session in range(10)]
    for place, line in enumerate(MALFORMED):
        lines.insert(20 * place + 7, line)
    recording = tmp_path / "recording.jsonl"
    recording.write_bytes(b"\n".join(lines) + b"\n")
    running = RunningWorker(bootstrap, tmp_path, MONITOR)
    topics = Topics(bootstrap)
    try:
        running.ready()
        sent = leadline("send", str(recording), "--bootstrap", bootstrap, "--json")
        assert (sent.code, sent.json["sent"], sent.json["failed"]) == (0, 105, 0)
        shown = leadline(
            "tail", "dead-letters", "--from-beginning", "--max", "5", "--timeout", "60", "--json", "--bootstrap", bootstrap
        )
        assert shown.code == 0, shown.err
        letters = [json.loads(line) for line in shown.out.splitlines()]
        assert {original(letter): letter["headers"]["reason"] for letter in letters} == MALFORMED
        until("100 observed rounds", lambda: sum(state.last_round or 0 for state in states(topics).values()) == 100)
        assert running.stop() == 0, running.log
        assert len(topics.read("leadline.dead-letters")) == 5
    finally:
        running.stop()
        topics.close()


def original(letter: dict[str, Any]) -> bytes:
    value = letter["value"]
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
