"""The policy file of a running worker: changes are picked up, wrong ones change nothing."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path

import pytest

from leadline.detection.policy import DEFAULT_POLICY
from leadline.errors import SettingsError
from leadline.processors.policy_source import PolicySource, read_policy

OLD = 'version = "old"\n[default]\npin_rounds = 5\n'
NEW = 'version = "new"\n[default]\npin_rounds = 9\n'


class Following:
    """A source on a file, and the counts it keeps."""

    def __init__(self, file: Path, text: str = OLD) -> None:
        self.file = file
        self.counts: Counter[str] = Counter()
        self.clock = 0
        self.write(text)
        self.source = PolicySource(read_policy(str(file)), str(file), self.counts)

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")
        self.clock += 1
        os.utime(self.file, ns=(self.clock, self.clock))

    @property
    def version(self) -> str:
        self.source.poll()
        return self.source.policy.version


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path / "policy.toml")


def test_a_changed_file_is_in_force_at_the_next_look(following: Following) -> None:
    assert following.version == "old"
    following.write(NEW)
    assert following.version == "new"
    assert following.source.policy.default.pin_rounds == 9
    assert following.counts == {"policy_changes": 1}


def test_a_file_that_is_as_it_was_is_not_read_again(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    assert following.version == "old"

    def read(file: str) -> bytes:
        raise AssertionError(file)

    monkeypatch.setattr("leadline.processors.policy_source._content", read)
    assert following.version == "old"


def test_a_touched_file_with_the_same_text_changes_nothing(following: Following) -> None:
    following.write(OLD)
    assert following.source.poll() is None
    assert following.counts == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "pin_rounds = ",
        "[default]\npin_round = 5\n",
        "[default]\npin_rounds = 0\n",
        "x" * 2_000_000,
        "a=" + "[" * 5_000 + "]" * 5_000,
    ],
)
def test_a_wrong_file_keeps_the_old_policy_and_is_told_once(
    following: Following, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        following.write(wrong)
        assert [following.version for _ in range(5)] == ["old"] * 5
        following.write(wrong)
        assert following.version == "old"
    assert following.counts == {"policy_rejected": 1}
    (told,) = [record.getMessage() for record in caplog.records]
    assert str(following.file) in told
    assert "(old)" in told
    following.write(NEW)
    assert following.version == "new"
    following.write(wrong)
    assert following.version == "new"
    assert following.counts == {"policy_rejected": 2, "policy_changes": 1}


def test_a_file_that_goes_away_keeps_the_policy_and_may_come_back(following: Following) -> None:
    following.file.unlink()
    assert [following.version for _ in range(3)] == ["old"] * 3
    assert following.counts == {"policy_rejected": 1}
    following.write(NEW)
    assert following.version == "new"


def test_bytes_that_are_no_text_are_refused(following: Following) -> None:
    following.file.write_bytes(b"\xff\xfe")
    assert following.version == "old"
    with pytest.raises(SettingsError, match="byte 0 is not valid UTF-8"):
        read_policy(str(following.file))


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    """As a mounted config map does it: the directory behind the link is another one."""
    for name, text in (("a", OLD), ("b", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.toml").write_text(text)
        os.utime(tmp_path / name / "policy.toml", ns=(1, 1))
    link = tmp_path / "current"
    link.symlink_to("a")
    source = PolicySource(read_policy(str(link / "policy.toml")), str(link / "policy.toml"))
    source.poll()
    assert source.policy.version == "old"
    (tmp_path / "next").symlink_to("b")
    (tmp_path / "next").replace(link)
    source.poll()
    assert source.policy.version == "new"


async def test_without_a_file_nothing_is_followed() -> None:
    source = PolicySource()
    assert source.poll() is None
    await source.watch()
    assert source.policy is DEFAULT_POLICY


async def test_a_running_worker_looks_every_second(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr("leadline.processors.policy_source._EVERY_S", 0.01)
    watching = asyncio.create_task(following.source.watch())
    following.write(NEW)
    for _ in range(500):
        if following.source.policy.version == "new":
            break
        await asyncio.sleep(0.01)
    watching.cancel()
    assert following.source.policy.version == "new"


def test_a_pipe_in_place_of_the_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "policy.toml")
    with pytest.raises(SettingsError, match="not a regular file"):
        read_policy(str(tmp_path / "policy.toml"))
