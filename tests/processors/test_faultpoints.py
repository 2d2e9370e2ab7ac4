"""Each step of the work as the last one of a worker: what it leaves behind is mended by the next."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from leadline.errors import SettingsError
from leadline.processors.faultpoints import POINTS, armed
from tests.processors.running import RunningWorker, Topics, event, round_event, until
from tests.processors.test_crashes import found, settled


def test_nothing_is_armed_by_nothing() -> None:
    assert armed("") is None


@pytest.mark.parametrize("text", ["after-lunch", "after-fold:0", "after-fold:x", "after-fold:1:explode"])
def test_what_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"LEADLINE_TEST_FAULT is .*after-fold"):
        armed(text)


def test_a_place_counts_its_own_passages_and_acts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr("os.kill", lambda _, number: sent.append(number))
    reach = armed("after-store:2:stop")
    assert reach is not None
    reach("after-store")
    reach("after-fold")
    assert sent == []
    reach("after-store")
    reach("after-store")
    assert sent == [signal.SIGSTOP]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_killed_at_every_step(fresh_bootstrap: str, tmp_path: Path) -> None:
    """One worker after the other dies at another step; in the end ids and states are those of an undisturbed run."""
    topics = Topics(fresh_bootstrap)
    number = 0
    try:
        for name in POINTS:
            running = RunningWorker(fresh_bootstrap, tmp_path, partitions=1, test_fault=name)
            try:
                if name != "after-restore":
                    running.ready()
                    topics.send("silent", event("session-start", "silent", policy={"token_budget": 100}))
                    for _ in range(20):
                        number += 1
                        topics.send(f"s{number % 5}", round_event(f"s{number % 5}", number, raw_tokens=number % 4))
                    topics.send("brief", round_event("brief", number))
                    topics.send("brief", event("session-end", "brief"))
                    topics.flush()
                assert running.exit_code() == -signal.SIGKILL, f"{name}: {running.log}"
            finally:
                running.stop()
        running = RunningWorker(fresh_bootstrap, tmp_path, partitions=1).ready()
        try:
            until("the last tick", lambda: any(state.counts.late for state in found(topics)[2].values()))
            settled(topics)
        finally:
            running.stop()
    finally:
        topics.close()
