"""Worker and agent with keys, over a broker: the loop closes, and who has no key has no say."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.agent import connect
from leadline.cli.round_trip import round_trip
from leadline.contracts.signatures import read_signature
from leadline.processors import worker
from leadline.security import Security
from leadline.security.keys import KeyRing, new_key_file
from tests.processors.running import MONITOR, RunningWorker, Topics, round_event

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_the_loop_closes_with_keys_on_both_sides(bootstrap: str, tmp_path: Path) -> None:
    """Every command and heartbeat is signed. An event of the fleet without a signature is a dead letter, as is a stranger's; the
    agent that trusts another key is not halted, and counts why."""
    monitor, fleet, other = (new_key_file(str(tmp_path / f"{name}.pem")) for name in ("monitor", "fleet", "other"))
    (tmp_path / "monitor.pub").write_text(monitor.public_pem())
    (tmp_path / "other.pub").write_text(other.public_pem())
    (tmp_path / "fleets.toml").write_text(f'[fleets]\nresearch = ["{fleet.public_pem().splitlines()[1]}"]\n')
    running = RunningWorker(
        bootstrap,
        tmp_path,
        MONITOR,
        signing_key_file=tmp_path / "monitor.pem",
        fleet_keys_file=tmp_path / "fleets.toml",
        heartbeat_s=1,
    )
    topics = Topics(bootstrap)
    try:
        running.ready()
        keys = Security(event_key_file=str(tmp_path / "fleet.pem"), command_keys_file=str(tmp_path / "monitor.pub"))
        with connect(bootstrap, fleet="research", security=keys) as client:
            came = round_trip(client, "signed", 60)
            assert came.missing == "", running.log
            assert client.refused() == {}
        deaf = Security(event_key_file=str(tmp_path / "fleet.pem"), command_keys_file=str(tmp_path / "other.pub"))
        with connect(bootstrap, fleet="research", security=deaf) as client:
            came = round_trip(client, "deaf", 5)
            assert "no halt came" in came.missing
            assert client.refused()["foreign-key"] >= 1
        topics.send("forged", round_event("forged", 1, fleet="research"))
        topics.flush()
        stranger = Security(event_key_file=str(tmp_path / "other.pem"))
        with connect(bootstrap, fleet="research", security=stranger) as client:
            assert "no halt came" in round_trip(client, "stranger", 5).missing
        letters = [(message.key(), dict(message.headers() or ())["reason"]) for message in topics.read("leadline.dead-letters")]
        assert {letter for letter in letters if letter[0] == b"forged"} == {(b"forged", b"unsigned")}
        assert {reason for name, reason in letters if name == b"stranger"} == {b"foreign-key"}
        assert {name for name, _ in letters} == {b"forged", b"stranger"}
        ring = KeyRing.read(str(tmp_path / "monitor.pub"), "X")
        sent = topics.read("leadline.commands")
        faults = {ring.fault("leadline.commands", one.value() or b"", read_signature(one.headers() or ())) for one in sent}
        assert faults == {""}
        schemas = {dict(one.headers() or ())["schema"] for one in sent}
        assert schemas == {b"leadline.command/1", b"leadline.heartbeat/1"}
        assert running.stop() == worker.OK, running.log
    finally:
        topics.close()
        running.stop()


def test_a_key_that_cannot_be_read_stops_the_worker_before_it_begins(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    running = RunningWorker(bootstrap, tmp_path, MONITOR, signing_key_file=tmp_path / "key.pem")
    assert running.exit_code() == worker.REFUSED
    assert "LEADLINE_SIGNING_KEY_FILE" in running.log
