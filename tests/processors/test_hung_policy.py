"""A policy file on a file system that hangs: the worker goes on under the policy that it has, and ends when it is told to."""

from __future__ import annotations

from pathlib import Path

from leadline.processors import worker
from tests.processors.running import RunningWorker, Topics, round_event, until


def test_a_policy_read_that_hangs_keeps_no_worker_from_its_work_or_its_end(fresh_bootstrap: str, tmp_path: Path) -> None:
    """A stop that had to be forced would say so, with another exit code."""
    policy, hung = tmp_path / "policy.toml", tmp_path / "hung"
    policy.write_text('version = "one"\n')
    running = RunningWorker(
        fresh_bootstrap, tmp_path / "one", ("tests.processors.hung_worker",), policy_file=policy, test_hung=hung
    )
    topics = Topics(fresh_bootstrap)
    try:
        running.ready()
        hung.touch()
        policy.write_text('version = "two"\n')
        until("a read that hangs", lambda: "the read hangs" in running.log)
        topics.send("s", round_event("s", 1, raw_tokens=0))
        topics.flush()
        until("a violation", lambda: topics.read("leadline.violations"))
        assert running.stop() == worker.OK, running.log
        assert "policy two is in force" not in running.log
    finally:
        running.stop()
        topics.close()
