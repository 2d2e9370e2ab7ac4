"""A session that is removed before the offset of its last events is committed: its events come again, and begin nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from leadline.processors import worker
from tests.processors.running import REAL, RunningWorker, Topics, event, until
from tests.processors.test_real_fold import send
from tests.support.oracle import Found
from tests.support.wiped import group

POLICY = 'version = "short"\n[default]\nended_linger_ms = 1000\n'


def standing(topics: Topics) -> Found:
    """What stands on the topics."""
    found = Found()
    for topic in ("leadline.violations", "leadline.commands"):
        for message in topics.read(topic):
            found.output(topic, message.value())
    for message in topics.read("leadline.sessions"):
        found.state(message.key(), message.value(), message.partition())
    return found


@pytest.mark.parametrize(("point", "store"), [("after-removal", "kept"), ("after-tombstone", "lost")])
def test_killed_when_a_session_was_removed(fresh_bootstrap: str, tmp_path: Path, point: str, store: str) -> None:
    """Killed when the local store, or the changelog, has forgotten the session while the offsets of its last events are not
    committed: they come again, and what they would mean in a session that begins with them is not sent."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    options: dict[str, Any] = {"partitions": 1, "policy_file": policy}
    topics = Topics(fresh_bootstrap)
    running = RunningWorker(fresh_bootstrap, tmp_path / "one", REAL, **options)
    try:
        running.ready()
        send(topics, "s", range(1, 3))
        topics.flush()
        until("the first part to be committed", lambda: topics.committed(group()) == 3)
        assert running.stop() == worker.OK, running.log
        running = RunningWorker(
            fresh_bootstrap, tmp_path / "one", REAL, test_fault=point, commit_interval_s=60, **options
        ).ready()
        topics.send("first", event("session-start", "first"))
        topics.flush()
        until("a commit, the next one being a minute away", lambda: topics.committed(group()) == 4)
        send(topics, "s", range(3, 5))
        topics.send("s", event("session-end", "s"))
        topics.flush()
        assert running.exit_code() == -signal.SIGKILL, running.log
        assert topics.committed(group()) == 4, "what follows begins in the middle of the session"
        before = standing(topics)
        assert "inversion" in {json.loads(one)["rule"] for (one,) in before.violations.values()}
        running = RunningWorker(fresh_bootstrap, tmp_path / ("one" if store == "kept" else "two"), REAL, **options).ready()
        until("a replay to its end", lambda: topics.committed(group()) >= 8)
        after = standing(topics)
        assert (after.violations, after.commands) == (before.violations, before.commands)
        assert list(after.states) == ["5:firstagent"]
        assert running.stop() == worker.OK, running.log
    finally:
        running.stop()
        topics.close()
