"""Each benchmark once with tiny sizes, on the embedded broker: that it runs, and that what it says has every figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.engines.loader import rounds

from benchmarks import latency, scale, sdk, stage, throughput
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Round
from leadline.contracts.session_state import decode_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[stage.Broker]:
    with stage.broker("embedded", tmp_path / "broker") as made:
        yield made
        made.close()


@pytest.mark.long
def test_throughput(on: stage.Broker, tmp_path: Path) -> None:
    """Leadline, the loop by hand and the floor over one log; each ends with the ids of the core alone, or it would raise."""
    variants = ("leadline", "handwritten", "floor")
    said: list[str] = []
    result = throughput.measure(on, tmp_path / "runs", variants, events=400, sessions=20, repeat=1, say=said.append)
    assert result["events"] >= 350
    assert result["violations"] > 0
    assert result["variants"].keys() == set(variants)
    for row in result["variants"].values():
        assert row["events_per_s"] > 0
        assert row["peak_mib"] > 1
    assert any("handwritten, 1 of 1" in line for line in said)


def test_throughput_fails_where_the_work_was_not_the_same() -> None:
    with pytest.raises(throughput.WrongIds, match=r"by-hand .* 1 of 2 violation ids are missing, 1 are too many"):
        throughput.same_ids("by-hand", {"a", "b"}, {"b", "c"})


def test_throughput_names_the_variants_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        throughput.main(["--variants", "leadline,flink"])
    assert "flink: no such variant; there are leadline, handwritten" in capsys.readouterr().err


@pytest.mark.long
def test_latency(on: stage.Broker, tmp_path: Path) -> None:
    result = latency.measure(on, tmp_path, probes=3, repeat=1, seconds=0.05, sessions=10, rate=20.0, lead_s=0.1)
    assert result["capacity_per_s"] > 0
    assert result["levels"].keys() == {"idle", "half", "nine tenths"}
    for row in result["levels"].values():
        assert row["lost"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["p99_9_ms"]


@pytest.mark.long
def test_scale(on: stage.Broker, tmp_path: Path) -> None:
    result = scale.measure(on, tmp_path, [40], events=60, repeat=1, repeat_largest=1)
    row = result["sessions"]["40"]
    assert row["events_per_s"] > 0
    assert 200 < row["state_bytes"] < 4000
    assert result["workers"].keys() == {"sessions", "one_events_per_s"}


def test_sdk(on: stage.Broker) -> None:
    result = sdk.measure(on, rounds=5, repeat=1)
    assert result["cases"].keys() == {"up", "slow", "gone"}
    for row in result["cases"].values():
        assert row["dropped"] == 0
        assert row["round"]["cpu_us"] > 0


def test_the_load_goes_on_where_the_states_end() -> None:
    """The states hold rounds up to 17 in a full window of 16, and the first event of a session is its round 18."""
    (record,) = scale.states(1)
    state = decode_state(record.value or b"")
    assert [one.round for one in state.window] == list(range(2, 18))
    assert state.incidents == ()
    assert state.offset == -1
    key, value = next(rounds(1))
    event = decode_event(value).event
    assert isinstance(event, Round)
    assert (event.round, event.session_id) == (18, key.decode())


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [latency.percentile(values, share) for share in (50, 99, 99.9)] == [50.0, 99.0, 100.0]
    assert latency.percentile([3.0, math.inf], 50) == 3.0
