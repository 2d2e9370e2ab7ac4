"""The steps of the work at which a test may end a worker."""

from __future__ import annotations

import signal

import pytest

from leadline.errors import SettingsError
from leadline.processors.faultpoints import armed


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
