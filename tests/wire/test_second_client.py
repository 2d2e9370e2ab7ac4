"""docs/wire.md and the JSON Schemas are all that a client in another language needs: one of its own, against a real monitor."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processors.running import REAL, RunningWorker, Topics, until
from tests.wire.second_client import SecondClient

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_it_knows_nothing_of_leadline() -> None:
    tree = ast.parse((Path(__file__).with_name("second_client.py")).read_text(encoding="utf-8"))
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"__future__", "json", "time", "uuid", "datetime", "pathlib", "typing", "jsonschema", "confluent_kafka"}


@pytest.fixture(scope="module")
def monitor(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    running = RunningWorker(bootstrap, tmp_path_factory.mktemp("monitor"), REAL)
    try:
        yield running.ready()
    finally:
        running.stop()


def test_its_session_is_halted_repaired_and_released(bootstrap: str, monitor: RunningWorker) -> None:
    """A summary without ground: a halt with the drop of it. After the repair the rounds say so, and the release comes."""
    client = SecondClient(bootstrap, "second-1")
    client.start(policy={"token_budget": 1_000, "max_depth": 3})
    client.round(raw_tokens=700, summary_tokens=100)
    client.round(raw_tokens=700, summary_tokens=100, ungrounded_summaries=1)
    halt = client.listen(60)
    assert halt is not None
    assert (halt["kind"], halt["rule"], halt["parameters"]["drop_ungrounded"]) == ("halt", "ungrounded-summary", True)
    client.done(halt)
    client.round(trigger="rehydrate", raw_tokens=700, summary_tokens=0, summary_depth_max=0, ungrounded_summaries=0)
    release = client.listen(60)
    assert release is not None
    assert (release["kind"], release["parameters"]["releases"]) == ("resume", halt["command_id"])
    client.end()
    client.close()
    topics = Topics(bootstrap)
    assert topics.read("leadline.dead-letters") == []
    violations = [json.loads(message.value()) for message in topics.read("leadline.violations")]
    topics.close()
    assert [one["rule"] for one in violations if one["session_id"] == "second-1"] == ["ungrounded-summary"]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_alone_reports(bootstrap: str, monitor: RunningWorker) -> None:
    event = {"schema": "leadline.session-start/1", "session_id": "kcat-1", "agent_id": "kcat", "epoch": 1}
    command = ["kcat", "-P", "-b", bootstrap, "-t", "leadline.events", "-k", "kcat-1"]
    subprocess.run(command, input=json.dumps(event).encode(), check=True, timeout=30)
    topics = Topics(bootstrap)
    until("the session", lambda: [one for one in topics.read("leadline.sessions") if b"kcat-1" in (one.key() or b"")])
    assert [one for one in topics.read("leadline.dead-letters") if one.key() == b"kcat-1"] == []
    topics.close()
