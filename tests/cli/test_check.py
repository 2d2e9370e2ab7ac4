"""``leadline check``: yes where a worker closes the loop, no where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.processors import topics as declared
from leadline.settings import Settings
from tests.cli.run import leadline
from tests.processors.running import MONITOR, RunningWorker, Topics, bodies

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]


def test_without_a_worker_no_halt_comes_and_then_with_one_it_does(bootstrap: str, tmp_path: Path) -> None:
    """One command, one violation of one session; the second answer is the worker's."""
    declared.create(Settings(bootstrap=bootstrap, partitions=4))
    nobody = leadline("check", "--bootstrap", bootstrap, "--timeout", "1")
    assert (nobody.code, "no halt came within 1 s" in nobody.out) == (1, True)
    running = RunningWorker(bootstrap, tmp_path, MONITOR, create_topics="")
    topics = Topics(bootstrap)
    try:
        running.ready()
        good = leadline("check", "--bootstrap", bootstrap, "--fleet", "smoke", "--timeout", "60", "--json")
        assert good.code == 0, good.out + running.log
        assert good.json["ok"] is True
        assert good.json["halted_after_s"] >= 0
        assert good.json["resumed_after_s"] >= 0
        mine = good.json["session_id"]
        violations = [
            (one["rule"], one["fleet"]) for one in bodies(topics.read("leadline.violations")) if one["session_id"] == mine
        ]
        assert violations == [("inversion", "smoke")]
        kinds = [one["kind"] for one in bodies(topics.read("leadline.commands")) if one["session_id"] == mine]
        assert kinds == ["halt", "resume"]
    finally:
        topics.close()
        running.stop()


def test_no_broker_is_told() -> None:
    shown = leadline("check", "--bootstrap", "127.0.0.1:1", "--timeout", "1")
    assert shown.code == 3
    assert "no broker answered at 127.0.0.1:1" in shown.err
